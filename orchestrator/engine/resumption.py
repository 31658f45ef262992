"""A new process takes a run up: where its journal puts it, whatever the old process was about."""

from __future__ import annotations

from orchestrator.engine.hooks import hook_doubted
from orchestrator.engine.merge_state import doubted
from orchestrator.engine.phases import FINAL_NODE_PHASES
from orchestrator.engine.state import RunState
from orchestrator.model.action import RebootHost, StopNode
from orchestrator.model.event import RunResumed
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Instant
from orchestrator.model.replacing import replace


def _in_doubt(state: RunState, at: Instant) -> RunState:
    """A new process takes over: what was under way is in doubt, and every timer begins anew.

    Its clock may have been set since: a moment of the old process is never later than its beginning.
    """
    stopping = {action.node for action in state.in_flight if isinstance(action, StopNode)}
    reboots = [action for action in state.in_flight if isinstance(action, RebootHost)]
    rebooting = {name for reboot in reboots for name in reboot.nodes}
    for action in state.in_flight:
        state = hook_doubted(state, action)
    nodes = {
        name: replace(
            node,
            since=at,
            asked=False,
            asked_at=0.0,
            stopped_at=None if node.stopped_at is None else min(node.stopped_at, at),
            doubt_since=at if name in stopping or node.doubt_since is not None else None,
            reboot_doubt_since=at if name in rebooting or node.reboot_doubt_since is not None else None,
            stops=0,
        )
        for name, node in state.nodes.items()
    }
    return replace(
        state,
        started=at,
        phase_since=at,
        holding_since=None,
        gates_closed_since=None,
        gates_passed=frozenset(),
        called_off_since=None,
        holds=(),
        nodes=nodes,
        merging=doubted(state.merging),
        in_flight=(),
        confirmed=(),
        failed=(),
        acted_at=at,
        probed=None,
        retries=0,
        retried_at=0.0,
        withheld_since=at if state.withheld_since is not None else None,
        good_readings=0,
        request=type(state.request).NONE,
        requested_by="",
        stand_down_reason=None,
        stand_down_outcome=None,
        overdue=frozenset(),
        second_failure=None,
        lease_lost=None,
        deposed=None,
        outcome=None,
        message="",
    )


def resumed(state: RunState, event: RunResumed, at: Instant) -> RunState:
    """The state in which `resume` goes on: whatever is in hand is one wave, through to its recovery."""
    state = replace(_in_doubt(state, at), restoring=False)
    nodes = dict(state.nodes)
    for name, node in state.nodes.items():
        if name in event.skip and node.phase in (NodePhase.PENDING, NodePhase.FAILED):
            nodes[name] = replace(node, phase=NodePhase.SKIPPED)
        elif event.retry_failed and node.phase is NodePhase.FAILED:
            # A start is owed; hooks and tuning had their turn.
            nodes[name] = replace(node, phase=NodePhase.STARTING, failure=None, starts=0)
    state = replace(state, nodes=nodes)
    ours = tuple(node for node in state.in_hand if node.phase is not NodePhase.FAILED)
    if ours and not (state.wave and {node.name for node in ours} <= set(state.wave.nodes)):
        # Whatever recovers beside it is waited for with it.
        number = state.recovering[0].wave.number if state.recovering else state.waves_finished + 1
        begun = (*(one.wave for one in state.recovering), *((state.wave,) if state.wave else ()))
        wave = Wave(
            number=number,
            nodes=tuple(node.name for node in ours),
            why="in hand when the run ended",
            machines=tuple(machine for one in begun for machine in one.machines),
        )
        state = replace(state, wave=wave, wave_since=at)
    if any(node.phase is not NodePhase.REJOINED for node in ours):
        phase = Phase.DOWN
    elif ours:
        phase = Phase.REASSIGNED
    elif state.wave and all(node.phase in FINAL_NODE_PHASES for node in state.wave_nodes):
        phase = Phase.SETTLED
    else:
        # Nothing is down by us: the wave, if one was chosen, is chosen again through the gates.
        phase, state = Phase.PREPARING, replace(state, wave=None, wave_since=None)
    return replace(state, phase=phase, recovering=(), overlapping=None)


def restoring(state: RunState, at: Instant) -> RunState:
    """The state in which `restore` (or a takeover) only puts things back."""
    nodes = {
        # `restore` owes a node that stayed down one more start as well.
        name: replace(node, phase=NodePhase.STARTING, failure=None, starts=0)
        if node.phase is NodePhase.FAILED
        else node
        for name, node in state.nodes.items()
    }
    state = replace(state, nodes=nodes)
    return replace(_in_doubt(state, at), restoring=True, phase=Phase.STANDING_DOWN)
