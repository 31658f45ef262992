"""Tunables of the running kernel, which the boot script sets too: huge pages, disks, parameters. Pure.

A new parameter is one entry of `PARAMETERS`. A new value of a disk's queue is one entry of `DISKS`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import LEAF, MULTIPATH, PATH, TOP, BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunable import Absent, FactReads, Part, Tunable, shown
from orchestrator.tuning.values import is_number, parse

_HUGE: Final = "/sys/kernel/mm/transparent_hugepage"
_HUGE_OF_RHEL6: Final = "/sys/kernel/mm/redhat_transparent_hugepage"
_ENABLED: Final = "enabled"
_KHUGEPAGED: Final = "khugepaged/defrag"
_FOLDER: Final = 4
"""Position of the folder's name in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HugePages(Tunable):
    """Transparent huge pages: whether they are used, and which process defragments memory for them.

    RHEL 6 keeps them in `redhat_transparent_hugepage`, with different words (`[yes] no` for khugepaged);
    some of its kernels have both folders. New kernels have one more file per size, which follows the
    general file (`inherit`) or sets its own value. Changes count for memory that is mapped later: so they
    are made while the node is down.
    """

    name: str
    file: str  # below the folder
    words: tuple[str, ...]  # the words that a profile may use

    @property
    def reads(self) -> FactReads:
        """The files of the kernel."""
        sizes = (f"{_HUGE}/hugepages-*/enabled",) if self.file == _ENABLED else ()
        return FactReads(files=(f"{_HUGE}/{self.file}", f"{_HUGE_OF_RHEL6}/{self.file}", *sizes))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse words that no kernel accepts."""
        if isinstance(setting.wanted, str) and setting.wanted in self.words:
            return None
        return f"must be one of {', '.join(self.words)}"

    def line(self, setting: TuningSetting) -> str:
        """The same choice of words as here."""
        return shlex.join(["huge_pages", self.file, str(setting.wanted)])

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The general files, and the sizes that set a wrong value of their own."""
        paths = (f"{folder}/{self.file}" for folder in (_HUGE, _HUGE_OF_RHEL6))
        tops = [path for path in paths if facts.text(path) is not None]
        if not tops:
            yield Absent(why="this kernel has no such file")
            return
        wanted = str(setting.wanted)
        for path in tops:
            yield self._part(facts, path, path.split("/")[_FOLDER] if len(tops) > 1 else "", {wanted}, wanted)
        if self.file == _ENABLED:
            # `never` is most sizes' default, and stricter than any wanted value.
            fine = {wanted, "inherit", "never"}
            for path in facts.matching(f"{_HUGE}/hugepages-", "/enabled"):
                part = self._part(facts, path, path.split("/")[_FOLDER + 1], fine, wanted)
                if not part.running:
                    yield part

    def _part(self, facts: HostFacts, path: str, of: str, fine: set[str], wanted: str) -> Part:
        """The state of one file; `fine` are the words that are as good as the wanted one."""
        text = facts.text(path)
        if not isinstance(text, str):
            why = f"{path} could not be read" + (f": {text.reason}" if text else "")
            return Part(of=of, wanted=wanted, found="", running=None, detail=why)
        choices = parse(text)
        offered = choices.offered
        if self.file == _KHUGEPAGED:
            offered = ("no", "yes") if choices.bracketed else ("0", "1")
            wanted = offered[wanted in {"1", "yes"}]
            fine = {wanted}
        found = choices.current or ""
        if found in fine:
            return Part(of=of, wanted=wanted, found=found, running=True)
        if wanted not in offered or not found:
            why = f"{wanted} is not offered: {text.strip() or 'the file is empty'}"
            return Part(of=of, wanted=wanted, found=found, running=None, detail=why)
        change = ValueChange(path=path, found=found, wanted=wanted)
        return Part(of=of, wanted=wanted, found=found, running=False, changes=(change,))


HUGE_PAGES: Final = (
    HugePages(name="transparent_hugepage.enabled", file=_ENABLED, words=("always", "madvise", "never")),
    HugePages(
        name="transparent_hugepage.defrag",
        file="defrag",
        words=("always", "defer", "defer+madvise", "madvise", "never"),
    ),
    HugePages(name="transparent_hugepage.khugepaged_defrag", file=_KHUGEPAGED, words=("0", "1", "no", "yes")),
)


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
    """The disks behind the data: scheduler, read-ahead and queue depth.

    Only disks that carry a data path are read and written. The kind of a disk (`ssd` or `rotational`) is
    the profile's value, else the kernel's, which is wrong for many virtual disks.

    The names of schedulers depend on the kernel: single-queue kernels offer `noop deadline cfq`,
    multi-queue ones `none mq-deadline kyber bfq`. Writing a name that is not offered fails (EINVAL), so
    the name with the same meaning is chosen from the disk's own list. A name without a counterpart is
    reported and not tried. Read-ahead and queue depth are numbers, written unchanged.
    """

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
DISKS: Final = (
    IO_SCHEDULER,
    QueueTunable(
        name="nr_requests",
        file="nr_requests",
        aim=_number,
        faulty=_number_in(_REQUESTS),
        # A new scheduler begins with its own queue depth (blk_mq_init_sched, elevator_init_fn).
        reset_by=IO_SCHEDULER,
    ),
    QueueTunable(
        name="read_ahead_kb",
        file="read_ahead_kb",
        aim=_number,
        faulty=_number_in(_READ_AHEAD, _PAGE_KIB),
        roles=(TOP,),
    ),
)


_KIB: Final = 1024
_GROUPS: Final = {
    "vm.swappiness": (
        "/sys/fs/cgroup/memory/system.slice/memory.swappiness",
        "/sys/fs/cgroup/memory/system.slice/{unit}.service/memory.swappiness",
    )
}
"""On cgroup v1 a running service and its slice have values of their own."""
_MOST_FREE: Final = 0.05
"""Maximum share of memory to keep free: the kernel's own bound when it raises the value for huge pages.
The documentation of `min_free_kbytes` warns that a machine with too high a value is out of memory at once."""


def path_of(key: str) -> str:
    """The file of a kernel parameter."""
    return f"/proc/sys/{key.replace('.', '/')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParameter(Tunable):
    """Kernel parameters (`/proc/sys`): one value each, or "at least" a value, which is then never lowered."""

    name: str  # of the tunable, and of the parameter
    allowed: range  # the values that a profile may want
    at_least: bool = False  # whether a larger value is as good
    most: float | None = None  # the maximum as a share of the memory, for a value in KiB; None = no maximum

    @property
    def reads(self) -> FactReads:
        """The parameter, also of the groups that have one."""
        memory = ("/proc/meminfo",) if self.most else ()
        return FactReads(files=(path_of(self.name), *_GROUPS.get(self.name, ()), *memory))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse a value that is not a number, or out of range."""
        wanted = setting.wanted
        if isinstance(wanted, str) and is_number(wanted) and int(wanted) in self.allowed:
            return None
        return f"must be a whole number from {self.allowed.start} to {self.allowed.stop - 1}"

    def line(self, setting: TuningSetting) -> str:
        """With its bounds: the boot script compares as this does."""
        share = [f"{self.most:.0%}".rstrip("%")] if self.most is not None else []
        words = [self.name, str(setting.wanted), *share]
        return shlex.join(["at_least" if self.at_least else "parameter", *words])

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The parameter, and the groups with another value."""
        path, wanted = path_of(self.name), int(str(setting.wanted))
        if facts.text(path) is None:  # zone_reclaim_mode: only in kernels that are built for NUMA
            yield Absent(why=f"this kernel has no {self.name}")
            return
        found, target = number_at(facts, path), self._target(facts, wanted)
        if found is None or (self.most is not None and not facts.memory):
            why = f"{path}, or the size of the memory, could not be read"
            yield Part(wanted=self._words(target), found="", running=None, detail=why)
            return
        held = f"{wanted} is wanted; held to {self.most:.0%} of this host's memory" if target < wanted else ""
        yield self._part(path, found, target, detail=held)
        for group in _GROUPS.get(self.name, ()):
            group_path = group.replace("{unit}", facts.unit)
            value = number_at(facts, group_path)
            if value is not None and not self._is_good(value, target):
                yield self._part(group_path, value, target, of=group_path)

    def _part(self, path: str, found: str, target: int, *, of: str = "", detail: str = "") -> Part:
        good, change = self._is_good(found, target), ValueChange(path=path, found=found, wanted=str(target))
        return Part(
            of=of,
            wanted=self._words(target),
            found=found,
            running=good,
            detail=detail,
            changes=() if good else (change,),
        )

    def _words(self, target: int) -> str:
        return f"at least {target}" if self.at_least else str(target)

    def _target(self, facts: HostFacts, wanted: int) -> int:
        """The wanted number, limited to its share of the memory."""
        if self.most is None or not facts.memory:
            return wanted
        return min(wanted, int(facts.memory * self.most) // _KIB)

    def _is_good(self, value: str, target: int) -> bool:
        return int(value) >= target if self.at_least else int(value) == target


def number_at(facts: HostFacts, path: str) -> str | None:
    """The whole number in a file; None if there is none, or it could not be read."""
    text = facts.text(path)
    return text.strip() if isinstance(text, str) and is_number(text.strip()) else None


PARAMETERS: Final = (
    KernelParameter(name="vm.zone_reclaim_mode", allowed=range(8)),
    KernelParameter(name="vm.swappiness", allowed=range(201)),
    KernelParameter(name="vm.min_free_kbytes", allowed=range(1, 2**31), at_least=True, most=_MOST_FREE),
    KernelParameter(name="vm.max_map_count", allowed=range(1, 2**31), at_least=True),
    KernelParameter(name="net.ipv4.tcp_retries2", allowed=range(1, 256)),
)

KERNEL: Final = (*HUGE_PAGES, *DISKS, *PARAMETERS)
"""In the order in which they are made: the kernel resets the depth of a queue with its scheduler."""
