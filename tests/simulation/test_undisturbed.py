"""A run that nothing disturbs: every node once, everything as found."""

from __future__ import annotations

import pytest

from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from tests.simulation.play import cluster, lives, run


@pytest.mark.parametrize("nodes", [3, 5, 6])
def test_every_node_is_restarted_once(nodes: int) -> None:
    world = cluster(nodes)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    world.set(Level.TRANSIENT, "indices.recovery.max_bytes_per_sec", "20mb")
    before = world.settings()
    _, state = run(world)
    assert state.outcome is Outcome.DONE, state.message
    assert set(lives(world).values()) == {2}
    assert world.settings() == before
    assert world.violations == []
    assert {node.phase for node in state.nodes.values()} == {NodePhase.RECOVERED}
    assert state.unrestored.settings == {}


def test_the_elected_master_goes_last() -> None:
    world = cluster(5)
    master = world.master
    simulation, _ = run(world)
    stops = [action.node for action in simulation.hosts.sent if type(action).__name__ == "StopNode"]
    assert stops[-1] == master
