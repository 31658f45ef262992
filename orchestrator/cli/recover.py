"""`orchestrate resume` and `restore`: what makes being killed harmless."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.asking import ask, require_terminal
from orchestrator.cli.drive import Attempt, drive, exit_code
from orchestrator.cli.fresh import prepare_restore
from orchestrator.cli.holding import claim, hold, put_back
from orchestrator.cli.riak_restore import nothing_known
from orchestrator.cli.surroundings import Surroundings, surroundings
from orchestrator.cli.world import World
from orchestrator.config.cluster import ClusterFile, RiakClusterSpec
from orchestrator.config.gates import secrets_of
from orchestrator.engine.fold import RunState, replay
from orchestrator.errors import ConfigError, ExitCode, JournalError, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import LeaseTaken, Record, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.phase import NodePhase
from orchestrator.model.policy import LeasePlace
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.runs import Wanted, find_run
from orchestrator.runtime.store import FINISHED, RunEntry, StateStore, open_store
from orchestrator.runtime.taking import LeaseUnreachable, Taken
from orchestrator.view.merges import left_to_do
from orchestrator.view.units import visible

Skip = Annotated[
    list[str] | None, typer.Option("--skip", help="Do without this node (repeatable).", metavar="NODE")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Start nodes that failed again, once they are repaired.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("resume")(resume)
    app.command("restore")(restore)


def resume(
    run: opt.Run = None,
    retry_failed: RetryFailed = False,
    skip: Skip = None,
    cluster: opt.AnyCluster = None,
    yes: opt.Yes = False,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Go on with a run that was stopped, paused or killed. By the policy that it began with."""
    around = surroundings(output)
    with _store(around, state, Access.GO_ON) as store:
        file = around.cluster(cluster) if cluster else None
        entry = find_run(store, Wanted.RESUME, run=run, cluster=file.spec.name if file else None)
        started, records, past = _past(store, entry)
        skipped = tuple(NodeName(name) for name in skip or ())
        unknown = [name for name in skipped if name not in past.nodes]
        if unknown:
            raise UsageError(f"--skip {unknown[0]}: run {entry.run} has {', '.join(past.nodes)}")
        failed = [
            n.name for n in past.nodes.values() if n.phase is NodePhase.FAILED and n.name not in skipped
        ]
        if failed and not retry_failed:
            around.warn(f"{', '.join(failed)} failed: --retry-failed starts them again, --skip gives them up")
        if not yes:
            require_terminal(around, "orchestrate status")
            left = left_to_do(past, without=skipped) or "0 nodes"
            what = f"run {entry.run} on {visible(entry.cluster)}, {left} left"
            ask(f"Resume {what}?", around)
        event = RunResumed(
            operator=operator_name(around.environment),
            host=host_name(),
            retry_failed=retry_failed,
            skip=skipped,
        )
        world = World(file or around.cluster(started.cluster_file), around)
        try:
            _tell_of_gates(world, started, around)
            held = hold(entry.run, world, store, started, around)
            if isinstance(held, ExitCode):
                return int(held)
            lease, taken = held
            lease_event = LeaseTaken(
                epoch=taken.record.epoch, holder=taken.record.owner, takeover=taken.takeover
            )
            attempt = Attempt(
                world=world,
                lease=lease,
                journal=store.journal(entry.run, after=len(records)),
                state=past,
                past=records,
                first=(event, lease_event),
            )
            return int(exit_code(drive(attempt, around)))
        finally:
            world.close()


def _tell_of_gates(world: World, started: RunStarted, around: Surroundings) -> None:
    """A secret of a gate that is not there bars stops; what is down has to come up all the same."""
    try:
        world.require_secrets(secrets_of(started.policy))
    except ConfigError as error:
        around.warn(f"{error}; its gate counts as closed, so that the run only puts things right until then")


def restore(
    run: opt.Run = None,
    cluster: opt.AnyCluster = None,
    yes: opt.NeverAsks = True,
    output: opt.OutputMode = opt.Output.TEXT,
    state: opt.State = None,
) -> int:
    """Put back what a run changed and start what it left down. Never asks.

    With --cluster and no run of it in the state here: from the record that the run left in the cluster.
    """
    del yes  # accepted like everywhere; a repair does not wait for an answer
    around = surroundings(output)
    file = around.cluster(cluster) if cluster else None
    name = file.spec.name if file else None
    # What the cluster itself records is put back without any state file of ours, and then one is made.
    access = Access.WRITE if file is not None and run is None else Access.GO_ON
    try:
        with _store(around, state, access) as store:
            if file is not None and run is None and not store.unfinished(cluster=name):
                return int(_from_cluster(file, store, around))
            entry = find_run(store, Wanted.RESTORE, run=run, cluster=name)
            if entry.outcome in FINISHED:
                message = f"run {entry.run} owes nothing: it ended {entry.outcome.value}"
                return int(_nothing_owed(message, entry.cluster, around, run=entry.run))
            return int(_from_state(entry, file, store, around))
    except JournalError as error:
        # What has to be put back is put back, whether or not it can be written down.
        with _store(around, state, Access.READ) as store:
            recorded = file is not None and not isinstance(file.spec, RiakClusterSpec)
            if recorded and run is None and not store.unfinished(cluster=name):
                # What is owed stands in the cluster, so that any other state will do.
                elsewhere = "--state sqlite:////tmp/empty.db puts back what the record in the cluster says"
                raise JournalError(f"{error}; {elsewhere}") from error
            around.warn(f"{error}: going on without writing to it")
            entry = find_run(store, Wanted.RESTORE, run=run, cluster=name)
            return int(_from_state(entry, file, store, around, written=False))


def _from_state(
    entry: RunEntry,
    file: ClusterFile | None,
    store: StateStore,
    around: Surroundings,
    *,
    written: bool = True,
) -> ExitCode:
    """From the journal of the run that left it.

    Args:
        entry: that run.
        file: of its cluster, where one was named.
        store: the state database.
        around: the process.
        written: False where the state can be read and not written.
    """
    started, records, past = _past(store, entry)
    world = World(file or around.cluster(started.cluster_file), around)
    try:
        held = _held(entry, world, store, started, around, written=written)
        if isinstance(held, ExitCode):
            return held
        lease, taken = held
        journal = (
            store.journal(entry.run, after=len(records))
            if written
            else UnwrittenJournal(entry.run, after=len(records))
        )
        return _restore(Replayed(world, lease, taken, journal, records, past), around)
    finally:
        world.close()


def _held(
    entry: RunEntry,
    world: World,
    store: StateStore,
    started: RunStarted,
    around: Surroundings,
    *,
    written: bool,
) -> tuple[Lease, Taken] | ExitCode:
    """The lease for a repair, which cannot wait for the cluster to be there."""
    try:
        return hold(entry.run, world, store, started, around, written=written)
    except LeaseUnreachable as error:
        if started.policy.lease is not LeasePlace.CLUSTER:
            raise  # it was the state's, and there is no other
        # The master may be down because of us: then starting it comes before any lease in the cluster.
        around.warn(f"{error}: going on with the lease in the state alone")
        return hold(entry.run, world, store, started, around, in_cluster=False, written=written)


class Replayed(NamedTuple):
    """A run whose journal was read, with the lease on its cluster."""

    world: World
    lease: Lease
    taken: Taken
    journal: SqlJournal | UnwrittenJournal
    records: tuple[Record, ...]
    past: RunState


def _restore(replayed: Replayed, around: Surroundings) -> ExitCode:
    taken = replayed.taken
    attempt = Attempt(
        world=replayed.world,
        lease=replayed.lease,
        journal=replayed.journal,
        state=replayed.past,
        past=replayed.records,
        first=(
            RestoreBegun(operator=operator_name(around.environment), host=host_name()),
            LeaseTaken(epoch=taken.record.epoch, holder=taken.record.owner, takeover=taken.takeover),
        ),
    )
    return exit_code(drive(attempt, around))


def _from_cluster(file: ClusterFile, store: StateStore, around: Surroundings) -> ExitCode:
    """Without the state of the run that left it: from the record in the cluster."""
    with prepare_restore(file, around) as (world, started):
        claimed = claim(world, store, started, around)
        if claimed.owed is None:
            for trouble in claimed.made.lease.release():
                around.warn(trouble)
            if isinstance(file.spec, RiakClusterSpec):
                return nothing_known(world, store.where, around)
            message = f"nothing is owed to {started.cluster}: no run has left a record there"
            return _nothing_owed(message, started.cluster, around)
        return put_back(store, claimed, started, around)


def _nothing_owed(message: str, cluster: str, around: Surroundings, *, run: str | None = None) -> ExitCode:
    around.note(visible(message))
    return around.end(ExitCode.DONE, run=run, cluster=cluster, left=[], message=message)


def _past(store: StateStore, entry: RunEntry) -> tuple[RunStarted, tuple[Record, ...], RunState]:
    records = store.replay(entry.run)
    started = next((record.event for record in records if isinstance(record.event, RunStarted)), None)
    if started is None:
        raise JournalError(f"run {entry.run} was killed before it began: there is nothing to go on with")
    return started, records, replay(entry.run, records)


@contextmanager
def _store(around: Surroundings, url: str | None, access: Access) -> Iterator[StateStore]:
    store = open_store(url, around.environment, access=access, home=around.home)
    try:
        yield store
    finally:
        store.close()
