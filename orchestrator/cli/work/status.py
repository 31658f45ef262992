"""Progress of a run: read from the journal, even while the run writes it.

The journal of a run that no process continues is certain only until its last record: the cluster is read too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.engine.fold import replay
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.model.phase import Outcome, Phase
from orchestrator.runs.connection import ClusterPorts
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.past_runs import PastRun, Wanted, find_run, is_alive, read_now
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import provably_gone, suspended_pid
from orchestrator.runtime.state_file import VARIABLE
from orchestrator.runtime.store import RunEntry, StateMissing, StateStore
from orchestrator.view.cluster_now import ClusterNow, compare
from orchestrator.view.history import NO_RUNS
from orchestrator.view.progress import not_restored
from orchestrator.view.status import status_object, status_text

_WATCH_SECONDS = 1.0
"""Interval of `--watch`. A database file has no change event to wait for."""
_CLEAR = "\x1b[H\x1b[2J"


def show_status(
    run: str | None, *, watch: bool, cluster: str | None, output: Output, state: str | None
) -> int:
    """Show the progress of a run, once or until it ends. Returns the exit code."""
    context = context_of(output)
    if run is None and cluster is None and none_yet(context, state):
        if output.for_people:
            context.say(NO_RUNS)
        return int(context.end(ExitCode.DONE))
    name = context.cluster(cluster).spec.name if cluster else None
    with context.state(state, Access.READ) as store:
        entry = find_run(store, Wanted.SHOW, run=run, cluster=name)
        last, going = _show(store, entry, context, cluster, after=-1, clear=False)
        redraws = output is Output.TEXT and context.out.isatty()
        while watch and going:
            context.clock.wait(_WATCH_SECONDS)
            last, going = _show(store, entry, context, cluster, after=last, clear=redraws)
    return int(context.end(ExitCode.DONE, run=entry.run))


def none_yet(context: Context, state: str | None) -> bool:
    """Whether there is no run yet, which is no error.

    Raises:
        JournalError: the state cannot be read, or the file that was named with `--state` does not exist.
    """
    try:
        with context.state(state, Access.READ) as store:
            if store.runs(limit=1):
                return False
    except StateMissing as missing:
        if state != context.environment.get(VARIABLE):
            raise
        context.note(str(missing))  # the environment names it: it may be lost
    return True


def _show(
    store: StateStore, entry: RunEntry, context: Context, cluster: str | None, *, after: int, clear: bool
) -> tuple[int, bool]:
    """Show the run if it has events after `after`. Returns its last event, and whether it continues."""
    records = store.replay(entry.run)
    if not records:
        raise UsageError(f"run {entry.run} was killed before it began; nothing was changed by it")
    state, now = replay(entry.run, records), context.clock.now()
    gone = provably_gone(entry.process)
    restored = entry.outcome is Outcome.RESTORED and state.outcome is not Outcome.RESTORED
    alive = is_alive(entry)
    if records[-1].sequence != after or clear or gone:
        past = PastRun(entry=entry, records=records, state=state, shared=store.shared)
        unwritten = store.is_unwritten(entry.run)
        over = gone or unwritten or state.phase is Phase.ENDED
        compared = over and not restored
        found = _cluster_now(past, cluster, context, unwritten=unwritten) if compared else None
        context.out.write(_CLEAR if clear else "")
        if context.output is Output.JSON:
            context.say_json(
                status_object(state, records, now=now, alive=alive, restored=restored, cluster=found),
                run=entry.run,
            )
        else:
            suspended = suspended_pid(entry.process)
            text = status_text(
                state,
                records,
                now=now,
                alive=alive,
                suspended=suspended,
                restored=restored,
                cluster=found,
            )
            context.say(*text.splitlines())
        context.out.flush()
    return records[-1].sequence, state.phase is not Phase.ENDED and not gone


def _cluster_now(
    past: PastRun, cluster: str | None, context: Context, *, unwritten: bool
) -> ClusterNow | None:
    """The changes that the journal lists, compared with the cluster; None if it lists none."""
    if not not_restored(past.state):
        return None
    read = read_now(past, _reach(past, cluster, context), context.clock.now())
    at, ended = context.clock.now(), past.records[-1].at
    return compare(past.state, read, at=at, ended=ended, unwritten=unwritten)


def _reach(past: PastRun, cluster: str | None, context: Context) -> Callable[[], ClusterPorts]:
    """How the cluster of a run is reached: by the file that was named, else by the file of the run."""

    def reach() -> ClusterPorts:
        name = cluster or past.cluster_file
        if not name:
            raise ConfigError("the run has no cluster file; name it with --cluster")
        files = replace(context.files, warn=lambda _warning: None)  # the run has printed the warnings
        return FilePorts(files.cluster(name), files, SystemClock())

    return reach
