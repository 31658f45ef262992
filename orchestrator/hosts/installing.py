"""Install steps on a host: begun apart from this program, recorded there, and never ended by it.

A step goes on after its connection, and after this program: half of a package is worse than a node that is
down for longer. So it is only begun, and its host keeps the record, one for each node, beside the node's lock
(see `exclusion`), which the step holds. The record has the ticket of the step, and its exit code once it has
ended; its output is in a file beside it. A step whose record says that it runs, and that does not hold the
lock, was lost: it was killed, or its machine went down.

A start is refused at once while a step runs, and so is another step. A ticket is begun once: sent again, it
begins nothing. Neither does one that arrives after a later one of the same run and node was begun: its
connection was lost, and its step has run under another ticket, or is not wanted any more.
"""

from __future__ import annotations

import shlex
from typing import Final

from orchestrator.hosts import exclusion, script, services, sudo
from orchestrator.hosts.asked import failure_of
from orchestrator.hosts.connection import CommandResult, Connection, Outcome, Unreachable
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, Sudo
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, RunInstall
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds
from orchestrator.model.upgrade import InstallState, InstallView

HOLDER: Final = "install"
"""The name under which a step holds the lock."""
BEGIN_SECONDS: Final[Seconds] = 20.0
"""How long the beginning of a step is waited for."""
_FOREVER: Final[Seconds] = 10 * 365 * 24 * 3600.0
_LOOK_SECONDS: Final = 60
"""The limit of `installed`: it reads the disk."""
_TAIL_BYTES: Final = 1500
_NOT_BEGUN: Final = "not begun:"

_BEGIN: Final = """\
record=$lock.install
read_record() {{ code='' of=''; {{ read -r of code <"$record"; }} 2>/dev/null; [ "$of" = "$ticket" ]; }}
if read_record; then echo 'it was begun before'; exit 0; fi
if [ "${{of%/*/*}}" = "${{ticket%/*/*}}" ] && [ "${{ticket##*/}}" -lt "${{of##*/}}" ]; then
    echo '{not_begun} a later install step was begun'; exit 1
fi
if {running}; then echo '{not_begun} its service runs'; exit 1; fi
{password}said=$record.begin
command -v setsid >/dev/null && apart=setsid || apart=nohup
{feed}$apart /bin/sh -c {runner} install "$ticket" "$record" >"$said" 2>&1 <{stdin} 9>&- &
runner=$!
tries=0
while [ "$tries" -lt {tries} ]; do
    if read_record; then exit 0; fi
    if ! kill -0 "$runner" 2>/dev/null; then
        read_record && exit 0
        cat "$said"; echo '{not_begun} see above'; exit 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
    tries=$((tries + 1))
done
echo 'no sign of it yet'; exit 3
"""


_LOOK: Final = f"""\
find_lock && [ -f "$lock.install" ] || exit 0
read_record() {{ code='' of=''; {{ read -r of code <"$lock.install"; }} 2>/dev/null; [ "$code" = running ]; }}
# A step keeps its exit code before it gives the lock back: without a holder, the record is read again.
if read_record && ! {{ holder && [ "$held_by" = {HOLDER} ]; }} && read_record; then code=lost; fi"""


def command(action: RunInstall, settings: HostSettings) -> str:
    """The command line of a step, for people: with its version and node, and with sudo."""
    line = for_target(action.step.run, action.node, action.target)
    return f"{sudo.prefix(settings.sudo)}sh -c {shlex.quote(line)}" if _by_sudo(action, settings) else line


def plain_line(run: str, node: NodeName, target: str) -> str:
    """The line of a step as a host runs it, behind sudo or not."""
    return f"sh -c {shlex.quote(f'exec </dev/null; {for_target(run, node, target)}')}"


def for_target(line: str, node: NodeName, target: str) -> str:
    """A command line of the playbook for a node and a version."""
    return line.replace("{version}", target).replace("{node}", node)


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
    body = _BEGIN.format(
        running=_running(settings),
        not_begun=_NOT_BEGUN,
        # A shell's variable and a builtin: the password is in no argument list.
        password="IFS= read -r password\n" if fed else "",
        feed="printf '%s\\n' \"$password\" | " if fed else "",
        stdin="&0" if fed else "/dev/null",
        runner=shlex.quote(f"ticket=$1 record=$2; export ticket record\n{runner}"),
        tries=round(BEGIN_SECONDS * 10) - 50,
    )
    return "\n".join((exclusion.with_lock(settings), f"ticket={shlex.quote(action.ticket)}", body))


def _running(settings: HostSettings) -> str:
    """A shell line that succeeds if the service certainly runs."""
    manager = services.manager(settings)
    return "false" if manager.excludes else services.running_command(settings)


def _recorded(action: RunInstall, settings: HostSettings) -> str:
    """The line that runs a step and records it; it inherits `$record` and `$ticket`."""
    line = plain_line(action.step.run, action.node, action.target)
    behind = sudo.prefix(settings.sudo) if _by_sudo(action, settings) else ""
    installed = ""
    if action.installed is not None:
        look = for_target(action.installed, action.node, action.target)
        inner = script.limited(look, _LOOK_SECONDS)
        installed = f"""\
if /bin/sh -c {shlex.quote(inner)} </dev/null >"$record.out" 2>&1; then keep found; exit 0; fi
"""
    return f"""\
keep() {{ echo "$ticket $1" >"$record.new" && mv -f "$record.new" "$record"; }}
: >"$record.out"
keep running || exit 1
{installed}{behind}{line} >"$record.out" 2>&1
code=$?
keep "$code"
exit "$code"
"""


def _by_sudo(action: RunInstall, settings: HostSettings) -> bool:
    return action.step.as_root and settings.sudo is not Sudo.OFF


def begin(action: RunInstall, settings: HostSettings, connection: Connection) -> ActionResult:
    """Begin a step. If the result is in doubt, the record shows later whether it was begun."""
    sent = script.shell(begin_script(action, settings))
    return _came_of(connection.run(sent, timeout=2 * BEGIN_SECONDS, stdin=stdin(action, settings)))


def _came_of(outcome: Outcome) -> ActionResult:
    if isinstance(outcome, Unreachable):
        return Refused(reason=outcome.reason, passes=outcome.passes)
    if not isinstance(outcome, CommandResult):
        return InDoubt(reason=failure_of(outcome) or "")
    said = "\n".join(part for part in (outcome.stdout.strip(), outcome.stderr.strip()) if part)
    if outcome.exit == 0:
        return Done(output=said)
    if _NOT_BEGUN in said or exclusion.was_not_run(said):
        return Refused(reason=said, passes=exclusion.held_by(said) is not None)
    return InDoubt(reason=failure_of(outcome) or said)


# The record ------------------------------------


def record_script(settings: HostSettings) -> str:
    """A shell line that prints the record of the node's last step, and the end of its output."""
    return (
        f"({exclusion.with_functions(settings)}\n"
        f"{_LOOK}\n"
        f'echo "$of $code"; tail -c {_TAIL_BYTES} "$lock.install.out" 2>/dev/null)'
    )


def read_record(answer: Section | None) -> InstallView | None:
    """The answer to `record_script`; None where no step is recorded."""
    if answer is None or not answer.text.strip():
        return None
    first, _, said = answer.text.partition("\n")
    ticket, _, code = first.strip().partition(" ")
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
