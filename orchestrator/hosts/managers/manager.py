"""What every service manager of a host has. A new one is a module beside this one and a line in `registry`.

Stops and starts are requested in one of two ways:

- **systemd** accepts a job and answers at once (`--no-block`): a refusal is known when the call returns, the
  job continues without this program, and a start sent during a stop waits behind it in systemd's own queue.
- **The others** work in the foreground: they run detached, see `script.detached`. So does a start that waits
  for a hook on its host, under any manager.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown

SIMPLE_COMMAND: Final = re.compile(r"^[\w@%+:,./' =-]+$")
"""A line that sudo runs directly; a line with operators of the shell needs a shell behind sudo."""
_NOT_DONE: Final = re.compile(
    r"no such container|permission denied.*docker|cannot connect to the docker daemon|unrecognized service",
    re.IGNORECASE,
)
_DETAIL_CHARACTERS: Final = 300


class ServiceVerb(Enum):
    """A request to a service manager."""

    STOP = "stop"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReading:
    """The state of a service, and the manager's text for it."""

    state: ServiceState
    detail: str
    # why the service could not be started after a stop; empty if nothing is known against it
    barred: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram:
    """A program on a host."""

    name: str  # to find it by where it is not at its usual path
    path: str  # the usual one, word for word as in the sudoers files of the documentation


SYSTEMCTL: Final = HostProgram(name="systemctl", path="/usr/bin/systemctl")
REBOOT: Final = HostProgram(name="reboot", path="/usr/sbin/reboot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    """A way to reboot a host."""

    program: HostProgram
    words: str = ""  # the arguments, with a leading blank


BY_SYSTEMD: Final = Reboot(program=SYSTEMCTL, words=" reboot")
BY_ITSELF: Final = Reboot(program=REBOOT)


class ServiceManager(ABC):
    """One service manager."""

    program: HostProgram | None = None  # what takes its verbs; None if the command lines name it themselves
    # the ways to reboot its hosts; the first one that a host has is used
    reboots: tuple[Reboot, ...] = (BY_SYSTEMD, BY_ITSELF)
    # whether it accepts a job and answers at once, and keeps two jobs of a service apart
    queues: bool = False
    excludes: bool = False  # whether it never runs two verbs of a service at once
    exact: bool = False  # whether its answer about a service changes exactly when the state does
    # a regular expression of `grep -E` for a line of `status` of a service that runs, or is on its way up or
    # down; None if the exit code of `status` tells, or the wording of the settings
    runs: str | None = None
    # in its words about a service: it has ended by itself, and is started again and again
    restarts: str | None = None

    @abstractmethod
    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """The command line of a verb without sudo, word for word as a sudoers file must contain it."""

    @abstractmethod
    def status(self, settings: HostSettings) -> str:
        """A shell line whose output and exit code give the state."""

    @abstractmethod
    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        """Parse the answer to `status`; an answer that is not understood is `Unknown`."""

    @abstractmethod
    def may(self, settings: HostSettings, command: str) -> str:
        """A shell line that tests without sudo whether a command is allowed, without running it."""

    def last_words(self, settings: HostSettings) -> tuple[tuple[str, str], ...]:
        """Named shell lines that print why the service did not start, without sudo.

        None where only the start itself can say it.
        """
        del settings
        return ()

    def did_nothing(self, line: str, output: str) -> bool:
        """Whether the output of a failed verb proves that it changed nothing.

        In a line of several commands, a later one may say so after an earlier one did something.
        """
        return SIMPLE_COMMAND.match(line) is not None and says_not_done(output)


def unit(settings: HostSettings) -> str:
    """The name of the unit, script or container, quoted for the shell; raises `UntrustedValue`."""
    return shlex.quote(settings.unit)


def short(text: str) -> str:
    """The first line with text, bounded."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _DETAIL_CHARACTERS else f"{line[:_DETAIL_CHARACTERS]}…"


def by_text(settings: HostSettings, line: str, answer: Section) -> ServiceReading | Unknown | None:
    """The state according to the wording of the settings; None if the exit code decides."""
    wording = settings.service.wording
    state = None if wording is None else wording.state(line, answer.exit, answer.text)
    if state is None or isinstance(state, Unknown):
        return state
    return ServiceReading(state=state, detail=short(answer.text) or state.value)


def says_not_done(output: str) -> bool:
    """Whether a tool reports that it could not even address the service."""
    return _NOT_DONE.search(output) is not None
