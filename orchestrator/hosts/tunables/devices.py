"""The common part of all tunables of a disk's queue: which disks, which values, and how they persist.

Only disks that carry a data path are read and written. The kind of a disk (`ssd` or `rotational`) is the
profile's value, else the kernel's, which is wrong for many virtual disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables import rc_local, tuned_profiles, udev
from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.standing import Absent, AtBoot, Part, Standing, judged, why_not_lasting
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import BlockDevice, HostFacts, InitSystem
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
    path: str
    aim: Aim


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTunable:
    """A value of every disk behind the data.

    Attributes:
        attribute: below `/sys/block/NAME`.
        aim: from the file's text and the wanted word to the value to write.
        faulty: the fault in a word of a profile; None if it is valid.
        tuned_option: its name in tuned's disk plugin; empty if it has none.
        of_paths: whether the paths of a multipath device have a value of their own.
        reset_by: the tunable whose change makes the kernel reset this value.
        command_line: the value that the kernel command line gives a disk, from the file's text and the words.
    """

    name: str
    attribute: str
    aim: Callable[[str, str], Aim]
    faulty: Callable[[str], str | None]
    tuned_option: str = ""
    of_paths: bool = True
    reset_by: QueueTunable | None = None
    command_line: Callable[[str, tuple[str, ...]], AtBoot] = lambda _text, _words: AtBoot()

    @property
    def reads(self) -> Reads:
        """The disks' files, and the files that set them at boot."""
        return Reads(
            files=(
                f"/sys/block/{{device}}/{self.attribute}",
                *udev.FILES,
                *rc_local.PATHS,
                *tuned_profiles.FILES,
            )
        )

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

    def persist(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """A udev rule for each disk, or lines of rc.local; no change if the next boot is already right."""
        disks = [
            (disk, disk.aim.target)
            for disk in self.disks(facts, setting, profile)
            if isinstance(disk, Disk) and disk.aim.target is not None
        ]
        if not profile.persist or not disks:
            return ()

        def holds(later: HostFacts) -> bool:
            by_files = all(self._layer(later, disk).value == target for disk, target in disks)
            sure = not any(self._layer(later, disk).unsure for disk, _ in disks)
            return (by_files and sure) or all(self._lasts(disk, self.boot(later, disk)) for disk, _ in disks)

        match facts.init:
            case InitSystem.SYSTEMD:
                values = [(disk.device.name, target) for disk, target in disks]
                return udev.persisted(facts, self.name, self.attribute, values, holds)
            case InitSystem.SYSV:
                lines = [(disk.path, target) for disk, target in disks]
                return rc_local.persisted(facts, self.name, lines, holds)
            case InitSystem.OTHER:
                return ()

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
            if device.multipath and not self.of_paths:
                yield Absent(of=device.name, why=f"a path of {device.multipath}: the kernel keeps it at none")
                continue
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

    def boot(self, facts: HostFacts, disk: Disk) -> AtBoot:
        """The value of a disk after the next boot: tuned comes after udev."""
        by_tuned = tuned_profiles.at_boot(facts, lambda profile: self.of_tuned(profile, disk))
        return by_tuned or self._layer(facts, disk)

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
            aim, boot = disk.aim, self.boot(facts, disk)
            lasts = self._lasts(disk, boot)
            yield Part(
                of=disk.device.name,
                wanted=aim.target or str(_wanted(disk.device, setting.wanted, profile.devices)),
                found=aim.found,
                at_boot=boot,
                running=None if aim.target is None else aim.found == aim.target,
                lasts=lasts,
                detail=aim.why or why_not_lasting(facts, profile, boot, lasting=lasts),
            )

    def _lasts(self, disk: Disk, boot: AtBoot) -> bool | None:
        if boot.unsure or disk.aim.target is None:
            return None
        return boot.value == disk.aim.target

    def _layer(self, facts: HostFacts, disk: Disk) -> AtBoot:
        """The value after the next boot without tuned."""
        if facts.init is InitSystem.SYSV:
            found = rc_local.at_boot(facts, disk.path)
        else:
            found = udev.at_boot(facts, disk.device, self.attribute)
        if found.value is not None or found.unsure:
            return found
        text = facts.text(disk.path)
        return self.command_line(text if isinstance(text, str) else "", facts.command_line)

    def of_tuned(self, profile: tuned_profiles.Profile, disk: Disk) -> str | None:
        """The value that a tuned profile gives a disk; None if it sets none."""
        by_path = profile.sysfs(disk.path)
        if by_path is not None or not self.tuned_option:
            return by_path
        theirs = profile.disk(disk.device.name, self.tuned_option)
        return None if theirs is None else _meant(theirs, disk.aim.target)


def _meant(theirs: str, target: str | None) -> str:
    """The meaning of tuned's word: `>4096` is "at least", `deadline` is the same as `mq-deadline`."""
    if theirs.startswith(">") and target is not None and is_number(target) and is_number(theirs[1:].strip()):
        return str(max(int(theirs[1:]), int(target)))
    if {theirs, target} in ({"none", "noop"}, {"deadline", "mq-deadline"}) and target is not None:
        return target
    return theirs


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
    return Part(of=of, wanted=wanted, found="", at_boot=AtBoot(), running=None, lasts=None, detail=why)
