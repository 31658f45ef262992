"""The service of a node: the lines that stop, start and read it, and what its host answers. Pure.

Each service manager is a module of `managers`. Reads need no rights and do not go through sudo, except for
Riak's own (`status_as_root`).
"""

from __future__ import annotations

import re
import shlex

from orchestrator.errors import ConfigError
from orchestrator.hosts import sudo
from orchestrator.hosts.managers.command_lines import plain_status
from orchestrator.hosts.managers.manager import (
    SIMPLE_COMMAND,
    ServiceManager,
    ServiceReading,
    ServiceVerb,
    unit,
)
from orchestrator.hosts.managers.registry import MANAGERS
from orchestrator.hosts.placeholder import for_node
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, Wording, paths_of
from orchestrator.model.reading import Unknown
from orchestrator.untrusted import UntrustedValue, shortened


def manager(settings: HostSettings) -> ServiceManager:
    """The service manager of a node."""
    return MANAGERS[settings.service.manager]


def fault(settings: HostSettings) -> str | None:
    """Why the names of the service and its data paths cannot be sent to a host at all; None if they can."""
    service = settings.service
    try:
        if manager(settings).program is None:
            for line in (service.stop, service.start, service.status):
                for_node(line or "", settings.node)
        elif service.is_named:
            unit(settings)
        paths_of(settings.node, settings.data)
    except ConfigError as error:
        return f"`hosts.service`: {error}"
    except UntrustedValue as error:
        return (
            f"{error}: rename node {shortened(settings.node)}, or set `service.unit` or `data` without"
            " `{node}` for it under `hosts.overrides`"
        )
    return None


def plain_command(settings: HostSettings, verb: ServiceVerb) -> str:
    """The command line of a verb without sudo, word for word as a sudoers file must contain it."""
    return manager(settings).verb(settings, verb)


def command(settings: HostSettings, verb: ServiceVerb) -> str:
    """The exact command line of a verb; it holds no secret."""
    return sudo.prefix(settings.sudo) + plain_command(settings, verb)


def plain_reboot(settings: HostSettings) -> str:
    """The command line of a reboot without sudo."""
    usual = manager(settings).reboots[0]
    return settings.service.reboot or f"{usual.program.path}{usual.words}"


def reboot_command(settings: HostSettings) -> str:
    """The exact command line of a reboot."""
    return sudo.prefix(settings.sudo) + plain_reboot(settings)


def status_command(settings: HostSettings) -> str:
    """A shell line whose output and exit code give the state; read by `read_state`."""
    return manager(settings).status(settings)


def running_command(settings: HostSettings) -> str:
    """A shell line that succeeds if the service runs, and prints nothing."""
    line, wording = status_command(settings), settings.service.wording
    runs = manager(settings).runs
    if runs is not None:
        return f"{line} | grep -E -x -e {shlex.quote(runs)} >/dev/null"
    if wording is None:
        return f"{{ {line}; }} >/dev/null 2>&1"
    if _decides(settings):
        return f"{{ {line}; }} 2>&1 | {_grep_running(wording)} >/dev/null"
    quiet = f"printf '%s\\n' \"$said\" | grep -E -e {shlex.quote(wording.stopped)} >/dev/null"
    return f"said=$({line}) && ! {quiet}"


def mark_command(settings: HostSettings) -> str:
    """A shell line that prints the mark of the present state, the same as `mark` makes of a reading."""
    line, wording = status_command(settings), settings.service.wording
    if manager(settings).exact:
        return line
    if wording is None:
        return f"{line.removesuffix(' 2>&1')} >/dev/null 2>&1; echo $?"
    return f"said=$({line}); echo $?; printf '%s\\n' \"$said\" | {_grep_running(wording)} | head -n 1"


def mark(settings: HostSettings, answer: Section) -> str:
    """A text that changes with the state.

    The whole answer if it is exact; otherwise the exit code, and the line that shows that the service runs.
    """
    if manager(settings).exact:
        return answer.text
    wording = settings.service.wording
    runs = wording is not None and wording.running in answer.text.replace("\r", "").split("\n")
    return f"{answer.exit}\n{wording.running}" if wording is not None and runs else str(answer.exit)


def read_state(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    """Parse the answer to `status_command`; an answer that is not understood is `Unknown`."""
    return manager(settings).read(settings, answer)


def never_ran(line: str, output: str) -> bool:
    """Whether the shell reports that the program of a line cannot be run.

    The exit codes 126 and 127 alone prove nothing: a line of several commands, and a script, also end with
    them if their last program is missing.
    """
    if not SIMPLE_COMMAND.match(line) or not line.strip():
        return False
    program = re.escape(line.split(maxsplit=1)[0])
    said = rf"(?:^|[\s:]){program}: (?:command )?(?:not found|permission denied|no such file)"
    return re.search(said, output, re.IGNORECASE | re.MULTILINE) is not None


def _grep_running(wording: Wording) -> str:
    return f"tr -d '\\r' | grep -x -F -e {shlex.quote(wording.running)}"


def _decides(settings: HostSettings) -> bool:
    """Whether the text of the status command is enough, with any exit code."""
    wording = settings.service.wording
    if wording is None or manager(settings).program is not None:
        return False
    return wording.decides(plain_status(settings))
