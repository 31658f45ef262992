"""Taking the lease for a run; before that, restoring the pending changes of another run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine.changes import from_record
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import Event, LeaseTaken, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Seconds
from orchestrator.ports import LeasePort
from orchestrator.runs.attempt import Attempt, drive, driven, exit_code
from orchestrator.runs.connection import Connection, Process
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.store import FINISHED, RunEntry, StateStore
from orchestrator.runtime.taking import Claim, Place, Taken, Terms, Watcher
from orchestrator.runtime.unwritten_lease import UnwrittenLease


def run_from_start(
    connection: Connection,
    store: StateStore,
    started: RunStarted,
    *,
    again: Callable[[], RunStarted],
) -> RunState:
    """Take the lease for a new run, restore what a dead run left, and run to the end.

    Args:
        connection: the cluster.
        store: the state database.
        started: how the run begins.
        again: how it begins after a restore: a node that was down is in no earlier list.

    Returns:
        The last state of the run; or of the restore, if that failed.

    Raises:
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written; nothing was changed.
    """
    return driven(new_run(connection, store, started, again=again))


def new_run(
    connection: Connection,
    store: StateStore,
    started: RunStarted,
    *,
    again: Callable[[], RunStarted],
) -> Attempt | RunState:
    """A new run that holds its lease, once what a dead run left is restored; or how that restore failed.

    The arguments and what is raised are those of `run_from_start`.
    """
    claimed = claim(connection, store, started)
    while claimed.left is not None:
        _announce(claimed.left, connection.process)
        restored = restore_left(store, claimed, started)
        if exit_code(restored) is not ExitCode.DONE:
            return restored
        started = again()
        claimed = claim(connection, store, started)
    return claimed.attempt


def _announce(left: LeaseRecord, process: Process) -> None:
    # A run that took over carries the record on, so the record names that run's owner.
    whose = "" if left.left_by else f" of {left.owner}"
    process.warn(f"run {left.debtor}{whose} ended without restoring its changes: they are restored first")


def _announce_other_hooks(left: LeaseRecord, started: RunStarted, process: Process) -> None:
    """Warn that nodes were taken out of service by another playbook than the one whose hooks run now."""
    whose, playbook = left.hooks_of, started.policy.playbook
    if left.out_of_service and whose is not None and whose.playbook != playbook:
        process.warn(
            f"{', '.join(left.out_of_service)}: taken out of service by {whose}; the after_recovery hooks "
            f"here are those of playbook {playbook}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InService:
    """How nodes that another run took out of service are put into service again.

    Attributes:
        playbook: name or path of the playbook with the `after_recovery` hooks; None takes that of the cluster
            file.
        by_hand: nodes that people put into service.
    """

    playbook: str | None = None
    by_hand: Sequence[str] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A new run that holds its lease.

    Attributes:
        attempt: ready to be driven.
        left: pending changes of the run that held the lease before; None when there are none.
    """

    attempt: Attempt
    left: LeaseRecord | None


def claim(connection: Connection, store: StateStore, started: RunStarted) -> Claimed:
    """Take the lease for a new run, and begin its journal.

    The earlier record stays inside ours until our first publish, so a crash here loses nothing.

    Raises:
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written; nothing was changed.
    """
    process = connection.process
    run, started = process.new_run(), replace(started, state=store.state)
    lease = lease_of(connection, store, run, started)
    taken = acquire(lease, process)
    try:
        left = _owed_by(taken.previous, store)
        journal = store.create_run(_entry(run, started, process))
    except JournalError:
        if taken.previous is None or taken.previous.owes_nothing:
            lease.release()
        raise
    attempt = _attempt(connection, lease, journal, started, lease_taken(taken, store))
    return Claimed(attempt=attempt, left=left)


def _owed_by(record: LeaseRecord | None, store: StateStore) -> LeaseRecord | None:
    """The record, if it has pending changes.

    A run that finished by this state was killed before it released its lease, and its record is older
    than its end: settings are restored, and it waited for the last stop that could still take a node down.

    Raises:
        JournalError: the state cannot be read.
    """
    if record is None or record.owes_nothing or store.outcome(record.debtor) in FINISHED:
        return None
    return record


def _attempt(
    connection: Connection, lease: Lease, journal: SqlJournal | UnwrittenJournal, *first: Event
) -> Attempt:
    """A new run that begins with the lease that was taken for it."""
    state = RunState(run=journal.run)
    return Attempt(connection=connection, lease=lease, journal=journal, state=state, first=first)


def lease_taken(taken: Taken, store: StateStore) -> LeaseTaken:
    """The event of a lease that was taken: it names the run whose pending changes are taken over with it."""
    record, before = taken.record, taken.previous
    return LeaseTaken(
        epoch=record.epoch,
        holder=record.owner,
        takeover=taken.takeover,
        takes_over=None if before is None or before.debtor == record.run else before.debtor,
        ordinal=store.next_ordinal(),
    )


def take_up(
    run: str,
    connection: Connection,
    store: StateStore,
    started: RunStarted,
    *,
    in_cluster: bool = True,
    written: bool = True,
) -> tuple[Lease, Taken] | RunState:
    """Take the lease for a run that exists; the state of a restore instead, if another's changes stay.

    Those are looked for first, so that the run which restores them holds the lease in its own name. The first
    look can miss some (no answer; a run that died after it; a record in the other place). The record that was
    replaced then shows them: our first publish would overwrite it, and they would be lost.

    Args:
        run: the run that continues.
        connection: the cluster.
        store: the state database.
        started: how that run began.
        in_cluster: False takes it in the state only and ignores the playbook: for a restore of nodes that the
            lease in the cluster needs.
        written: False where the state can be read and not written: its lease is then held in memory, and a
            restore keeps no journal.

    Raises:
        LeaseError: a live run holds it; its subclasses report no connection and an interruption.
        JournalError: something is to be restored, and the state cannot be written.
    """
    state = None if written else UnwrittenLease(store.lease(started.cluster_uuid))
    while True:
        restored = restore_others(connection, store, run, started) if written else None
        if restored is not None and exit_code(restored) is not ExitCode.DONE:
            return restored
        lease = lease_of(connection, store, run, started, in_cluster=in_cluster, state=state)
        taken = acquire(lease, connection.process)
        left = _owed_by(taken.previous, store) if taken.takeover else None
        if left is None:
            return lease, taken
        _announce(left, connection.process)
        repair = connection.process.new_run()
        try:
            journal = (
                store.create_run(_entry(repair, started, connection.process))
                if written
                else UnwrittenJournal(repair, after=0)
            )
        except JournalError:
            lease.leave()  # the record keeps the pending changes
            raise
        attempt = _attempt(connection, lease, journal, started, lease_taken(taken, store))
        restored = restore_left(store, Claimed(attempt=attempt, left=left), started)
        if exit_code(restored) is not ExitCode.DONE:
            return restored


def restore_left(store: StateStore, claimed: Claimed, started: RunStarted) -> RunState:
    """Drive a run that only restores what another run left, and close that run."""
    return drive(repair(store, claimed, started))


def repair(store: StateStore, claimed: Claimed, started: RunStarted) -> Attempt:
    """A run that only restores what another run left, and closes that run."""
    attempt, left = claimed.attempt, claimed.left
    if left is None:
        return attempt
    _announce_other_hooks(left, started, attempt.connection.process)
    events = from_record(left, replace(started, state=store.state))
    attempt.first = (events[0], attempt.first[1], *events[1:])

    def close(state: RunState) -> None:
        if state.outcome is Outcome.RESTORED and isinstance(attempt.journal, SqlJournal):
            store.close_run(left.debtor, Outcome.RESTORED, attempt.connection.process.now)

    attempt.then = close
    return attempt


def restore_others(
    connection: Connection, store: StateStore, run: str, started: RunStarted
) -> RunState | None:
    """Restore what another run than this one left; None when nothing is known to be left.

    Raises:
        LeaseError: that run is alive.
    """
    found = _record(connection, store, started)
    if found is None or found.debtor == run or _owed_by(found, store) is None:
        return None
    claimed = claim(connection, store, started)
    if claimed.left is None:  # another process restored it in the meantime
        release(claimed.attempt.lease, connection.process)
        return None
    _announce(claimed.left, connection.process)  # not before: until the lease is taken, that run may be alive
    return restore_left(store, claimed, started)


def release_dead(connection: Connection, store: StateStore, started: RunStarted) -> None:
    """Remove the records of a run whose process is gone, after its changes were restored or if it made none.

    Raises:
        LeaseError: another run has taken it in the meantime.
    """
    found = _record(connection, store, started)
    if found is not None and connection.process.gone(found.process):
        # Nothing depends on it: the next run takes over from a process that is gone.
        hurried = replace(connection.process.terms, patience=0.0)
        lease = lease_of(connection, store, found.run, started, terms=hurried)
        if _owed_by(acquire(lease, connection.process).previous, store) is None:
            release(lease, connection.process)
        else:  # written since: the record keeps the pending changes
            lease.leave()


def _record(connection: Connection, store: StateStore, started: RunStarted) -> LeaseRecord | None:
    in_cluster = started.policy.lease is LeasePlace.CLUSTER
    found = (connection.ports.lease if in_cluster else store.lease(started.cluster_uuid)).read()
    return found if isinstance(found, LeaseRecord) else None


def lease_of(
    connection: Connection,
    store: StateStore,
    run: str,
    started: RunStarted,
    *,
    in_cluster: bool = True,
    state: LeasePort | None = None,
    terms: Terms | None = None,
) -> Lease:
    """The lease of a run: in the state database, and in the cluster unless the playbook says otherwise.

    Args:
        connection: the cluster.
        store: the state database.
        run: the run's id.
        started: has the cluster and the policy.
        in_cluster: False leaves the cluster out and ignores the playbook.
        state: the lease in the state database, where it is not taken as usual.
        terms: its times, where they are not those of this process.
    """
    port = state or store.lease(started.cluster_uuid)
    found = [Place(name=f"the state ({store.where})", port=port, state=store.state)]
    if in_cluster and started.policy.lease is LeasePlace.CLUSTER:
        found.append(Place(name="the cluster", port=connection.ports.lease))
    process = connection.process
    who = Claim(
        cluster=started.cluster,
        run=run,
        owner=f"{process.operator}@{process.host}",
        process=process.identity,
    )
    return Lease(found, who, process.clock, terms or process.terms)


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

    with process.requests.during(lambda: None) as asked:
        return lease.acquire(
            Watcher(
                watching=watching,
                interrupted=lambda: asked()[0] is not Request.NONE,
                gone=process.gone,
                alive=process.alive,
            )
        )


def release(lease: Lease, process: Process) -> None:
    """Release a lease that was not used. Failures are shown as warnings."""
    for trouble in lease.release():
        process.warn(trouble)


def _entry(run: str, started: RunStarted, process: Process) -> RunEntry:
    """The line of a new run in the list of runs."""
    return RunEntry(
        run=run,
        cluster=started.cluster,
        cluster_uuid=started.cluster_uuid,
        kind=started.policy.kind.value,
        started=process.now,
        host=process.host,
        operator=process.operator,
        process=process.identity,
    )
