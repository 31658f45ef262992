"""Docker. Reads do not go through sudo: the account is in the group `docker`, which is as much as root."""

from __future__ import annotations

import shlex
from typing import Final

from orchestrator.hosts.managers.manager import (
    HostProgram,
    ServiceManager,
    ServiceReading,
    ServiceVerb,
    short,
    unit,
)
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown

DOCKER: Final = HostProgram(name="docker", path="/usr/bin/docker")
_INSPECT: Final = (
    "{{.State.Status}}|{{.State.ExitCode}}|{{.State.StartedAt}}|{{.State.Error}}|{{.HostConfig.AutoRemove}}"
)
_LOG_LINES: Final = 60
"""Most may be of a stack trace."""
_REMOVED: Final = (
    "a stop removes the container (`--rm`), and then nothing is left to start: name the systemd unit that"
    " runs it as `hosts.service` in the cluster file, or run the container without `--rm`"
)
_ENDED_WELL: Final = frozenset({0, 130, 143})
"""SIGINT and SIGTERM are requests to end: the JVM then exits with 128 and the signal's number."""


class Docker(ServiceManager):
    """Containers."""

    program = DOCKER
    excludes = True
    exact = True
    restarts = "restarting"
    runs = r"(running|restarting|paused)\|.*"

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """A stop with the time that the container gets to end."""
        grace = f"-t {round(settings.service.grace)} " if verb is ServiceVerb.STOP else ""
        return f"{settings.service.program or DOCKER.path} {verb.value} {grace}{unit(settings)}"

    def status(self, settings: HostSettings) -> str:
        """Five fields of the container."""
        program = settings.service.program or DOCKER.path
        return f"{program} inspect --type container -f {shlex.quote(_INSPECT)} -- {unit(settings)} 2>&1"

    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        """Read the fields. Podman, where it answers as `docker`, has more states."""
        status, _, rest = answer.text.partition("|")
        if answer.exit != 0 or not rest:
            hint = " (the account must be in the group docker: reads do not go through sudo)"
            permission = hint if "permission denied" in answer.text.lower() else ""
            return Unknown(reason=f"docker inspect {unit(settings)}: {short(answer.text)}{permission}")
        code, barred = rest.partition("|")[0], _REMOVED if rest.endswith("|true") else ""
        match status:
            case "running":
                return ServiceReading(state=ServiceState.RUNNING, detail=status, barred=barred)
            case "restarting":
                return ServiceReading(
                    state=ServiceState.STARTING, detail=f"restarting (exit {code})", barred=barred
                )
            case "stopping":
                return ServiceReading(state=ServiceState.STOPPING, detail=status, barred=barred)
            case "created" | "configured" | "initialized":
                return ServiceReading(state=ServiceState.STOPPED, detail=status)
            case "exited" | "stopped":
                well = code.isdigit() and int(code) in _ENDED_WELL
                state = ServiceState.STOPPED if well else ServiceState.FAILED
                return ServiceReading(state=state, detail=f"{status} ({code})")
            case "dead" | "removing":
                return ServiceReading(state=ServiceState.FAILED, detail=status)
            case _:
                return Unknown(reason=f"container {unit(settings)} is {status}")

    def may(self, settings: HostSettings, command: str) -> str:
        """An account that may read a container may stop it."""
        del command
        return self.status(settings)

    def last_words(self, settings: HostSettings) -> tuple[tuple[str, str], ...]:
        """The last lines of the container's log, and why Docker itself could not start it."""
        program = settings.service.program or DOCKER.path
        form = shlex.quote("{{.State.Error}}")
        return (
            ("error", f"{program} inspect --type container -f {form} -- {unit(settings)} 2>/dev/null"),
            ("log", f"{program} logs --tail {_LOG_LINES} {unit(settings)} 2>&1"),
        )
