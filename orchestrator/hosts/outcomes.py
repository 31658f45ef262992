"""The result of a stop, start or reboot that ran to its end, from its text and exit code. Pure."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.hosts import exclusion, services, sudo
from orchestrator.hosts.managers.manager import Verb
from orchestrator.hosts.redact import Redactor
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused


def came_of(
    settings: HostSettings, verb: Verb | None, line: str, exit_code: int, output: str
) -> ActionResult:
    """The result of a command that was sent under the node's lock; see `result_of` for the arguments."""
    holder = exclusion.held_by(output) if exit_code != 0 else None
    if holder is not None and holder.what == Verb.STOP.value:
        # The node is going down anyway: `Refused` would mean that it stays up.
        return InDoubt(reason=f"at work on it already: {holder}")
    if exit_code != 0 and exclusion.was_not_run(output):
        return Refused(reason=output, passes=holder is not None)
    if exit_code == 0 and exclusion.needed_nothing(output):
        return Done(output=output)
    return result_of(settings, verb, line, exit_code, output)


def result_of(
    settings: HostSettings, verb: Verb | None, line: str, exit_code: int, output: str
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
    wording, manager = settings.service.wording, services.manager(settings)
    if wording is None or manager.exact:
        return None
    line = services.plain_command(settings, verb) if manager.program is None else ""
    if services.never_ran(line, output):
        return Refused(reason=f"exit {exit_code}: {output}")
    read = wording.stop if verb is Verb.STOP else wording.start
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


def redacted(result: ActionResult, redact: Redactor) -> ActionResult:
    """The same result without secrets."""
    if isinstance(result, Done):
        return Done(output=redact(result.output))
    return replace(result, reason=redact(result.reason))
