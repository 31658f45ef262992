"""The common part of all tunables of a disk's queue: which disks, and which values.

Only disks that carry a data path are read and written. The kind of a disk (`ssd` or `rotational`) is the
profile's value, else the kernel's, which is wrong for many virtual disks.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from orchestrator.hosts.tunables.standing import Absent, Part, Standing, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import BlockDevice, HostFacts
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


class Where(Enum):
    """Which devices have a value.

    `SCHEDULERS`: the disks, but the multipath device instead of its paths, which the kernel keeps at `none`.
    `TOPS`: the devices under the file systems, which alone decide what is read ahead.
    """

    DISKS = "disks"
    SCHEDULERS = "schedulers"
    TOPS = "tops"


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
    path: str
    aim: Aim


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTunable:
    """A value of every disk behind the data.

    Attributes:
        attribute: below `/sys/block/NAME`.
        aim: from the file's text and the wanted word to the value to write.
        faulty: the fault in a word of a profile; None if it is valid.
        where: the devices between file system and disk that have the value.
        reset_by: the tunable whose change makes the kernel reset this value.
    """

    name: str
    attribute: str
    aim: Callable[[str, str], Aim]
    faulty: Callable[[str], str | None]
    where: Where = Where.DISKS
    reset_by: QueueTunable | None = None

    @property
    def reads(self) -> Reads:
        """The disks' files."""
        return Reads(files=(f"/sys/block/{{device}}/{self.attribute}",))

    def line(self, setting: TuningSetting) -> str:
        """One word for each kind of disk; `-` = the profile wants nothing of it."""
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
        for device in self._devices(facts.devices, profile.devices):
            wanted = _wanted(device, setting.wanted, profile.devices)
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
                    yield Disk(device=device, path=path, aim=aim)

    def _devices(self, disks: Sequence[BlockDevice], told: Mapping[str, str]) -> Iterator[BlockDevice]:
        """The devices that have the value. A device above several disks is an SSD if all of them are."""
        above: dict[str, list[BlockDevice]] = {}
        for disk in disks:
            names = {
                Where.DISKS: (disk.name,),
                Where.SCHEDULERS: (disk.multipath or disk.name,),
                Where.TOPS: disk.tops or (disk.name,),
            }
            for name in names[self.where]:
                above.setdefault(name, []).append(disk)
        for name, some in above.items():
            kinds = {_turns(disk, told) for disk in some}
            kind = None if None in kinds else any(kinds)
            yield replace(some[0], name=name, rotational=kind)

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
                wanted=aim.target or str(_wanted(disk.device, setting.wanted, profile.devices)),
                found=aim.found,
                running=None if aim.target is None else aim.found == aim.target,
                detail=aim.why,
            )


def _turns(disk: BlockDevice, told: Mapping[str, str]) -> bool | None:
    """Whether a disk turns: as the profile says, else as the kernel says."""
    kind = told.get(disk.name)
    return disk.rotational if kind is None else kind == ROTATIONAL


def _wanted(device: BlockDevice, wanted: str | Mapping[str, str], told: Mapping[str, str]) -> str | Standing:
    if isinstance(wanted, str):
        return wanted
    kind = told.get(device.name)
    if kind is None and device.rotational is None:
        why = "the kernel does not say whether it is an SSD: `devices` of the profile can"
        return _unread(", ".join(wanted.values()), device.name, why)
    if kind is None:
        kind = ROTATIONAL if device.rotational else SSD
    word = wanted.get(kind)
    return word if word is not None else Absent(of=device.name, why=f"the profile wants nothing of {kind}")


def _unread(wanted: str, of: str, why: str) -> Part:
    return Part(of=of, wanted=wanted, found="", running=None, detail=why)
