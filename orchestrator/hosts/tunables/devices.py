"""The common part of all tunables of a disk's queue: which disks, and which values.

Only disks that carry a data path are read and written. The kind of a disk (`ssd` or `rotational`) is the
profile's value, else the kernel's, which is wrong for many virtual disks.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables.standing import Absent, Part, Standing, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import LEAF, PATH, BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    Change,
    TunableState,
    TuningProfile,
    TuningSetting,
    ValueChange,
)

SSD: Final = "ssd"
ROTATIONAL: Final = "rotational"
KINDS: Final = (SSD, ROTATIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The content of a queue's file, and the value to write to it.

    Attributes:
        target: None if the wanted value cannot be written.
        why: the reason for that.
        settable: False if this disk has no such setting at all.
    """

    found: str
    target: str | None
    why: str = ""
    settable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk behind the data, with its target value."""

    device: BlockDevice
    wanted: str
    path: str
    aim: Aim


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTunable:
    """A value of every disk behind the data.

    Attributes:
        attribute: below `/sys/block/NAME`.
        aim: from the file's text and the wanted word to the value to write.
        faulty: the fault in a word of a profile; None if it is valid.
        roles: of the devices between file system and disk that have the value, as in the boot script.
        reset_by: the tunable whose change makes the kernel reset this value.
    """

    name: str
    attribute: str
    aim: Callable[[str, str], Aim]
    faulty: Callable[[str], str | None]
    roles: tuple[str, ...] = (LEAF, PATH)
    reset_by: QueueTunable | None = None

    @property
    def reads(self) -> Reads:
        """The devices' files."""
        return Reads(queue=(self.attribute.removeprefix("queue/"),))

    def line(self, setting: TuningSetting) -> str:
        """One word for each kind of disk; `-` = the profile has no value for it."""
        wanted = setting.wanted
        words = [wanted if isinstance(wanted, str) else wanted.get(kind, "-") for kind in KINDS]
        return shlex.join(["disks", self.attribute.removeprefix("queue/"), *words])

    def valid(self, setting: TuningSetting) -> str | None:
        """A word for all disks, or one word for each kind."""
        if isinstance(setting.wanted, str):
            return self.faulty(setting.wanted)
        unknown = [kind for kind in setting.wanted if kind not in KINDS]
        if unknown or not setting.wanted:
            return f"must be one value, or one for each of {', '.join(KINDS)}"
        return next(filter(None, (self.faulty(word) for word in setting.wanted.values())), None)

    def supported(self, facts: HostFacts) -> str | None:
        """There is nothing to set if no disk of this host is behind the data."""
        if facts.devices == () and facts.data_paths:
            return f"no disk of this host is behind {', '.join(facts.data_paths)}"
        return None

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """The state of every disk behind the data."""
        return judged(self, facts, setting, profile, tuple(self._parts(facts, setting, profile)))

    def apply(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """Write to every disk that is wrong, or that an earlier change will make wrong."""
        return tuple(
            ValueChange(path=disk.path, found=disk.aim.found, wanted=disk.aim.target)
            for disk in self.disks(facts, setting, profile)
            if isinstance(disk, Disk) and disk.aim.target is not None
            if disk.aim.target != disk.aim.found or self._will_be_reset(facts, disk.device, profile)
        )

    def disks(
        self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile
    ) -> Iterator[Disk | Standing]:
        """Every disk behind the data; a disk without a target value is already a part or absent."""
        if isinstance(facts.devices, Unknown):
            yield _unread(str(setting.wanted), "", f"the disks behind the data: {facts.devices.reason}")
            return
        if not facts.devices and not facts.data_paths:
            yield _unread(str(setting.wanted), "", "no data path is known: `hosts.data` of the cluster file")
        for device in facts.devices:
            if not set(self.roles) & set(device.roles):
                continue
            wanted = _wanted(device, setting.wanted, facts.devices, profile.devices)
            if not isinstance(wanted, str):
                yield wanted
                continue
            path = f"/sys/block/{device.name}/{self.attribute}"
            text = facts.text(path)
            if text is None:
                yield Absent(of=device.name, why=f"it has no {self.attribute}")
            elif isinstance(text, Unknown):
                yield _unread(wanted, device.name, f"{path} could not be read: {text.reason}")
            else:
                aim = self.aim(text, wanted)
                if not aim.settable:
                    yield Absent(of=device.name, why=aim.why)
                else:
                    yield Disk(device=device, wanted=wanted, path=path, aim=aim)

    def _will_be_reset(self, facts: HostFacts, device: BlockDevice, profile: TuningProfile) -> bool:
        other = self.reset_by
        if other is None:
            return False
        path = f"/sys/block/{device.name}/{other.attribute}"
        return any(
            isinstance(change, ValueChange) and change.path == path
            for setting in profile.settings
            if setting.tunable == other.name
            for change in other.apply(facts, setting, profile)
        )

    def _parts(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> Iterator[Standing]:
        for disk in self.disks(facts, setting, profile):
            if not isinstance(disk, Disk):
                yield disk
                continue
            aim = disk.aim
            yield Part(
                of=disk.device.name,
                wanted=aim.target or disk.wanted,
                found=aim.found,
                running=None if aim.target is None else aim.found == aim.target,
                detail=aim.why,
            )


def _turns(device: BlockDevice, others: tuple[BlockDevice, ...], named: Mapping[str, str]) -> bool | None:
    """Whether a device turns: as the profile names it, or all disks of its data; else as the kernel says."""
    kinds = {named.get(device.name)}
    if not device.is_disk and kinds == {None}:
        beside = (one for one in others if one.is_disk and set(one.data_paths) & set(device.data_paths))
        kinds = {named.get(one.name) for one in beside}
    kind = kinds.pop() if len(kinds) == 1 else None
    return device.rotational if kind is None else kind == ROTATIONAL


def _wanted(
    device: BlockDevice,
    wanted: str | Mapping[str, str],
    others: tuple[BlockDevice, ...],
    named: Mapping[str, str],
) -> str | Standing:
    if isinstance(wanted, str):
        return wanted
    turns = _turns(device, others, named)
    if turns is None:
        why = "the kernel does not say whether it is an SSD: `devices` of the profile can"
        return _unread(", ".join(wanted.values()), device.name, why)
    kind = ROTATIONAL if turns else SSD
    word = wanted.get(kind)
    return word if word is not None else Absent(of=device.name, why=f"the profile has no value for {kind}")


def _unread(wanted: str, of: str, why: str) -> Part:
    return Part(of=of, wanted=wanted, found="", running=None, detail=why)
