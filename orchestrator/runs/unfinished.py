"""Runs that have not finished: resumed, or restored from the state or from the record in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from orchestrator.config.gates import secrets_of
from orchestrator.engine.left_over import LeftOver, changes_left, grouped
from orchestrator.engine.state import RunState
from orchestrator.errors import (
    ConfigError,
    ExitCode,
    JournalError,
    NotRestored,
    UsageError,
)
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RestoreBegun, RunResumed
from orchestrator.model.observation import Look
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import holder
from orchestrator.runs.attempt import Attempt, drive, driven
from orchestrator.runs.connection import Connection
from orchestrator.runs.past_runs import (
    PastRun,
    RunPassed,
    Wanted,
    candidates,
    find_run,
    is_missing,
    nothing_to_restore,
    past_run_of,
    require_agreed,
    to_restore,
    to_resume,
)
from orchestrator.runs.prepare import prepare_restore
from orchestrator.runs.takeover import UNSAID, InService, LeaseHeld, repair, take_up
from orchestrator.runs.without_master import bring_master_back, nodes_to_start
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.lease import LeaseGarbled, LeaseRefused, LeaseUnreachable
from orchestrator.runtime.store import FINISHED, RunEntry, StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingDriven:
    """The end of a request that drove no run."""

    code: ExitCode
    message: str
    cluster: str | None = None
    run: str | None = None
    left: tuple[str, ...] = ()  # the problems that were found


def resume_run(
    connection: Connection,
    store: StateStore,
    past: PastRun,
    *,
    retry_failed: bool = False,
    skip: Sequence[NodeName] = (),
    accept_alerts: Sequence[str] = (),
) -> RunState:
    """Continue a run with its original policy.

    Args:
        connection: its cluster.
        store: the state database that has the run.
        past: the run.
        retry_failed: start failed nodes again.
        skip: nodes to leave out.
        accept_alerts: alerts that close no gate from here on: by name, or with labels as they were shown.

    Returns:
        Its last state; or that of a restore of what another run left, where that failed.

    Raises:
        UsageError: the cluster file or its endpoints now belong to another cluster; or others can write the
            state, and what the run would run is not in the playbook and was not agreed to.
        LeaseError: another run holds the cluster.
        JournalError: the state cannot be written.
    """
    past.require_same(connection.ports, connection.ports.cluster.observe({Look.CLUSTER}).cluster)
    event = RunResumed(
        operator=connection.process.operator,
        host=connection.process.host,
        retry_failed=retry_failed,
        skip=tuple(skip),
        state=store.state,
        accept_alerts=tuple(accept_alerts),
    )
    return driven(lambda: next_attempt(connection, store, past, event))


def restore_run(connection: Connection, store: StateStore, past: PastRun) -> RunState:
    """Restore what a run changed, from its journal; arguments and the rest are as of `resume_run`."""
    past.require_same(connection.ports, connection.ports.cluster.observe({Look.CLUSTER}).cluster)
    process = connection.process
    event = RestoreBegun(operator=process.operator, host=process.host, state=store.state)
    return driven(lambda: next_attempt(connection, store, past, event))


def next_attempt(
    connection: Connection, store: StateStore, past: PastRun, event: RunResumed | RestoreBegun
) -> Attempt:
    """Begin the attempt that continues or restores a run. Its cluster is not checked.

    Args:
        connection: its cluster.
        store: the state database that has the run.
        past: the run.
        event: with which the attempt begins: it says which of the two.

    Raises:
        NotRestored: the cluster refuses the credentials, and the run has changed settings, or nodes of it
            were started and not seen to be back.
        RestoreFailed: what another run left could not be restored.
        OrchestratorError: as `resume_run`.
    """
    resumes = isinstance(event, RunResumed)
    if resumes:
        require_agreed(connection, store, past, to_resume)
        try:
            connection.ports.require_secrets(secrets_of(past.started.policy))
        except ConfigError as error:  # it holds stops; a node that is down has to come up all the same
            connection.process.warn(
                f"{error}; its gate counts as closed: the run starts nodes, restores settings and stops "
                "nothing"
            )
    elif any(node.undo for node in past.state.nodes.values()):
        require_agreed(connection, store, past, to_restore)
    try:
        return _with_master(connection, store, past, event)
    except LeaseRefused as refused:
        left = _left("resume" if resumes else "restore", past, refused)
        if left is None:
            raise
        raise left from refused
    except LeaseUnreachable as error:
        if resumes or past.started.policy.lease is not LeasePlace.CLUSTER:
            raise  # for a restore: it was the lease in the state, and there is no other
        connection.process.warn(f"{error}: continuing with the lease in the state alone")
        return take_up(connection, store, past, event, in_cluster=False)


def _with_master(
    connection: Connection, store: StateStore, past: PastRun, event: RunResumed | RestoreBegun
) -> Attempt:
    """The next attempt of a run. Without a master, the nodes that it stopped are started first."""
    try:
        return take_up(connection, store, past, event)
    except LeaseGarbled:
        raise  # the cluster answers
    except LeaseUnreachable:
        restored = past.entry.outcome is Outcome.RESTORED  # perhaps by another run: not in its journal
        nodes = () if restored else nodes_to_start(past.state, event, at=connection.process.now)
        if past.started.policy.lease is not LeasePlace.CLUSTER or not nodes:
            raise
        if not bring_master_back(connection, store, past.state, nodes):
            raise
    return take_up(connection, store, past, event)


def _left(verb: str, past: PastRun, refused: LeaseRefused) -> NotRestored | None:
    """What stays unrestored when the cluster refuses the credentials; None if nothing does."""
    nodes = dict.fromkeys(refused.started, "started over SSH, not seen in the cluster")
    nodes |= dict.fromkeys(refused.down, "down")
    down = [LeftOver(name=n, one=f"node {{}}: {s}", many=f"nodes {{}}: {s}") for n, s in nodes.items()]
    left = [*changes_left(past.state), *down]
    if not left:
        return None
    again = past.state.command(verb)
    return NotRestored(
        str(refused),
        *(f"  NOT RESTORED: {line}" for line in grouped(left)),
        f"once the credentials are accepted: {again}",
    )


def restore_meant(
    open_state: Callable[[DatabaseUse], StateStore],
    reach: Callable[[PastRun | None], AbstractContextManager[Connection]],
    *,
    run: str | None = None,
    cluster: str | None = None,
    serving: InService = UNSAID,
    confirm: Callable[[RunEntry, StateStore], None] = lambda _entry, _store: None,
) -> RunState | NothingDriven:
    """Find the wanted run, and restore what it changed; from the cluster's record if there is no run.

    Args:
        open_state: opens the state database.
        reach: the connection to use: for a run of the state, or for the cluster that was named.
        run: as given: an id, the beginning of one, or its last part.
        cluster: the name of the cluster, if one was named.
        serving: for what another run left, in the record in the cluster.
        confirm: called with a run that neither `run` nor `cluster` named, and the state; may raise.

    Raises:
        UsageError: the run that was named does not exist, or more than one can be meant (`RunPassed`).
        LeaseError: a live run holds the cluster.
        JournalError: the state cannot be read.
    """
    by_record = run is None and cluster is not None
    unnamed = run is None and cluster is None
    confirmed: list[str] = []
    if serving.anything and not by_record:
        raise UsageError(
            "--playbook and --in-service need --cluster: a run is restored with its original policy"
        )

    def found(store: StateStore) -> RunEntry | RunPassed | None:
        if run is None and not candidates(store.runs(), Wanted.RESTORE, cluster):
            return None
        try:
            entry = find_run(store, Wanted.RESTORE, run=run, cluster=cluster)
        except RunPassed as doubt:
            if not by_record:
                raise
            return doubt  # the record in the cluster names the run whose changes are pending
        if unnamed and entry.run not in confirmed:
            confirm(entry, store)
            confirmed.append(entry.run)
        return entry

    # The cluster's own record is restored without any state file of ours; one is created then.
    access = DatabaseUse.WRITE if by_record else DatabaseUse.CONTINUE
    try:
        if by_record and is_missing(open_state):
            with reach(None) as connection:  # a state is made only for a cluster that can be read
                prepare_restore(connection, serving.playbook)
        with open_state(access) as store:
            entry = found(store)
            if by_record and not isinstance(entry, RunEntry):
                with reach(None) as connection:
                    ended = restore_from_record(connection, store, serving)
                if entry is not None and isinstance(ended, NothingDriven):
                    raise entry
                return ended
            if not isinstance(entry, RunEntry):
                return NothingDriven(code=ExitCode.DONE, message=nothing_to_restore(store))
            if entry.outcome in FINISHED:
                message = f"run {entry.run} has nothing to restore: it ended {entry.outcome.value}"
                return NothingDriven(
                    code=ExitCode.DONE, message=message, cluster=entry.cluster, run=entry.run
                )
            past = past_run_of(store, entry)
            with reach(past) as connection:
                return _restore_here(connection, store, past, serving)
    except JournalError as error:
        # Changes are restored even if that cannot be recorded.
        with open_state(DatabaseUse.READ) as store:
            store.written, entry = False, found(store)
            if not isinstance(entry, RunEntry):
                elsewhere = "--state sqlite:///$HOME/empty.db restores what the record in the cluster lists"
                raise JournalError(f"{error}; {elsewhere}" if by_record else str(error)) from error
            past = past_run_of(store, entry)
            with reach(past) as connection:
                connection.process.warn(f"{error}: continuing without writing to it")
                return restore_run(connection, store, past)


def _restore_here(connection: Connection, store: StateStore, past: PastRun, serving: InService) -> RunState:
    """Restore a run of the state; if it restored another run without its hooks, from the record again."""
    if serving.anything and past.started.repairs is None:
        connection.process.warn(
            f"run {past.entry.run} is restored with its original policy: --playbook and --in-service"
            " have no effect"
        )
    elif serving.anything:
        ended = restore_from_record(connection, store, serving)
        if isinstance(ended, RunState):
            return ended
    return restore_run(connection, store, past)


def restore_from_record(
    connection: Connection, store: StateStore, serving: InService
) -> RunState | NothingDriven:
    """Restore what the record in the cluster lists, without the state of the run that left it."""
    started, run = prepare_restore(connection, serving.playbook), connection.process.new_run()
    with LeaseHeld(connection, store, run, started) as held:
        if held.left is not None:
            return drive(repair(held, run, started, serving=serving))
    if kind_of(started.policy.kind).limits_in_memory:
        return limits_without_record(connection, store.where, started.policy.lease)
    message = f"there is nothing to restore on {started.cluster}: no run has left a record there"
    return NothingDriven(code=ExitCode.DONE, message=message, cluster=started.cluster)


def limits_without_record(connection: Connection, where: str, place: LeasePlace) -> NothingDriven:
    """What can be read of a cluster without a record of a run, where the limits of transfers are in memory.

    No file has their original values: they are only shown.

    Args:
        connection: the cluster.
        where: the state, in words.
        place: where the record would be.

    Returns:
        FAILED when members are down, NOT_RESTORED when that or the limits cannot be read, else DONE.
    """
    ports = connection.ports
    message = {
        LeasePlace.CLUSTER: f"no run has left a record on the hosts of {ports.name}",
        LeasePlace.STATE: f"{where} has no run with unrestored changes on {ports.name}. With `lease: state` "
        "in the playbook nothing is written to the hosts: restore a run with its own state file (--state)",
    }[place]
    read = ports.cluster.observe({Look.CLUSTER, Look.SETTINGS})
    left: tuple[str, ...] = ()
    code = ExitCode.DONE
    if isinstance(read.settings, Unknown):
        message += f". The transfer limits cannot be read: {read.settings.reason}"
        code = ExitCode.NOT_RESTORED
    else:
        message += f". Transfer limits are now: {_limits(read.settings.transient)}"
    if isinstance(read.cluster, Unknown):
        message += f". The state of the nodes cannot be read: {read.cluster.reason}"
        code = ExitCode.NOT_RESTORED
    elif down := sorted(ports.members(read.cluster).keys() - read.cluster.members.keys()):
        message += f". Down: {', '.join(down)}; start them on their hosts"
        left, code = tuple(f"node {node} is down" for node in down), ExitCode.FAILED
    return NothingDriven(code=code, message=message, cluster=ports.name, left=left)


def _limits(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{node} {value}" for key, value in sorted(settings.items()) if (node := holder(key)))
