"""Taking the lease for a run; before that, restoring the pending changes of another run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from orchestrator.engine.changes import from_record
from orchestrator.engine.fold import evolve, replay
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, JournalError, OrchestratorError
from orchestrator.model.event import Event, LeaseTaken, Record, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Seconds
from orchestrator.ports import LeasePort
from orchestrator.runs.attempt import Attempt, RestoreFailed, drive, exit_code
from orchestrator.runs.connection import Connection, Process, RunJournal
from orchestrator.runs.dead_run import DeadRun
from orchestrator.runs.past_runs import PastRun
from orchestrator.runtime.journal import UnwrittenJournal
from orchestrator.runtime.lease import Claim, Lease, LeaseSite, Taken, TakeoverWatch, Terms, UnwrittenLease
from orchestrator.runtime.store import FINISHED, RunEntry, StateStore
from orchestrator.view.summary import headline, summary


class LeaseHeld:
    """The lease of a run, taken by entering it: in the state, and in the cluster if the playbook says so.

    If no attempt has begun with it when the block ends, it is released; or its record stays, if that lists
    pending changes, for the run that restores them. A kill gives nothing back.

    The earlier record stays inside ours until our first publish, so a crash loses nothing.

    Args:
        connection: the cluster.
        store: the state database.
        run: the run's id.
        started: has the cluster and the policy.
        in_cluster: False leaves the cluster out and ignores the playbook.
        in_state: the lease in the state database, where one is kept for several takings.
        terms: its times, where they are not those of this process.
    """

    taken: Taken

    def __init__(
        self,
        connection: Connection,
        store: StateStore,
        run: str,
        started: RunStarted,
        *,
        in_cluster: bool = True,
        in_state: LeasePort | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.connection, self.store = connection, store
        process = connection.process
        port = in_state or lease_in_state(store, started)
        places = [LeaseSite(name=f"the state ({store.where})", port=port, state=store.state)]
        if in_cluster and started.policy.lease is LeasePlace.CLUSTER:
            places.append(LeaseSite(name="the cluster", port=connection.ports.lease))
        claim = Claim(
            cluster=started.cluster,
            run=run,
            owner=f"{process.operator}@{process.host}",
            process=process.identity,
        )
        self.lease = Lease(places, claim, process.clock, terms or process.terms)
        self.owed: LeaseRecord | None = None  # the record that was there, if it has pending changes
        self._begun = False

    @property
    def left(self) -> LeaseRecord | None:
        """The pending changes of another run, which are restored first."""
        return self.owed if self.taken.takeover else None

    def begin(
        self,
        journal: RunJournal,
        first: Event,
        *others: Event,
        past: PastRun | None = None,
        then: Callable[[RunState], None] = lambda _state: None,
    ) -> Attempt:
        """Commit the first events of an attempt, which has the lease from then on.

        The second one names the run whose pending changes are taken over with the lease.

        Raises:
            JournalError: they could not be written; nothing was changed.
        """
        state = RunState(run=journal.run) if past is None else past.state
        if past is not None:
            # Somebody may have removed the record: from here on another machine can restore by it again,
            # even if nothing can be committed. It is written before each change too: one that is refused
            # bars that.
            self.lease.publish(state)
            self.owed = self.taken.record
        record, before = self.taken.record, self.taken.previous
        taken = LeaseTaken(
            epoch=record.epoch,
            holder=record.owner,
            takeover=self.taken.takeover,
            takes_over=None if before is None or before.debtor == record.run else before.debtor,
            ordinal=self.store.next_ordinal(),
        )
        begun = journal.append((first, taken, *others), self.connection.process.now)
        self._begun = True
        for event in begun:
            state = evolve(state, event)
        return Attempt(
            connection=self.connection,
            lease=self.lease,
            journal=journal,
            state=state,
            past=past.records if past is not None else (),
            begun=begun,
            then=then,
        )

    def __enter__(self) -> Self:
        self.taken = acquire(self.lease, self.connection.process)
        self.owed = self.taken.previous
        if _is_settled(self.owed, self.store):
            self.owed = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun or not (error is None or isinstance(error, OrchestratorError)):
            return
        if self.owed is not None:
            self.lease.leave()
            return
        for trouble in self.lease.release():
            self.connection.process.warn(trouble)


def acquire(lease: Lease, process: Process) -> Taken:
    """Take it, and report the run that it waits for.

    Raises:
        LeaseError: a live run holds it.
        WatchInterrupted: a request to stop came before it was taken everywhere; it is released, unless its
            record lists pending changes of a run.
    """
    said: list[tuple[str, int]] = []

    def watching(record: LeaseRecord, left: Seconds) -> None:
        mark = (record.run, int(left // 15))
        if mark not in said:
            said.append(mark)
            process.tell(
                f"waiting for the lease of run {record.run} of {record.owner}: "
                f"without a heartbeat it expires in {left:.0f} s"
            )

    with process.requests(lambda: None) as asked:
        return lease.acquire(
            TakeoverWatch(
                watching=watching,
                interrupted=lambda: asked()[0] is not Request.NONE,
                gone=process.gone,
                alive=process.alive,
            )
        )


def _is_settled(record: LeaseRecord | None, store: StateStore) -> bool:
    """Whether the record has no pending changes.

    A run that finished by this state was killed before it released its lease, and its record is older
    than its end: settings are restored, and it waited for the last stop that could still take a node down.

    Raises:
        JournalError: the state cannot be read.
    """
    return record is None or record.is_settled or store.outcome(record.debtor) in FINISHED


def new_run(
    connection: Connection,
    store: StateStore,
    started: RunStarted,
    *,
    again: Callable[[], RunStarted],
    before: Sequence[str] = (),
) -> Attempt:
    """Take the lease for a new run, restore what a dead run left, and begin the run.

    Args:
        connection: the cluster.
        store: the state database.
        started: how the run begins.
        again: how it begins after a restore: a node that was down is in no earlier list.
        before: what was restored of another run already.

    Raises:
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written; nothing was changed.
        RestoreFailed: that was not restored.
    """
    while True:
        run, started = connection.process.new_run(), replace(started, state=store.state)
        with LeaseHeld(connection, store, run, started) as held:
            if held.left is None:
                return replace(held.begin(_created(held, run, started), started), before=before)
            before = (*before, _restore_first(held, run, started))
        started = again()


def take_up(
    connection: Connection,
    store: StateStore,
    past: PastRun,
    event: RunResumed | RestoreBegun,
    *,
    in_cluster: bool = True,
) -> Attempt:
    """Take the lease for a run that exists, restore what another run left, and begin the next attempt.

    What another run left is looked for first, so that the run which restores it holds the lease in its own
    name. The first look can miss some (no answer; a run that died after it; a record in the other place). The
    record that was replaced then shows it: our first publish would overwrite it, and it would be lost.

    Args:
        connection: the cluster.
        store: the state database.
        past: the run that continues.
        event: with which its next attempt begins.
        in_cluster: False takes the lease in the state only and ignores the playbook: for a restore of nodes
            that the lease in the cluster needs.

    Raises:
        LeaseError: a live run holds it; its subclasses report no connection and an interruption.
        JournalError: something is to be restored, and the state cannot be written.
        RestoreFailed: what another run left was not restored.
    """
    run, started, in_state = past.entry.run, past.started, lease_in_state(store, past.started)
    before: list[str] = []
    while True:
        if store.written:
            before += restore_others(connection, store, run, started)
        with LeaseHeld(connection, store, run, started, in_cluster=in_cluster, in_state=in_state) as held:
            if held.left is None:
                after = len(past.records)
                journal: RunJournal = UnwrittenJournal(run, after=after)
                if store.written:
                    journal = store.journal(run, after=after)
                else:
                    store.mark_unwritten(run)
                return replace(held.begin(journal, event, past=past), before=before)
            before.append(_restore_first(held, connection.process.new_run(), started))


def restore_others(connection: Connection, store: StateStore, run: str, started: RunStarted) -> Sequence[str]:
    """Restore what another run than this one left, and say what; nothing when nothing is known to be left.

    Raises:
        LeaseError: that run is alive.
        RestoreFailed: it was not restored.
    """
    found = _record(connection, store, started)
    if found is None or found.debtor == run or _is_settled(found, store):
        return ()
    repairing = connection.process.new_run()
    with LeaseHeld(connection, store, repairing, started) as held:
        if held.left is None:  # another process restored it in the meantime
            return ()
        # Not announced before: until the lease is taken, that run may be alive.
        return (_restore_first(held, repairing, started),)


def _restore_first(held: LeaseHeld, run: str, started: RunStarted) -> str:
    """Say that another run's changes are restored first, and restore them, in a run of this id.

    Returns:
        What was restored, for the end of the run that follows.

    Raises:
        RestoreFailed: they were not all restored.
    """
    left = held.left
    assert left is not None  # noqa: S101  (the callers have looked)
    process, records = held.connection.process, _records_of(held.store, left.debtor)
    process.warn(DeadRun(record=left, records=records).words(process.now).sentence("this run"))
    attempt = repair(held, run, started)
    restored = drive(attempt)
    if exit_code(restored) is not ExitCode.DONE:
        raise RestoreFailed(restored)
    events = [record.event for record in _records_of(held.store, run)]
    return headline(summary(restored, Outcome.RESTORED, events, process.now, stopped=attempt.stopped))


def _records_of(store: StateStore, run: str) -> tuple[Record, ...]:
    """The journal of a run; nothing if it is not here, or cannot be read: a restore does not need it."""
    try:
        return store.replay(run)
    except JournalError:
        return ()


def release_dead(connection: Connection, store: StateStore, started: RunStarted) -> None:
    """Remove the records of a run whose process is gone, after its changes were restored or if it made none.

    Raises:
        LeaseError: another run has taken it in the meantime.
    """
    found = _record(connection, store, started)
    if found is not None and connection.process.gone(found.process):
        # Nothing depends on it: the next run takes over from a process that is gone.
        hurried = replace(connection.process.terms, patience=0.0)
        with LeaseHeld(connection, store, found.run, started, terms=hurried):
            pass  # a record with pending changes, written since, stays


@dataclass(frozen=True, slots=True, kw_only=True)
class InService:
    """How nodes that another run took out of service are put into service again."""

    # name or path of the playbook with the `after_recovery` hooks; None takes that of the cluster file
    playbook: str | None = None
    by_hand: Sequence[str] = ()  # nodes that people put into service

    @property
    def anything(self) -> bool:
        """Whether the operator named anything."""
        return self.playbook is not None or bool(self.by_hand)

    def less(self, left: LeaseRecord) -> LeaseRecord:
        """A record without the nodes that people put into service."""
        out = tuple(name for name in left.out_of_service if name not in self.by_hand)
        return replace(left, out_of_service=out)


UNSAID: Final = InService()
"""Decided by the playbook of the cluster file: the operator named no nodes."""


def repair(held: LeaseHeld, run: str, started: RunStarted, *, serving: InService = UNSAID) -> Attempt:
    """Begin a run that only restores what another run left, and closes that run.

    Args:
        held: its lease; `left` is there.
        run: its id.
        started: how a run would begin here.
        serving: which of its nodes are in service already.

    Raises:
        JournalError: the state cannot be written; nothing was changed.
    """
    assert held.left is not None  # noqa: S101  (see above)
    left, process, store = serving.less(held.left), held.connection.process, held.store
    journal = _created(held, run, started)
    whose, playbook = left.hooks_of, started.policy.playbook
    if left.out_of_service and whose is not None and whose.playbook != playbook:
        process.warn(
            f"{', '.join(left.out_of_service)}: taken out of service by {whose}; the after_recovery hooks "
            f"here are those of playbook {playbook}"
        )
    begins, *others = from_record(left, replace(started, state=store.state))

    def close(state: RunState) -> None:
        if state.outcome is Outcome.RESTORED and store.written:
            store.close_run(left.debtor, Outcome.RESTORED, process.now)

    theirs = replay(left.debtor, _records_of(store, left.debtor)).nodes.values()
    # A node that was started since its stop may have been up for a while.
    stopped = {n.name: n.stopped_at for n in theirs if n.stopped_at is not None and not n.start_sent}
    return replace(held.begin(journal, begins, *others, then=close), stopped=stopped)


def lease_in_state(store: StateStore, started: RunStarted) -> LeasePort:
    """The lease in the state database; in memory where that cannot be written."""
    lease = store.lease(started.cluster_uuid)
    return lease if store.written else UnwrittenLease(lease)


def _record(connection: Connection, store: StateStore, started: RunStarted) -> LeaseRecord | None:
    """The record of the run that holds the cluster or has left changes; None if there is none to read."""
    in_cluster = started.policy.lease is LeasePlace.CLUSTER
    found = (connection.ports.lease if in_cluster else store.lease(started.cluster_uuid)).read()
    return found if isinstance(found, LeaseRecord) else None


def _created(held: LeaseHeld, run: str, started: RunStarted) -> RunJournal:
    """The journal of a new run, which is in the list of runs from its first event on."""
    if not held.store.written:
        return UnwrittenJournal(run, after=0)
    process = held.connection.process
    return held.store.create_run(
        RunEntry(
            run=run,
            cluster=started.cluster,
            cluster_uuid=started.cluster_uuid,
            kind=started.policy.kind.value,
            started=process.now,
            host=process.host,
            operator=process.operator,
            process=process.identity,
        )
    )
