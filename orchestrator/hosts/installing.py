"""Install steps on a host: begun apart from this program, recorded there, and never ended by it.

A step goes on after its connection, and after this program: half of a package is worse than a node that is
down for longer. So it is only begun, and its host keeps the record, one for each node, beside the node's lock
(see `exclusion`), which the step holds. The record has the ticket of the step, and its exit code once it has
ended; its output is in a file beside it. A step whose record says that it runs, and that does not hold the
lock, was lost: it was killed, or its machine went down.

A start is refused at once while a step runs, and so is another step. A ticket is begun once: sent again, it
begins nothing. Neither does one that arrives after a later one of the same run and node was begun: its
connection was lost, and its step has run under another ticket, or is not wanted any more. Nor one that
arrives after the node was started. All this is asked under the lock.
"""

from __future__ import annotations

import shlex
from typing import Final

from orchestrator.hosts import exclusion, script, services, sudo
from orchestrator.hosts.connection import CommandResult, HostConnection, Outcome
from orchestrator.hosts.outcomes import failure_of, said, without_end
from orchestrator.hosts.script import Section
from orchestrator.hosts.services import for_node
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, RunInstall
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Seconds
from orchestrator.model.upgrade import InstallState, InstallView

HOLDER: Final = "install"
"""The name under which a step holds the lock."""
BEGIN_SECONDS: Final[Seconds] = 20.0
"""How long the beginning of a step is waited for."""
_FOREVER: Final[Seconds] = 10 * 365 * 24 * 3600.0
_RUNNING_SECONDS: Final = 10
"""The limit of the question whether the service runs, which no start may wait for."""
_LOOK_SECONDS: Final = 60
"""The limit of `installed`: it reads the disk."""
_TAIL_BYTES: Final = 1500
_NOT_BEGUN: Final = "not begun:"
_RUNS: Final = f"{_NOT_BEGUN} its service runs"


def command(action: RunInstall, settings: HostSettings) -> str:
    """The command line of a step, for people: with its version and node, and with sudo."""
    line = for_target(action.step.run, action.node, action.target)
    return f"{sudo.prefix(settings.sudo)}sh -c {shlex.quote(line)}" if _by_sudo(action, settings) else line


def plain_line(run: str, node: NodeName, target: str) -> str:
    """The line of a step as a host runs it, behind sudo or not."""
    return f"sh -c {shlex.quote(f'exec </dev/null; {for_target(run, node, target)}')}"


def for_target(line: str, node: NodeName, target: str) -> str:
    """A command line of the playbook for a node and a version; the shell never executes the name."""
    return for_node(line.replace("{version}", target), node)


def stdin(action: RunInstall, settings: HostSettings) -> str | None:
    """The password, if sudo needs one for the step."""
    return sudo.stdin(settings) if _by_sudo(action, settings) else None


def begin_script(action: RunInstall, settings: HostSettings) -> str:
    """A script that begins a step and ends once its host has recorded it.

    It exits with 0 if the step runs or has ended well, with 1 if it was certainly not begun, and says why.
    """
    fed = stdin(action, settings) is not None
    runner = exclusion.exclusive(
        settings, HOLDER, _recorded(action, settings), limit=_FOREVER, patience=0, needs_lock=True
    )
    arguments = script.assigned(
        ticket=action.ticket,
        runner=f"ticket=$1 record=$2; export ticket record\n{runner}",
        fed="yes" if fed else "",
        tries=round(BEGIN_SECONDS * 10) - 50,
    )
    files = ("take.sh", "install_record.sh", "install_begin.sh")
    return "\n".join((exclusion.with_functions(settings), arguments, *map(script.text, files)))


def _recorded(action: RunInstall, settings: HostSettings) -> str:
    """The line that runs a step and records it, under the lock; it inherits `$record` and `$ticket`."""
    running = script.limited(services.running_command(settings), _RUNNING_SECONDS)
    installed = ""
    if action.installed is not None:
        installed = script.limited(for_target(action.installed, action.node, action.target), _LOOK_SECONDS)
    behind = sudo.prefix(settings.sudo) if _by_sudo(action, settings) else ""
    step = f"{behind}{plain_line(action.step.run, action.node, action.target)}"
    arguments = script.assigned(running=running, installed=installed, step=step)
    return "\n".join((arguments, script.text("install_record.sh"), script.text("install_run.sh")))


def _by_sudo(action: RunInstall, settings: HostSettings) -> bool:
    return action.step.as_root and settings.sudo is not Sudo.OFF


def begin(action: RunInstall, settings: HostSettings, connection: HostConnection) -> ActionResult:
    """Begin a step. If the result is in doubt, the record shows later whether it was begun."""
    sent = script.untranslated(begin_script(action, settings))
    return _came_of(connection.run(sent, timeout=2 * BEGIN_SECONDS, stdin=stdin(action, settings)))


def _came_of(outcome: Outcome) -> ActionResult:
    if not isinstance(outcome, CommandResult):
        return without_end(outcome)
    output = said(outcome)
    if outcome.exit == 0:
        return Done(output=output)
    if _NOT_BEGUN in output or exclusion.was_not_run(output):
        # A node that has come up by itself is seen by the next reading.
        return Refused(reason=output, passes=_RUNS in output or exclusion.held_by(output) is not None)
    return InDoubt(reason=failure_of(outcome) or output)


# The record ------------------------------------


def record_script(settings: HostSettings) -> str:
    """A shell line that prints the record of the node's last step, and the end of its output."""
    return (
        f"({exclusion.with_functions(settings)}\ntail={_TAIL_BYTES}\n"
        f"{script.text('install_record.sh')}{script.text('install_look.sh')})"
    )


def read_record(answer: Section | None) -> InstallView | None:
    """The answer to `record_script`; None where no step is recorded."""
    if answer is None or not answer.text.strip():
        return None
    first, _, said = answer.text.partition("\n")
    ticket, _, code = first.strip().rpartition(" ")
    said = said.strip()
    match code:
        case "running":
            return InstallView(ticket=ticket, state=InstallState.RUNNING, said=said)
        case "0":
            return InstallView(ticket=ticket, state=InstallState.DONE, said=said)
        case "found":
            return InstallView(ticket=ticket, state=InstallState.FOUND, said=said)
        case _ if code.isdigit():
            last = f"exit {code}: {said.splitlines()[-1].strip()}" if said else f"exit {code}"
            return InstallView(ticket=ticket, state=InstallState.FAILED, said=last)
        case _:
            return InstallView(ticket=ticket, state=InstallState.LOST, said=said)
