"""The judge of whole runs: what it must see at the end of one, and what is none of the run's."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import (
    Event,
    IndexTaken,
    LeaseTaken,
    NotWaitedFor,
    PhaseEntered,
    TakenDown,
    WaveStarted,
)
from orchestrator.model.observation import Level, MissingCopy, ServiceState
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Policy,
)
from orchestrator.simulation import allocation, deciders, mishaps
from orchestrator.simulation.facts import AbsentCopy, Fact
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.parts import SimIndex
from tests.simulation import index_mishaps
from tests.simulation.chance import chance
from tests.simulation.lived import BrokenError
from tests.simulation.play import cluster, play, policy
from tests.simulation.program import Simulation
from tests.simulation.sharing import rebooting, sharing
from tests.simulation.wide import Life

ES2 = NodeName("es2")


@pytest.fixture
def life() -> Life:
    """A cluster as some seed makes it, before its run."""
    return Life(chance(1))


def _index(life: Life, name: str) -> SimIndex:
    return next(index for index in life.world.indices.values() if index.name == name)


def _said(life: Life) -> list[str]:
    return [said for said, _ in life._not_as_found()]  # what it concludes is its one product


def test_a_replica_that_is_left_is_seen(life: Life) -> None:
    index = _index(life, "logs")
    allocation.set_replicas(life.world, index, index.replicas + 1)
    assert _said(life) == [f"logs has {index.replicas} replicas"]


def test_a_replica_left_on_an_index_made_during_the_run_is_seen(life: Life) -> None:
    life.world.create_index("new", replicas=0)
    assert _said(life) == []
    allocation.set_replicas(life.world, _index(life, "new"), 1)
    assert _said(life) == ["new has 1 replicas"]


def test_an_index_made_again_has_the_settings_of_its_maker(life: Life) -> None:
    before = _index(life, "logs")
    allocation.set_replicas(life.world, before, before.replicas + 1)
    life.simulation.fate.befall(index_mishaps.IndexDeleted(index="logs", made_again=True))
    assert _index(life, "logs") is not before
    assert _index(life, "logs").replicas == before.replicas
    assert _said(life) == []


def test_a_node_that_another_machine_named_is_not_named_again(life: Life) -> None:
    """This one knows nothing of that run, whose record is gone with it; people were told of the node."""
    life.simulation = Simulation(cluster(3))
    life.world = world = life.simulation.world
    life._not_as_found = list
    world.nodes[ES2].starts_that_fail = 9
    other = life.simulation.successor("theirs")
    theirs = play(other, other.begin(policy()))
    assert theirs.nodes[ES2].phase is NodePhase.FAILED, theirs.message
    restored = RunState(run="run-1", phase=Phase.ENDED, outcome=Outcome.RESTORED)
    with pytest.raises(BrokenError, match="left down"):
        life._judge_end(restored, [])
    life._successors = [(None, [(other, theirs)])]
    life._judge_end(restored, [])
    assert life._left_to_people(restored, ended=False) == [world.nodes[ES2]], "also if nothing else ended"
    world.nodes[ES2].facts = [Fact(at=other.began - 100.0, what="stopped", alive=True)]
    life._judge_end(restored, [])  # it found the node stopped, when it took a run over
    world.nodes[ES2].facts.append(Fact(at=world.agenda.now + 1.0, what="stopped", alive=True))
    with pytest.raises(BrokenError, match="left down"):
        life._judge_end(restored, [])


def test_hooks_that_another_machine_named_are_left_to_people(life: Life) -> None:
    life.simulation = Simulation(cluster(3))
    life.world = world = life.simulation.world
    other = life.simulation.successor("theirs")
    world.nodes[ES2].starts_that_fail = 9
    hooks = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
    theirs = play(other, other.begin(policy(hooks=hooks)))
    assert theirs.nodes[ES2].phase is NodePhase.FAILED, theirs.message
    unsaid = replace(theirs, message=theirs.message.replace(" did not run on es2", " did not run on es22"))
    for end, due in ((unsaid, {0}), (theirs, set[int]())):
        life._successors = [(None, [(other, end)])]
        life._undo_by_hand()
        assert world.nodes[ES2].to_undo == due


def test_allocation_that_a_forgotten_run_left_is_named(
    life: Life,
) -> None:
    """Its journal is torn and its record was removed by hand. The next run must say what bars it."""
    found = life.world.persistent.get(ALLOCATION)
    life.world.set(Level.PERSISTENT, ALLOCATION, "primaries")
    life.world.set(Level.PERSISTENT, "cluster.routing.rebalance.enable", "none")
    assert len(_said(life)) == 2
    life._forgotten()
    assert _said(life) == []
    silent, done = RunState(run="run-2"), RunState(run="run-2", outcome=Outcome.DONE)
    life._repair(silent, ended=True)
    with pytest.raises(BrokenError, match="as a killed run left it"):
        life._judge_done(done)
    life._repair(replace(silent, message=f"no_other_maintenance ({ALLOCATION}): is primaries"), ended=True)
    assert life.world.persistent.get(ALLOCATION) == found
    assert (life.forgotten, _said(life)) == ({}, [])
    life.world.set(Level.PERSISTENT, ALLOCATION, "none")
    assert len(_said(life)) == 1


def _lose(life: Life, name: NodeName, *, ours: bool) -> None:
    """A node leaves, and all copies that it had are on their way to others."""
    node = life.world.nodes[name]
    node.stopped_by_us = ours
    if ours:
        node.service = ServiceState.STOPPING
    here = [copy for _, shard in deciders.shards_of(life.world) for copy in shard.copies if copy.node == name]
    allocation.left(life.world, name)
    for copy in here:
        copy.state = CopyState.INITIALIZING


def test_a_copy_rebuilt_after_its_node_left_alone_is_not_missed(life: Life) -> None:
    _lose(life, next(iter(life.world.nodes)), ours=False)
    life._judge_copies([])  # it raises, or not


def test_a_copy_that_the_run_took_down_is_missed_until_it_serves(life: Life) -> None:
    life.simulation.begin(life.drawn.wanted)
    _lose(life, next(iter(life.world.nodes)), ours=True)
    with pytest.raises(BrokenError, match="missing at the end"):
        life._judge_copies([])


@pytest.mark.parametrize(("served", "missed"), [(1, False), (2, True)])
def test_a_copy_named_as_not_waited_for_is_missed_if_fewer_serve(
    life: Life, *, served: int, missed: bool
) -> None:
    """Of copies without a place the cluster may build the wave's own last: the shard is then as it was."""
    life.simulation.begin(life.drawn.wanted)
    index = _index(life, "logs")
    shard = index.shards[0]
    next(copy for copy in shard.copies if copy.serves and not copy.primary).state = CopyState.INITIALIZING
    told = MissingCopy(
        index=index.name, index_uuid=index.uuid, number=0, primary=False, reason="NODE_LEFT", count=1
    )
    taken = IndexTaken(
        index=index.name, index_uuid=index.uuid, replicas=1, filters="", started=((0, served),)
    )
    with pytest.raises(BrokenError, match="missing at the end"):
        life._judge_copies([])
    life.simulation.journalled(
        NotWaitedFor(shards=(told,), why="seen"), TakenDown(number=3, indices=(taken,))
    )
    with pytest.raises(BrokenError, match="missing at the end") if missed else nullcontext():
        life._judge_copies([])
    now, before = life.simulation.clock.now(), life.began - 1.0
    assert life._as_found(now, AbsentCopy(shard=shard.id, serving=1, had=2)) is not missed
    assert not life._as_found(now, AbsentCopy(shard=shard.id, serving=1, had=3))  # one more than it said
    assert not life._as_found(before, AbsentCopy(shard=shard.id, serving=1, had=2))  # it had not said so yet


def test_a_replica_that_others_add_is_not_the_runs_to_wait_for(life: Life) -> None:
    life.simulation.begin(life.drawn.wanted)
    index = _index(life, "logs")
    life.simulation.fate.befall(index_mishaps.ReplicasSet(index="logs", replicas=index.replicas + 1))
    life._judge_copies([])
    first = next(copy for copy in index.shards[0].copies if copy.serves and not copy.primary)
    first.state = CopyState.UNASSIGNED
    with pytest.raises(BrokenError, match="missing at the end"):
        life._judge_copies([])


def _waves_of(wanted: Policy, *plan: Mishap, trips: tuple[Trip, ...] = ()) -> Life:
    """The life of one attempt on two nodes a machine, judged as one whose machines are rebooted."""
    life = Life(replace(chance(1), wanted=rebooting()))
    life.simulation = Simulation(sharing(), plan=plan, trips=trips)
    life.world = life.simulation.world
    play(life.simulation, life.simulation.begin(wanted))
    return life


def test_a_wave_that_splits_a_machine_is_seen() -> None:
    with pytest.raises(BrokenError, match="splits"):
        _waves_of(policy())._judge_waves()


def test_a_node_that_a_late_stop_takes_splits_no_machine() -> None:
    """The other node of its machine is up, and waits for a reboot of both in another wave."""
    late = Trip(verb="stop", target=NodeName("es5"), how=How.LATE, late=70.0)
    held = Mishap(what=mishaps.SnapshotBegun(), verb="stop", after=1.0)  # or both would go again before that
    wanted = rebooting(deadlines=Deadlines(stop=120.0, start=120.0, rejoin=120.0, hold=240.0))
    life = _waves_of(wanted, held, trips=(late,))
    waves = [r.event.wave for r in life.simulation.journal.records if isinstance(r.event, WaveStarted)]
    assert [(wave.nodes, wave.why) for wave in waves][1:] == [(("es5",), "its stop was done late")]
    life._judge_waves()


def test_a_replica_that_moves_with_its_node_is_waited_for() -> None:
    """Replicas that follow the number of nodes are fewer while a node is down: nobody gave them up."""
    life = Life(chance(1))
    life.simulation = Simulation(cluster(3))
    life.world = life.simulation.world
    tasks = life.world.add_index(".tasks", replicas=2, size=160 << 30)
    tasks.auto_expand, tasks.keeps = "0-all", 0.0  # minutes to copy what has changed
    state = play(life.simulation, life.simulation.begin(policy()))
    assert state.outcome is Outcome.DONE
    waited = [record.at for record in life.simulation.journal.records if _settles(record.event)]
    assert waited[0] - life.simulation.began > 300.0
    life._judge_waits()


def _settles(event: Event) -> bool:
    return isinstance(event, PhaseEntered) and event.to == Phase.SETTLED.value


def test_a_resumed_run_is_held_by_who_resumed_it(subtests: pytest.Subtests) -> None:
    """Another run, and a person who reads the record, ask the one who can stop it now."""
    for how in ("resume", "restore"):
        with subtests.test(how):
            simulation = Simulation(cluster(3))
            run = simulation.begin(policy()).run
            simulation.operator = "ben"
            getattr(simulation, how)()
            events = [record.event for record in simulation.written(run)]
            holders = [event.holder for event in events if isinstance(event, LeaseTaken)]
            assert holders == ["ann@bastion", "ben@bastion"]
