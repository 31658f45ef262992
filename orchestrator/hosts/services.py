"""Service managers: the command lines that each takes, and how its answers are read. Pure.

Stops and starts are requested in one of two ways:

- **systemd** accepts a job and answers at once (`--no-block`): a refusal is known when the call returns, the
  job continues without this program, and a start sent during a stop waits behind it in systemd's own queue.
- **sysv, docker and command lines** work in the foreground: they run detached, see `script.detached`. So does
  a start that waits for a hook on its host, under any manager.

Reads need no rights and do not go through sudo, except for Riak's own (`status_as_root`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.hosts import sudo
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, Manager, ServiceSettings, Sudo, Wording
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown

PROGRAMS: Final = {
    Manager.SYSTEMD: "/usr/bin/systemctl",
    Manager.SYSV: "/usr/sbin/service",
    Manager.DOCKER: "/usr/bin/docker",
}
REBOOTS: Final = {
    Manager.SYSTEMD: "/usr/bin/systemctl reboot",
    Manager.SYSV: "/usr/sbin/reboot",
    Manager.DOCKER: "/usr/bin/systemctl reboot",
    Manager.COMMAND: "/usr/bin/systemctl reboot",
}
_PROPERTIES: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainStatus",
    "Job",
)
_INSPECT: Final = "{{.State.Status}}|{{.State.ExitCode}}|{{.State.StartedAt}}|{{.State.Error}}"
SIMPLE_COMMAND: Final = re.compile(r"^[\w@%+:,./' =-]+$")
"""A line that sudo runs directly; a line with operators of the shell needs a shell behind sudo."""
_LSB_RUNNING, _LSB_DEAD_PID, _LSB_DEAD_LOCK, _LSB_STOPPED = 0, 1, 2, 3
"""Exit codes of `status`, Linux Standard Base 5.0, "Init Script Actions"."""
_QUOTES: Final = re.compile(r"""['"\\`$#<\n]""")
"""Characters that may put a placeholder into quotes, an escape or a comment of a command line."""
_NODE: Final = re.compile(r"(?<!\$)\{node\}")  # not `${node}`, a variable of the shell
_PIECES: Final = re.compile(rf"{_NODE.pattern}|\\[^{{]|.", re.DOTALL)
_VARIABLE: Final = "orchestrate_node"
_REFERENCES: Final = {
    "": f'"${{{_VARIABLE}}}"',
    '"': f"${{{_VARIABLE}}}",
    "'": f"""'"${{{_VARIABLE}}}"'""",
}
"""By the quotes around the placeholder."""
_ENDED_WELL: Final = frozenset({0, 130, 143})
"""SIGINT and SIGTERM are requests to end: the JVM then exits with 128 and the signal's number."""
_DETAIL_CHARACTERS: Final = 300
NOT_DONE: Final = re.compile(
    r"no such container|permission denied.*docker|cannot connect to the docker daemon|unrecognized service",
    re.IGNORECASE,
)


class Verb(Enum):
    """A request to a service manager."""

    STOP = "stop"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReading:
    """The state of a service, and the manager's text for it."""

    state: ServiceState
    detail: str


def for_node(text: str, node: str) -> str:
    """A command line with `{node}` replaced by the node's name, so that the shell never executes the name.

    Inside quotes, further quotes around the name would end them. There the name becomes the value of a
    variable: the shell never reads a variable's value as a command.
    """
    quoted = shlex.quote(node)
    if quoted != node and _NODE.search(text) and _QUOTES.search(text):
        return f"{_VARIABLE}={quoted}; {_by_reference(text)}"
    return _NODE.sub(lambda _: quoted, text)


def _by_reference(text: str) -> str:
    """The text with a reference to the variable in place of `{node}`, as each kind of quotes needs it.

    Where the shell reads the quotes differently (in a comment, a here-document or a substitution within
    quotes) the name may be split into words, but still is not executed.
    """
    written, quote = [], ""
    for piece in _PIECES.findall(text):
        if piece == "{node}":
            written.append(_REFERENCES[quote])
            continue
        if quote == "'":
            quote = "" if piece.endswith("'") else quote  # a backslash before it has no effect here
        elif piece in ("'", '"') and quote in ("", piece):
            quote = "" if quote else piece
        written.append(piece)
    return "".join(written)


def unit(settings: HostSettings) -> str:
    """The name of the unit, script or container, quoted for the shell."""
    return shlex.quote(settings.service.unit.replace("{node}", settings.node))


def is_queued(settings: HostSettings) -> bool:
    """Whether the manager accepts a job and answers at once; the others work in the foreground."""
    return settings.service.manager is Manager.SYSTEMD


def plain_command(settings: HostSettings, verb: Verb) -> str:
    """The command line of a verb without sudo, word for word as a sudoers file must contain it."""
    service, name = settings.service, unit(settings)
    program = _program(service)
    match service.manager:
        case Manager.SYSTEMD:
            return f"{program} --no-block {verb.value} {name}"
        case Manager.SYSV:
            return f"{program} {name} {verb.value}"
        case Manager.DOCKER:
            grace = f"-t {round(service.grace)} " if verb is Verb.STOP else ""
            return f"{program} {verb.value} {grace}{name}"
        case Manager.COMMAND:
            line = (service.stop if verb is Verb.STOP else service.start) or ""
            return _for_sudo(settings, for_node(line, settings.node))


def _for_sudo(settings: HostSettings, line: str) -> str:
    if settings.sudo is Sudo.OFF or SIMPLE_COMMAND.match(line):
        return line
    return f"/bin/sh -c {shlex.quote(line)}"


def command(settings: HostSettings, verb: Verb) -> str:
    """The exact command line of a verb; it holds no secret."""
    return sudo.prefix(settings.sudo) + plain_command(settings, verb)


def plain_reboot(settings: HostSettings) -> str:
    """The command line of a reboot without sudo."""
    service = settings.service
    return _for_sudo(settings, for_node(service.reboot or REBOOTS[service.manager], settings.node))


def reboot_command(settings: HostSettings) -> str:
    """The exact command line of a reboot."""
    return sudo.prefix(settings.sudo) + plain_reboot(settings)


def status_command(settings: HostSettings) -> str:
    """A shell line whose output and exit code give the state; read by `read_state`."""
    service, name = settings.service, unit(settings)
    match service.manager:
        case Manager.SYSTEMD:
            wanted = " ".join(f"-p {name}" for name in _PROPERTIES)
            return f"{_program(service)} show {wanted} {name} 2>&1"
        case Manager.SYSV:
            return f"{_program(service)} {name} status </dev/null 2>&1"
        case Manager.DOCKER:
            return f"{_program(service)} inspect --type container -f {shlex.quote(_INSPECT)} {name} 2>&1"
        case Manager.COMMAND:
            plain = _shell_read(_plain_status(settings))
            if not service.status_as_root or settings.sudo is Sudo.OFF:
                return plain
            behind_sudo = _shell_read(_status_line(settings))
            if settings.sudo is not Sudo.AUTO:
                return behind_sudo
            return f"if {sudo.IS_ROOT}; then {plain}; else {behind_sudo}; fi"


def _shell_read(line: str) -> str:
    return f"/bin/sh -c {shlex.quote(line)} </dev/null 2>&1"


def _status_line(settings: HostSettings) -> str:
    """The status command with sudo where it needs it: always without a password, as all reads."""
    line = _plain_status(settings)
    needs_sudo = settings.service.status_as_root and settings.sudo is not Sudo.OFF
    return f"{sudo.prefix(Sudo.PASSWORDLESS)}{line}" if needs_sudo else line


def running_command(settings: HostSettings) -> str:
    """A shell line that succeeds if the service runs, and prints nothing; for init scripts and commands."""
    line, wording = status_command(settings), settings.service.wording
    if wording is None:
        return f"{{ {line}; }} >/dev/null 2>&1"
    if _decides(settings):
        return f"{{ {line}; }} 2>&1 | {_grep_running(wording)} >/dev/null"
    quiet = f"printf '%s\\n' \"$said\" | grep -E -e {shlex.quote(wording.stopped)} >/dev/null"
    return f"said=$({line}) && ! {quiet}"


def mark_command(settings: HostSettings) -> str:
    """A shell line that prints the mark of the present state, the same as `mark` makes of a reading."""
    line, wording = status_command(settings), settings.service.wording
    if _says_by_text(settings):
        return line
    if wording is None:
        return f"{line.removesuffix(' 2>&1')} >/dev/null 2>&1; echo $?"
    return f"said=$({line}); echo $?; printf '%s\\n' \"$said\" | {_grep_running(wording)} | head -n 1"


def mark(settings: HostSettings, answer: Section) -> str:
    """A text that changes with the state.

    The whole answer if it is exact; otherwise the exit code, and the line that shows that the service runs.
    """
    if _says_by_text(settings):
        return answer.text
    wording = settings.service.wording
    runs = wording is not None and wording.running in answer.text.replace("\r", "").split("\n")
    return f"{answer.exit}\n{wording.running}" if wording is not None and runs else str(answer.exit)


def _grep_running(wording: Wording) -> str:
    return f"tr -d '\\r' | grep -x -F -e {shlex.quote(wording.running)}"


def _plain_status(settings: HostSettings) -> str:
    return for_node(settings.service.status or "", settings.node)


def _decides(settings: HostSettings) -> bool:
    """Whether the text of the status command is enough, with any exit code."""
    service = settings.service
    if service.wording is None or service.manager is not Manager.COMMAND:
        return False
    return service.wording.decides(_plain_status(settings))


def read_state(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    """Parses the answer to `status_command`; an answer that is not understood is `Unknown`."""
    match settings.service.manager:
        case Manager.SYSTEMD:
            return _read_systemd(settings, answer)
        case Manager.SYSV:
            return _read_lsb(settings, answer)
        case Manager.DOCKER:
            return _read_docker(settings, answer)
        case Manager.COMMAND:
            return _read_command(settings, answer)


def refused_by_sudo(line: str, output: str) -> str | None:
    """The refusal of sudo to start a line; None for the refusal of a sudo in the middle of the line."""
    return sudo.refusal(output) if line.startswith("sudo ") else None


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


def _program(service: ServiceSettings) -> str:
    return service.program or PROGRAMS.get(service.manager, "")


def _says_by_text(settings: HostSettings) -> bool:
    return settings.service.manager in (Manager.SYSTEMD, Manager.DOCKER)


def _read_systemd(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    values = dict(line.partition("=")[::2] for line in answer.text.splitlines() if "=" in line)
    active, sub = values.get("ActiveState", ""), values.get("SubState", "")
    if answer.exit != 0 or not active:
        return Unknown(
            reason=f"systemctl show {unit(settings)}: {_short(answer.text) or f'exit {answer.exit}'}"
        )
    load = values.get("LoadState", "")
    if load in ("not-found", "error", "bad-setting"):
        return Unknown(reason=f"systemd has no unit {unit(settings)} ({load}): correct `hosts.service.unit`")
    if load == "masked" and active in ("inactive", "failed"):
        return Unknown(reason=f"unit {unit(settings)} is masked and cannot be started: `systemctl unmask` it")
    queued = values.get("Job", "") not in ("", "0")
    detail = f"{active} ({sub})"
    match active:
        case "active" if sub == "exited":
            return Unknown(
                reason=f"unit {unit(settings)} is active (exited): systemd does not follow its process;"
                " use `manager: sysv` or `command`"
            )
        case "active" | "reloading" | "refreshing":
            return ServiceReading(state=ServiceState.RUNNING, detail=detail)
        case "inactive" | "failed" if queued:
            return ServiceReading(state=ServiceState.STARTING, detail=f"{detail}, a job is queued")
        case "inactive":
            return ServiceReading(state=ServiceState.STOPPED, detail=detail)
        case "failed":
            status = (
                f", status {values['ExecMainStatus']}" if values.get("ExecMainStatus", "0") != "0" else ""
            )
            why = values.get("Result", "unknown")
            return ServiceReading(state=ServiceState.FAILED, detail=f"failed (Result: {why}{status})")
        case "activating":
            return ServiceReading(state=ServiceState.STARTING, detail=detail)
        case "deactivating":
            return ServiceReading(state=ServiceState.STOPPING, detail=detail)
        case _:
            return Unknown(reason=f"unit {unit(settings)} is {detail}")


def _read_text(settings: HostSettings, line: str, answer: Section) -> ServiceReading | Unknown | None:
    """The state according to the text; None if the exit code decides."""
    wording = settings.service.wording
    state = None if wording is None else wording.state(line, answer.exit, answer.text)
    if state is None or isinstance(state, Unknown):
        return state
    return ServiceReading(state=state, detail=_short(answer.text) or state.value)


def _read_lsb(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    said = _read_text(settings, "", answer)
    if said is not None:
        return said
    words = _short(answer.text)
    match answer.exit:
        case code if code == _LSB_RUNNING:
            return ServiceReading(state=ServiceState.RUNNING, detail=words or "running")
        case code if code in (_LSB_DEAD_PID, _LSB_DEAD_LOCK) and not NOT_DONE.search(answer.text):
            # Not running, and not ended cleanly: its pid file or lock file is left.
            return ServiceReading(state=ServiceState.FAILED, detail=words or f"dead (status exits {code})")
        case code if code == _LSB_STOPPED:
            return ServiceReading(state=ServiceState.STOPPED, detail=words or "stopped")
        case code:
            return Unknown(reason=f"service {unit(settings)} status exits {code}: {words or 'no output'}")


def _read_docker(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    status, _, rest = answer.text.partition("|")
    if answer.exit != 0 or not rest:
        hint = " (the account must be in the group docker: reads do not go through sudo)"
        permission = hint if "permission denied" in answer.text.lower() else ""
        return Unknown(reason=f"docker inspect {unit(settings)}: {_short(answer.text)}{permission}")
    code = rest.partition("|")[0]
    match status:
        case "running":
            return ServiceReading(state=ServiceState.RUNNING, detail=status)
        case "restarting":
            return ServiceReading(state=ServiceState.STARTING, detail=f"restarting (exit {code})")
        case "created":
            return ServiceReading(state=ServiceState.STOPPED, detail=status)
        case "exited":
            well = code.isdigit() and int(code) in _ENDED_WELL
            state = ServiceState.STOPPED if well else ServiceState.FAILED
            return ServiceReading(state=state, detail=f"exited ({code})")
        case "dead" | "removing":
            return ServiceReading(state=ServiceState.FAILED, detail=status)
        case _:
            return Unknown(reason=f"container {unit(settings)} is {status}")


def _read_command(settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
    words = _short(answer.text)
    refusal = refused_by_sudo(_status_line(settings), answer.text)
    if refusal is not None:
        # It exits 1 then, like a status command for a service that is down.
        return Unknown(reason=f"the status command is refused by sudo: {refusal}; {sudo.advice(refusal)}")
    if answer.exit in (126, 127):
        return Unknown(reason=f"the status command cannot be run: {words or f'exit {answer.exit}'}")
    said = _read_text(settings, _plain_status(settings), answer)
    if said is not None:
        return said
    if answer.exit == 0:
        return ServiceReading(state=ServiceState.RUNNING, detail=words or "running")
    return ServiceReading(
        state=ServiceState.STOPPED, detail=words or f"not running (status exits {answer.exit})"
    )


def _short(text: str) -> str:
    """The first line with text, bounded."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _DETAIL_CHARACTERS else f"{line[:_DETAIL_CHARACTERS]}…"
