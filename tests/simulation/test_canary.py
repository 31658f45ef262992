"""A canary: the run pauses after so many nodes, once, and a resume goes on to its end."""

from __future__ import annotations

from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.runs.simulated import Simulation
from tests.simulation.play import cluster, killed, lives, play, policy


def test_a_canary_pauses_once_and_resume_restarts_all_the_others() -> None:
    world = cluster(5)
    before = world.settings()
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(policy(pause_after=1)))
    assert state.outcome is Outcome.PAUSED
    assert state.message == "paused after 1 node, as asked"
    assert sorted(lives(world).values()) == [1, 1, 1, 1, 2]
    assert world.settings() == before
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert set(lives(world).values()) == {2}
    assert world.settings() == before


def test_a_canary_counts_over_a_kill() -> None:
    world = cluster(5)
    simulation = Simulation(world)
    begun = simulation.begin(policy(pause_after=2))
    simulation.seams.crash_at = 60
    assert killed(simulation, begun)
    simulation.seams.crash_at = None
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.PAUSED
    assert [node.phase for node in state.nodes.values()].count(NodePhase.RECOVERED) == 2
