"""What came of a stop, a start or a reboot that ran to its end: by its text and its exit code. Pure."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts import exclusion, services, sudo
from orchestrator.hosts.services import Verb
from orchestrator.hosts.settings import HostSettings, Manager
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused

_IN_DOUBT: Final = re.compile(
    r"timed out|connection reset|did not receive a reply|transport endpoint|no reply", re.IGNORECASE
)
"""The call to systemd itself failed half-way: whether the job was taken is not known."""


def came_of(
    settings: HostSettings, verb: Verb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """What came of a command that was sent under the node's lock; see `result_of` for the arguments."""
    holder = exclusion.held_by(output) if exit_code != 0 else None
    if holder is not None and holder.what == Verb.STOP.value:
        # The node is going down all the same: `Refused` would say that it stays up.
        return InDoubt(reason=f"at work on it already: {holder}")
    if exit_code != 0 and exclusion.was_not_run(output):
        return Refused(reason=output)
    if exit_code == 0 and exclusion.needed_nothing(output):
        return Done(output=output)
    return result_of(settings, verb, line, exit_code, output)


def result_of(
    settings: HostSettings, verb: Verb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """What came of a command that ran to its end; the text goes before the exit code where it tells.

    Args:
        settings: of the node.
        verb: what was asked; None for a reboot.
        line: its command line, as it was sent.
        exit_code: its exit code.
        output: what it printed.
    """
    refusal = services.refused_by_sudo(line, output) if exit_code != 0 else None
    if refusal is not None:
        return Refused(reason=f"sudo refused: {refusal}; {sudo.advice(refusal)}")
    said = None if verb is None else _by_text(settings, verb, exit_code, output)
    if said is not None:
        return said
    if exit_code == 0:
        return Done(output=output)
    reason = f"exit {exit_code}: {output or 'no output'}"
    over = verb is Verb.START or did_nothing(settings, line, output)
    return Refused(reason=reason) if over else InDoubt(reason=reason)


def _by_text(settings: HostSettings, verb: Verb, exit_code: int, output: str) -> ActionResult | None:
    service = settings.service
    if service.wording is None or service.manager not in (Manager.SYSV, Manager.COMMAND):
        return None
    line = services.plain_command(settings, verb) if service.manager is Manager.COMMAND else ""
    if services.never_ran(line, output):
        return Refused(reason=f"exit {exit_code}: {output}")
    read = service.wording.stop if verb is Verb.STOP else service.wording.start
    return read(line, exit_code, output)


def did_nothing(settings: HostSettings, line: str, output: str) -> bool:
    """Whether a verb that failed certainly did nothing, so that it counts as refused.

    Args:
        settings: of the node.
        line: the command line of the verb, as it was sent.
        output: what it printed.
    """
    if services.refused_by_sudo(line, output) is not None or services.never_ran(line, output):
        return True
    match settings.service.manager:
        case Manager.SYSTEMD:
            return not _IN_DOUBT.search(output)
        case Manager.SYSV | Manager.DOCKER | Manager.COMMAND:
            # Of a line of several commands, one may say so after another has done its part.
            return bool(services.SIMPLE_COMMAND.match(line) and services.NOT_DONE.search(output))
