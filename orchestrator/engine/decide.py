"""decide(state, observation, now) -> Decision: what a run does next. Pure; asked anew after every step.

The order in which things are looked at is the order of their urgency: a lost second node before a request to
stop, a request before the phase in hand. Only stops are gated; no rule here bars a start or a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from orchestrator.engine import down, gates, settle, standdown
from orchestrator.engine.decision import Decision
from orchestrator.engine.gatekeeping import gates_are_asked
from orchestrator.engine.kinds.kind import kind_of
from orchestrator.engine.merging import merging, settling
from orchestrator.engine.phases import FINAL_NODE_PHASES
from orchestrator.engine.state import RunState
from orchestrator.engine.steps import Situation, stand_down
from orchestrator.errors import SafetyViolation
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import SecondFailure, node_phase
from orchestrator.model.observation import EVERYTHING, Look, Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.reading import Instant

_WATCHED_FOR_FAILURES = (Phase.DOWN, Phase.REJOINED, Phase.REASSIGNED)

_RED_PATIENCE_SECONDS = 60.0
"""After allocation is back a primary needs a moment to start from its own disk; an older red stays red."""

_PAST_DOWN = (Phase.REJOINED, Phase.REASSIGNED, Phase.SETTLED, Phase.GATED)

_NOTHING_IN_HAND = (Phase.PREPARING, Phase.MERGING, Phase.MERGED, Phase.GATED)
"""A wave may be chosen there, and its `before_stop` hooks may have run; none of it is stopped."""


def decide(state: RunState, observation: Observation, now: Instant) -> Decision:
    """The next step, from what is known and nothing else.

    Raises:
        SafetyViolation: the state is of no run (no policy), or verbs are under way whose outcome nobody
            recorded.
    """
    if state.policy is None:
        raise SafetyViolation("a run without a policy cannot be decided on")
    if state.in_flight:
        raise SafetyViolation(f"outcomes are not recorded: {state.in_flight}")
    if state.phase is Phase.ENDED:
        return Decision()
    situation = Situation(
        state=state, policy=state.policy, kind=kind_of(state.policy.kind), seen=observation, now=now
    )
    urgent = None if state.phase is Phase.STANDING_DOWN else _urgent(situation)
    if urgent is not None:
        return urgent
    return _STEPS[state.phase](situation)


_STEPS: Final[Mapping[Phase, Callable[[Situation], Decision]]] = {
    Phase.PREPARING: gates.preparing,
    Phase.MERGING: merging.merging,
    Phase.MERGED: settling.settling,
    Phase.GATED: gates.gated,
    Phase.WITHHELD: gates.withheld,
    Phase.DOWN: down.down,
    Phase.REJOINED: down.rejoined,
    Phase.REASSIGNED: settle.reassigned,
    Phase.SETTLED: settle.settled,
    Phase.FINISHING: settle.finishing,
    Phase.STANDING_DOWN: standdown.standing_down,
}
"""What is next in each phase; a run that has ended has nothing next."""


def _urgent(situation: Situation) -> Decision | None:
    """What goes before the phase in hand; None when nothing does."""
    state, policy, now = situation.state, situation.policy, situation.now
    late = _gone_late(situation)
    if late is not None:
        return late
    failure = _second_failure(situation)
    if failure is not None:
        reason = f"a second failure: {failure}"
        return stand_down(state, reason, Outcome.FAILED, SecondFailure(what=failure))
    if state.phase is Phase.FINISHING:
        # All is restarted; what is left is what a stand-down would do as well.
        return None
    if state.request in (Request.STOP, Request.INTERRUPT):
        reason = f"asked to stop by {state.requested_by}{merging.going_on(state)}"
        return stand_down(state, reason, Outcome.INTERRUPTED)
    if policy.timeout is not None and now - state.started > policy.timeout:
        reason = f"--timeout of {policy.timeout:.0f} s ran out{merging.going_on(state)}"
        return stand_down(state, reason, Outcome.HELD)
    if state.withheld_since is not None and now - state.withheld_since > policy.deadlines.withheld:
        rebuilds = ", as far as forced awareness lets it" if policy.awareness.forced else ""
        reason = (
            f"allocation was withheld for {now - state.withheld_since:.0f} s: it goes back now, and the "
            f"cluster rebuilds elsewhere what the nodes that are down hold{rebuilds}"
        )
        return stand_down(state, reason, Outcome.FAILED)
    if state.recovering or state.merging.in_hand:
        return None  # what recovers, or is being merged, is waited for before a pause
    if state.phase in _NOTHING_IN_HAND or (state.phase is Phase.SETTLED and not state.wave):
        return _pause(situation)
    return None


def _pause(situation: Situation) -> Decision | None:
    state, policy = situation.state, situation.policy
    left = any(node.phase is NodePhase.PENDING for node in state.nodes.values())
    if not left and not state.merging.pending:
        return None
    if state.request is Request.PAUSE:
        return stand_down(state, f"asked to pause by {state.requested_by}", Outcome.PAUSED)
    done = state.recovered
    if policy.pause_after is not None and not state.paused and done >= policy.pause_after:
        nodes = "node" if done == 1 else "nodes"
        return stand_down(state, f"paused after {done} {nodes}, as asked", Outcome.PAUSED)
    return None


def _gone_late(situation: Situation) -> Decision | None:
    """A stop in doubt that was done when its node had been dropped from the wave: it is ours to start.

    While others of the wave are down still, `down` takes it in again; afterwards the run stands down for it.
    """
    state = situation.state
    late = [node for node in state.nodes.values() if situation.gone_late(node)]
    if not late or state.phase not in _PAST_DOWN:
        return None
    why = "its stop was done late"
    steps = [node_phase(node.name, node.phase, NodePhase.STOPPING, why=why) for node in late]
    return stand_down(state, f"{late[0].name} is away: {why}", Outcome.FAILED, *steps)


def _second_failure(situation: Situation) -> str | None:
    """Something outside the wave that failed while ours are down or recovering."""
    state, view = situation.state, situation.view
    watched = state.phase in _WATCHED_FOR_FAILURES or bool(state.recovering)
    if not watched or view is None or state.baseline is None:
        return None
    # One whose stop was never asked for, or was taken as lost long ago, is none of ours to be away.
    pending = NodePhase.PENDING
    ours = [n for n in state.wave_nodes if n.phase is not pending or situation.stop_may_come_late(n)]
    wave = {node.name for node in ours}
    recovering = {node.name for node in state.recovering_nodes}
    present = {node.name for node in view.nodes}
    known_away = {
        name for name, node in state.nodes.items() if node.phase in (NodePhase.FAILED, NodePhase.SKIPPED)
    }
    away = sorted(set(state.baseline.incarnations) - present - wave - known_away)
    touched = any(node.phase is not NodePhase.PENDING for node in state.wave_nodes)
    if away and (touched or recovering):
        names = ", ".join(sorted(wave | recovering))
        return f"node {away[0]} left the cluster while {names} was away or recovering"
    # Beside others that are down as well: a wave that was taken up again has those that recovered in it too.
    again = [
        node.name
        for node in state.wave_nodes
        if node.phase is NodePhase.REJOINED and node.name not in present
    ]
    if again and state.phase in _WATCHED_FOR_FAILURES:
        return f"node {again[0]} left the cluster again after it had rejoined"
    if state.phase is not Phase.REASSIGNED:
        return None
    red = situation.kind.red(state, view)
    if red and situation.now - state.phase_since > _RED_PATIENCE_SECONDS:
        return f"{red[0]} has no started copy"
    return None


def needed(state: RunState) -> tuple[frozenset[Look], frozenset[NodeName]]:
    """What to read for the next decision, and of which nodes' hosts: as little as it needs."""
    wave = frozenset(state.wave.nodes) if state.wave else frozenset()
    pending = frozenset(n.name for n in state.nodes.values() if n.phase not in FINAL_NODE_PHASES)
    match state.phase:
        case Phase.PREPARING | Phase.GATED:
            hosts = pending if not state.waves_begun else wave or pending
            return _with_gates(state, EVERYTHING), hosts
        case Phase.MERGING if state.merging.begun or not pending:
            less = EVERYTHING - {Look.RECOVERIES, Look.HOSTS, Look.HOST_RIGHTS}
            return _with_gates(state, less | {Look.BULK}), frozenset()
        case Phase.MERGING:
            return _with_gates(state, EVERYTHING | {Look.BULK}), pending
        case Phase.MERGED:
            return frozenset({Look.CLUSTER, Look.BULK}), frozenset()
        case Phase.WITHHELD:
            return _with_gates(state, EVERYTHING - {Look.RECOVERIES, Look.HOST_RIGHTS}), wave
        case Phase.DOWN:
            return frozenset({Look.CLUSTER, Look.HOSTS}), wave
        case Phase.REJOINED:
            return frozenset({Look.CLUSTER, Look.HEALTH, Look.HOSTS}), wave
        case Phase.REASSIGNED | Phase.SETTLED:
            return frozenset({Look.CLUSTER, Look.SETTINGS, Look.HEALTH, Look.RECOVERIES}), frozenset()
        case Phase.FINISHING:
            return frozenset({Look.CLUSTER, Look.SETTINGS}), frozenset()
        case Phase.STANDING_DOWN | Phase.ENDED:
            ours = frozenset(node.name for node in state.in_hand)
            return frozenset({Look.CLUSTER, Look.SETTINGS, Look.HOSTS}), ours


def _with_gates(state: RunState, look: frozenset[Look]) -> frozenset[Look]:
    return look if gates_are_asked(state) else look - {Look.GATES}
