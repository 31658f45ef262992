"""Taking the lease for a run; and first, if another run left something behind, putting that back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from orchestrator.cli.drive import Attempt, drive, exit_code
from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.world import World
from orchestrator.engine.changes import from_record, owes_nothing
from orchestrator.engine.fold import RunState
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import LeaseTaken, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Seconds
from orchestrator.ports import LeasePort
from orchestrator.runtime.identity import current_process, new_run_id
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.signals import LastWords, Signals, last_words
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.runtime.taking import Claim, Place, Taken, Watcher
from orchestrator.runtime.unwritten_lease import UnwrittenLease


def begin(
    world: World,
    store: StateStore,
    started: RunStarted,
    around: Surroundings,
    *,
    again: Callable[[], RunStarted],
) -> Attempt | ExitCode:
    """Take the lease and make the run; the exit code instead when a dead run could not be put back.

    Args:
        world: the cluster.
        store: the state database.
        started: how the run begins.
        around: the process.
        again: how it begins once something was put back: a node that was down then is in no list from before.

    Raises:
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written; nothing was changed.
    """
    attempt = claim(world, store, started, around)
    while attempt.owed is not None:
        _tell_of(attempt.owed, around)
        code = put_back(store, attempt, started, around)
        if code is not ExitCode.DONE:
            return code
        started = again()
        attempt = claim(world, store, started, around)
    return attempt.made


def _tell_of(left: LeaseRecord, around: Surroundings) -> None:
    # Carried on by a run that took over from it, the record names that one's owner.
    whose = "" if left.left_by else f" of {left.owner}"
    around.warn(f"run {left.debtor}{whose} left something behind: putting that back first")


class Claimed:
    """A new run with its lease.

    Attributes:
        made: ready to be driven.
        owed: what the run that held the lease before left behind; None when that is nothing.
    """

    def __init__(self, made: Attempt, owed: LeaseRecord | None) -> None:
        self.made, self.owed = made, owed


def claim(world: World, store: StateStore, started: RunStarted, around: Surroundings) -> Claimed:
    """Take the lease for a new run, and begin its journal.

    The record that stood there before stays in ours until our first publish, so a crash here loses nothing.

    Raises:
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written; nothing was changed.
    """
    run = _new_id(around)
    lease = lease_of(world, store, run, started, around)
    taken = acquire(lease, around)
    previous = taken.previous
    owed = None if previous is None or owes_nothing(previous) else previous
    try:
        journal = store.create_run(entry_of(run, started, around))
    except JournalError:
        if owed is None:
            lease.release()
        raise
    return Claimed(_attempt(world, (lease, taken), journal, started), owed)


def _attempt(
    world: World, held: tuple[Lease, Taken], journal: SqlJournal | UnwrittenJournal, started: RunStarted
) -> Attempt:
    """A new run that begins with the lease that was taken for it."""
    lease, taken = held
    event = LeaseTaken(epoch=taken.record.epoch, holder=taken.record.owner, takeover=taken.takeover)
    state = RunState(run=journal.run)
    return Attempt(world=world, lease=lease, journal=journal, state=state, first=(started, event))


def hold(
    run: str,
    world: World,
    store: StateStore,
    started: RunStarted,
    around: Surroundings,
    *,
    in_cluster: bool = True,
    written: bool = True,
) -> tuple[Lease, Taken] | ExitCode:
    """Take the lease for a run that is there; the exit code instead when another's leftovers stay.

    They are looked for before that, so that the run which puts them back holds the lease in its own name.
    What that look missed (no answer, a run that died after it, a record that stands in the other place) is
    what the lease says that was taken: our first record would replace it, and nobody would know of it any
    more.

    Args:
        run: the one that goes on.
        world: the cluster.
        store: the state database.
        started: how that run began.
        around: the process.
        in_cluster: False takes it in the state alone, whatever the playbook says: for a repair of what the
            cluster's lease needs.
        written: False where the state can be read and not written: then its lease is held in memory, and a
            repair keeps no journal.

    Raises:
        LeaseError: a live run holds it; its subclasses tell of no connection and of an interruption.
        JournalError: something is to be put back, and the state cannot be written.
    """
    state = None if written else UnwrittenLease(store.lease(started.cluster_uuid))
    while True:
        code = settle_others(world, store, run, started, around) if written else ExitCode.DONE
        if code is not ExitCode.DONE:
            return code
        lease = lease_of(world, store, run, started, around, in_cluster=in_cluster, state=state)
        taken = acquire(lease, around)
        left = taken.previous if taken.takeover else None
        if left is None or owes_nothing(left):
            return lease, taken
        _tell_of(left, around)
        repair = _new_id(around)
        try:
            journal = (
                store.create_run(entry_of(repair, started, around))
                if written
                else UnwrittenJournal(repair, after=0)
            )
        except JournalError:
            lease.leave()  # the record carries what is owed on
            raise
        made = _attempt(world, (lease, taken), journal, started)
        code = put_back(store, Claimed(made, left), started, around)
        if code is not ExitCode.DONE:
            return code


def _new_id(around: Surroundings) -> str:
    return new_run_id(around.clock.now(), random.SystemRandom())


def put_back(store: StateStore, claimed: Claimed, started: RunStarted, around: Surroundings) -> ExitCode:
    """Drive a run that does nothing but put back what another one left; that one is closed then."""
    attempt, owed = claimed.made, claimed.owed
    if owed is None:
        return ExitCode.DONE
    events = from_record(owed, started)
    attempt.first = (events[0], attempt.first[1], *events[1:])
    state = drive(attempt, around)
    if state.outcome is Outcome.RESTORED and isinstance(attempt.journal, SqlJournal):
        store.close_run(owed.debtor, Outcome.RESTORED, around.clock.now())
    return exit_code(state)


def settle_others(
    world: World, store: StateStore, run: str, started: RunStarted, around: Surroundings
) -> ExitCode:
    """Put back what another run than this one left since; DONE when nothing is owed, as far as is known.

    Raises:
        LeaseError: that run is alive.
    """
    in_cluster = started.policy.lease is LeasePlace.CLUSTER
    found = (world.lease if in_cluster else store.lease(started.cluster_uuid)).read()
    if not isinstance(found, LeaseRecord) or found.debtor == run or owes_nothing(found):
        return ExitCode.DONE
    _tell_of(found, around)
    return put_back(store, claim(world, store, started, around), started, around)


def lease_of(
    world: World,
    store: StateStore,
    run: str,
    started: RunStarted,
    around: Surroundings,
    *,
    in_cluster: bool = True,
    state: LeasePort | None = None,
) -> Lease:
    """The lease of a run: in the state database, and in the cluster unless the playbook says otherwise.

    Args:
        world: the cluster.
        store: the state database.
        run: the run's id.
        started: tells the cluster and the policy.
        around: the process.
        in_cluster: False leaves the cluster out, whatever the playbook says.
        state: the lease in the state database, where it is not taken as usual.
    """
    port = state or store.lease(started.cluster_uuid)
    found = [Place(name=f"the state ({store.where})", port=port)]
    if in_cluster and started.policy.lease is LeasePlace.CLUSTER:
        found.append(Place(name="the cluster", port=world.lease))
    who = Claim(
        cluster=started.cluster,
        run=run,
        owner=f"{started.operator}@{started.host}",
        process=str(current_process()),
    )
    return Lease(found, who, around.clock)


def acquire(lease: Lease, around: Surroundings) -> Taken:
    """Take it, saying whom it waits for.

    Raises:
        LeaseError: a live run holds it.
        WatchInterrupted: a signal came while it was waited for.
    """
    said: list[tuple[str, int]] = []

    def watching(record: LeaseRecord, left: Seconds) -> None:
        mark = (record.run, int(left // 15))
        if mark not in said:
            said.append(mark)
            around.note(
                f"waiting for the lease of run {record.run} of {record.owner}: "
                f"if it shows no sign of life, it runs out in {left:.0f} s"
            )

    def nothing_to_tell() -> LastWords:
        return LastWords(error=last_words(None, ()))

    with Signals(around.clock.wake, nothing_to_tell) as signals:
        return lease.acquire(replace(Watcher(), watching=watching, interrupted=signals.interrupted))


def entry_of(run: str, started: RunStarted, around: Surroundings) -> RunEntry:
    """The line of a new run in the list of runs."""
    return RunEntry(
        run=run,
        cluster=started.cluster,
        cluster_uuid=started.cluster_uuid,
        kind=started.policy.kind.value,
        started=around.clock.now(),
        host=started.host,
        operator=started.operator,
        process=str(current_process()),
    )
