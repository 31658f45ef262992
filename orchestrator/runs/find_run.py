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
from orchestrator.runtime.store import FINISHED, RunEntry, StateMissing, StateStore


class Wanted(Enum):
    """The purpose of looking for a run; its value is the word for it in messages."""

    RESUME = "unfinished run"
    RESTORE = "unfinished run to restore"
    REQUEST = "run under way"
    SHOW = "run"


_OWING: Final = frozenset({None, Outcome.NOT_RESTORED})
"""Killed, under way, or ended with changes that are not restored: something may still be pending."""
_PAST_RUNS: Final = 10
"""Older runs are ignored: data and machines have changed since."""


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
        UsageError: none, or more than one: the message lists them.
    """
    entries = store.runs()
    if run is not None:
        return _named(entries, run, cluster, store.where)
    found = _candidates(entries, wanted, cluster)
    if not found:
        raise _none(store.where, wanted, cluster, entries)
    if len(found) > 1:
        raise UsageError(
            "more than one cluster has one; name the run, or the cluster with --cluster:", *_lines(found)
        )
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
            f"`orchestrate resume {entry.run}` or `orchestrate restore {entry.run}`"
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


def _named(entries: Sequence[RunEntry], run: str, cluster: str | None, where: str) -> RunEntry:
    exact = [entry for entry in entries if entry.run == run]
    found = exact or [e for e in entries if e.run.startswith(run) or e.run.endswith(f"-{run}")]
    if not found:
        raise UsageError(f"there is no run {run} in {where}; `orchestrate history` lists them")
    if len(found) > 1:
        raise UsageError(f"{run} can be more than one run:", *_lines(found))
    if cluster is not None and found[0].cluster != cluster:
        raise UsageError(f"run {found[0].run} is one of cluster {found[0].cluster}, not of {cluster}")
    return found[0]


def _of_cluster(entries: Sequence[RunEntry], wanted: Wanted) -> RunEntry | None:
    """The wanted run of one cluster. The entries are sorted, with the latest event first.

    A run with pending changes is preferred to a run without, unless another run of the cluster finished after
    it: that run took over the changes with the lease. If the latest run was restored, it has no pending
    changes, but can be resumed: not all of its nodes are restarted.
    """
    if wanted is Wanted.SHOW:
        return next((e for e in entries if e.outcome is None), entries[0])
    if wanted is Wanted.RESUME and entries[0].outcome is Outcome.RESTORED:
        return entries[0]
    since = next((n for n, entry in enumerate(entries) if entry.outcome in FINISHED), len(entries))
    open_ones = entries[:since]
    if wanted is Wanted.REQUEST:
        return next((entry for entry in open_ones if entry.outcome is None), None)
    return next((entry for entry in open_ones if entry.outcome in _OWING), next(iter(open_ones), None))


def _none(where: str, wanted: Wanted, cluster: str | None, entries: Sequence[RunEntry]) -> UsageError:
    of = f" of cluster {cluster}" if cluster else ""
    text = f"there is no {wanted.value}{of} in {where}"
    own = [entry for entry in entries if cluster in (None, entry.cluster)]
    passed = next((entry for entry in own if entry.unfinished), None)
    if passed is None and own and wanted is not Wanted.SHOW:
        text += f": the latest, {own[0].run} on {own[0].cluster}, has ended ({state_in_words(own[0])})"
    if wanted is Wanted.RESUME and passed is not None:
        how = passed.outcome.value if passed.outcome else "killed"
        text += (
            f": a later one is done; {passed.run} ({how}, begun {_when(passed.started)}) has nodes left: "
            f"continue it with `orchestrate resume {passed.run}`"
        )
    if wanted is Wanted.REQUEST and passed is not None and passed.outcome is not None:
        text += (
            f"; run {passed.run} has ended ({passed.outcome.value}): continue it with "
            f"`orchestrate resume {passed.run}`"
        )
    if wanted is not Wanted.REQUEST:
        text += (
            "; restore the changes of a run on another machine with `orchestrate restore --cluster "
            f"{cluster or 'NAME'}`; of a Riak cluster, with that run's own state file (--state)"
        )
    return UsageError(text)


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
