"""numad moves a store's pages between NUMA nodes during its work: it is stopped and its start is disabled.

Stopping it does not undo the moves that it made; a process that starts afterwards is not moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables.standing import AtBoot, Part, judged
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

_SERVICE: Final = "numad"
_OFF: Final = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numad:
    """The service."""

    name: str = _SERVICE

    @property
    def reads(self) -> Reads:
        """Its state."""
        return Reads(services=(_SERVICE,))

    def valid(self, setting: TuningSetting) -> str | None:
        """It can only be wanted off."""
        return None if setting.wanted == _OFF else f"must be {_OFF}"

    def supported(self, facts: HostFacts) -> str | None:
        """It is often not installed."""
        found = _found(facts)
        return None if isinstance(found, Unknown) or found.present else "numad is not installed"

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """Whether it runs, and whether it may start."""
        found = _found(facts)
        if isinstance(found, Unknown):
            part = Part(
                wanted=_OFF,
                found="",
                at_boot=AtBoot(),
                running=None,
                lasts=None,
                detail=f"numad's state could not be read: {found.reason}",
            )
            return judged(self, facts, setting, profile, (part,))
        kept = "masked" if found.masked else "enabled" if found.enabled else "disabled"
        part = Part(
            wanted=_OFF,
            found="running" if found.running else "stopped",
            at_boot=AtBoot(value=kept),
            running=not found.running,
            lasts=_quiet(facts, found),
        )
        return judged(self, facts, setting, profile, (part,))

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,  # noqa: ARG002  (every tunable has this shape)
        profile: TuningProfile,  # noqa: ARG002  (as above)
    ) -> tuple[Change, ...]:
        """Stop it."""
        found = _found(facts)
        if isinstance(found, Unknown) or not found.running:
            return ()
        return (ServiceChange(service=_SERVICE, found=_mode(found), wanted=_stopped(found)),)

    def persist(
        self,
        facts: HostFacts,
        setting: TuningSetting,  # noqa: ARG002  (every tunable has this shape)
        profile: TuningProfile,
    ) -> tuple[Change, ...]:
        """Disable it; systemd masks it too, since another service may want it."""
        found = _found(facts)
        if not profile.persist or isinstance(found, Unknown) or not found.present or _quiet(facts, found):
            return ()
        wanted = ServiceMode(running=False, enabled=False, masked=facts.init is InitSystem.SYSTEMD)
        return (ServiceChange(service=_SERVICE, found=_stopped(found), wanted=wanted),)


def _found(facts: HostFacts) -> Reading[ServiceFacts]:
    return facts.services.get(_SERVICE, Unknown(reason="it was not read"))


def _quiet(facts: HostFacts, found: ServiceFacts) -> bool:
    return found.masked if facts.init is InitSystem.SYSTEMD else not found.enabled


def _mode(found: ServiceFacts) -> ServiceMode:
    return ServiceMode(running=found.running, enabled=found.enabled, masked=found.masked)


def _stopped(found: ServiceFacts) -> ServiceMode:
    return ServiceMode(running=False, enabled=found.enabled, masked=found.masked)


NUMAD: Final = Numad()
