"""Services that work against a store: stopped, and kept from starting.

numad moves pages between NUMA nodes while the store works. Stopping it does not undo the moves that it made;
a process that starts afterwards is not moved. tuned, and ktune on RHEL 6, write their profile's values at
each start: the values of this program are set after them, so they can stay on. Stopping them restores the
values that they once found, so they come before all other tunables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import ServiceChange, ServiceMode, TuningProfile, TuningSetting
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

_OFF: Final = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOff(Tunable):
    """A service that is not wanted; its name is the tunable's."""

    name: str

    @property
    def reads(self) -> FactReads:
        """Its state."""
        return FactReads(services=(self.name,))

    def valid(self, setting: TuningSetting) -> str | None:
        """It can only be wanted off."""
        return None if setting.wanted == _OFF else f"must be {_OFF}"

    def parts(self, facts: HostFacts, _: TuningSetting, profile: TuningProfile) -> Iterator[Part | Absent]:
        """Whether it runs, and whether it may start. systemd masks it: another service may want it."""
        found = facts.services.get(self.name, Unknown(reason="it was not read"))
        if isinstance(found, Unknown):
            why = f"the state of {self.name} could not be read: {found.reason}"
            yield Part(wanted=_OFF, found="", running=None, detail=why)
        elif not found.present:
            yield Absent(why=f"{self.name} is not installed")
        else:
            systemd = facts.init is InitSystem.SYSTEMD
            was = ServiceMode(running=found.running, enabled=found.enabled, masked=found.masked)
            stopped = ServiceMode(running=False, enabled=found.enabled, masked=found.masked)
            off = ServiceMode(running=False, enabled=False, masked=systemd)
            may_start = not (found.masked if systemd else not found.enabled)
            changes = []
            if found.running:
                changes.append(ServiceChange(service=self.name, found=was, wanted=stopped))
            if profile.persist and may_start:
                changes.append(ServiceChange(service=self.name, found=stopped, wanted=off))
            lasts = f", {'masked' if systemd else 'disabled'}" if profile.persist else ""
            unmasked = systemd and profile.persist and may_start and not found.enabled
            yield Part(
                wanted=f"{_OFF} (stopped{lasts})",
                found="running" if found.running else "stopped",
                at_boot="masked" if found.masked else "enabled" if found.enabled else "disabled",
                running=not changes,
                detail="it is disabled, not masked: another unit can start it" if unmasked else "",
                changes=tuple(changes),
            )


SERVICES: Final = (ServiceOff(name="tuned"), ServiceOff(name="ktune"), ServiceOff(name="numad"))
