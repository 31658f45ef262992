"""Starting nodes that a killed run left down, when the cluster has no master that could grant a lease.

A run is killed while a master-eligible node is down, and then another one fails. Now the lease in the cluster
can be neither read nor taken, and only a start of the nodes that the run stopped brings a master back. So the
machine that has the journal sends these starts before it takes that lease. It sends nothing else: a start is
idempotent and harms no other run, so a process may send it even if it was deposed (`runtime/guard.py`).

A Riak cluster has no master. Its lease cannot be read while fewer than a majority of its machines answer, or
while no node answers that can list the members. The nodes that the run stopped may cause that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.engine.fold import evolve
from orchestrator.engine.predicates import by_same_reason
from orchestrator.engine.progress import GOING_UP_OR_DOWN
from orchestrator.engine.state import RunState
from orchestrator.errors import LeaseError
from orchestrator.kinds import kind_of
from orchestrator.model.action import StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Record, RestoreBegun, RunResumed
from orchestrator.model.observation import HostView, LeaseView, ServiceState
from orchestrator.model.phase import Request
from orchestrator.model.reading import Instant, Reading, Seconds, Unauthorized, Unknown
from orchestrator.ports import HostPort
from orchestrator.runs.connection import Connection, Process
from orchestrator.runs.takeover import LeaseHeld
from orchestrator.runtime.executor import Executor
from orchestrator.runtime.lease import Lease, LeaseRefused, LeaseUnreachable, WatchInterrupted
from orchestrator.runtime.store import StateStore

_STARTS: Final = 3
"""How often each start is sent: a host may be out of reach at first, and a node may fail once."""
_NEWS_SECONDS: Final[Seconds] = 15.0
"""Between two messages of a wait."""


def nodes_to_start(state: RunState, event: RunResumed | RestoreBegun, *, at: Instant) -> tuple[NodeName, ...]:
    """The nodes that a run has stopped and not started again, as its journal has it.

    Args:
        state: what the journal leads to.
        event: how the run would continue: it says whether failed nodes are started again.
        at: now.

    Returns:
        Empty if the journal says that another run took this one over: the nodes are that run's.
    """
    if state.process.deposed is not None:
        return ()
    continued = evolve(state, Record(run=state.run, sequence=0, at=at, event=event))
    return tuple(
        node.name
        for node in continued.nodes.values()
        # A lost stop may have taken a node down after the program was killed.
        if node.phase in GOING_UP_OR_DOWN or node.lost_stop is not None
    )


def bring_master_back(
    connection: Connection, store: StateStore, state: RunState, nodes: Sequence[NodeName]
) -> bool:
    """Start these nodes of a run and wait until the lease in the cluster can be read.

    The lease in the state is held meanwhile: no other program on this machine works on the cluster.

    Args:
        connection: its cluster, whose lease could not be read for a while.
        store: the state database that has the run.
        state: what the journal of the run leads to.
        nodes: `nodes_to_start`.

    Returns:
        False when nothing was sent: the lease can be read, or another run has used this state since.

    Raises:
        LeaseUnreachable: no master was elected in time; only starts were sent.
        LeaseRefused: the cluster refuses the credentials; only starts were sent.
        WatchInterrupted: a request to stop came during the wait; only starts were sent.
        LeaseError: a live process has the lease in the state; nothing was sent.
    """
    unread = connection.ports.lease.read()
    if not isinstance(unread, Unknown):
        return False
    begun, process, words = state.begun, connection.process, kind_of(state.begun.policy.kind).words
    with LeaseHeld(connection, store, state.run, begun, in_cluster=False) as held:
        if held.taken.takeover:
            return False  # its record lists changes of another run: the next run with the lease restores them
        names = ", ".join(nodes)
        refused = isinstance(unread, Unauthorized)
        why = "can be taken" if refused else f"can be taken without {words.lease}"
        process.warn(
            f"no lease {why} ({unread.reason}): starting {names}, "
            f"which run {state.run} stopped and did not start again"
        )
        with process.background.keep(held.lease):
            _start_until_elected(connection, held.lease, state, nodes)
        # It is released, whatever its record lists: another run's changes may have to be restored first, by a
        # run that needs this lease too.
        held.owed = None
    return True


def _start_until_elected(
    connection: Connection, lease: Lease, state: RunState, nodes: Sequence[NodeName]
) -> None:
    """Send the starts, up to three times, until the lease in the cluster can be read."""
    begun, process = state.begun, connection.process
    words = kind_of(begun.policy.kind).words
    hosts = connection.ports.hosts(begun.addresses, begun.data_paths)
    executor = Executor(connection.ports.cluster, hosts, workers=process.workers)
    limits = begun.policy.deadlines
    seconds, names = limits.start + limits.rejoin, ", ".join(nodes)
    since, why = process.now, ""
    for number in range(1, _STARTS + 1):
        held = lease.confirm()  # the machine may have been suspended
        if isinstance(held, LeaseView) and held.successor is not None:
            raise LeaseError(f"run {held.successor.run} of {held.successor.owner} took over")
        outcomes = executor.perform([StartNode(node=node) for node in nodes])
        reasons = {
            node: outcome.reason
            for node, outcome in zip(nodes, outcomes, strict=True)
            if isinstance(outcome, ActionFailed)
        }
        failed = [
            f"start of {', '.join(same)}: {said}" for said, same in by_same_reason(reasons.items()).items()
        ]
        for line in failed:
            process.warn(line)
        until = since + seconds * number / _STARTS
        unread = _unread(connection, words.lease, until=until)
        if unread is None:
            return
        if isinstance(unread, Unauthorized):
            down = _not_running(process, hosts, nodes, until=until)
            if not down or number == _STARTS:
                started = tuple(node for node in nodes if node not in down)
                raise LeaseRefused(unread.refusal.sentence, started=started, down=down)
        why = "; ".join((unread.reason, *failed))
    raise LeaseUnreachable(
        f"{words.no_lease} within {seconds:.0f} s after the start of {names} ({why}). "
        f"{words.no_lease_help}; then run `{state.command('resume')}` again. Nothing else was "
        "changed"
    )


def _not_running(
    process: Process, hosts: HostPort, nodes: Sequence[NodeName], *, until: Instant
) -> tuple[NodeName, ...]:
    """Wait until the services of these nodes run; those of which it is not seen, each with a warning.

    Raises:
        WatchInterrupted: a request to stop came during the wait.
    """
    next_message = process.now + _NEWS_SECONDS
    with process.requests(lambda: None) as asked:
        while True:
            read = hosts.observe(nodes, rights=False)
            down = {node: host for node, host in read.items() if not _is(host, ServiceState.RUNNING)}
            failed = any(_is(host, ServiceState.FAILED) for host in down.values())
            if not down or failed or process.now >= until:
                break
            names = ", ".join(down)
            if asked()[0] is not Request.NONE:
                raise WatchInterrupted(
                    f"interrupted while waiting for {names} to start; only starts were sent"
                )
            if process.now >= next_message:
                next_message = process.now + _NEWS_SECONDS
                process.tell(f"waiting for {names} to start")
            process.clock.wait(min(process.terms.poll, until - process.now))
    for node, host in down.items():
        process.warn(f"{node}: {host.reason if isinstance(host, Unknown) else host.detail}")
        for line in () if isinstance(host, Unknown) else host.said:
            process.tell(f"  | {line}")
    return tuple(down)


def _is(host: Reading[HostView], service: ServiceState) -> bool:
    return not isinstance(host, Unknown) and host.service is service


def _unread(connection: Connection, needed: str, *, until: Instant) -> Unknown | None:
    """Wait until the lease in the cluster can be read; the last reading that failed, None once it can.

    A refusal of the credentials ends the wait: a node has answered.
    """
    process, next_message = connection.process, connection.process.now
    with process.requests(lambda: None) as asked:
        while isinstance(unread := connection.ports.lease.read(), Unknown):
            if asked()[0] is not Request.NONE:
                raise WatchInterrupted(f"interrupted while waiting for {needed}; only starts were sent")
            now = process.now
            if now >= until or isinstance(unread, Unauthorized):
                return unread
            if now >= next_message:
                next_message = now + _NEWS_SECONDS
                process.tell(f"waiting for {needed}: {unread.reason}")
            process.clock.wait(min(process.terms.poll, until - now))
    return None
