"""The simulated Riak cluster as it was recorded, and that its plan is what a run does."""

from __future__ import annotations

from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.phase import Outcome
from orchestrator.model.riak import PartitionCount, Transfers
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines, views
from orchestrator.simulation.riak import RiakWorld
from tests.simulation.play import plan_of, run
from tests.simulation.ringed import (
    FOUR,
    riak_policy,
    ringed,
)


def _waves(simulation: Simulation) -> list[tuple[NodeName, ...]]:
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _transfers(world: RiakWorld) -> Transfers:
    read = views.readings(world, {Look.CLUSTER, Look.RECOVERIES}).cluster
    assert isinstance(read, ClusterView)
    assert read.riak is not None
    assert isinstance(read.riak.transfers, dict)
    said = read.riak.transfers[min(world.up)]
    assert isinstance(said, Transfers)
    return said


def test_the_plan_is_what_the_run_does() -> None:
    plan = plan_of(ringed(), riak_policy())
    simulation, state = run(ringed(), wanted=riak_policy())
    assert state.outcome is Outcome.DONE
    assert [wave.nodes for wave in plan.waves] == _waves(simulation)


# What the simulated cluster is like, as it was recorded -----------------------------------------------


def test_no_transfer_is_active_while_a_node_is_down() -> None:
    world = ringed()
    world.written = False
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(60.0)
    said = _transfers(world)
    assert (said.waiting, said.not_running, said.active) == ((), (), ())
    assert said.down == (FOUR,)
    assert not said.clean


def test_a_node_that_is_back_climbs_waits_and_takes_back() -> None:
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0)
    taken = sum(count.partitions for count in _transfers(world).waiting)
    assert taken == len(world.vnodes[FOUR].owned)
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(15.0)
    climbing = _transfers(world)
    assert [count.node for count in climbing.not_running] == [FOUR]
    assert PartitionCount(node=FOUR, partitions=3) in climbing.waiting, "fallbacks of its own"
    world.agenda.advance(30.0)
    waiting = _transfers(world)
    assert not waiting.not_running
    assert waiting.waiting
    assert not waiting.active, "idle for less than a minute"
    world.agenda.advance(40.0)
    assert 1 <= len(_transfers(world).active) <= 4
    world.agenda.advance(60.0)
    assert _transfers(world).clean
    assert world.most_at_once[FOUR] == 2, "the limit of its files"


def test_a_node_that_dies_in_a_hand_off_breaks_it_off() -> None:
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(10.0)
    machines.start(world, world.nodes[FOUR])
    assert world.agenda.until(lambda: bool(_transfers(world).active), 120.0)
    machines.die(world, world.nodes[FOUR])
    handed = world.handed
    world.agenda.advance(120.0)
    assert world.handed == handed
    assert world.fallbacks
    assert not any(each.active for each in world.fallbacks)
