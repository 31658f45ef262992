"""The operator's own command lines: `stop`, `start` and `status` of the cluster file."""

from __future__ import annotations

import shlex

from orchestrator.hosts import sudo
from orchestrator.hosts.managers.manager import (
    SIMPLE_COMMAND,
    ServiceManager,
    ServiceReading,
    ServiceVerb,
    by_text,
    short,
)
from orchestrator.hosts.placeholder import for_node
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, Sudo
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown


class CommandLines(ServiceManager):
    """Command lines of the cluster file, such as those of Riak."""

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """The line with the node's name; behind sudo, one with operators of the shell needs a shell."""
        service = settings.service
        line = for_node((service.stop if verb is ServiceVerb.STOP else service.start) or "", settings.node)
        if settings.sudo is Sudo.OFF or SIMPLE_COMMAND.match(line):
            return line
        return f"/bin/sh -c {shlex.quote(line)}"

    def status(self, settings: HostSettings) -> str:
        """The line, through sudo where it needs root: always without a password, as all reads."""
        plain = _read(plain_status(settings))
        if not settings.service.status_as_root or settings.sudo is Sudo.OFF:
            return plain
        behind_sudo = _read(_status(settings))
        if settings.sudo is not Sudo.AUTO:
            return behind_sudo
        return f"if {sudo.IS_ROOT}; then {plain}; else {behind_sudo}; fi"

    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        """Read the exit code, unless sudo refused or the wording of the settings decides."""
        words = short(answer.text)
        refusal = sudo.refused(_status(settings), answer.text)
        if refusal is not None:
            # It exits 1 then, like a status command for a service that is down.
            return Unknown(
                reason=f"the status command is refused by sudo: {refusal}; {sudo.advice(settings, refusal)}"
            )
        if answer.exit in (126, 127):
            return Unknown(reason=f"the status command cannot be run: {words or f'exit {answer.exit}'}")
        said = by_text(settings, plain_status(settings), answer)
        if said is not None:
            return said
        if answer.exit == 0:
            return ServiceReading(state=ServiceState.RUNNING, detail=words or "running")
        detail = words or f"not running (status exits {answer.exit})"
        return ServiceReading(state=ServiceState.STOPPED, detail=detail)

    def may(self, settings: HostSettings, command: str) -> str:
        """A command line counts as allowed if its program exists."""
        del settings
        return f"command -v {shlex.quote(_first_word(command))}"


def plain_status(settings: HostSettings) -> str:
    """The status command with the node's name, without sudo."""
    return for_node(settings.service.status or "", settings.node)


def _read(line: str) -> str:
    return f"/bin/sh -c {shlex.quote(line)} </dev/null 2>&1"


def _status(settings: HostSettings) -> str:
    line = plain_status(settings)
    needs_sudo = settings.service.status_as_root and settings.sudo is not Sudo.OFF
    return f"{sudo.prefix(Sudo.PASSWORDLESS)}{line}" if needs_sudo else line


def _first_word(line: str) -> str:
    """The program of a command line; `sh` if the line begins with shell syntax."""
    try:
        words = shlex.split(line)
    except ValueError:
        return "sh"
    first = words[0] if words else "sh"
    return first if first[:1].isalnum() or (first[:1] in "/.~_" and "=" not in first) else "sh"
