"""Init scripts, by `service`; their `status` has the exit codes of the Linux Standard Base."""

from __future__ import annotations

from typing import Final

from orchestrator.hosts import sudo
from orchestrator.hosts.managers.manager import (
    BY_ITSELF,
    HostProgram,
    ServiceManager,
    ServiceReading,
    ServiceVerb,
    by_text,
    says_not_done,
    short,
    unit,
)
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown

_SERVICE: Final = HostProgram(name="service", path="/usr/sbin/service")
_RUNNING, _DEAD_PID, _DEAD_LOCK, _STOPPED = 0, 1, 2, 3
"""Exit codes of `status`, Linux Standard Base 5.0, "Init Script Actions"."""


class Sysv(ServiceManager):
    """Init scripts."""

    program = _SERVICE
    reboots = (BY_ITSELF,)

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """`service` takes no `--`."""
        return f"{settings.service.program or _SERVICE.path} {unit(settings)} {verb.value}"

    def status(self, settings: HostSettings) -> str:
        """The script's own status."""
        return f"{settings.service.program or _SERVICE.path} {unit(settings)} status </dev/null 2>&1"

    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        """Read the exit code, unless the wording of the settings decides."""
        said = by_text(settings, "", answer)
        if said is not None:
            return said
        words = short(answer.text)
        match answer.exit:
            case code if code == _RUNNING:
                return ServiceReading(state=ServiceState.RUNNING, detail=words or "running")
            case code if code in (_DEAD_PID, _DEAD_LOCK) and not says_not_done(answer.text):
                # Not running, and not ended cleanly: its pid file or lock file is left.
                detail = words or f"dead (status exits {code})"
                return ServiceReading(state=ServiceState.FAILED, detail=detail)
            case code if code == _STOPPED:
                return ServiceReading(state=ServiceState.STOPPED, detail=words or "stopped")
            case code:
                said_there = words or "no output"
                return Unknown(reason=f"service {unit(settings)} status exits {code}: {said_there}")

    def may(self, settings: HostSettings, command: str) -> str:
        """Only root may."""
        del settings, command
        return sudo.IS_ROOT
