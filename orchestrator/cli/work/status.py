"""Progress of a run: read from the journal, even while the run writes it.

The journal of a run that no process continues is certain only until its last record: the cluster is read too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.interrupts import EARLY
from orchestrator.cli.options import Output
from orchestrator.engine.fold import evolve, replay
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.model.event import Record, RunFinished
from orchestrator.model.phase import Outcome, Phase
from orchestrator.runs.connection import ClusterPorts
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.past_runs import PastRun, Wanted, find_run, is_alive, read_now
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import provably_gone, suspended_pid
from orchestrator.runtime.state_file import VARIABLE
from orchestrator.runtime.store import RunEntry, StateMissing, StateStore
from orchestrator.runtime.waiting import SystemClock
from orchestrator.view.cluster_now import ClusterNow, compare
from orchestrator.view.feed import Feed
from orchestrator.view.history import NO_RUNS
from orchestrator.view.live import LiveReporter, live_console, wants_live
from orchestrator.view.progress import not_restored
from orchestrator.view.status import Reader, status_object, status_text

_WATCH_SECONDS = 1.0
"""Interval of `--watch`. A database file has no change event to wait for."""
_ABOVE = 12
"""Events before the first look that `--watch` writes above the panel, as far as it does not show them."""


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
    with context.state(state, DatabaseUse.READ) as store:
        entry = find_run(store, Wanted.SHOW, run=run, cluster=name)
        live = watch and output is Output.TEXT and wants_live(context.out, context.environment)
        last, going = (0, _is_going(store, entry)) if live else _show(store, entry, context, cluster)
        if watch and going:
            EARLY.watching()
        if live and going:
            _follow_in_panel(store, entry, context)
        elif watch and going and output.for_people:
            _follow_in_lines(store, entry, context, after=last)
        while watch and going and not output.for_people:
            context.clock.wait(_WATCH_SECONDS)
            last, going = _show(store, entry, context, cluster, after=last)
        if live or (watch and going):
            _show(store, entry, context, cluster)
    return int(context.end(ExitCode.DONE, run=entry.run))


def none_yet(context: Context, state: str | None) -> bool:
    """Whether there is no run yet, which is no error.

    Raises:
        JournalError: the state cannot be read, or the file that was named with `--state` does not exist.
    """
    try:
        with context.state(state, DatabaseUse.READ) as store:
            if store.runs(limit=1):
                return False
    except StateMissing as missing:
        if state != context.environment.get(VARIABLE):
            raise
        context.note(str(missing))  # the environment names it: it may be lost
    return True


def _follow_in_panel(store: StateStore, entry: RunEntry, context: Context) -> None:
    """Show the panel of the run itself, until it ends or its process is gone."""
    records = store.replay(entry.run)
    cut = max(0, len(records) - _ABOVE)
    console, state = live_console(context.out, context.environment), replay(entry.run, records)
    past, kind = records[:cut], state.begun.policy.kind
    with LiveReporter(console, context.clock.now, past=past, kind=kind, hint=False) as live:
        live.events(records[cut:])
        live.follow(state)
        for new in _news(store, entry, context, after=records[-1].sequence):
            for record in new:
                state = evolve(state, record)
            live.events(new)
            live.follow(state)


def _follow_in_lines(store: StateStore, entry: RunEntry, context: Context, *, after: int) -> None:
    """Write a line for each further event, until the run ends or its process is gone."""
    records = store.replay(entry.run)
    feed = Feed(replay(entry.run, records).begun.policy.kind, records)
    for new in _news(store, entry, context, after=after):
        context.say(*(text for line in feed.lines(new) for text in (str(line), *line.below)))
        context.out.flush()


def _news(store: StateStore, entry: RunEntry, context: Context, *, after: int) -> Iterator[Sequence[Record]]:
    """The further events of a run as they come."""
    while not provably_gone(entry.process):
        context.clock.wait(_WATCH_SECONDS)
        new = store.replay(entry.run, after=after)
        if new:
            yield new
            after = new[-1].sequence
        if any(isinstance(record.event, RunFinished) for record in new):
            return


def _is_going(store: StateStore, entry: RunEntry) -> bool:
    records = store.replay(entry.run)
    ended = not records or replay(entry.run, records).phase is Phase.ENDED
    return not ended and not provably_gone(entry.process)


def _show(
    store: StateStore, entry: RunEntry, context: Context, cluster: str | None, *, after: int = -1
) -> tuple[int, bool]:
    """Show the run if it has events after `after`. Returns its last event, and whether it continues."""
    records = store.replay(entry.run)
    if not records:
        raise UsageError(f"run {entry.run} was killed before it began; nothing was changed by it")
    state, now = replay(entry.run, records), context.clock.now()
    gone, alive = provably_gone(entry.process), is_alive(entry)
    restored = entry.outcome is Outcome.RESTORED and state.outcome is not Outcome.RESTORED
    if records[-1].sequence != after or gone:
        past = PastRun(entry=entry, records=records, state=state, shared=store.shared)
        unwritten = store.is_unwritten(entry.run)
        over = gone or unwritten or state.phase is Phase.ENDED
        compared = over and not restored
        found = _cluster_now(past, cluster, context, unwritten=unwritten) if compared else None
        if context.output is Output.JSON:
            context.say_json(
                status_object(state, records, now=now, alive=alive, restored=restored, cluster=found),
                run=entry.run,
            )
        else:
            text = status_text(
                state,
                records,
                now=now,
                alive=alive,
                suspended=suspended_pid(entry.process),
                restored=restored,
                cluster=found,
                reader=Reader(width=context.columns),
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
    with context.reading(f"cluster {past.started.cluster}"):
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
