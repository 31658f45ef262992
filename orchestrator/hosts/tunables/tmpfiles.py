"""Values under `/sys` that systemd-tmpfiles writes at boot (`w` lines, tmpfiles.d(5)).

Of two lines for one path, the line in the file whose name sorts first counts; the other is logged as a
duplicate. A line with a glob and a line with a path are not duplicates: both run in the order of reading.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.hosts.tunables.persisting import first_that_holds, header, in_order, own_file
from orchestrator.hosts.tunables.standing import AtBoot
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change

_FOLDER: Final = "tmpfiles.d"
FILES: Final = tuple(
    f"{root}/{_FOLDER}/*.conf" for root in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
_FIELDS: Final = 7


def at_boot(facts: HostFacts, path: str) -> AtBoot:
    """The value that systemd-tmpfiles gives a path."""
    found = AtBoot()
    seen: set[str] = set()
    for file, text in in_order(facts, _FOLDER, ".conf"):
        if isinstance(text, Unknown):
            found = AtBoot(value=found.value, by=found.by, unsure=f"{file} could not be read: {text.reason}")
            continue
        for line in text.splitlines():
            written = _written(line)
            if written is None or (written[0] in seen and not written[2]):
                continue
            seen.add(written[0])
            if fnmatchcase(path, written[0]):
                found = AtBoot(value=written[1], by=file, unsure=found.unsure)
    return found


def persisted(
    facts: HostFacts, name: str, lines: Sequence[tuple[str, str]], holds: Callable[[HostFacts], bool]
) -> tuple[Change, ...]:
    """A file of this program that writes each value to its path, if that makes the next boot right."""
    text = header(name) + "".join(f"w {path} - - - - {value}\n" for path, value in lines)
    paths = (f"/etc/tmpfiles.d/orchestrate-{name}.conf", f"/etc/tmpfiles.d/00-orchestrate-{name}.conf")
    return first_that_holds(facts, (own_file(facts, path, text) for path in paths), holds)


def _written(line: str) -> tuple[str, str, bool] | None:
    """Path, value and whether the value is appended (`w+`, no duplicate); None for any other line."""
    try:
        fields = shlex.split(line, comments=True)
    except ValueError:
        return None  # systemd also refuses a line with an open quote
    kind = fields[0] if fields else ""
    if kind.rstrip("+!-=~^$") != "w" or len(fields) < _FIELDS:
        return None
    return fields[1], " ".join(fields[_FIELDS - 1 :]), "+" in kind
