"""Killed while a node of Riak starts: the journal alone knows of it, and the next process goes by that."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import StartNode, StopNode
from orchestrator.model.event import ActionSent, Event, PhaseEntered, RunResumed
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import DisabledPredicate
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines
from orchestrator.simulation.mishaps import How, Trip
from orchestrator.simulation.riak import RiakWorld
from tests.simulation.play import killed, lives, play, run
from tests.simulation.ringed import ABOUT_ABSENCE, FOUR, TWO, riak_policy, ringed

SLOW = 40.0
"""So long the node takes to come up, in seconds: a run that forgot it would be at the next one by then."""

POINTS = {
    "its start was never sent": f"after the commit of {', '.join(['phase_entered'] * 2)}, action_sent",
    "nobody knows how its start ended": f"after start of {TWO}",
    "its start is confirmed": "after the commit of action_confirmed",
    "its service runs and nothing more": "after the commit of phase_entered",
}
"""What the journal's end means, by the point at which the run is killed: the first from the step on."""


def _world() -> RiakWorld:
    world = ringed()
    world.nodes[TWO].start_seconds = SLOW
    return world


def _begun(without: tuple[str, ...]) -> tuple[Simulation, RunState]:
    simulation = Simulation(_world())
    rules = tuple(DisabledPredicate(name=name) for name in without)
    return simulation, simulation.begin(riak_policy(disabled_predicates=rules))


@cache
def _points(without: tuple[str, ...]) -> tuple[str, ...]:
    simulation, state = _begun(without)
    play(simulation, state)
    return tuple(simulation.seams.passed)


def _killed(point: str, without: tuple[str, ...]) -> Simulation:
    passed = _points(without)
    begins = passed.index(f"after start of {TWO}") - 1
    simulation, state = _begun(without)
    simulation.seams.crash_at = 1 + passed.index(POINTS[point], begins)
    assert killed(simulation, state)
    simulation.seams.crash_at = None
    return simulation


def _starts(simulation: Simulation) -> int:
    return sum(isinstance(action, StartNode) and action.node == TWO for action in simulation.hosts.sent)


def _until_recovered(simulation: Simulation) -> list[Event]:
    """What the second process wrote before it called the node recovered."""
    events = [record.event for record in simulation.journal.records]
    resumed = next(at for at, event in enumerate(events) if isinstance(event, RunResumed))
    over = next(
        at
        for at, event in enumerate(events)
        if isinstance(event, PhaseEntered) and (event.node, event.to) == (TWO, NodePhase.RECOVERED.value)
    )
    return events[resumed:over]


def test_a_resumed_run_goes_past_no_node_that_was_starting(subtests: pytest.Subtests) -> None:
    """The rules before a stop see a node that is away; without them what the journal says has to do."""
    for pause, without, point in product([0.0, 2 * SLOW], [(), ABOUT_ABSENCE], POINTS):
        with subtests.test(point=point, without=without, pause=pause):
            simulation = _killed(point, without)
            simulation.world.agenda.advance(pause)
            state = simulation.resume()
            assert (state.phase, state.nodes[TWO].phase) == (Phase.DOWN, NodePhase.STARTING)
            assert [node.name for node in state.wave_nodes] == [TWO]
            state = play(simulation, state)
            assert state.outcome is Outcome.DONE, state.message
            assert simulation.world.violations == []
            assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)
            sent = [event.action for event in _until_recovered(simulation) if isinstance(event, ActionSent)]
            assert not any(isinstance(action, StopNode) for action in sent), (
                "another one, or the same once more"
            )
            assert _starts(simulation) == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_node_that_was_starting_cannot_be_skipped(point: str) -> None:
    """`--skip` is for those that are to come and those that failed; this one is ours to bring up."""
    simulation = _killed(point, ())
    state = simulation.resume(skip=[TWO])
    assert (state.phase, state.nodes[TWO].phase) == (Phase.DOWN, NodePhase.STARTING)
    state = play(simulation, state)
    assert state.outcome is Outcome.DONE, state.message
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)


def test_a_node_that_was_down_already_cannot_be_skipped_either() -> None:
    simulation, state = _begun(())
    simulation.seams.crash_at = 1 + _points(()).index(f"after stop of {TWO}")
    assert killed(simulation, state)
    simulation.seams.crash_at = None
    state = play(simulation, simulation.resume(skip=[TWO, FOUR]))
    assert state.outcome is Outcome.DONE, state.message
    assert {name: node.phase for name, node in state.nodes.items() if node.phase is NodePhase.SKIPPED} == {
        FOUR: NodePhase.SKIPPED
    }
    assert lives(simulation.world) == {**dict.fromkeys(simulation.world.nodes, 2), FOUR: 1}


def _failed() -> Simulation:
    world = _world()
    world.nodes[TWO].starts_that_fail = 9
    simulation, state = run(world, wanted=riak_policy())
    assert state.nodes[TWO].phase is NodePhase.FAILED
    world.nodes[TWO].starts_that_fail = 0
    return simulation


def test_no_run_goes_past_a_failed_node_until_it_is_asked_for() -> None:
    simulation = _failed()
    tried = len(simulation.hosts.sent)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.FAILED
    assert "resume with --retry-failed" in state.message
    assert len(simulation.hosts.sent) == tried
    assert state.nodes[TWO].phase is NodePhase.FAILED


def test_restore_owes_a_node_that_failed_one_more_start() -> None:
    simulation = _failed()
    tried = _starts(simulation)
    state = play(simulation, simulation.restore())
    assert state.outcome is Outcome.RESTORED, state.message
    assert _starts(simulation) == tried + 1
    assert lives(simulation.world) == {**dict.fromkeys(simulation.world.nodes, 1), TWO: 2}


def test_a_node_that_died_after_its_start_is_started_again() -> None:
    """The start was confirmed to the old process: to the new one it says nothing."""
    simulation = _killed("its start is confirmed", ())
    world = simulation.world
    world.agenda.advance(SLOW / 2)
    machines.die(world, world.nodes[TWO])
    world.agenda.advance(SLOW)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert all(node.process for node in world.nodes.values())
    assert _starts(simulation) == 2


def _refused(times: int) -> tuple[Simulation, RunState]:
    trip = Trip(verb="start", target=TWO, how=How.REFUSED, times=times)
    return run(_world(), trips=[trip], wanted=riak_policy())


def test_a_node_that_is_retried_has_its_starts_anew() -> None:
    """A refusal is borne once in a run; so it is after `--retry-failed`, however many there were before."""
    simulation, _ = _refused(10_000)
    tried = _starts(simulation)
    simulation, state = _refused(tried + 1)
    assert (state.outcome, state.nodes[TWO].phase) == (Outcome.FAILED, NodePhase.FAILED)
    state = play(simulation, simulation.resume(retry_failed=True))
    assert state.outcome is Outcome.DONE, state.message
    assert _starts(simulation) == tried + 2
