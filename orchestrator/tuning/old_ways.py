"""What earlier versions of this program wrote to make values last: found by its marks, and removed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.model.host import HostFacts
from orchestrator.model.tuning import BlockChange, Change, FileChange, Reload, TunedChange
from orchestrator.tuning.blocks import block_in

FILES: Final = (
    "/etc/sysctl.d/*-orchestrate-*.conf",
    "/etc/tmpfiles.d/*orchestrate-*.conf",
    "/etc/udev/rules.d/*-orchestrate-*.rules",
    "/etc/tuned/orchestrate/tuned.conf",
    "/etc/tuned/profiles/orchestrate/tuned.conf",
)
SHARED: Final = ("/etc/sysctl.conf", "/etc/rc.d/rc.local", "/etc/rc.local")
"""Files of others with our lines between marks. On Red Hat the last is a link to the one before."""
ACTIVE: Final = "/etc/tuned/active_profile"
PROFILE: Final = "orchestrate"
_MARK: Final = "# Written by orchestrate for "
_BLOCK: Final = re.compile(r"^# BEGIN orchestrate (\S+)$", re.MULTILINE)


def removals(facts: HostFacts) -> Iterator[Change]:
    """The changes that remove it. The profile of tuned is changed before its file is removed."""
    for pattern in FILES:
        for path in sorted(path for path in facts.files if fnmatchcase(path, pattern)):
            text = facts.exact(path)
            if not isinstance(text, str) or not text.startswith(_MARK):
                continue
            base = re.search(r"^include=(.+)$", text, re.MULTILINE) if "/tuned/" in path else None
            active = facts.text(ACTIVE)
            if base and isinstance(active, str) and active.strip() == PROFILE:
                yield TunedChange(found=PROFILE, wanted=base[1].replace(",", " "))
            reload = Reload.UDEV if path.endswith(".rules") else Reload.NONE
            yield FileChange(path=path, found=text, wanted=None, reload=reload)
    seen = set[str]()
    for path in SHARED:
        whole = facts.text(path)
        if not isinstance(whole, str) or whole in seen:
            continue
        seen.add(whole)
        for name in _BLOCK.findall(whole):
            lines = block_in(whole, name)
            if lines is not None:
                yield BlockChange(path=path, name=name, found=lines, wanted=None)
