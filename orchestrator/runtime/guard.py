"""The loop's own rules for what may be sent, and what is sent without a reading. Functions of the state.

They apply to every decision. A deposed process sends only starts of its own nodes. Nothing disruptive is sent
without its record in the cluster, and no lasting change while another process may have taken over. After a
defect of the program, nodes are started and allocation is enabled without a decision.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from orchestrator.engine.progress import MAY_BE_DOWN
from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    Action,
    ActionResult,
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Moment,
    Purpose,
    RebootHost,
    RunHook,
    SetIndexSettings,
    SetReplicas,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Deposed
from orchestrator.model.observation import LeaseView
from orchestrator.model.reading import Reading, Unknown

_WRITES: Final = (
    WriteSettings,
    SetReplicas,
    SetIndexSettings,
    ExcludeFromVoting,
    ClearVotingExclusions,
    StopNode,
    RebootHost,
)
"""Actions that a process must not send if it may be deposed, including restores."""


def barred(
    actions: Sequence[Action], *, deposed: Deposed | None, lease: Reading[LeaseView], record: ActionResult
) -> dict[int, str]:
    """The actions that may not be sent, by index, each with the reason.

    Args:
        actions: the decided actions.
        deposed: the successor that deposed this process; None if it is not deposed.
        lease: the lease, confirmed. A start is sent even if the lease is unknown, since it only helps a node
            that is down.
        record: the result of writing the record in the cluster. Without this record, another bastion could
            not undo the actions.
    """
    if deposed is not None:
        why = f"run {deposed.successor} of {deposed.owner} took over"
        return {n: why for n, action in enumerate(actions) if not _may_start(action, deposed)}
    found: dict[int, str] = {}
    if isinstance(lease, Unknown):
        why = f"another process may have taken over: {lease.reason}"
        found |= {n: why for n, action in enumerate(actions) if isinstance(action, _WRITES)}
    if not isinstance(record, Done):
        why = f"the record in the cluster could not be written: {record.reason}"
        found |= {n: why for n, action in enumerate(actions) if _needs_record(action)}
    return found


def _may_start(action: Action, deposed: Deposed) -> bool:
    return isinstance(action, StartNode) and action.node not in deposed.in_hand


def _needs_record(action: Action) -> bool:
    """Actions that another bastion could not undo without the record. Starts and restores do not need it."""
    match action:
        case WriteSettings(purpose=purpose):
            return purpose not in (Purpose.REASSIGN, Purpose.RESTORE)
        case SetReplicas(found=found, wanted=wanted):
            return wanted > found
        case StopNode() | ExcludeFromVoting():
            return True
        case _:
            return False


def unsent(action: Action, why: str, *, passes: bool = True) -> ActionFailed:
    """The outcome of an action that was never sent; for a deposed process it is permanent."""
    return ActionFailed(action=action, reason=f"not sent: {why}", in_doubt=False, unsent=True, passes=passes)


def busy_hosts(state: RunState) -> frozenset[NodeName]:
    """Nodes on whose hosts our `while_stopped` hook or install step may still run: its end is unknown."""
    failed = [failure.action for failure in state.in_phase.failed if failure.in_doubt]
    hooks = (
        action.node
        for action in (*state.process.in_flight, *failed)
        if isinstance(action, RunHook) and action.moment is Moment.WHILE_STOPPED
    )
    return frozenset((*hooks, *(node.name for node in state.nodes.values() if node.install is not None)))


def blind_starts(state: RunState, *, busy: Collection[NodeName]) -> tuple[StartNode, ...]:
    """A start for each node that may be down because of us; a running node ignores it."""
    starts = [StartNode(node=node.name) for node in state.nodes_in(*MAY_BE_DOWN)]
    deposed = state.process.deposed
    return tuple(
        start
        for start in starts
        if start.node not in busy and (deposed is None or _may_start(start, deposed))
    )


def blind_restores(state: RunState) -> tuple[WriteSettings, ...]:
    """Restore the original allocation. Other settings can wait for `resume` or `restore`."""
    left = state.unrestored
    changes = tuple(debt.undone() for key, debt in left.in_order if key in left.withheld)
    return (WriteSettings(changes=changes, purpose=Purpose.REASSIGN),) if changes else ()
