"""Golden traces: named runs told line by line. `ORCHESTRATE_REWRITE_GOLDEN=1` writes them: read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Mishap, Trip
from orchestrator.simulation.run import Simulation
from orchestrator.simulation.world import World
from tests.simulation.narrate import narrate
from tests.simulation.play import cluster, play, policy

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
Told = tuple[Simulation, RunState]
ES2, ES3 = NodeName("es2"), NodeName("es3")


def _run(world: World, *plan: Mishap, trips: tuple[Trip, ...] = (), wanted: Policy | None = None) -> Told:
    simulation = Simulation(world, plan=plan, trips=trips)
    return simulation, play(simulation, simulation.begin(wanted or policy()))


def _resumed(told: Told, *, retry_failed: bool = False, after: float = 60.0) -> Told:
    simulation, _ = told
    simulation.world.agenda.advance(after)
    return simulation, play(simulation, simulation.resume(retry_failed=retry_failed))


def undisturbed() -> Told:
    world = cluster(3)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    return _run(world)


def start_fails() -> Told:
    return _resumed(_run(cluster(3), Mishap(what=mishaps.StartsFail(node=ES2, times=2))), retry_failed=True)


def stop_hangs() -> Told:
    hangs = Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=900.0))
    wanted = policy(deadlines=replace(Deadlines(), stop=120.0, start=300.0))
    return _resumed(_run(cluster(3), hangs, wanted=wanted), retry_failed=True, after=900.0)


def master_dies() -> Told:
    dies = Mishap(what=mishaps.NodeDies(node=NodeName("es1"), back_after=120.0), verb="stop", after=2.0)
    return _resumed(_run(cluster(5), dies), after=300.0)


def rescue() -> Told:
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="stop", target="es2")
    return _run(cluster(3), made)


def hold_then_passes() -> Told:
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="set_allocation", after=0.05)
    return _run(cluster(3), made)


def canary() -> Told:
    return _resumed(_run(cluster(3), wanted=policy(pause_after=1)))


def interrupted_in_wave() -> Told:
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="stop", after=2.0)
    return _resumed(_run(cluster(3), asked))


SCENARIOS: tuple[Callable[[], Told], ...] = (
    undisturbed,
    start_fails,
    stop_hangs,
    master_dies,
    rescue,
    hold_then_passes,
    canary,
    interrupted_in_wave,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_trace(scenario: Callable[[], Told]) -> None:
    simulation, state = scenario()
    assert simulation.world.violations == []
    told, path = narrate(simulation, state), TRACES / f"{scenario.__name__}.txt"
    if os.environ.get(REWRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told)
    assert path.is_file(), f"no trace {path.name}; write it with {REWRITE}=1 and read it"
    assert told == path.read_text()
