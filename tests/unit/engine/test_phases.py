"""The transition tables: every legal step is taken, every other raises and leaves the state as it was."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from orchestrator.engine.fold import RunState, evolve, replay
from orchestrator.engine.phases import FINAL_NODE_PHASES, MAY_WAIT_WITHHELD, NODE_STEPS, RUN_STEPS
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import Moment, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    Event,
    PhaseEntered,
    Record,
    Requested,
    RestoreBegun,
    RunResumed,
    WaveFinished,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Phase, Request
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.simulation.run import Simulation
from tests.simulation.play import cluster, policy

ES1 = NodeName("es1")


def _state() -> RunState:
    return Simulation(cluster(3)).begin(policy())


def _after(state: RunState, *events: Event, at: float = 1_000_001.0) -> RunState:
    for event in events:
        state = evolve(state, Record(run=state.run, sequence=1, at=at, event=event))
    return state


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Phase, Phase)))
def test_steps_of_a_run(old: Phase, new: Phase) -> None:
    state = replace(_state(), phase=old)
    if new in RUN_STEPS[old]:
        assert _after(state, run_phase(old, new)).phase is new
        return
    before = replace(state)
    with pytest.raises(SafetyViolation, match=old.value):
        _after(state, run_phase(old, new))
    assert state == before


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NodePhase, NodePhase)))
def test_steps_of_a_node(old: NodePhase, new: NodePhase) -> None:
    state = _state()
    state = replace(state, nodes={**state.nodes, ES1: replace(state.nodes[ES1], phase=old)})
    if new in NODE_STEPS[old]:
        assert _after(state, node_phase(ES1, old, new)).nodes[ES1].phase is new
        return
    before = replace(state, nodes=dict(state.nodes))
    with pytest.raises(SafetyViolation, match="es1"):
        _after(state, node_phase(ES1, old, new))
    assert state == before


def test_the_tables_name_every_phase_and_lead_to_the_end() -> None:
    assert set(RUN_STEPS) == set(Phase)
    assert set(NODE_STEPS) == set(NodePhase)
    for phase in set(Phase) - {Phase.ENDED, Phase.STANDING_DOWN}:
        assert Phase.STANDING_DOWN in RUN_STEPS[phase], f"no way to stand down from {phase}"
    assert RUN_STEPS[Phase.ENDED] == frozenset()
    assert frozenset({NodePhase.RECOVERED, NodePhase.SKIPPED}) == FINAL_NODE_PHASES


def test_allocation_may_be_off_only_around_a_stop() -> None:
    assert frozenset({Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.STANDING_DOWN}) == MAY_WAIT_WITHHELD


def test_a_phase_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        _after(_state(), PhaseEntered(from_="gated", to="sideways"))


def test_a_stronger_request_replaces_a_milder_one_and_not_the_other_way() -> None:
    state = _after(_state(), Requested(request=Request.STOP, by="ann"))
    assert _after(state, Requested(request=Request.PAUSE, by="bob")).request is Request.STOP
    assert _after(state, Requested(request=Request.INTERRUPT, by="bob")).request is Request.INTERRUPT


def test_what_is_sent_is_under_way_until_its_outcome_is_recorded() -> None:
    start = StartNode(node=ES1)
    sent = _after(_state(), ActionSent(action=start))
    assert sent.in_flight == (start,)
    assert sent.nodes[ES1].starts == 1
    done = _after(sent, ActionConfirmed(action=start))
    assert done.in_flight == ()
    assert done.nodes[ES1].asked
    failed = _after(sent, ActionFailed(action=start, reason="sudo", in_doubt=False))
    assert failed.in_flight == ()
    assert not failed.nodes[ES1].asked
    assert failed.failure_of(start) is not None


def test_a_new_process_knows_nothing_of_what_was_under_way() -> None:
    stop = StopNode(node=ES1)
    steps = (run_phase(Phase.PREPARING, Phase.GATED), run_phase(Phase.GATED, Phase.WITHHELD))
    down = (
        run_phase(Phase.WITHHELD, Phase.DOWN),
        node_phase(ES1, NodePhase.PENDING, NodePhase.STOPPING),
        ActionSent(action=stop),
    )
    state = _after(_state(), *steps, *down)
    resumed = _after(state, RunResumed(operator="ann", host="b"), at=1_000_500.0)
    assert resumed.phase is Phase.DOWN
    assert resumed.in_flight == ()
    assert resumed.started == resumed.phase_since == resumed.nodes[ES1].since == 1_000_500.0
    assert resumed.wave is not None
    assert resumed.wave.nodes == (ES1,)
    restored = _after(state, RestoreBegun(operator="ann", host="b"))
    assert restored.phase is Phase.STANDING_DOWN
    assert restored.restoring


def _gave_way() -> RunState:
    """Wave 1 (es2) has made room; the run is at the gates again."""
    wave = Wave(number=1, nodes=(NodeName("es2"),))
    state = replace(_state(), phase=Phase.REASSIGNED, wave=wave, wave_since=1_000_000.0)
    state = _with(state, "es2", NodePhase.REJOINED)
    return _after(state, WaveGaveWay(number=1, copies=3), run_phase(Phase.REASSIGNED, Phase.GATED))


def _with(state: RunState, name: str, phase: NodePhase) -> RunState:
    node = NodeName(name)
    return replace(state, nodes={**state.nodes, node: replace(state.nodes[node], phase=phase)})


def test_a_wave_that_made_room_is_kept_until_it_is_finished_or_waited_for_again() -> None:
    state = _gave_way()
    assert state.wave is None
    assert [one.wave.number for one in state.recovering] == [1]
    assert (state.waves_finished, state.waves_begun) == (0, 1)
    assert [node.name for node in state.recovering_nodes] == ["es2"]
    again = _after(state, run_phase(Phase.GATED, Phase.REASSIGNED))
    assert again.wave is not None
    assert (again.wave.number, again.wave_since, again.recovering) == (1, 1_000_000.0, ())
    second = WaveStarted(wave=Wave(number=2, nodes=(ES1,)), incarnations={})
    beside = _after(state, second, WaveFinished(number=1, seconds=9.0))
    assert (beside.recovering, beside.waves_finished, beside.waves_begun) == ((), 1, 1)
    assert beside.wave is not None, "the wave in hand stays in hand"
    first_done = _after(state, second, WaveFinished(number=2, seconds=9.0))
    assert first_done.wave is None
    assert [one.wave.number for one in first_done.recovering] == [1]


def test_a_new_process_takes_what_recovers_and_what_is_down_as_one_wave() -> None:
    state = _after(
        _gave_way(),
        WaveStarted(wave=Wave(number=2, nodes=(ES1,)), incarnations={}),
        run_phase(Phase.GATED, Phase.WITHHELD),
        Overlapping(number=2, unassigned=0, shards=()),
        run_phase(Phase.WITHHELD, Phase.DOWN),
        node_phase(ES1, NodePhase.PENDING, NodePhase.STOPPING),
    )
    assert state.overlapping is not None
    resumed = _after(state, RunResumed(operator="ann", host="b"))
    assert resumed.wave is not None
    assert (resumed.wave.number, set(resumed.wave.nodes)) == (1, {"es1", "es2"})
    assert (resumed.phase, resumed.recovering, resumed.overlapping) == (Phase.DOWN, (), None)


def test_the_limit_of_recovery_counts_from_the_latest_return_with_overlap_alone() -> None:
    state = replace(_with(_state(), "es2", NodePhase.REJOINED), phase_since=2_000_000.0)
    assert state.recovery_since == 2_000_000.0
    overlap = replace(state, policy=policy(overlap_recovery=True))
    assert overlap.recovery_since == state.nodes[NodeName("es2")].since < 2_000_000.0


def test_a_failed_node_waits_for_a_person_unless_told_to_try_again_or_to_skip() -> None:
    state = _state()
    state = replace(
        state, nodes={**state.nodes, ES1: replace(state.nodes[ES1], phase=NodePhase.FAILED, failure="x")}
    )
    left = _after(state, RunResumed(operator="ann", host="b"))
    assert left.nodes[ES1].phase is NodePhase.FAILED
    again = _after(state, RunResumed(operator="ann", host="b", retry_failed=True))
    assert (again.nodes[ES1].phase, again.phase) == (NodePhase.STARTING, Phase.DOWN)
    skipped = _after(state, RunResumed(operator="ann", host="b", skip=(ES1,)))
    assert skipped.nodes[ES1].phase is NodePhase.SKIPPED
    assert skipped.phase is Phase.PREPARING


def test_hooks_are_owed_until_all_of_them_have_run() -> None:
    two = Hooks(before_stop=(Hook(run="a"),), after_recovery=(Hook(run="b {node}"), Hook(run="c {node}")))
    state = Simulation(cluster(3)).begin(policy(hooks=two))

    def ran(state: RunState, moment: Moment, number: int) -> RunState:
        action = RunHook(node=ES1, moment=moment, number=number, hook=Hook(run="x"))
        return _after(state, ActionSent(action=action), ActionConfirmed(action=action))

    out = ran(state, Moment.BEFORE_STOP, 0)
    half = ran(out, Moment.AFTER_RECOVERY, 0)
    assert ("before_stop", 0) in half.nodes[ES1].hooks_done
    back = ran(half, Moment.AFTER_RECOVERY, 1)
    assert back.nodes[ES1].hooks_done == {("after_recovery", 0), ("after_recovery", 1)}
    assert ran(back, Moment.BEFORE_STOP, 0).nodes[ES1].hooks_done == {("before_stop", 0)}


def test_a_replay_is_a_fold() -> None:
    simulation = Simulation(cluster(3))
    state = simulation.begin(policy())
    assert replay(simulation.run, simulation.journal.records) == state
    assert replay(simulation.run, simulation.journal.records[:1]) != replay(simulation.run, [])
