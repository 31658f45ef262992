"""Kernel parameters (`/proc/sys`): one value each, or "at least" a value, which is then never lowered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables import sysctls
from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.standing import AtBoot, Part, judged, why_not_lasting
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, ValueChange

_KIB: Final = 1024
_MOST_FREE: Final = 0.05
"""Maximum share of memory to keep free: the kernel's own bound when it raises the value for huge pages.
The documentation of `min_free_kbytes` warns that a machine with too high a value is out of memory at once."""


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
        """The parameter, and the files that set it at boot."""
        return Reads(files=(sysctls.path_of(self.name), *sysctls.FILES))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse a value that is not a number, or out of range."""
        wanted = setting.wanted
        if isinstance(wanted, str) and is_number(wanted) and int(wanted) in self.allowed:
            return None
        return f"must be a whole number from {self.allowed.start} to {self.allowed.stop - 1}"

    def supported(self, facts: HostFacts) -> str | None:
        """Some parameters exist only on some kernels (zone_reclaim_mode: those built for NUMA)."""
        there = facts.text(sysctls.path_of(self.name)) is not None
        return None if there else f"this kernel has no {self.name}"

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """The state of the parameter."""
        found, boot, target = (
            self._found(facts),
            sysctls.at_boot(facts, self.name),
            self.target(facts, setting),
        )
        lasts = self._lasts(boot, target)
        part = Part(
            wanted=f"at least {target}" if self.at_least else str(target),
            found=found or "",
            at_boot=boot,
            running=None if found is None else self.good(found, target),
            lasts=lasts,
            detail=self._detail(facts, setting) or why_not_lasting(facts, profile, boot, lasting=lasts),
        )
        return judged(self, facts, setting, profile, (part,))

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,
        profile: TuningProfile,  # noqa: ARG002  (every tunable has this shape)
    ) -> tuple[Change, ...]:
        """Write it, unless its value is good."""
        found, target = self._found(facts), self.target(facts, setting)
        if found is None or self.good(found, target):
            return ()
        return (ValueChange(path=sysctls.path_of(self.name), found=found, wanted=str(target)),)

    def persist(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """A file of this program, or lines in `/etc/sysctl.conf` on RHEL 6, unless the next boot is right."""
        found, target = self._found(facts), self.target(facts, setting)
        if not profile.persist or found is None:
            return ()
        return sysctls.persisted(
            facts, self.name, self.name, str(target), lambda value: self.good(value, target)
        )

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
        text = facts.text(sysctls.path_of(self.name))
        if not isinstance(text, str) or not is_number(text.strip()):
            return None
        return None if self.most is not None and not facts.memory else text.strip()

    def _lasts(self, boot: AtBoot, target: int) -> bool | None:
        return sysctls.lasts(boot, lambda value: self.good(value, target))

    def _detail(self, facts: HostFacts, setting: TuningSetting) -> str:
        if self._found(facts) is None:
            return f"{sysctls.path_of(self.name)}, or the size of the memory, could not be read"
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
