"""Values of a disk's queue that udev writes when the disk appears or changes (udev(7)).

A rule of this program uses the kernel's name of the disk (`sdb`). Such names can move between disks at a
boot; the check after the boot shows that as drift. `change` covers disks attached after the boot's coldplug
(loop devices).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.hosts.tunables.persisting import first_that_holds, header, in_order, own_file
from orchestrator.hosts.tunables.standing import AtBoot
from orchestrator.model.host_facts import BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change, Reload

FILES: Final = (
    "/etc/udev/rules.d/*.rules",
    "/run/udev/rules.d/*.rules",
    # Of the packages' rules only those about schedulers: the many others do not write to queues.
    "/usr/lib/udev/rules.d/*sched*.rules",
    "/lib/udev/rules.d/*sched*.rules",
)
_TERM: Final = re.compile(r'([A-Z]+(?:\{[^}]*\})?)\s*(==|!=|:=|\+=|=)\s*"([^"]*)"')
_KNOWN: Final = {"SUBSYSTEM": "block", "ENV{DEVTYPE}": "disk", "ACTION": "add"}


def at_boot(facts: HostFacts, device: BlockDevice, attribute: str) -> AtBoot:
    """The value that udev's rules give an attribute (`queue/scheduler`) of a disk."""
    found = AtBoot()
    for file, text in in_order(facts, "udev/rules.d", ".rules"):
        if isinstance(text, Unknown):
            found = AtBoot(value=found.value, by=found.by, unsure=f"{file} could not be read: {text.reason}")
            continue
        jumps = "GOTO=" in text
        for line in re.sub(r"\\\n", " ", text).splitlines():
            value = _assigned(line, attribute)
            if value is None:
                continue
            matches = _matches(line, device)
            if matches and not jumps:
                found = AtBoot(value=value, by=file)
            elif matches is not False and value != found.value:
                found = AtBoot(
                    value=found.value, by=found.by, unsure=f"a rule in {file} may write {value} to it"
                )
    return found


def persisted(
    facts: HostFacts,
    name: str,
    attribute: str,
    values: Sequence[tuple[str, str]],
    holds: Callable[[HostFacts], bool],
) -> tuple[Change, ...]:
    """A file of this program with a rule for each disk and its value, if that makes the next boot right."""
    rules = "".join(
        f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", KERNEL=="{device}",'
        f' ATTR{{{attribute}}}="{value}"\n'
        for device, value in values
    )
    text = header(name) + rules
    paths = (f"/etc/udev/rules.d/{rank}-orchestrate-{name}.rules" for rank in ("90", "zz"))
    return first_that_holds(facts, (own_file(facts, path, text, Reload.UDEV) for path in paths), holds)


def _assigned(line: str, attribute: str) -> str | None:
    if line.lstrip().startswith("#"):
        return None
    values = [
        value
        for key, operator, value in _TERM.findall(line)
        if key == f"ATTR{{{attribute}}}" and operator in {"=", ":="}
    ]
    return values[-1] if values else None


def _matches(line: str, device: BlockDevice) -> bool | None:
    """Whether a rule applies to the disk; None if that depends on unknown facts."""
    known = {**_KNOWN, "KERNEL": device.name}
    if device.rotational is not None:
        known["ATTR{queue/rotational}"] = str(int(device.rotational))
    sure = True
    for key, operator, pattern in _TERM.findall(line):
        if operator not in {"==", "!="}:
            continue
        if key not in known:
            sure = False
        elif any(fnmatchcase(known[key], one) for one in pattern.split("|")) is not (operator == "=="):
            return False
    return True if sure else None
