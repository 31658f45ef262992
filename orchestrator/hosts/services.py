"""The service of a node: the lines that stop, start and read it, and what its host answers. Pure.

A new service manager is a class here and a line in `MANAGERS`. Stops and starts are requested in one of two
ways:

- **systemd** accepts a job and answers at once (`--no-block`): a refusal is known when the call returns, the
  job continues without this program, and a start sent during a stop waits behind it in systemd's own queue.
- **The others** work in the foreground: they run detached, see `script.detached`. So does a start that waits
  for a hook on its host, under any manager.

Reads need no rights and do not go through sudo, except for Riak's own (`status_as_root`).
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.errors import ConfigError
from orchestrator.hosts import sudo
from orchestrator.hosts.script import Section
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, Sudo, Wording, paths_of
from orchestrator.model.observation import ServiceState
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.untrusted import UntrustedValue, one_line, plain_name, shortened

# Command lines of the operator ------------------------------------


VARIABLE: Final = "ORCHESTRATE_NODE"
"""Has the node's name in every command line that names it: for names that cannot replace `{node}`."""
_NODE: Final = re.compile(r"(?<!\$)\{node\}")  # not `${node}`, a variable of the shell


def for_node(text: str, node: str) -> str:
    """A command line for one node: `{node}` replaced by its name, and `$ORCHESTRATE_NODE` set to it.

    A line may have any number of shells and programs behind the first one that read it again (`sh -c`,
    `eval`, `trap`, `ssh`, `xargs`), which no reading of the line finds, and no quotes hold for all of them.
    So the name decides: a plain one means nothing to any of them, wherever it is. Every other name is only
    the value of a variable, which a shell does not read as code.

    Raises:
        ConfigError: the line has `{node}`, and a shell could read a part of the name as code.
    """
    if _NODE.search(text):
        try:
            text = _NODE.sub(plain_name(node), text)
        except UntrustedValue as error:
            raise ConfigError(
                f"{error}: a shell could run a part of it in `{one_line(text, 80)}`. Rename the node, or"
                f' write "${VARIABLE}" in place of `{{node}}`; within a second shell in single quotes:'
                f""" sh -c 'COMMAND "${VARIABLE}"'"""
            ) from None
    return f"{VARIABLE}={shlex.quote(node)}; export {VARIABLE}; {text}" if VARIABLE in text else text


def require_names(policy: Policy, nodes: Iterable[str]) -> None:
    """See that every command line of a policy can be made for every node.

    Raises:
        ConfigError: one cannot; the node and the line are named.
    """
    hooks, upgrade = policy.hooks, policy.upgrade
    lines = [hook.run for hook in (*hooks.before_stop, *hooks.while_stopped, *hooks.after_recovery)]
    if upgrade is not None:
        lines += [*(step.run for step in upgrade.install), *upgrade.verify, upgrade.installed or ""]
    for node in nodes:
        for line in lines:
            for_node(line, node)


# Service managers ------------------------------------


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
    # down; None if the exit code of `status` decides, or the wording of the settings
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


_SHOW: Final = (
    "show -p LoadState -p ActiveState -p SubState -p Result -p MainPID -p ExecMainStatus -p NRestarts -p Job"
)
_IN_DOUBT: Final = re.compile(
    r"timed out|connection reset|did not receive a reply|transport endpoint|no reply", re.IGNORECASE
)
"""The call to systemd itself failed half-way: it is unknown whether systemd accepted the job."""
_LOG_LINES: Final = 60
"""Most may be of a stack trace."""
_POLKIT: Final = "pkcheck --action-id org.freedesktop.systemd1.manage-units --process $$"


class Systemd(ServiceManager):
    """Units of systemd, read with `systemctl show`, which needs no rights."""

    program = SYSTEMCTL
    reboots = (BY_SYSTEMD,)
    queues = True
    excludes = True
    exact = True
    restarts = "restart"
    runs = "ActiveState=(active|reloading|refreshing|activating|deactivating)|Job=[1-9][0-9]*"

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """Without `--` before the unit: deployed sudoers files have the line word for word."""
        return f"{settings.service.program or SYSTEMCTL.path} --no-block {verb.value} {unit(settings)}"

    def status(self, settings: HostSettings) -> str:
        return f"{settings.service.program or SYSTEMCTL.path} {_SHOW} -- {unit(settings)} 2>&1"

    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        values = dict(line.partition("=")[::2] for line in answer.text.splitlines() if "=" in line)
        active, name = values.get("ActiveState", ""), unit(settings)
        if answer.exit != 0 or not active:
            said = short(answer.text) or f"exit {answer.exit}"
            return Unknown(reason=f"systemctl show {name}: {said}")
        load = values.get("LoadState", "")
        if load in ("not-found", "error", "bad-setting"):
            return Unknown(reason=f"systemd has no unit {name} ({load}): correct `hosts.service.unit`")
        masked = f"unit {name} is masked and cannot be started: `systemctl unmask` it"
        if load == "masked" and active in ("inactive", "failed"):
            return Unknown(reason=masked)
        return _state(name, values, barred=masked if load == "masked" else "")

    def may(self, settings: HostSettings, command: str) -> str:
        del settings, command
        return f"{sudo.IS_ROOT} || {_POLKIT}"

    def last_words(self, settings: HostSettings) -> tuple[tuple[str, str], ...]:
        """What everybody may see of the unit, and its journal, which is for members of some groups only."""
        program = settings.service.program or SYSTEMCTL.path
        seen = "grep -E '^ *(Condition|Assert|Process|Main PID|Status|Error):'"
        return (
            ("status", f"{program} status --no-pager --full -n 0 -- {unit(settings)} 2>/dev/null | {seen}"),
            (
                "journal",
                f"journalctl --quiet --no-pager -o cat -n {_LOG_LINES} -u {unit(settings)} 2>/dev/null",
            ),
        )

    def did_nothing(self, line: str, output: str) -> bool:
        del line
        return not _IN_DOUBT.search(output)


def _state(name: str, values: dict[str, str], *, barred: str) -> ServiceReading | Unknown:
    active, sub = values["ActiveState"], values.get("SubState", "")
    queued = values.get("Job", "") not in ("", "0")
    detail = f"{active} ({sub})"
    if values.get("NRestarts", "0") != "0":
        detail += f", restarted by systemd: {values['NRestarts']}"  # since it was started by hand
    match active:
        case "active" if sub == "exited":
            return Unknown(
                reason=f"unit {name} is active (exited): systemd does not follow its process;"
                " use `manager: sysv` or `command`"
            )
        case "active" | "reloading" | "refreshing":
            return ServiceReading(state=ServiceState.RUNNING, detail=detail, barred=barred)
        case "inactive" | "failed" if queued:
            return ServiceReading(state=ServiceState.STARTING, detail=f"{detail}, a job is queued")
        case "inactive":
            return ServiceReading(state=ServiceState.STOPPED, detail=detail)
        case "failed":
            code = values.get("ExecMainStatus", "0")
            status = f", status {code}" if code != "0" else ""
            why = values.get("Result", "unknown")
            return ServiceReading(state=ServiceState.FAILED, detail=f"failed (Result: {why}{status})")
        case "activating":
            return ServiceReading(state=ServiceState.STARTING, detail=detail, barred=barred)
        case "deactivating":
            return ServiceReading(state=ServiceState.STOPPING, detail=detail, barred=barred)
        case _:
            return Unknown(reason=f"unit {name} is {detail}")


_SERVICE: Final = HostProgram(name="service", path="/usr/sbin/service")
_RUNNING, _DEAD_PID, _DEAD_LOCK, _STOPPED = 0, 1, 2, 3
"""Exit codes of `status`, Linux Standard Base 5.0, "Init Script Actions"."""


class Sysv(ServiceManager):
    """Init scripts, by `service`; their `status` has the exit codes of the Linux Standard Base."""

    program = _SERVICE
    reboots = (BY_ITSELF,)

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """`service` takes no `--`."""
        return f"{settings.service.program or _SERVICE.path} {unit(settings)} {verb.value}"

    def status(self, settings: HostSettings) -> str:
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
        del settings, command
        return sudo.IS_ROOT


DOCKER: Final = HostProgram(name="docker", path="/usr/bin/docker")
_INSPECT: Final = (
    "{{.State.Status}}|{{.State.ExitCode}}|{{.State.StartedAt}}|{{.State.Error}}|{{.HostConfig.AutoRemove}}"
)
_REMOVED: Final = (
    "a stop removes the container (`--rm`), and then nothing is left to start: name the systemd unit that"
    " runs it as `hosts.service` in the cluster file, or run the container without `--rm`"
)
_ENDED_WELL: Final = frozenset({0, 130, 143})
"""SIGINT and SIGTERM are requests to end: the JVM then exits with 128 and the signal's number."""


class Docker(ServiceManager):
    """Containers. Reads need no sudo: the account is in the group `docker`, which is as much as root."""

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
        return _read(_status(settings))

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


MANAGERS: Final[Mapping[Manager, ServiceManager]] = {
    Manager.SYSTEMD: Systemd(),
    Manager.SYSV: Sysv(),
    Manager.DOCKER: Docker(),
    Manager.COMMAND: CommandLines(),
}


# The service of a node ------------------------------------


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
        paths_of(settings.node, settings.data or ())
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
