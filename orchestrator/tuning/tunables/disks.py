"""The disks behind the data: scheduler, read-ahead and queue depth.

Only disks that carry a data path are read and written. The kind of a disk (`ssd` or `rotational`) is the
profile's value, else the kernel's, which is wrong for many virtual disks.

The names of schedulers depend on the kernel: single-queue kernels offer `noop deadline cfq`, multi-queue ones
`none mq-deadline kyber bfq`. Writing a name that is not offered fails (EINVAL), so the name with the same
meaning is chosen from the disk's own list. A name without a counterpart is reported and not tried. Read-ahead
and queue depth are numbers, written unchanged.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import (
    LEAF,
    MULTIPATH,
    PATH,
    TOP,
    BlockDevice,
    HostFacts,
)
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunables.choices import parse
from orchestrator.tuning.tunables.numbers import is_number
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable, shown

ROTATIONAL: Final = "rotational"
KINDS: Final = ("ssd", ROTATIONAL)
SCHEDULERS: Final = ("none", "noop", "deadline", "mq-deadline", "cfq", "bfq", "kyber")
_COUNTERPART: Final = {
    "none": "noop",
    "noop": "none",
    "deadline": "mq-deadline",
    "mq-deadline": "deadline",
}
_PAGE_KIB: Final = 4
_READ_AHEAD: Final = range(65537)
"""KiB; 64 MiB is more than any guide recommends."""
_REQUESTS: Final = range(4, 2049)
"""The kernel raises smaller numbers to 4 (BLKDEV_MIN_RQ) and refuses most larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The content of a queue's file, and the value to write to it."""

    found: str
    target: str | None  # None if the wanted value cannot be written
    why: str = ""  # the reason for that


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTunable(Tunable):
    """A value of every disk behind the data."""

    name: str
    file: str  # below `/sys/block/NAME/queue`
    # from the file's text and the wanted word to the value to write; None: the disk has no such value
    aim: Callable[[str, str], Aim | None]
    faulty: Callable[[str], str | None]  # the fault in a word of a profile; None if it is valid
    # of the devices between file system and disk that have the value, as in the boot script
    roles: tuple[str, ...] = (LEAF, PATH)
    reset_by: QueueTunable | None = None  # the tunable whose change makes the kernel reset this value

    @property
    def reads(self) -> FactReads:
        """The devices' files."""
        return FactReads(queue=(self.file,))

    def valid(self, setting: TuningSetting) -> str | None:
        """A word for all disks, or one word for each kind."""
        if isinstance(setting.wanted, str):
            return self.faulty(setting.wanted)
        unknown = [kind for kind in setting.wanted if kind not in KINDS]
        if unknown or not setting.wanted:
            return f"must be one value, or one for each of {', '.join(KINDS)}"
        return next(filter(None, (self.faulty(word) for word in setting.wanted.values())), None)

    def line(self, setting: TuningSetting) -> str:
        """One word for each kind of disk; `-` = the profile has no value for it."""
        wanted = setting.wanted
        words = [wanted if isinstance(wanted, str) else wanted.get(kind, "-") for kind in KINDS]
        return shlex.join(["disks", self.file, *words])

    def parts(
        self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile
    ) -> Iterator[Part | Absent]:
        """Every disk behind the data."""
        if isinstance(facts.devices, Unknown):
            why = f"the disks behind the data: {facts.devices.reason}"
            yield Part(wanted=shown(setting), found="", running=None, detail=why)
        elif not facts.devices and facts.data_paths:
            yield Absent(why=f"no disk of this host is behind {', '.join(facts.data_paths)}")
        elif not facts.devices:
            why = "no data path is known: `hosts.data` of the cluster file"
            yield Part(wanted=shown(setting), found="", running=None, detail=why)
        else:
            for device in facts.devices:
                if set(self.roles) & set(device.roles):
                    yield self._part(facts, device, facts.devices, setting, profile)

    def _part(
        self,
        facts: HostFacts,
        device: BlockDevice,
        devices: tuple[BlockDevice, ...],
        setting: TuningSetting,
        profile: TuningProfile,
    ) -> Part | Absent:
        """One disk, with a change if it is wrong, or if an earlier change will make it wrong."""
        name, wanted, turns = device.name, setting.wanted, _turns(device, devices, profile)
        if not isinstance(wanted, str):
            if turns is None:
                why = "the kernel does not say whether it is an SSD: `devices` of the profile can"
                return Part(of=name, wanted=", ".join(wanted.values()), found="", running=None, detail=why)
            kind = KINDS[turns]
            if kind not in wanted:
                return Absent(of=name, why=f"the profile has no value for {kind}")
            wanted = wanted[kind]
        path = f"/sys/block/{name}/queue/{self.file}"
        text = facts.text(path)
        if text is None:
            return Absent(of=name, why=f"it has no queue/{self.file}")
        if isinstance(text, Unknown):
            why = f"{path} could not be read: {text.reason}"
            return Part(of=name, wanted=wanted, found="", running=None, detail=why)
        aim = self.aim(text, wanted)
        if aim is None:
            return Absent(of=name, why=f"it has no {self.file} to set")
        if aim.target is None:
            return Part(of=name, wanted=wanted, found=aim.found, running=None, detail=aim.why)
        right = aim.found == aim.target
        change = ValueChange(path=path, found=aim.found, wanted=aim.target)
        changes = () if right and not self._will_be_reset(facts, name, profile) else (change,)
        return Part(of=name, wanted=aim.target, found=aim.found, running=right, changes=changes)

    def _will_be_reset(self, facts: HostFacts, name: str, profile: TuningProfile) -> bool:
        other = self.reset_by
        return other is not None and any(
            isinstance(part, Part) and part.of == name and bool(part.changes)
            for setting in profile.settings
            if setting.tunable == other.name
            for part in other.parts(facts, setting, profile)
        )


def _turns(device: BlockDevice, others: tuple[BlockDevice, ...], profile: TuningProfile) -> bool | None:
    """Whether a device turns: as the profile names it, or all disks of its data; else as the kernel says."""
    named = profile.devices
    kinds = {named.get(device.name)}
    if not device.is_disk and kinds == {None}:
        beside = (one for one in others if one.is_disk and set(one.data_paths) & set(device.data_paths))
        kinds = {named.get(one.name) for one in beside}
    kind = kinds.pop() if len(kinds) == 1 else None
    return device.rotational if kind is None else kind == ROTATIONAL


def _scheduler(text: str, wanted: str) -> Aim | None:
    choices = parse(text)
    if not choices.bracketed:
        return None
    target = chosen(wanted, choices.offered)
    why = f"{wanted} is not offered: {text.strip()}" if target is None else ""
    return Aim(found=choices.current or "", target=target, why=why)


def chosen(wanted: str, offered: tuple[str, ...]) -> str | None:
    """The wanted scheduler, or the one with the same meaning; None if the disk offers neither."""
    candidates = (wanted, _COUNTERPART.get(wanted, wanted))
    return next((name for name in candidates if name in offered), None)


def _number(text: str, wanted: str) -> Aim:
    found = text.strip()
    if not is_number(found):
        return Aim(found=found, target=None, why="its file holds no number")
    return Aim(found=found, target=wanted)


def _number_in(allowed: range, step: int = 1) -> Callable[[str], str | None]:
    def faulty(word: str) -> str | None:
        if is_number(word) and int(word) in allowed and int(word) % step == 0:
            return None
        rule = f"must be a whole number from {allowed.start} to {allowed.stop - 1}"
        return rule + (f", in steps of {step} (a page)" if step > 1 else "")

    return faulty


IO_SCHEDULER: Final = QueueTunable(
    name="io_scheduler",
    file="scheduler",
    aim=_scheduler,
    faulty=lambda word: None if word in SCHEDULERS else f"must be one of {', '.join(SCHEDULERS)}",
    roles=(LEAF, MULTIPATH),
)
REQUESTS: Final = QueueTunable(
    name="nr_requests",
    file="nr_requests",
    aim=_number,
    faulty=_number_in(_REQUESTS),
    # A new scheduler begins with its own queue depth (blk_mq_init_sched, elevator_init_fn).
    reset_by=IO_SCHEDULER,
)
READ_AHEAD: Final = QueueTunable(
    name="read_ahead_kb",
    file="read_ahead_kb",
    aim=_number,
    faulty=_number_in(_READ_AHEAD, _PAGE_KIB),
    roles=(TOP,),
)
