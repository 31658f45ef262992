"""Tunables of the running kernel, which the boot script sets too: huge pages, disks, parameters. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import LEAF, PATH, BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunable import Absent, FactReads, Part, Tunable, shown
from orchestrator.tuning.values import chosen, is_number, parse


def _by_word(of: str, path: str, text: str, wanted: str, *, fine: Collection[str] = ()) -> Part:
    """A file that offers words; `fine` are those that are as good as the wanted one."""
    choices = parse(text)
    found, target = choices.current or "", chosen(wanted, choices)
    if found and (found == target or found in fine):
        return Part(of=of, wanted=target or wanted, found=found, running=True)
    if target is None or not found:
        why = f"{wanted} is not offered: {text.strip() or 'the file is empty'}"
        return Part(of=of, wanted=wanted, found=found, running=None, detail=why)
    change = ValueChange(path=path, found=found, wanted=target)
    return Part(of=of, wanted=target, found=found, running=False, changes=(change,))


_HUGE: Final = "/sys/kernel/mm/transparent_hugepage"
_HUGE_OF_RHEL6: Final = "/sys/kernel/mm/redhat_transparent_hugepage"
_ENABLED: Final = "enabled"
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
    allowed: tuple[str, ...]

    @property
    def reads(self) -> FactReads:
        """The files of the kernel."""
        sizes = (f"{_HUGE}/hugepages-*/enabled",) if self.file == _ENABLED else ()
        return FactReads(files=(f"{_HUGE}/{self.file}", f"{_HUGE_OF_RHEL6}/{self.file}", *sizes))

    def line(self, setting: TuningSetting) -> str:
        """The script chooses from what the kernel of that boot offers."""
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
            of = path.split("/")[_FOLDER] if len(tops) > 1 else ""
            yield self._part(facts, path, of, wanted)
        if self.file == _ENABLED:
            for path in facts.matching(f"{_HUGE}/hugepages-", "/enabled"):
                # `never` is most sizes' default, and stricter than any wanted value.
                part = self._part(
                    facts, path, path.split("/")[_FOLDER + 1], wanted, fine=("inherit", "never")
                )
                if not part.running:
                    yield part

    def _part(self, facts: HostFacts, path: str, of: str, wanted: str, *, fine: Collection[str] = ()) -> Part:
        text = facts.text(path)
        if not isinstance(text, str):
            why = f"{path} could not be read" + (f": {text.reason}" if text else "")
            return Part(of=of, wanted=wanted, found="", running=None, detail=why)
        return _by_word(of, path, text, wanted, fine=fine)


ROTATIONAL: Final = "rotational"
KINDS: Final = ("ssd", ROTATIONAL)


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
    allowed: range | tuple[str, ...]  # numbers, or words of which the file offers some
    roles: tuple[str, ...] = (LEAF, PATH)  # of the devices between file system and disk that have the value
    reset_by: QueueTunable | None = None  # the tunable whose change makes the kernel reset this value

    @property
    def reads(self) -> FactReads:
        """The devices' files."""
        return FactReads(queue=(self.file,))

    def valid(self, setting: TuningSetting) -> str | None:
        """A word for all disks, or one word for each kind."""
        if isinstance(setting.wanted, str):
            return self.fault(setting.wanted)
        unknown = [kind for kind in setting.wanted if kind not in KINDS]
        if unknown or not setting.wanted:
            return f"must be one value, or one for each of {', '.join(KINDS)}"
        return next(filter(None, (self.fault(word) for word in setting.wanted.values())), None)

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
        if not isinstance(self.allowed, range):
            # A bare word is no choice: of `none`, the device has no scheduler.
            no_choice = Absent(of=name, why=f"it has no {self.file} to set")
            return _by_word(name, path, text, wanted) if parse(text).bracketed else no_choice
        found = text.strip()
        if not is_number(found):
            why = "its file holds no number"
            return Part(of=name, wanted=wanted, found=found, running=None, detail=why)
        right = found == wanted
        change = ValueChange(path=path, found=found, wanted=wanted)
        changes = () if right and not self._will_be_reset(facts, name, profile) else (change,)
        return Part(of=name, wanted=wanted, found=found, running=right, changes=changes)

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


_KIB: Final = 1024


def path_of(key: str) -> str:
    """The file of a kernel parameter."""
    return f"/proc/sys/{key.replace('.', '/')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParameter(Tunable):
    """Kernel parameters (`/proc/sys`): one value each, or "at least" a value, which is then never lowered."""

    name: str  # of the tunable, and of the parameter
    allowed: range
    at_least: bool = False  # whether a larger value is as good
    most: float | None = None  # the maximum as a share of the memory, for a value in KiB; None = no maximum
    groups: tuple[str, ...] = ()  # files of control groups with a value of their own

    @property
    def reads(self) -> FactReads:
        """The parameter, also of the groups that have one."""
        memory = ("/proc/meminfo",) if self.most else ()
        return FactReads(files=(path_of(self.name), *self.groups, *memory))

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
        for group in self.groups:
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
