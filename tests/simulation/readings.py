"""What a run reads of a simulated cluster, and a simulated cluster that is made of it."""

from __future__ import annotations

from orchestrator.model.event import RunStarted
from orchestrator.model.observation import Observation
from orchestrator.model.policy import Policy
from orchestrator.simulation.glance import glance
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.world import World
from tests.simulation.program import Simulation


def started_on(world: World, wanted: Policy) -> RunStarted:
    simulation = Simulation(world)
    simulation.begin(wanted)
    return next(r.event for r in simulation.journal.records if isinstance(r.event, RunStarted))


def read(world: World, wanted: Policy) -> tuple[RunStarted, Observation]:
    started = started_on(world, wanted)
    return started, glance(world, started)


def mirror(world: World, wanted: Policy) -> World:
    return mirrored(*read(world, wanted), seed=0)
