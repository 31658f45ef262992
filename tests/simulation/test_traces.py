"""Golden traces: named runs told line by line. `ORCHESTRATE_REWRITE_GOLDEN=1` writes them: read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import awareness_of
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import Deadlines, Policy
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.loaded import RIGHT, left_behind, loaded, merged_policy, merging
from tests.simulation.narrate import narrate
from tests.simulation.play import cluster, play, policy
from tests.simulation.zones import by_zone, forced, lopsided, paired, zoned

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
Told = tuple[Simulation, RunState]
ES2, ES3, ES5 = NodeName("es2"), NodeName("es3"), NodeName("es5")


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
    return _resumed(_run(cluster(3), Mishap(what=mishaps.StartsFail(node=ES2, times=3))), retry_failed=True)


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


def zones() -> Told:
    return _run(zoned(), wanted=by_zone())


def zone_with_both_copies() -> Told:
    return _run(paired(), wanted=by_zone())


def zone_of_three_beside_zones_of_one() -> Told:
    return _run(lopsided(), wanted=by_zone())


def zone_under_forced_awareness() -> Told:
    """A whole zone fails to start: nothing of it is rebuilt elsewhere, and it comes back as it went."""
    world = forced()
    _, awareness = awareness_of(views.readings(world).settings, "zone")
    fails = [Mishap(what=mishaps.StartsFail(node=name, times=3)) for name in (ES2, ES5)]
    told = _run(world, *fails, wanted=by_zone(awareness=awareness))
    return _resumed(told, retry_failed=True, after=600.0)


def zone_with_a_node_that_fails_to_start() -> Told:
    fails = Mishap(what=mishaps.StartsFail(node=ES2, times=3))
    return _resumed(_run(zoned(), fails, wanted=by_zone()), retry_failed=True)


def zone_with_a_host_that_hangs_in_stop() -> Told:
    hangs = Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=900.0))
    wanted = by_zone(deadlines=replace(Deadlines(), stop=120.0, start=300.0))
    return _resumed(_run(zoned(), hangs, wanted=wanted), retry_failed=True, after=900.0)


def after_a_bulk_load() -> Told:
    """Two indices: merged one after the other, put right, and then every node restarted."""
    world = left_behind(loaded(indices=2, replicas=0))
    lost = Trip(verb="force_merge", how=How.UNACKNOWLEDGED, first=2)
    return _run(world, trips=(lost,), wanted=merged_policy(merging(put_right=RIGHT)))


SCENARIOS: tuple[Callable[[], Told], ...] = (
    undisturbed,
    start_fails,
    stop_hangs,
    master_dies,
    rescue,
    hold_then_passes,
    canary,
    interrupted_in_wave,
    zones,
    zone_with_both_copies,
    zone_of_three_beside_zones_of_one,
    zone_under_forced_awareness,
    zone_with_a_node_that_fails_to_start,
    zone_with_a_host_that_hangs_in_stop,
    after_a_bulk_load,
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
