"""The result of a verb from the text and exit code of its command. Pure."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.hosts import exclusion, services, sudo
from orchestrator.hosts.asked import failure_of
from orchestrator.hosts.connection import CommandResult, Lost, Outcome, Unreachable
from orchestrator.hosts.script import TIMEOUT_EXIT
from orchestrator.hosts.services import ServiceVerb
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused
from orchestrator.model.reading import Seconds
from orchestrator.redact import Redactor


def came_of(
    settings: HostSettings, verb: ServiceVerb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """The result of a command that was sent under the node's lock; see `result_of` for the arguments."""
    holder = exclusion.held_by(output) if exit_code != 0 else None
    if holder is not None and holder.what == ServiceVerb.STOP.value:
        # The node is going down anyway: `Refused` would mean that it stays up.
        return InDoubt(reason=f"at work on it already: {holder}")
    if exit_code != 0 and exclusion.was_not_run(output):
        return Refused(reason=output, passes=holder is not None)
    if exit_code == 0 and exclusion.needed_nothing(output):
        return Done(output=output)
    return result_of(settings, verb, line, exit_code, output)


def result_of(
    settings: HostSettings, verb: ServiceVerb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """The result of a command that ran to its end. A clear text takes precedence over the exit code.

    Args:
        settings: of the node.
        verb: the requested verb; None for a reboot.
        line: its command line, as sent.
        exit_code: its exit code.
        output: its output.
    """
    refusal = sudo.refused(line, output) if exit_code != 0 else None
    if refusal is not None:
        return Refused(reason=f"sudo refused: {refusal}; {sudo.advice(settings, refusal)}")
    said = None if verb is None else _by_text(settings, verb, exit_code, output)
    if said is not None:
        return said
    if exit_code == 0:
        return Done(output=output)
    reason = f"exit {exit_code}: {output or 'no output'}"
    over = verb is ServiceVerb.START or did_nothing(settings, line, output)
    return Refused(reason=reason) if over else InDoubt(reason=reason)


def _by_text(settings: HostSettings, verb: ServiceVerb, exit_code: int, output: str) -> ActionResult | None:
    wording, manager = settings.service.wording, services.manager(settings)
    if wording is None or manager.exact:
        return None
    line = services.plain_command(settings, verb) if manager.program is None else ""
    if services.never_ran(line, output):
        return Refused(reason=f"exit {exit_code}: {output}")
    read = wording.stop if verb is ServiceVerb.STOP else wording.start
    return read(line, exit_code, output)


def did_nothing(settings: HostSettings, line: str, output: str) -> bool:
    """Whether a failed verb certainly did nothing, so that it counts as refused.

    Args:
        settings: of the node.
        line: the command line of the verb, as sent.
        output: its output.
    """
    if sudo.refused(line, output) is not None or services.never_ran(line, output):
        return True
    return services.manager(settings).did_nothing(line, output)


def of_hook(line: str, limit: Seconds, outcome: Outcome) -> ActionResult:
    """The result of a hook.

    Args:
        line: its command line.
        limit: how long it may run; its host ends it then.
        outcome: of the command that was sent, which has the lock of its node around it.
    """
    if isinstance(outcome, Unreachable):
        return Refused(reason=outcome.reason, passes=outcome.passes)
    failure = failure_of(outcome)
    if isinstance(outcome, Lost):
        return InDoubt(reason=failure or "")
    if exclusion.was_not_run(outcome.stdout):
        return Refused(reason=said(outcome))
    if outcome.exit == TIMEOUT_EXIT:
        return InDoubt(reason=f"no end within {limit:g} s: {said(outcome)}")
    if failure is None:
        return Done(output=said(outcome))
    if services.never_ran(line, outcome.stderr):
        return Refused(reason=f"cannot be run: {failure}")
    return InDoubt(reason=failure)


def said(result: CommandResult) -> str:
    """The output of a command, bounded by the bytes that were kept."""
    return "\n".join(part for part in (result.stdout.strip(), result.stderr.strip()) if part)


def redacted(result: ActionResult, redact: Redactor) -> ActionResult:
    """The same result without secrets."""
    if isinstance(result, Done):
        return Done(output=redact(result.output))
    return replace(result, reason=redact(result.reason))
