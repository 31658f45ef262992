"""Progress of a run, and times of past runs: read from the journal alone, even while the run writes it."""

from __future__ import annotations

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.engine.fold import replay
from orchestrator.errors import ExitCode, UsageError
from orchestrator.model.phase import Outcome, Phase
from orchestrator.runs.find_run import Wanted, find_run, histories
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import provably_alive, provably_gone, suspended_pid
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.view.history import history_object, history_text, past_run
from orchestrator.view.status import status_object, status_text

_WATCH_SECONDS = 1.0
"""Interval of `--watch`. A database file has no change event to wait for."""
_CLEAR = "\x1b[H\x1b[2J"


def show_status(
    run: str | None, *, watch: bool, cluster: str | None, output: Output, state: str | None
) -> int:
    """Show the progress of a run, once or until it ends. Returns the exit code."""
    context = context_of(output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, Access.READ) as store:
        entry = find_run(store, Wanted.SHOW, run=run, cluster=name)
        last, going = _show(store, entry, context, after=-1, clear=False)
        redraws = output is Output.TEXT and context.out.isatty()
        while watch and going:
            context.clock.wait(_WATCH_SECONDS)
            last, going = _show(store, entry, context, after=last, clear=redraws)
    return int(context.end(ExitCode.DONE, run=entry.run))


def _show(
    store: StateStore, entry: RunEntry, context: Context, *, after: int, clear: bool
) -> tuple[int, bool]:
    """Show the run if it has events after `after`. Returns its last event, and whether it continues."""
    records = store.replay(entry.run)
    if not records:
        raise UsageError(f"run {entry.run} was killed before it began; nothing was changed by it")
    state, now = replay(entry.run, records), context.clock.now()
    gone = provably_gone(entry.process)
    restored = entry.outcome is Outcome.RESTORED and state.outcome is not Outcome.RESTORED
    alive = False if gone else (provably_alive(entry.process) or None)
    if records[-1].sequence != after or clear:
        context.out.write(_CLEAR if clear else "")
        if context.output is Output.JSON:
            context.say_json(status_object(state, records, now=now, alive=alive), run=entry.run)
        else:
            suspended = suspended_pid(entry.process)
            text = status_text(state, records, now=now, alive=alive, suspended=suspended, restored=restored)
            context.say(*text.splitlines())
        context.out.flush()
    return records[-1].sequence, state.phase is not Phase.ENDED and not gone


def show_history(cluster: str | None, *, output: Output, state: str | None) -> int:
    """Show past runs. Returns the exit code.

    Raises:
        UsageError: there is none.
    """
    context = context_of(output)
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, Access.READ) as store:
        past = histories(store, cluster=name)
        runs = [found for entry, records in past if (found := past_run(records, entry.outcome))]
        if not runs:
            find_run(store, Wanted.SHOW, cluster=name)  # none to show is an error, as for `status`
    if context.output is Output.JSON:
        for line in history_object(runs):
            context.say_json(line)
    else:
        context.say(*history_text(runs).splitlines())
    return int(context.end(ExitCode.DONE, runs=len(runs)))
