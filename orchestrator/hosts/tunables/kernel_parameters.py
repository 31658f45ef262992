"""Kernel parameters (`/proc/sys`): one value each, or "at least" a value, which is then never lowered."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.standing import Part, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, ValueChange

_KIB: Final = 1024
_SWAPPINESS: Final = "vm.swappiness"
_SLICE: Final = "/sys/fs/cgroup/memory/system.slice/memory.swappiness"
_GROUP: Final = "/sys/fs/cgroup/memory/system.slice/{unit}.service/memory.swappiness"
_MOST_FREE: Final = 0.05
"""Maximum share of memory to keep free: the kernel's own bound when it raises the value for huge pages.
The documentation of `min_free_kbytes` warns that a machine with too high a value is out of memory at once."""


def path_of(key: str) -> str:
    """The file of a kernel parameter."""
    return f"/proc/sys/{key.replace('.', '/')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParameter:
    """One parameter.

    Attributes:
        name: of the tunable, and of the parameter.
        allowed: the values that a profile may want.
        at_least: whether a larger value is as good.
        most: the maximum as a share of the memory, for a value in KiB; None = no maximum.
    """

    name: str
    allowed: range
    at_least: bool = False
    most: float | None = None

    @property
    def reads(self) -> Reads:
        """The parameter; on cgroup v1 swappiness has a value for each service too."""
        groups = (_SLICE, _GROUP) if self.name == _SWAPPINESS else ()
        return Reads(files=(path_of(self.name), *groups, *(("/proc/meminfo",) if self.most else ())))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse a value that is not a number, or out of range."""
        wanted = setting.wanted
        if isinstance(wanted, str) and is_number(wanted) and int(wanted) in self.allowed:
            return None
        return f"must be a whole number from {self.allowed.start} to {self.allowed.stop - 1}"

    def supported(self, facts: HostFacts) -> str | None:
        """Some parameters exist only on some kernels (zone_reclaim_mode: those built for NUMA)."""
        there = facts.text(path_of(self.name)) is not None
        return None if there else f"this kernel has no {self.name}"

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """The state of the parameter."""
        found, target = self._found(facts), self.target(facts, setting)
        part = Part(
            wanted=f"at least {target}" if self.at_least else str(target),
            found=found or "",
            running=None if found is None else self.good(found, target),
            detail=self._detail(facts, setting),
        )
        groups = (
            Part(of=path, wanted=str(target), found=value, running=self.good(value, target))
            for path, value in self._groups(facts)
            if not self.good(value, target)
        )
        return judged(self, facts, setting, profile, (part, *groups))

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,
        profile: TuningProfile,  # noqa: ARG002  (every tunable has this shape)
    ) -> tuple[Change, ...]:
        """Write it, unless its value is good."""
        found, target = self._found(facts), self.target(facts, setting)
        if found is None:
            return ()
        return tuple(
            ValueChange(path=path, found=value, wanted=str(target))
            for path, value in ((path_of(self.name), found), *self._groups(facts))
            if not self.good(value, target)
        )

    def line(self, setting: TuningSetting) -> str:
        """With its bounds: the boot script compares as this does."""
        share = [f"{self.most:.0%}".rstrip("%")] if self.most is not None else []
        words = [self.name, str(setting.wanted), *share]
        return shlex.join(["at_least" if self.at_least else "parameter", *words])

    def target(self, facts: HostFacts, setting: TuningSetting) -> int:
        """The wanted number, limited to its share of the memory."""
        wanted = int(str(setting.wanted))
        if self.most is None or not facts.memory:
            return wanted
        return min(wanted, int(facts.memory * self.most) // _KIB)

    def good(self, value: str, target: int) -> bool:
        """Whether a value is as good as the target."""
        if not is_number(value):
            return False
        return int(value) >= target if self.at_least else int(value) == target

    def _found(self, facts: HostFacts) -> str | None:
        """The value; None if it cannot be read, or if its maximum depends on an unknown memory size."""
        text = facts.text(path_of(self.name))
        if not isinstance(text, str) or not is_number(text.strip()):
            return None
        return None if self.most is not None and not facts.memory else text.strip()

    def _groups(self, facts: HostFacts) -> Iterator[tuple[str, str]]:
        """The values of the service and its slice on cgroup v1: a running service keeps its own."""
        if self.name == _SWAPPINESS:
            for path in (_SLICE, _GROUP.replace("{unit}", facts.unit)):
                text = facts.text(path)
                if isinstance(text, str) and is_number(text.strip()):
                    yield path, text.strip()

    def _detail(self, facts: HostFacts, setting: TuningSetting) -> str:
        if self._found(facts) is None:
            return f"{path_of(self.name)}, or the size of the memory, could not be read"
        if self.target(facts, setting) < int(str(setting.wanted)):
            return f"{setting.wanted} is wanted; held to {self.most:.0%} of this host's memory"
        return ""


PARAMETERS: Final = (
    KernelParameter(name="vm.zone_reclaim_mode", allowed=range(8)),
    KernelParameter(name="vm.swappiness", allowed=range(201)),
    KernelParameter(name="vm.min_free_kbytes", allowed=range(1, 2**31), at_least=True, most=_MOST_FREE),
    KernelParameter(name="vm.max_map_count", allowed=range(1, 2**31), at_least=True),
    KernelParameter(name="net.ipv4.tcp_retries2", allowed=range(1, 256)),
)
