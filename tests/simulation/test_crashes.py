"""Killed at every point: before a commit, after it, and after an action before its outcome is known."""

from __future__ import annotations

import os

import pytest

from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.simulation.run import Simulation
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, killed, lives, play, policy


def _world() -> World:
    world = cluster(3)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    world.set(Level.TRANSIENT, "indices.recovery.max_bytes_per_sec", "20mb")
    return world


def _points() -> list[str]:
    simulation = Simulation(_world())
    play(simulation, simulation.begin(policy()))
    return simulation.seams.passed


POINTS = _points()
_EVERY = 1 if os.environ.get("ORCHESTRATE_SEEDS") else 3
"""Every third point in the quick tests; the offsets of resume and restore differ."""


def _killed_at(point: int) -> Simulation:
    simulation = Simulation(_world())
    state = simulation.begin(policy())
    simulation.seams.crash_at = point
    assert killed(simulation, state), f"point {point} is not passed"
    return simulation


@pytest.mark.parametrize("point", range(3, len(POINTS) + 1, _EVERY), ids=str)
def test_resume_ends_like_an_undisturbed_run(point: int) -> None:
    simulation = _killed_at(point)
    found = _world().settings()
    if simulation.journal.records[-1].event.event == "run_finished":
        assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)
        return
    state = play(simulation, simulation.resume())
    where = f"killed at point {point}, {POINTS[point - 1]}"
    assert state.outcome is Outcome.DONE, f"{where}: {state.message}"
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2), where
    assert simulation.world.settings() == found, where
    assert simulation.world.violations == [], where


@pytest.mark.parametrize("point", range(4, len(POINTS) + 1, _EVERY), ids=str)
def test_restore_puts_everything_back(point: int) -> None:
    simulation = _killed_at(point)
    state = play(simulation, simulation.restore())
    where = f"killed at point {point}, {POINTS[point - 1]}"
    assert state.outcome is Outcome.RESTORED, f"{where}: {state.message}"
    assert simulation.world.settings() == _world().settings(), where
    assert all(node.joined for node in simulation.world.nodes.values()), where
    assert simulation.world.violations == [], where
    assert max(lives(simulation.world).values()) <= 2, where


@pytest.mark.parametrize("point", range(5, len(POINTS) + 1, _EVERY * 3), ids=str)
def test_restore_then_resume_ends_like_an_undisturbed_run(point: int) -> None:
    simulation = _killed_at(point)
    play(simulation, simulation.restore())
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)
    assert {node.phase for node in state.nodes.values()} == {NodePhase.RECOVERED}
    assert simulation.world.settings() == _world().settings()
    assert simulation.world.violations == []
