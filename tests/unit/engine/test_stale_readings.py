"""A reading from before the last thing that was done: nothing may be concluded from it."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.observation import Level, ServiceState
from orchestrator.model.phase import Phase
from orchestrator.simulation import views
from tests.unit.engine.stepping import ALLOCATION, ES2, decided, read, until


def test_settings_are_not_restored_by_a_reading_before_the_write() -> None:
    simulation, state = until("restore_allocation")
    world = simulation.world
    now = read(simulation)
    # Somebody has written our value once more; the reading is of the moment before both.
    world.set(Level.PERSISTENT, ALLOCATION, "primaries")
    world.agenda.advance(1.0)
    old = replace(now, at=state.process.acted_at - 1.0)
    key = (Level.PERSISTENT, ALLOCATION)
    assert key in state.unrestored.settings
    after = decided(state, old, world.agenda.now)
    assert key in after.unrestored.settings, f"counts as put back, and is {world.persistent}"
    fresh = decided(state, now, world.agenda.now)
    assert key not in fresh.unrestored.settings, "what a newer reading shows counts"


def test_a_node_does_not_fail_on_a_reading_from_before_its_start() -> None:
    simulation, state = until("start")
    world = simulation.world
    now = read(simulation)
    host = replace(views.host(world.nodes[ES2], rights=True), service=ServiceState.STOPPED)
    old = replace(now, at=state.process.acted_at - 1.0, hosts={**now.hosts, ES2: host})
    world.agenda.advance(10.0)
    assert world.nodes[ES2].process, "it runs"
    after = decided(state, old, world.agenda.now)
    assert after.phase is Phase.DOWN, after.process.standing_down
