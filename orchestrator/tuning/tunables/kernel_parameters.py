"""Kernel parameters (`/proc/sys`): one value each, or "at least" a value, which is then never lowered."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import HostFacts
from orchestrator.model.tuning import TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunables.numbers import is_number
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

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
    """One parameter."""

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
        found, target = _number(facts, path), self._target(facts, wanted)
        if found is None or (self.most is not None and not facts.memory):
            why = f"{path}, or the size of the memory, could not be read"
            yield Part(wanted=self._words(target), found="", running=None, detail=why)
            return
        held = f"{wanted} is wanted; held to {self.most:.0%} of this host's memory" if target < wanted else ""
        yield self._part(path, found, target, detail=held)
        for group in _GROUPS.get(self.name, ()):
            group_path = group.replace("{unit}", facts.unit)
            value = _number(facts, group_path)
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


def _number(facts: HostFacts, path: str) -> str | None:
    text = facts.text(path)
    return text.strip() if isinstance(text, str) and is_number(text.strip()) else None


PARAMETERS: Final = (
    KernelParameter(name="vm.zone_reclaim_mode", allowed=range(8)),
    KernelParameter(name="vm.swappiness", allowed=range(201)),
    KernelParameter(name="vm.min_free_kbytes", allowed=range(1, 2**31), at_least=True, most=_MOST_FREE),
    KernelParameter(name="vm.max_map_count", allowed=range(1, 2**31), at_least=True),
    KernelParameter(name="net.ipv4.tcp_retries2", allowed=range(1, 256)),
)
