"""Stops whose connection was lost, and which their host does later; and a program killed at a named point."""

from __future__ import annotations

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Deadlines, Hooks
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import (
    Crash,
    How,
    Seams,
    Trip,
    Unreadable,
)
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, play, policy

ES1, ES2, ES3 = (NodeName(f"es{number}") for number in range(1, 4))
SHORT = Deadlines(stop=120.0, start=120.0, rejoin=120.0, hold=240.0)
LONG_AFTER = 8000.0


def late_stop(node: NodeName, late: float) -> Trip:
    return Trip(verb="stop", how=How.LATE, target=node, late=late)


def away(world: World) -> list[NodeName]:
    return [node.name for node in world.nodes.values() if not node.joined]


class Deadly(Seams):
    """Seams at which the program is killed the first time that it passes a point of this name."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def point(self, what: str) -> None:
        super().point(what)
        if what.startswith(self._what):
            raise Crash(what)


def killed_at(simulation: Simulation, what: str, state: RunState) -> None:
    """Drive the run, and kill the program at that point."""
    simulation.seams = simulation.cluster.seams = simulation.hosts.seams = Deadly(what)
    with pytest.raises(Crash):
        play(simulation, state)
    simulation.seams = simulation.cluster.seams = simulation.hosts.seams = Seams()


def begun_and_killed(simulation: Simulation, what: str, hooks: Hooks | None = None) -> None:
    """Begin a run, and kill the program at that point."""
    killed_at(simulation, what, simulation.begin(policy(deadlines=SHORT, hooks=hooks or Hooks())))


def late_while_it_prepares() -> Simulation:
    """A run that was killed after a lost stop, and whose cluster cannot be read while the stop is done."""
    simulation = Simulation(cluster(3), trips=[late_stop(ES2, 70.0)])
    begun_and_killed(simulation, "after restore_allocation")
    simulation.fate.befall(Unreadable(seconds=150.0))
    return simulation
