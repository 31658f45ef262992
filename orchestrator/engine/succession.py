"""A new process continues a run: what it knows of what the old one left, and where it begins.

`resume` continues the work, `restore` only brings nodes up and restores settings. Neither moves a node.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine import late_stop
from orchestrator.engine.memory import PhaseState, ProcessState
from orchestrator.engine.merge_state import doubted
from orchestrator.engine.progress import GOING_UP_OR_DOWN, NodeProgress, Nodes
from orchestrator.engine.state import RunState, WaveBegun
from orchestrator.model.event import RestoreBegun, RunResumed
from orchestrator.model.phase import Doubt, Goal, Installing, NodePhase, Phase, Verb
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Instant


def _in_doubt(state: RunState, event: RunResumed | RestoreBegun, at: Instant) -> RunState:
    """A new process continues: verbs that were under way are in doubt, and every timer begins again.

    Its clock may have been set since: a moment of the old process is never later than its beginning.
    """
    withheld_since = at if state.unrestored.withheld_since is not None else None
    return replace(
        state,
        process=ProcessState(started=at, acted_at=at, state=event.state),
        in_phase=PhaseState(since=at),
        nodes=Nodes(_node_in_doubt(state, node, at) for node in state.nodes.values()),
        merging=doubted(state.merging),
        handoff=replace(state.handoff, since=at),
        unrestored=replace(state.unrestored, withheld_since=withheld_since),
        outcome=None,
        message="",
    )


def _node_in_doubt(state: RunState, node: NodeProgress, at: Instant) -> NodeProgress:
    """The node without what only the old process knew; all else is kept.

    It is not `ready` for a stop: hours may have passed, and others may have returned it to service.
    Starts and reboots are counted from zero, and a rescue is over.
    """
    return replace(
        node,
        since=at,
        ready=frozenset(),
        goal=Goal.RESTART,
        start_sent=0.0,
        tries=0,
        reboots=0,
        returns=0,
        install=_installing_again(node, at),
        start_failed=node.start_failed if node.phase is NodePhase.FAILED else None,
        doubt=_doubted_again(state, node, at),
        lost_stop=late_stop.begun_again(state, node, _last_seen(state), at),
        ready_since=None if node.ready_since is None else min(node.ready_since, at),
        stopped_at=None if node.stopped_at is None else min(node.stopped_at, at),
    )


def _installing_again(node: NodeProgress, at: Instant) -> Installing | None:
    """A step goes on without its program; its limit counts from the new process on."""
    sent = node.install
    return None if sent is None else Installing(number=sent.number, ticket=sent.ticket, since=at)


def _doubted_again(state: RunState, node: NodeProgress, at: Instant) -> Doubt | None:
    """A doubt whose reach is over is none; every other one begins again, and no host has accepted it."""
    doubt = node.doubt
    if node.phase is NodePhase.STOPPING:
        # Nothing is known of a stop that another run had sent: once the node is back it counts as done.
        return Doubt(verb=Verb.STOP, since=at, heard=doubt is None or doubt.heard)
    if doubt is None:
        return None
    passed = state.process.clock.passed(doubt.since, _last_seen(state))
    over = not doubt.accepted and passed > state.begun.policy.deadlines.stop
    return None if over else Doubt(verb=doubt.verb, since=at, heard=doubt.heard)


def _last_seen(state: RunState) -> Instant:
    """When the old process was last at work: no process has seen what a host did after that."""
    return max(state.process.acted_at, state.in_phase.since)


def resumed(state: RunState, event: RunResumed, at: Instant) -> RunState:
    """The state in which `resume` continues: what is being restarted or recovers is one wave."""
    state = _in_doubt(state, event, at)
    accepted = state.accepted_alerts.union(event.accept_alerts)
    state = replace(state, process=replace(state.process, resumed=True), accepted_alerts=accepted)
    state = replace(state, nodes=Nodes(_taken_up(node, event) for node in state.nodes.values()))
    ours = tuple(node for node in state.in_turn if node.phase is not NodePhase.FAILED)
    if not ours:
        # Nothing is down or recovers by us: a wave that was chosen is chosen again, under all predicates.
        return replace(state, phase=Phase.PREPARING, waves=(), overlapping=None, taken={})
    current = state.current
    if current is None or not {node.name for node in ours} <= set(current.wave.nodes):
        wave = Wave(
            number=state.recovering[0].wave.number if state.recovering else state.waves_finished + 1,
            nodes=tuple(node.name for node in ours),
            why="in progress when the run ended",
            machines=tuple(machine for one in state.waves for machine in one.wave.machines),
        )
        current = WaveBegun(wave=wave, since=at)
    moving = any(node.phase in GOING_UP_OR_DOWN for node in ours)
    phase = Phase.DOWN if moving else Phase.REASSIGNED
    return replace(state, phase=phase, waves=(current,), overlapping=None)


def _taken_up(node: NodeProgress, event: RunResumed) -> NodeProgress:
    """A node of the run as `resume` wants it: skipped, tried again, or as it is."""
    if node.name in event.skip and node.phase is NodePhase.FAILED:
        # It is known to be down: no stop that was in doubt makes it the run's to start again.
        return replace(
            node, phase=NodePhase.SKIPPED, failure=None, start_failed=None, doubt=None, lost_stop=None
        )
    if node.name in event.skip and node.phase is NodePhase.PENDING:
        return replace(node, phase=NodePhase.SKIPPED, failure=None)
    if event.retry_failed and node.phase is NodePhase.FAILED:
        return replace(node, phase=NodePhase.STOPPED, failure=None, start_failed=None)
    return node


def restoring(state: RunState, event: RestoreBegun, at: Instant) -> RunState:
    """The state in which `restore` (or a takeover) only brings up nodes and restores settings."""
    state = _in_doubt(state, event, at)
    failed = state.nodes_in(NodePhase.FAILED)  # each gets three starts more
    again = (replace(node, phase=NodePhase.STARTING, failure=None, start_failed=None) for node in failed)
    process = replace(state.process, restoring=True)
    return replace(state, nodes=state.nodes.changed(*again), process=process, phase=Phase.STANDING_DOWN)
