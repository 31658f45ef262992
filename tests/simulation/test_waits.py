"""How often a run reads the cluster while it waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.observation import Look
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.watch import CopiesActive
from orchestrator.ports import ClusterReadings
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.world import World
from tests.simulation.play import Watcher, policy


@dataclass
class Listening(Watcher):
    """Notes each wait for copies: how long the wave has waited, for how long it listens now, and to what."""

    waits: list[tuple[float, float]] = field(default_factory=list)
    counts: set[int] = field(default_factory=set)

    def waiting(self, state: RunState, decision: Decision) -> None:
        now, watch = self.simulation.world.agenda.now, decision.watch
        if state.phase is Phase.REASSIGNED and watch is not None and isinstance(watch.cluster, CopiesActive):
            self.waits.append((now - state.in_phase.since, watch.until - now))
            self.counts.add(watch.cluster.count)
        super().waiting(state, decision)


def slow_world() -> World:
    """Three nodes whose copies come back in about five minutes."""
    world = World(seed=1)
    for number in range(3):
        world.add_node(f"es{number + 1}", zone="abc"[number])
    index = world.add_index("logs", shards=3, replicas=1, size=100 << 30)
    index.keeps = 0.0
    return world


def test_a_long_recovery_is_read_less_and_less_often() -> None:
    world = slow_world()
    simulation = Simulation(world)
    state = simulation.begin(policy())
    watcher = Listening(simulation, world.agenda.now + 48 * 3600)
    assert simulation.drive(state, watcher).outcome is Outcome.DONE
    assert max(waited for waited, _ in watcher.waits) > 200, "it is a long one"
    assert {pause for waited, pause in watcher.waits if waited < 20} == {2.0}
    assert {round(pause, 6) for waited, pause in watcher.waits if waited >= 150} == {15.0}
    assert watcher.counts == {6}, "each poll ends with the last copy, and not before"
    for waited, pause in watcher.waits:
        assert abs(pause - min(max(2.0, waited / 10), 15.0)) < 0.001


def test_recoveries_that_have_ended_are_read_once_a_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collection[Look]] = []
    observe = SimulatedCluster.observe

    def noted(self: SimulatedCluster, look: Collection[Look]) -> ClusterReadings:
        asked.append(look)
        return observe(self, look)

    monkeypatch.setattr(SimulatedCluster, "observe", noted)
    simulation = Simulation(slow_world())
    state = simulation.begin(policy())
    state = simulation.drive(state, Watcher(simulation, simulation.world.agenda.now + 48 * 3600))
    assert state.outcome is Outcome.DONE
    running = sum(Look.RECOVERIES in look for look in asked)
    finished = sum(Look.FINISHED in look for look in asked)
    assert 3 <= finished <= 6 < running / 5, (finished, running)
