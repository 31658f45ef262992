"""Which run a request means: `resume`, `restore`, `pause`, `stop`, `status`; and the data of past runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from orchestrator.engine.estimate import PastTimes, times_of
from orchestrator.errors import JournalError, UsageError
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.reading import Instant
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import provably_gone
from orchestrator.runtime.store import FINISHED, OWING, RunEntry, StateMissing, StateStore


class Wanted(Enum):
    """The purpose of looking for a run; its value is the word for it in messages."""

    RESUME = "unfinished run"
    RESTORE = "unfinished run to restore"
    REQUEST = "run under way"
    SHOW = "run"


_WRITING: Final = frozenset({Wanted.RESUME, Wanted.RESTORE})
"""Requests that write the values from before the run."""
_PAST_RUNS: Final = 10
"""Older runs are ignored: data and machines have changed since."""


class RunPassed(UsageError):  # noqa: N818  (names what is so)
    """Another run has finished since this one, or may have: its changes are not restored without its name.

    Attributes:
        entry: the run with pending changes.
    """

    def __init__(self, entry: RunEntry, later: RunEntry, wanted: Wanted, store: StateStore) -> None:
        known = later.ordinal > entry.ordinal
        order = "a later run" if known else "another run, which may be later,"
        write, look = store.command(wanted.name.lower(), entry.run), store.command("status", later.run)
        super().__init__(
            f"run {entry.run} has changes that are not restored, but {order} is finished. Name the run:",
            *_lines((entry, later)),
            f"  `{write}` writes the values from before that run",
            f"  `{look}` shows the other run; if the cluster is in order, do nothing",
        )
        self.entry = entry


def find_run(
    store: StateStore, wanted: Wanted, *, run: str | None = None, cluster: str | None = None
) -> RunEntry:
    """The wanted run.

    Args:
        store: the state database.
        wanted: the purpose.
        run: as typed: an id, the beginning of one, or its last part.
        cluster: only runs of the cluster of this name.

    Raises:
        RunPassed: another run may have finished since, so that its values may be out of date.
        UsageError: none, or more than one: the message lists them.
    """
    entries = store.runs()
    if run is not None:
        return _named(entries, run, cluster, store)
    found = _candidates(entries, wanted, cluster)
    if not found:
        raise _none(store, wanted, cluster, entries)
    if len(found) > 1:
        raise UsageError(
            "more than one cluster has one; name the run, or the cluster with --cluster:", *_lines(found)
        )
    if wanted in _WRITING and is_open(found[0]) and (later := _passed(found[0], entries)) is not None:
        raise RunPassed(found[0], later, wanted, store)
    return found[0]


def candidates(store: StateStore, wanted: Wanted, *, cluster: str | None = None) -> list[RunEntry]:
    """The runs that a request without a name can mean: at most one of each cluster."""
    return _candidates(store.runs(), wanted, cluster)


def _candidates(entries: Sequence[RunEntry], wanted: Wanted, cluster: str | None) -> list[RunEntry]:
    names = dict.fromkeys(entry.cluster for entry in entries if cluster in (None, entry.cluster))
    by_cluster = ([entry for entry in entries if entry.cluster == name] for name in names)
    found = [one for some in by_cluster if (one := _of_cluster(some, wanted)) is not None]
    if wanted is Wanted.SHOW:
        # The one to show is the one on which something is to be done; else the latest.
        return [entry for entry in found if entry.unfinished] or found[:1]
    return found


def state_in_words(entry: RunEntry) -> str:
    """The state of a run, for people."""
    if entry.unwritten:
        return "its last events could not be written"
    return entry.outcome.value if entry.outcome else "under way or killed"


def leave_request(
    store: StateStore,
    entry: RunEntry,
    request: Request,
    *,
    by: str,
    at: Instant,
    gone: Callable[[str], bool] = provably_gone,
) -> None:
    """Leave a request for a run under way.

    Raises:
        UsageError: it is not under way, or its process is gone: the request would never be read.
    """
    if entry.outcome is not None:
        raise UsageError(
            f"run {entry.run} is not under way: it has ended ({entry.outcome.value}) "
            f"{_when(entry.ended or entry.started)}"
        )
    if gone(entry.process):
        raise UsageError(
            f"run {entry.run} is not under way: its process is gone; "
            f"`{store.command('resume', entry.run)}` or `{store.command('restore', entry.run)}`"
        )
    store.leave_request(entry.run, request, by=by, at=at)


def histories(
    store: StateStore, *, cluster: str | None = None, limit: int = 100
) -> tuple[tuple[RunEntry, tuple[Record, ...]], ...]:
    """The latest runs and their journals, the oldest first.

    If a run died and another run restored its changes, only the entry has its outcome: its journal has none.
    """
    entries = reversed(store.runs(cluster=cluster, limit=limit))
    return tuple((entry, store.replay(entry.run)) for entry in entries)


def _named(entries: Sequence[RunEntry], run: str, cluster: str | None, store: StateStore) -> RunEntry:
    exact = [entry for entry in entries if entry.run == run]
    found = exact or [e for e in entries if e.run.startswith(run) or e.run.endswith(f"-{run}")]
    if not found:
        raise UsageError(f"there is no run {run} in {store.where}; `{store.command('history')}` lists them")
    if len(found) > 1:
        raise UsageError(f"{run} can be more than one run:", *_lines(found))
    if cluster is not None and found[0].cluster != cluster:
        raise UsageError(f"run {found[0].run} is one of cluster {found[0].cluster}, not of {cluster}")
    return found[0]


def is_open(entry: RunEntry) -> bool:
    """Whether the run may have pending changes that no other run took over."""
    return entry.outcome in OWING and entry.heir is None


def _passed(entry: RunEntry, entries: Sequence[RunEntry]) -> RunEntry | None:
    """A finished run of the cluster that began after this one, or may have; the latest.

    The order of two runs is that of their leases. Two runs of an earlier version have none.
    """
    own = (one for one in entries if one.cluster == entry.cluster and one.outcome in FINISHED)
    return next((one for one in own if one.ordinal >= entry.ordinal), None)


def _of_cluster(entries: Sequence[RunEntry], wanted: Wanted) -> RunEntry | None:
    """The wanted run of one cluster. The entries are sorted: the one that took its lease last is first.

    A run with pending changes is preferred to a run without, until a run that took them over names it. If
    the latest run was restored, it has no pending changes, but can be resumed: not all of its nodes are
    restarted.
    """
    pending = [entry for entry in entries if is_open(entry)]
    sure = [entry for entry in pending if _passed(entry, entries) is None]
    if wanted is Wanted.SHOW:
        return next((entry for entry in pending if entry.outcome is None), entries[0])
    if wanted is Wanted.REQUEST:
        done = max((entry.ordinal for entry in entries if entry.outcome in FINISHED), default=0)
        return next((e for e in pending if e.outcome is None and e.ordinal >= done), None)
    if wanted is Wanted.RESUME and entries[0].outcome is Outcome.RESTORED:
        return entries[0]
    since = next((n for n, entry in enumerate(entries) if entry.outcome in FINISHED), len(entries))
    ended = [entry for entry in entries[:since] if entry.outcome not in OWING]
    after = (*ended, *pending) if wanted is Wanted.RESUME else (*pending, *ended)
    return next(iter((*sure, *after)), None)


def _none(store: StateStore, wanted: Wanted, cluster: str | None, entries: Sequence[RunEntry]) -> UsageError:
    of = f" of cluster {cluster}" if cluster else ""
    text = f"there is no {wanted.value}{of} in {store.where}"
    own = [entry for entry in entries if cluster in (None, entry.cluster)]
    passed = next((entry for entry in own if entry.unfinished), None)
    if passed is None and own and wanted is not Wanted.SHOW:
        text += f": the latest, {own[0].run} on {own[0].cluster}, has ended ({state_in_words(own[0])})"
    if wanted is Wanted.RESUME and passed is not None:
        how = passed.outcome.value if passed.outcome else "killed"
        text += (
            f": a later one is done; {passed.run} ({how}, begun {_when(passed.started)}) has nodes left: "
            f"continue it with `{store.command('resume', passed.run)}`"
        )
    if wanted is Wanted.REQUEST and passed is not None and passed.outcome is not None:
        text += (
            f"; run {passed.run} has ended ({passed.outcome.value}): continue it with "
            f"`{store.command('resume', passed.run)}`"
        )
    if wanted is not Wanted.REQUEST:
        restore = store.command("restore", "--cluster", cluster or "NAME")
        text += (
            f"; restore the changes of a run on another machine with `{restore}`; of a Riak cluster, with "
            "that run's own state file (--state)"
        )
    return UsageError(text)


def nothing_to_restore(store: StateStore) -> str:
    """The message where the state has no run to restore."""
    other = store.command("restore", "--cluster", "NAME")
    what = f"{store.where} has no run with unrestored changes"
    return f"nothing to restore: {what}. For a run of another machine: `{other}`"


def _lines(entries: Sequence[RunEntry]) -> list[str]:
    return [
        f"  {e.run}  {e.cluster}  {state_in_words(e)}  begun {_when(e.started)} by {e.operator} on {e.host}"
        for e in entries
    ]


def _when(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def past_times(open_state: Callable[[Access], AbstractContextManager[StateStore]], cluster: str) -> PastTimes:
    """What past runs of a cluster took, as far as it can be read: no plan and no run needs a prediction."""
    times = PastTimes()
    with suppress(StateMissing), open_state(Access.READ) as store:
        for entry in reversed(store.runs(cluster=cluster, limit=_PAST_RUNS)):
            with suppress(JournalError):  # a damaged journal of an old run is reported where it is shown
                times = times.then(times_of(store.replay(entry.run)))
    return times


def is_missing(open_state: Callable[[Access], StateStore]) -> bool:
    """Whether there is no state database yet, in the place that was named or in the usual one.

    Raises:
        JournalError: there is one, and it cannot be read.
    """
    with suppress(StateMissing), closing(open_state(Access.READ)) as store:
        return store.in_memory
    return True
