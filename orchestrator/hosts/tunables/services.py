"""Services that work against a store: stopped, and kept from starting.

numad moves pages between NUMA nodes while the store works. Stopping it does not undo the moves that it made;
a process that starts afterwards is not moved. tuned, and ktune on RHEL 6, write their profile's values at
each
start: the values of this program are set after them, so they can stay on. Stopping them restores the values
that they once found, so they come before all other tunables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables.standing import Part, absent, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import (
    Change,
    ServiceChange,
    ServiceMode,
    TunableState,
    TuningProfile,
    TuningSetting,
)

_OFF: Final = "off"
_OVERRIDE: Final = "override"
"""Of profiles for earlier versions, which wrote a profile of their own for tuned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOff:
    """A service that is not wanted; its name is the tunable's."""

    name: str

    @property
    def reads(self) -> Reads:
        """Its state."""
        return Reads(services=(self.name,))

    def valid(self, setting: TuningSetting) -> str | None:
        """It can only be wanted off."""
        if setting.wanted == _OVERRIDE:
            return f"must be {_OFF}: `{_OVERRIDE}` is not needed, values are set after tuned's; remove it"
        return None if setting.wanted == _OFF else f"must be {_OFF}"

    def line(self, setting: TuningSetting) -> str:  # noqa: ARG002  (every tunable has this shape)
        """None: the service itself is not enabled."""
        return ""

    def supported(self, facts: HostFacts) -> str | None:
        """It is often not installed."""
        found = self._found(facts)
        return None if isinstance(found, Unknown) or found.present else f"{self.name} is not installed"

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """Whether it runs, and whether it may start."""
        found = self._found(facts)
        if setting.wanted != _OFF:  # in the journal of a run that an earlier version began
            return absent(setting, "values are set after tuned: nothing has to be overridden")
        if isinstance(found, Unknown):
            why = f"the state of {self.name} could not be read: {found.reason}"
            part = Part(wanted=_OFF, found="", at_boot="", running=None, detail=why)
            return judged(self, facts, setting, profile, (part,))
        part = Part(
            wanted=_OFF,
            found="running" if found.running else "stopped",
            at_boot="masked" if found.masked else "enabled" if found.enabled else "disabled",
            running=not found.running and (_quiet(facts, found) or not profile.persist),
        )
        return judged(self, facts, setting, profile, (part,))

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,  # noqa: ARG002  (every tunable has this shape)
        profile: TuningProfile,
    ) -> tuple[Change, ...]:
        """Stop it, and disable it; systemd masks it too, since another service may want it."""
        found = self._found(facts)
        if isinstance(found, Unknown) or not found.present:
            return ()
        was = ServiceMode(running=found.running, enabled=found.enabled, masked=found.masked)
        stopped = ServiceMode(running=False, enabled=found.enabled, masked=found.masked)
        changes = []
        if found.running:
            changes.append(ServiceChange(service=self.name, found=was, wanted=stopped))
        if profile.persist and not _quiet(facts, found):
            kept = ServiceMode(running=False, enabled=False, masked=facts.init is InitSystem.SYSTEMD)
            changes.append(ServiceChange(service=self.name, found=stopped, wanted=kept))
        return tuple(changes)

    def _found(self, facts: HostFacts) -> Reading[ServiceFacts]:
        return facts.services.get(self.name, Unknown(reason="it was not read"))


def _quiet(facts: HostFacts, found: ServiceFacts) -> bool:
    return found.masked if facts.init is InitSystem.SYSTEMD else not found.enabled


SERVICES: Final = (ServiceOff(name="tuned"), ServiceOff(name="ktune"), ServiceOff(name="numad"))
