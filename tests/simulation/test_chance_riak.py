"""Seeded whole runs on Riak clusters with mishaps and kills: safe at every step, limits as found.

`make test-soak` lives a third as many of them as of the others (`whole_runs.py`); `make soak` has its own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.kinds.riak.quorum import breaches
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.policy import Strategy
from orchestrator.model.riak import Membership, RiakView, RingStatus, SignsOfLife
from orchestrator.runtime.lookout import Order
from orchestrator.simulation import machines, riak_mishaps, views
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed
from tests.simulation.chance import chance
from tests.simulation.chance_riak import FIRST, chance_riak, without_gates, world_of
from tests.simulation.play import plan_of, run
from tests.simulation.ringed import FIVE, FOUR, ONE, TWO, riak_policy, ringed
from tests.simulation.soak import ON_RINGS, report
from tests.simulation.whole_runs import ON_RINGS as RUNS
from tests.simulation.whole_runs import PARTS_ON_RINGS, part, together
from tests.simulation.wide_riak import RiakLife
from tests.workers import WHOLE_RUNS

pytestmark = pytest.mark.timeout(3600)

_ENOUGH_FOR_EVERY_MISHAP = 200


def riak(world: RiakWorld) -> RiakView:
    view = views.readings(world, set(Look)).cluster
    assert isinstance(view, ClusterView)
    assert view.riak is not None
    return view.riak


def pending(world: RiakWorld) -> int:
    status = riak(world).ring_status
    assert isinstance(status, RingStatus)
    return sum(len(change.partitions) for change in status.pending)


def test_seeds_that_once_broke_a_property_break_none(subtests: pytest.Subtests) -> None:
    for seed in [64, 207, 304, 958, 1015, 1060, 1151]:
        with subtests.test(seed=seed):
            RiakLife(chance_riak(FIRST + seed)).live()


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.parametrize("first", PARTS_ON_RINGS)
def test_whole_runs_break_no_property(first: int) -> None:
    tally = part(first)
    assert not tally.broken, report(tally, ON_RINGS)


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to meet every mishap")
def test_every_kind_of_mishap_befell_a_ring() -> None:
    lived_on_rings = together(PARTS_ON_RINGS)
    assert lived_on_rings.runs == RUNS
    assert sorted(ON_RINGS - set(lived_on_rings.happened)) == []


def test_what_is_drawn_is_of_every_kind() -> None:
    drawn = [chance_riak(FIRST + seed) for seed in range(100)]
    assert {one.reads for one in drawn} == set(Order) & {Order.CLUSTER_FIRST, Order.HOSTS_FIRST}
    assert {one.wanted.strategy for one in drawn} == set(Strategy)
    assert {bool(one.ring.locations) for one in drawn if one.wanted.strategy is Strategy.SHARD_SAFE} == {
        True,
        False,
    }
    assert {one.ring.queues for one in drawn} == {True, False}
    assert len({one.ring.nodes for one in drawn}) >= 6
    assert {max(one.ring.n_vals) for one in drawn} == {3, 5}


def test_sets_of_several_nodes_are_drawn_often_enough() -> None:
    drawn = [chance_riak(FIRST + seed) for seed in range(100)]
    in_sets = [one for one in drawn if one.wanted.strategy is Strategy.SHARD_SAFE]
    plans = [plan_of(world_of(one), replace(one.wanted, pause_after=None)) for one in in_sets]
    assert sum(any(len(wave.nodes) > 1 for wave in plan.waves) for plan in plans) >= 10


def test_a_seed_tells_the_same_story_twice() -> None:
    for seed in (FIRST + 3, FIRST + 9):
        traces = []
        for _ in range(2):
            life = RiakLife(chance_riak(seed))
            life.live()
            traces.append(life.trace())
        assert traces[0] == traces[1]


def test_seeds_of_other_clusters_mean_what_they_did() -> None:
    """Runs on rings are drawn by other dice, from seeds far above."""
    assert all(one.wanted.kind.value == "elasticsearch" for one in map(chance, range(50)))


# What a ring that changes is like -----------------------------------------------------------------


def test_partitions_that_move_are_told_of_until_they_have() -> None:
    world = ringed()
    before = world.ring
    riak_mishaps.OwnershipMoves(to=TWO, partitions=2, seconds=30.0).on_ring(world)
    assert 2 <= pending(world) <= 4
    world.agenda.advance(25.0)
    assert 2 <= pending(world) <= 4
    world.agenda.advance(60.0)
    assert pending(world) == 0
    moved = [number for number in range(64) if world.ring.owners[number] != before.owners[number]]
    assert 2 <= len(moved) <= 4, "where its own lie too close, one for one beside it"
    assert [world.ring.owners[number] for number in moved].count(TWO) == 2
    assert all(not breaches(world.ring, {3}, {name}) for name in world.vnodes)
    assert all(world.serves(name) for name in world.vnodes)


def test_a_partition_does_not_move_while_an_owner_is_down() -> None:
    world = ringed()
    riak_mishaps.OwnershipMoves(to=TWO, partitions=1, seconds=5.0).on_ring(world)
    machines.stop(world, world.nodes[TWO])
    world.agenda.advance(300.0)
    assert pending(world) == 2
    machines.start(world, world.nodes[TWO])
    world.agenda.advance(300.0)
    assert pending(world) == 0


def test_a_member_that_joins_gets_its_share() -> None:
    world = ringed()
    new = NodeName("riak@new")
    riak_mishaps.MemberJoins(node=new, seconds=20.0).on_ring(world)
    members = riak(world).members
    assert isinstance(members, tuple)
    assert [each.node for each in members if each.membership is Membership.JOINING] == [new]
    world.agenda.advance(20.1)
    assert pending(world) > 0
    world.agenda.advance(300.0)
    assert pending(world) == 0
    assert new in world.ring.owners
    assert all(not breaches(world.ring, {3}, {name}) for name in world.vnodes)


def test_a_stall_ends_no_hand_off_and_then_all() -> None:
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(20.0)
    machines.start(world, world.nodes[FOUR])
    riak_mishaps.HandoffStalls(seconds=500.0).on_ring(world)
    world.agenda.advance(400.0)
    assert world.handed == 0
    assert world.fallbacks
    world.agenda.advance(300.0)
    assert world.fallbacks == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (riak_mishaps.ServiceNeverUp(node=TWO), "riak_kv is not up, asked of a peer"),
        (riak_mishaps.VnodesHalt(node=TWO, most=3), "3 of its 13 vnodes run"),
    ],
)
def test_a_node_that_does_not_come_back_whole_ends_the_run(what: riak_mishaps.OfRiak, said: str) -> None:
    world = ringed()
    found = world.limits
    what.on_ring(world)
    _, state = run(world, wanted=riak_policy())
    assert f"{TWO} ({said}" in state.message, state.message
    assert "not back in the cluster within" in state.message
    assert world.limits == found
    assert world.violations == []
    assert world.nodes[FIVE].life == 1


def test_a_service_that_no_peer_sees_is_no_stopped_vnode() -> None:
    world = ringed()
    riak_mishaps.ServiceNeverUp(node=TWO).on_ring(world)
    machines.restart(world, world.nodes[TWO])
    world.agenda.advance(60.0)
    world.asked_after = frozenset({TWO})
    world.version += 1
    signs = riak(world).signs[TWO]
    assert isinstance(signs, SignsOfLife)
    assert world.serves(TWO)
    assert not signs.service.up


def test_the_claimant_that_moves_is_asked_from_then_on() -> None:
    world = ringed()
    assert world.master == ONE
    riak_mishaps.ClaimantMoves(to=FIVE).on_ring(world)
    status = riak(world).ring_status
    assert isinstance(status, RingStatus)
    assert (status.claimant, status.claimant_up, status.ring_ready) == (FIVE, True, True)


def test_a_stop_beside_partitions_that_move_is_judged() -> None:
    """By the ring's truth, whatever the program was told."""
    world = RiakWorld(claimed(5, 64))
    riak_mishaps.OwnershipMoves(to=TWO, partitions=1, seconds=900.0).on_ring(world)
    world.agenda.advance(10.0)
    world.last_read = world.agenda.now
    world.agenda.advance(1.0)
    world.judge_stop(world.nodes[FOUR])
    assert len(world.violations) == 1
    assert "2 partitions change their owner" in world.violations[0]


def test_gates_apart_a_run_is_the_same() -> None:
    drawn = next(one for one in map(chance_riak, range(FIRST, FIRST + 100)) if one.wanted.gates)
    bare = without_gates(drawn)
    assert bare.ring == drawn.ring
    assert replace(bare, wanted=drawn.wanted) == drawn
    RiakLife(bare).live()
