"""Simulated runs that a report has something to say of, each with its sampled health."""

from __future__ import annotations

from typing import Any, Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Strategy
from orchestrator.runs.report import facts_of_run
from orchestrator.runtime.sampling import Sampler
from orchestrator.simulation.mishaps import Mishap, SnapshotBegun, StartsFail
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, play, policy
from tests.simulation.program import Simulation

MANY: Final = 45
"""More than have a line each on the page."""


def _world(nodes: int) -> World:
    """Each copy that comes back copies a part of its files, and a gigabyte takes a while."""
    world = cluster(nodes)
    for index in world.indices.values():
        index.keeps = 0.0
    return world


def held() -> Simulation:
    """Three nodes, one after the other; a snapshot holds the second wave."""
    snapshot = Mishap(what=SnapshotBegun(seconds=700.0), verb="restore_allocation")
    simulation = Simulation(_world(3), plan=[snapshot], sampler=Sampler)
    play(simulation, simulation.begin(policy(reason="JDK 21")))
    return simulation


def resumed_twice() -> Simulation:
    """A node does not start, nor at the first resume; the second finishes the run."""
    starts_fail = Mishap(what=StartsFail(node=NodeName("es3"), times=6))
    simulation = Simulation(_world(5), plan=[starts_fail], sampler=Sampler)
    play(simulation, simulation.begin(policy(reason="JDK 21")))
    for _ in range(2):
        simulation.world.agenda.advance(3600.0)
        play(simulation, simulation.resume(retry_failed=True))
    return simulation


def many(nodes: int = MANY) -> Simulation:
    """Zone by zone."""
    simulation = Simulation(_world(nodes), sampler=Sampler)
    by_zone = policy(strategy=Strategy.ZONE, zone_attribute="zone", max_unavailable=None)
    play(simulation, simulation.begin(by_zone), at_the_end=True, invariants=False)
    return simulation


def facts(simulation: Simulation) -> dict[str, Any]:
    """What its report says."""
    return facts_of_run(simulation.run, simulation.records(simulation.run), str)
