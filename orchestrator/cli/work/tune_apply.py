"""`tune apply`: change hosts, machines in parallel. Each change is in the ledger before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.cli.context import Context
from orchestrator.cli.interrupts import EARLY
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import ask
from orchestrator.cli.work.tune_show import end, sentence, show_rows, show_states, verdict_on
from orchestrator.engine.kinds.predicates import by_same_reason
from orchestrator.errors import ExitCode
from orchestrator.model.action import Done
from orchestrator.model.cluster import NodeName
from orchestrator.model.encoding import encode_event
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.runs.tuning import Made, Maker, Making, TunedHosts, agreed
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.signals import LastWords, Signals
from orchestrator.untrusted import one_line
from orchestrator.view.text import counted, listed
from orchestrator.view.tuning import CHANGE_HEAD, Found, by_reason_lines, change_rows

AT_THE_START: Final = ("transparent_hugepage", "khugepaged", "numad", "jvm", "limits", "erlang")
"""Name prefixes of tunables that do not affect a running process. It has already mapped its memory and has
its limits, and numad has moved its pages."""


def apply(
    where: TunedHosts,
    profile: TuningProfile,
    open_ledger: Callable[[], Ledger],
    context: Context,
    *,
    operator: str,
    yes: bool,
) -> ExitCode:
    """Show the changes, ask, make them, and read the hosts again.

    Args:
        where: the hosts.
        profile: the wanted settings.
        open_ledger: opens the state for writing. Nothing is written before the answer.
        context: the process.
        operator: for the ledger.
        yes: do not ask.

    Raises:
        LeaseError: a run is active on the cluster.
        JournalError: the state cannot be written. Either nothing was changed, or the message lists the
            changes.
        typer.Abort: the answer is no.
    """
    where.check_free()
    found = where.read(profile)
    rows = change_rows(found)
    if not rows:
        show_states(found, context)
        return _end(found, (), context)
    if context.output.for_people:
        show_rows(CHANGE_HEAD, rows, context)
        _say_unread(found, context)
    if not yes:
        hosts = sum(1 for tuning in found.values() if isinstance(tuning, HostTuning) and tuning.drifted)
        ask(
            f"Make these {counted(len(rows), 'change')} on {counted(hosts, 'host')} of {where.cluster}?",
            context,
        )
        where.check_free()
        found = agreed(found, where.read(profile))
    ledger = open_ledger()
    EARLY.overtaken()
    with Signals(context.clock.wake, lambda: _last_words(where)) as signals:
        maker = Maker(where, profile, ledger, operator=operator, stop=signals.interrupted)
        making = maker.make(found)
        interrupted = signals.interrupted()
    tell(making, context)
    if making.broken is not None:
        raise making.broken
    if interrupted and making.left_out:
        context.note(f"interrupted: {counted(making.left_out, 'tunable')} not begun; {_undo(where)}")
        return context.end(ExitCode.INTERRUPTED, changed=len(making.made), left_out=making.left_out)
    now = where.read(profile)
    show_states(now, context)
    _warn_of_processes(making.made, where, context)
    return _end(now, making.made, context)


def tell(making: Making, context: Context) -> None:
    """Print what was done and what was not."""
    results: dict[str, dict[NodeName, str]] = {}
    for one in making.made:
        if context.output is Output.JSON:
            context.say_json(encode_event(one.event))
            continue
        why = "" if isinstance(one.result, Done) else one.result.reason.removeprefix(f"{one.state.tunable}: ")
        results.setdefault(one.state.tunable, {})[one.node] = why
    for tunable, reasons in results.items():
        for why, nodes in by_same_reason(reasons.items()).items():
            said = f"FAILED  {listed(nodes)}  {tunable}: {one_line(why)}"
            context.say(said if why else f"done    {listed(nodes)}  {tunable}")


def _end(now: Found, made: Sequence[Made], context: Context) -> ExitCode:
    failed = [f"{one.node} {one.state.tunable}" for one in made if one.failed]
    code = ExitCode.FAILED if failed else verdict_on(now)
    if context.output.for_people:
        nodes: dict[str, list[NodeName]] = {}
        for one in made:
            if one.failed:
                nodes.setdefault(one.state.tunable, []).append(one.node)
        said = [f"{tunable} ({listed(names)})" for tunable, names in nodes.items()]
        context.say(f"failed: {', '.join(said)}" if failed else sentence(now))
    done = sum(1 for one in made if not one.failed)
    return end(code, now, context, changed=done, failed=failed)


def _say_unread(found: Found, context: Context) -> None:
    reasons: list[tuple[NodeName, str]] = []
    for node, tuning in sorted(found.items()):
        if isinstance(tuning, Unknown):
            reasons.append((node, tuning.reason))
        else:
            reasons += [(node, f"{state.tunable}: {state.detail}") for state in tuning.unread]
    for line in by_reason_lines(reasons):
        context.warn(line)


def _warn_of_processes(made: Sequence[Made], where: TunedHosts, context: Context) -> None:
    late = [one for one in made if not one.failed and one.state.tunable.startswith(AT_THE_START)]
    if late:
        names = ", ".join(dict.fromkeys(one.state.tunable for one in late))
        context.warn(f"{names}: applies to processes that start from now on; {where.running}")


def _undo(where: TunedHosts) -> str:
    return f"`{where.command('tune revert')}` restores the original values"


def _last_words(where: TunedHosts) -> LastWords:
    return LastWords(
        error=f"orchestrate: left at once on a second signal; a change may be half made. {_undo(where)}\n"
    )
