"""A run that stopped right after an action, its readings, and its next decisions."""

from __future__ import annotations

import contextlib

from orchestrator.engine.fold import evolve, replay
from orchestrator.engine.run import decide
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Record
from orchestrator.model.observation import EVERYTHING, LeaseView, Look, Observation
from orchestrator.model.policy import Selection
from orchestrator.model.reading import Instant
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from orchestrator.simulation.mishaps import Crash
from tests.simulation.play import cluster, play, policy
from tests.states import state_with

ALLOCATION = "cluster.routing.allocation.enable"
ES2 = NodeName("es2")


def read(simulation: Simulation) -> Observation:
    """Everything, as it is now."""
    world = simulation.world
    read = views.readings(world, EVERYTHING | {Look.FINISHED})
    return Observation(
        at=world.agenda.now,
        cluster=read.cluster,
        settings=read.settings,
        health=read.health,
        recoveries=read.recoveries,
        finished=read.finished,
        activity=read.activity,
        disks=read.disks,
        hosts={name: views.host(node, rights=True, reboot=True) for name, node in world.nodes.items()},
        lease=LeaseView(held=True, holder="ann@bastion", refreshed=0.0),
    )


def until(verb: str) -> tuple[Simulation, RunState]:
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


def decided(state: RunState, seen: Observation, now: Instant) -> RunState:
    for event in decide(state, seen, now).events:
        state = evolve(state, Record(run=state.run, sequence=0, at=now, event=event))
    return state
