"""Whether the next boot sets a node's values: a fact about our script and unit, and the changes to it. Pure.

No file of another program is read for it: the script runs after them all. See `boot_files` for the texts, and
`old_ways` for what earlier versions wrote in its place.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.hosts.tuning import old_ways
from orchestrator.hosts.tuning.boot_files import (
    INIT,
    INIT_TEXT,
    NAME,
    OURS,
    PARTS,
    PATH_NAME,
    PATH_UNIT,
    PATH_UNIT_TEXT,
    SCRIPT,
    SERVICE_UNIT,
    UNIT,
    order_text,
    part_path,
    part_text,
    script_text,
)
from orchestrator.model.host_facts import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    ServiceMode,
    TunableState,
    TuningProfile,
    Verdict,
)

FILES: Final = (
    *(SCRIPT, PARTS, UNIT, PATH_UNIT, INIT, f"{UNIT}.d/*.conf"),
    *(*old_ways.FILES, *old_ways.SHARED, old_ways.ACTIVE),
)
"""What is read of every host."""
SERVICES: Final = (NAME, PATH_NAME)
SET_BY_US: Final = "set by orchestrate's unit, enabled"
NOT_SET: Final = "not set by orchestrate"
_OFF: Final = ServiceMode(running=False, enabled=False)
_ENABLED: Final = ServiceMode(running=False, enabled=True)
_SHARED: Final = (SCRIPT, UNIT, PATH_UNIT, INIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node's values for the next boot are.

    Attributes:
        part: name of the node's part.
        root: a folder used in place of `/`.
    """

    part: str
    root: str = ""


def lines_at_boot(facts: HostFacts, place: Place) -> tuple[str, ...]:
    """The lines of the node's part that the next boot runs; none if the script does not run."""
    part, script = facts.text(part_path(place.part)), facts.text(SCRIPT)
    service = facts.services.get(NAME)
    runs = isinstance(service, ServiceFacts) and service.enabled and isinstance(script, str)
    return tuple(part.splitlines()) if runs and isinstance(part, str) else ()


def later_part(facts: HostFacts, place: Place, line: str) -> str:
    """The part of another node that runs after this one and sets another value; empty without one.

    The script runs the parts in the order of their names, and the last value stays. Lines of `at_least`
    agree, and lines of `disks` are left out: two nodes may have different disks.
    """
    words = shlex.split(line)
    if words[0] not in {"parameter", "huge_pages"}:
        return ""
    ours = part_path(place.part)
    for path in reversed(other_parts(facts, {ours})):
        text = facts.text(path)
        lines = text.splitlines() if isinstance(text, str) and path > ours else []
        if any(one.split()[:2] == words[:2] and one != line for one in lines):
            return path
    return ""


def data_moved(facts: HostFacts, place: Place) -> str:
    """Why a data path is not the data now: it was on another file system when the part was written."""
    part = facts.text(part_path(place.part))
    if not isinstance(part, str) or isinstance(facts.mounts, Unknown):
        return ""
    lines = [shlex.split(line) for line in part.splitlines() if line.startswith("data ")]
    recorded = {path: point for _, path, point, *_ in lines}
    for path, point in facts.mounts.items():
        if recorded.get(path, point) != point:
            return (
                f"{path} is on the file system of {point}; it was on that of {recorded[path]} when it was"
                " tuned. Is it mounted? If it has moved for good, revert its tuning and apply it again"
            )
    return ""


def state(
    facts: HostFacts, profile: TuningProfile, place: Place, lines: Sequence[str]
) -> TunableState | None:
    """The state of the next boot, with the changes that make it right; None if nothing has to last.

    Args:
        facts: of the host.
        profile: the wanted settings.
        place: of the node's part.
        lines: of the tunables that the host has.
    """
    old = tuple(old_ways.removals(facts))
    if not profile.persist or not (lines or old):
        return None
    why = _hindered(facts, place, lines)
    changes = () if why else (*_install(facts, profile, place, lines), *old)
    installed = not why and not changes
    replaced = ", ".join(getattr(one, "path", "tuned profile") for one in old)
    return TunableState(
        tunable=BOOT,
        wanted=SET_BY_US,
        running="",
        at_boot=SET_BY_US if installed else NOT_SET,
        verdict=Verdict.UNKNOWN if why else Verdict.DRIFT if changes else Verdict.OK,
        detail=why or (f"replaces what an earlier version wrote: {replaced}" if old else ""),
        changes=changes,
        on_failure=profile.on_failure(BOOT),
    )


def _hindered(facts: HostFacts, place: Place, lines: Sequence[str]) -> str:
    """Why the next boot cannot be made right, or is unknown; empty if it can."""
    if facts.init is InitSystem.OTHER:
        return "neither systemd nor init scripts start this host: nothing is written for its next boot"
    for one in (facts.text(part_path(place.part)), facts.text(SCRIPT), facts.services.get(NAME)):
        if isinstance(one, Unknown):
            return one.reason
    if any(line.startswith("disks ") for line in lines):
        if isinstance(facts.mounts, Unknown):
            return f"where the data is mounted: {facts.mounts.reason}"
        return data_moved(facts, place)
    return ""


def wanted_part(
    facts: HostFacts, profile: TuningProfile, place: Place, lines: Sequence[str]
) -> Mapping[str, str]:
    """The text of the node's part, by its path; empty if nothing has to last."""
    if not profile.persist or not lines:
        return {}
    mounts = {} if isinstance(facts.mounts, Unknown) else facts.mounts
    return {part_path(place.part): part_text(facts.unit, lines, mounts, _kinds(facts, profile))}


def _install(
    facts: HostFacts, profile: TuningProfile, place: Place, lines: Sequence[str]
) -> Iterator[Change]:
    if not lines:
        return
    mounts = {} if isinstance(facts.mounts, Unknown) else facts.mounts
    texts = {**wanted_part(facts, profile, place, lines), SCRIPT: script_text(place.root)}
    wanted = {path: (text, Reload.NOBODY) for path, text in texts.items()}
    services: tuple[tuple[str, ServiceMode], ...] = ()
    if facts.init is InitSystem.SYSTEMD:
        wanted[UNIT] = (SERVICE_UNIT, Reload.SYSTEMD)
        wanted[PATH_UNIT] = (PATH_UNIT_TEXT, Reload.SYSTEMD)
        if facts.unit:
            wanted[f"{UNIT}.d/{place.part}.conf"] = (order_text(facts.unit, mounts), Reload.SYSTEMD)
        services = (
            (NAME, _ENABLED),
            (PATH_NAME, ServiceMode(running=True, enabled=True)),
        )
    else:
        wanted[INIT] = (INIT_TEXT, Reload.INIT)
    modes = dict(services) or {NAME: _ENABLED}
    if all(facts.text(path) == text for path, (text, _) in wanted.items()) and all(
        _has(facts, name, mode) for name, mode in modes.items()
    ):
        return
    for path, (text, reload) in wanted.items():
        before = facts.exact(path)
        if isinstance(before, Unknown):
            continue
        if path in _SHARED and before is not None and OURS in before:
            # Of another cluster's node, or of another version: before this program there was no such file.
            yield FileChange(path=path, found=None, wanted=before, reload=reload)
        if before != text:
            yield FileChange(path=path, found=before, wanted=text, reload=reload)
    for name, mode in services:
        yield ServiceChange(service=name, found=_OFF, wanted=mode)


def _has(facts: HostFacts, name: str, mode: ServiceMode) -> bool:
    """Whether a service is enabled, and runs if it has to; our unit may also run just now."""
    found = facts.services.get(name)
    return isinstance(found, ServiceFacts) and found.enabled and (found.running or not mode.running)


def _kinds(facts: HostFacts, profile: TuningProfile) -> Mapping[str, str]:
    """The kind of the disks of each data path, where the profile says one kind for all of them."""
    if isinstance(facts.devices, Unknown):
        return {}
    kinds: dict[str, str] = {}
    for path in facts.data_paths:
        said = {
            profile.devices.get(one.name, "")
            for one in facts.devices
            if one.is_disk and path in one.data_paths
        }
        if len(said) == 1 and "" not in said:
            kinds[path] = said.pop()
    return kinds


def is_shared(change: Change) -> bool:
    """Whether a change is of what all parts of a host share: it stays while another part is there."""
    match change:
        case FileChange(path=path):
            return path in _SHARED
        case ServiceChange(service=service):
            return service in SERVICES
        case _:
            return False


def is_part(change: Change) -> bool:
    """Whether a change is of a node's part."""
    return isinstance(change, FileChange) and fnmatchcase(change.path, PARTS)


def other_parts(facts: HostFacts, ours: Collection[str]) -> tuple[str, ...]:
    """Parts on the host other than these."""
    return tuple(sorted(path for path in facts.files if fnmatchcase(path, PARTS) and path not in ours))
