"""What has changed on a host: whether a reboot is required, and when files were written. Without sudo.

A reboot is required if the distribution says so (Debian's and SUSE's flags, `needs-restarting` of the RHEL
family), or if a newer kernel than the running one is installed in /boot. What counts for a file is the time
at which its contents, name, owner or rights last changed (ctime): packages and `rsync -a` set back the other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.hosts import script
from orchestrator.hosts.script import Section
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import paths_of
from orchestrator.model.policy import HostChanges
from orchestrator.model.reading import Reading, Unknown

_REBOOT, _KERNELS, _FILES = "reboot", "kernels", "files"
_RELEASE: Final = re.compile(r"\d[\d.-]*")
_CHANGED: Final = re.compile(r"(\d+) (/.*)")

_KERNEL_SCRIPT: Final = """\
uname -r
for image in /boot/vmlinuz-*; do
  [ -e "$image" ] && echo "${image#/boot/vmlinuz-}"
done
exit 0"""

_FILES_SCRIPT: Final = """\
for path in {every}; do
  [ -d "$path" ] && [ ! -r "$path" ] && echo "$path: Permission denied"
  stat -c '%Z %n' "$path"
done
true"""


def changes_script(node: NodeName, files: Sequence[str], *, reboot: bool) -> str:
    """A reading, as a single command.

    Args:
        node: whose host it is.
        files: their paths, with `{node}`; none reads none.
        reboot: whether to read if a reboot is required.

    Raises:
        UntrustedValue: with the name of this node, a path would lead elsewhere.
    """
    parts = []
    if reboot:
        parts = [(_REBOOT, f"( {script.text('reboot_required.sh')})"), (_KERNELS, f"( {_KERNEL_SCRIPT}\n)")]
    if files:
        paths = [shlex.quote(at) for at in paths_of(node, files)]
        every = " ".join(f"{path} {path}/*" for path in paths)
        parts.append((_FILES, _FILES_SCRIPT.format(every=every)))
    return f"/bin/sh -c {shlex.quote(script.untranslated(script.sections(parts)))}"


def read_changes(output: str, node: NodeName, files: Sequence[str], *, reboot: bool) -> Reading[HostChanges]:
    """Read the answers to `changes_script`; `Unknown` if one is missing, or a file cannot be looked at."""
    answers = script.read_sections(output)
    wanted = [*((_REBOOT, _KERNELS) if reboot else ()), *((_FILES,) if files else ())]
    if missing := [name for name in wanted if name not in answers]:
        return Unknown(reason=f"its answer has no part {', '.join(missing)}")
    times = _times(answers[_FILES].text) if files else {}
    if isinstance(times, Unknown):
        return times
    if files and not times:
        first, *_ = paths_of(node, files)
        return Unknown(
            reason=f"none of its files exists ({first}, …): name those of this cluster in `config_files` of"
            " the playbook"
        )
    return HostChanges(reboot=_reboot(answers) if reboot else "", files=times)


def _times(text: str) -> Mapping[str, float] | Unknown:
    refused = [line for line in text.splitlines() if "ermission denied" in line]
    if refused:
        return Unknown(
            reason=f"{refused[0].strip()}: let the account search that folder"
            " (`setfacl -m u:ACCOUNT:rx FOLDER`); the files themselves need not be readable"
        )
    lines = (_CHANGED.fullmatch(line) for line in text.splitlines())
    return {found[2]: float(found[1]) for found in lines if found}


def _reboot(answers: Mapping[str, Section]) -> str:
    if said := answers[_REBOOT].text.strip():
        return said.splitlines()[0]
    running, *installed = answers[_KERNELS].text.split() or [""]
    newest = max(installed, key=_release, default="")
    return f"kernel {newest} is installed, {running} runs" if _release(newest) > _release(running) else ""


def _release(kernel: str) -> tuple[int, ...]:
    """The numbers with which a kernel's release begins; a rescue image (`0-rescue-…`) is older than any."""
    found = _RELEASE.match(kernel)
    return tuple(int(part) for part in re.findall(r"\d+", found[0])) if found else ()
