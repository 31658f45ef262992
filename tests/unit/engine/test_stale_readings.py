"""A reading from before the last thing that was done: nothing may be concluded from it."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from orchestrator.engine.fold import evolve, replay
from orchestrator.engine.run import decide
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Record
from orchestrator.model.observation import LeaseView, Level, Observation, ServiceState
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Selection
from orchestrator.model.reading import Instant
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from orchestrator.simulation.mishaps import Crash
from tests.simulation.play import cluster, play, policy
from tests.states import state_with

ALLOCATION = "cluster.routing.allocation.enable"
ES2 = NodeName("es2")


def _read(simulation: Simulation) -> Observation:
    """Everything, as it is now."""
    world = simulation.world
    read = views.readings(world)
    return Observation(
        at=world.agenda.now,
        cluster=read.cluster,
        settings=read.settings,
        health=read.health,
        recoveries=read.recoveries,
        activity=read.activity,
        disks=read.disks,
        hosts={name: views.host(node, rights=True) for name, node in world.nodes.items()},
        lease=LeaseView(held=True, holder="ann@bastion", refreshed=0.0),
    )


def _until(verb: str) -> tuple[Simulation, RunState]:
    """A run of es2 alone, right after this verb was confirmed."""
    told = Simulation(cluster(3))
    wanted = policy(selection=Selection(only=("es2",)))
    play(told, told.begin(wanted))
    sent = next(n for n, what in enumerate(told.seams.passed) if what.startswith(f"after {verb} "))
    simulation = Simulation(cluster(3))
    state = simulation.begin(wanted)
    confirmed = "after the commit of action_confirmed"
    simulation.seams.crash_at = 1 + told.seams.passed.index(confirmed, sent)
    with contextlib.suppress(Crash):
        play(simulation, state)
    state = replay(simulation.run, simulation.journal.records)
    return simulation, state_with(state, in_flight=())


def _decided(state: RunState, seen: Observation, now: Instant) -> RunState:
    for event in decide(state, seen, now).events:
        state = evolve(state, Record(run=state.run, sequence=0, at=now, event=event))
    return state


def test_settings_do_not_count_as_put_back_on_a_reading_from_before_they_were_written() -> None:
    simulation, state = _until("restore_allocation")
    world = simulation.world
    read = _read(simulation)
    # Somebody has written our value once more; the reading is of the moment before both.
    world.set(Level.PERSISTENT, ALLOCATION, "primaries")
    world.agenda.advance(1.0)
    old = replace(read, at=state.process.acted_at - 1.0)
    key = (Level.PERSISTENT, ALLOCATION)
    assert key in state.unrestored.settings
    after = _decided(state, old, world.agenda.now)
    assert key in after.unrestored.settings, f"counts as put back, and is {world.persistent}"
    fresh = _decided(state, read, world.agenda.now)
    assert key not in fresh.unrestored.settings, "what a newer reading shows counts"


def test_a_node_is_not_given_up_on_a_reading_from_before_its_start() -> None:
    simulation, state = _until("start")
    world = simulation.world
    read = _read(simulation)
    host = replace(views.host(world.nodes[ES2], rights=True), service=ServiceState.STOPPED)
    old = replace(read, at=state.process.acted_at - 1.0, hosts={**read.hosts, ES2: host})
    world.agenda.advance(10.0)
    assert world.nodes[ES2].process, "it runs"
    after = _decided(state, old, world.agenda.now)
    assert after.phase is Phase.DOWN, after.process.standing_down
