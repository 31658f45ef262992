"""Which gates bar a stop, what the journal is told of them, and for how long a run waits for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.gates import closed_gates, gate_news, gates_passed
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.situation import needed
from orchestrator.engine.state import RunState
from orchestrator.model.action import StopNode, WriteSettings
from orchestrator.model.event import Event, Hold, HoldsCleared, Record, RunResumed, WaveStarted, run_phase
from orchestrator.model.gate import GateView
from orchestrator.model.gate_event import GateClosed, GateOpened, GatesPassed
from orchestrator.model.merging import MergeTarget
from orchestrator.model.observation import Look, Observation
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.policy import Deadlines, DisabledPredicate
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Mishap
from orchestrator.simulation.parts import GateState, SimGate
from tests.simulation.gated import QUEUE, SCRIPT
from tests.simulation.play import cluster, play, policy, run
from tests.states import state_with

GATED = policy(gates=(QUEUE, SCRIPT))
OPEN = GateView(open=True, evidence="12 messages")
SHUT = GateView(open=False, evidence="640 messages")
UNREAD = Unknown(reason="timed out")


def _seen(**gates: Reading[GateView]) -> Observation:
    names = {"queue": QUEUE.name, "script": SCRIPT.name}
    return Observation(at=0.0, gates={names[short]: view for short, view in gates.items()})


def _state(*events: Event, phase: Phase = Phase.GATED) -> RunState:
    state = state_with(RunState(run="run-1"), policy=GATED, phase=phase)
    for place, event in enumerate(events):
        state = evolve(state, Record(run="run-1", sequence=place + 1, at=100.0 + place, event=event))
    return state


def _closed(gate: str = QUEUE.name) -> GateClosed:
    return GateClosed(gate=gate, evidence="640 messages")


def test_a_gate_bars_unless_it_was_read_and_is_open(subtests: pytest.Subtests) -> None:
    for seen, closed in [
        (_seen(queue=OPEN, script=OPEN), {}),
        (_seen(queue=SHUT, script=OPEN), {QUEUE.name: "640 messages"}),
        (_seen(queue=OPEN, script=UNREAD), {SCRIPT.name: "timed out"}),
        (_seen(queue=OPEN), {SCRIPT.name: "it was not asked"}),
        (_seen(), {QUEUE.name: "it was not asked", SCRIPT.name: "it was not asked"}),
    ]:
        with subtests.test(seen=seen, closed=closed):
            found = closed_gates(GATED, seen)
            assert [(hold.predicate, hold.subject) for hold in found] == [
                ("gates_open", name) for name in closed
            ]
            assert all(why in hold.evidence for hold, why in zip(found, closed.values(), strict=True))


def test_a_gate_that_is_switched_off_holds_nothing() -> None:
    off = replace(GATED, disabled_predicates=(DisabledPredicate(name="gates_open", subject=QUEUE.name),))
    seen = _seen(queue=SHUT, script=OPEN)
    assert closed_gates(off, seen) == ()
    assert gate_news(state_with(_state(), policy=off), off, seen) == ()
    assert gates_passed(off, seen) == (GatesPassed(gates={SCRIPT.name: "12 messages"}),)


def test_the_journal_is_told_once_of_what_closes_and_what_opens() -> None:
    closing = gate_news(_state(), GATED, _seen(queue=SHUT, script=UNREAD))
    assert closing == (
        _closed(),
        GateClosed(
            gate=SCRIPT.name, evidence="cannot be read, so it counts as closed: timed out", readable=False
        ),
    )
    state = _state(*closing)
    assert gate_news(state, GATED, _seen(queue=SHUT, script=UNREAD)) == ()
    opening = gate_news(state, GATED, _seen(queue=OPEN, script=UNREAD))
    assert opening == (GateOpened(gate=QUEUE.name, evidence="12 messages"),)


def test_no_other_phase_asks_a_gate(subtests: pytest.Subtests) -> None:
    for phase in [phase for phase in Phase if phase not in (Phase.GATED, Phase.WITHHELD)]:
        with subtests.test(phase=phase):
            state = _state(phase=phase)
            assert Look.GATES not in needed(state)[0]
            assert gate_news(state, GATED, _seen()) == ()


@pytest.mark.parametrize("phase", [Phase.GATED, Phase.WITHHELD])
def test_gates_are_asked_where_there_are_some(phase: Phase) -> None:
    state = _state(phase=phase)
    assert Look.GATES in needed(state)[0]
    assert Look.GATES not in needed(state_with(state, policy=policy()))[0]


@pytest.mark.parametrize(("ended", "asked"), [(False, True), (True, False)])
def test_gates_are_asked_as_long_as_any_index_may_be_merged(*, ended: bool, asked: bool) -> None:
    """Also one that was found merged: a copy of it may come back with more segments."""
    target = MergeTarget(index="posts", index_uuid="posts-uuid", segments=1, bytes=1, due=False)
    merging = Merging(indices={"posts-uuid": MergeProgress(target=target, ended=ended)})
    state = replace(_state(phase=Phase.MERGING), merging=merging)
    assert (Look.GATES in needed(state)[0]) is asked


def test_the_clock_of_gates_runs_while_any_is_closed() -> None:
    state = _state(_closed(), _closed(SCRIPT.name), GateOpened(gate=QUEUE.name, evidence=""))
    assert state.in_phase.gates_closed_since == 100.0
    assert [hold.subject for hold in state.in_phase.holds] == [SCRIPT.name]
    opened = _state(_closed(), GateOpened(gate=QUEUE.name, evidence=""))
    assert opened.in_phase.gates_closed_since is None
    assert opened.in_phase.holds == ()


def test_the_clock_of_predicates_is_another() -> None:
    hold = Hold(predicate="no_running_snapshot", subject="repo", evidence="runs")
    state = _state(_closed(), hold)
    assert (state.in_phase.gates_closed_since, state.in_phase.holding_since) == (100.0, 101.0)
    alone = _state(_closed(), hold, HoldsCleared(but_gates=True))
    assert (alone.in_phase.gates_closed_since, alone.in_phase.holding_since) == (100.0, None)
    assert [one.subject for one in alone.in_phase.holds] == [QUEUE.name]
    assert _state(_closed(), hold, HoldsCleared()).in_phase.gates_closed_since is None


def test_a_new_process_and_a_new_phase_count_anew() -> None:
    resumed = _state(_closed(), RunResumed(operator="ann", host="bastion"))
    assert (resumed.in_phase.gates_closed_since, resumed.in_phase.holds) == (None, ())
    stepped = _state(_closed(), run_phase(Phase.GATED, Phase.WITHHELD))
    assert (stepped.in_phase.gates_closed_since, stepped.in_phase.holds) == (None, ())


def _events(simulation: Simulation, kind: type[Event]) -> list[Event]:
    return [record.event for record in simulation.journal.records if isinstance(record.event, kind)]


def _stops(simulation: Simulation) -> int:
    return sum(isinstance(action, StopNode) for action in simulation.hosts.sent)


def _shut(seconds: float | None, *, after: float = 0.0, readable: bool = True) -> Mishap:
    return Mishap(what=mishaps.GateShut(name=QUEUE.name, seconds=seconds, readable=readable), after=after)


@pytest.mark.parametrize("readable", [True, False])
def test_a_run_waits_longer_for_a_gate_than_for_a_hold(*, readable: bool) -> None:
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=3600.0))
    simulation, state = run(cluster(3), plan=(_shut(1800.0, readable=readable),), wanted=wanted)
    assert state.outcome is Outcome.DONE
    assert simulation.world.violations == []
    opened = next(r.at for r in simulation.journal.records if isinstance(r.event, GateOpened))
    began = next(r.at for r in simulation.journal.records if isinstance(r.event, WaveStarted))
    assert opened == began
    truly = next(at for at, what in simulation.world.story if what.endswith("is open"))
    assert 0.0 <= opened - truly < 16.0 if not readable else opened - truly < 6.0
    assert [event.readable for event in _events(simulation, GateClosed)] == [readable]
    assert len(_events(simulation, GatesPassed)) == 3


def test_it_stands_down_at_its_own_limit_and_has_touched_nothing() -> None:
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=600.0))
    world = cluster(3)
    began = world.agenda.now
    simulation, state = run(world, plan=(_shut(None),), wanted=wanted)
    assert (state.outcome, _stops(simulation)) == (Outcome.HELD, 0)
    assert "held for 600 s by gates_open: rabbitmq_queue ingest: 640 messages" in state.message
    assert 600.0 <= world.agenda.now - began < 640.0
    assert not any(isinstance(action, WriteSettings) for action in simulation.cluster.sent)


def test_a_gate_closed_at_the_last_reading_enables_allocation() -> None:
    plan = Mishap(what=mishaps.GateShut(name=QUEUE.name, seconds=300.0), verb="flush")
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=600.0))
    simulation, state = run(cluster(3), plan=(plan,), wanted=wanted)
    assert state.outcome is Outcome.DONE
    assert simulation.world.violations == []
    phases = [
        record.event.to
        for record in simulation.journal.records
        if record.event.event == "phase_entered" and record.event.node is None
    ]
    assert phases[1:4] == ["withheld", "reassigned", "gated"]
    closed = _events(simulation, GateClosed)
    assert len(closed) == 2, "at the last reading, and at the gates"


def test_neither_limit_uses_up_the_other() -> None:
    """A gate is closed for longer than a hold may last; then a snapshot runs for nearly as long as that."""
    snapshot = Mishap(what=mishaps.SnapshotBegun(seconds=200.0), after=550.0)
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=240.0, gate=720.0))
    simulation, state = run(cluster(3), plan=(_shut(600.0), snapshot), wanted=wanted)
    assert state.outcome is Outcome.DONE
    cleared = [event.but_gates for event in _events(simulation, HoldsCleared)]
    assert cleared == [False]


def test_a_predicate_that_passes_beside_a_closed_gate_is_over() -> None:
    snapshot = Mishap(what=mishaps.SnapshotBegun(seconds=200.0), after=0.0)
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=240.0, gate=1200.0))
    simulation, state = run(cluster(3), plan=(_shut(900.0), snapshot), wanted=wanted)
    assert state.outcome is Outcome.DONE
    cleared = [event.but_gates for event in _events(simulation, HoldsCleared)]
    assert cleared == [True]


def test_a_predicate_beside_a_closed_gate_keeps_its_own_limit() -> None:
    snapshot = Mishap(what=mishaps.SnapshotBegun(seconds=None), after=0.0)
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=240.0, gate=3600.0))
    _, state = run(cluster(3), plan=(_shut(None), snapshot), wanted=wanted)
    assert state.outcome is Outcome.HELD
    assert "held for 240 s by no_running_snapshot" in state.message


def test_a_gate_after_a_wave_was_called_off_does_not_end_the_run() -> None:
    """Called off, the gate is closed for longer than a hold may last, and then the wave may go."""
    plan = Mishap(what=mishaps.GateShut(name=QUEUE.name, seconds=500.0), verb="flush")
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=600.0))
    _, state = run(cluster(3), plan=(plan,), wanted=wanted)
    assert state.outcome is Outcome.DONE


def test_a_gate_closed_only_at_last_readings_ends_the_run() -> None:
    flapping = tuple(
        Mishap(what=mishaps.GateShut(name=QUEUE.name, seconds=1.0), verb="flush", nth=n)
        for n in range(1, 200)
    )
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(hold=60.0, gate=120.0))
    simulation, state = run(cluster(3), plan=flapping, wanted=wanted)
    assert (state.outcome, _stops(simulation)) == (Outcome.HELD, 0)
    assert "every wave was called off before its stop for 180 s" in state.message


def test_gates_are_asked_neither_often_nor_while_nodes_are_down() -> None:
    world = cluster(3)
    world.gates[QUEUE.name] = SimGate(state=GateState.CLOSED)
    wanted = policy(gates=(QUEUE,), deadlines=Deadlines(gate=600.0))
    run(world, wanted=wanted)
    assert world.gates[QUEUE.name].asked <= 600 / 5 + 3
    whole = cluster(3)
    simulation = Simulation(whole)
    play(simulation, simulation.begin(wanted))
    assert whole.gates[QUEUE.name].asked <= 3 * 6
