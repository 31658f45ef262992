"""What the mirror of a cluster takes over and no view shows: what it is judged by, and what comes later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import AWARENESS, FORCED_AWARENESS
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Level, Recovery
from orchestrator.model.policy import Strategy
from orchestrator.simulation import mishaps
from orchestrator.simulation.deciders import share_of_a_zone
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.nights import night
from orchestrator.simulation.riak import RiakWorld
from tests.simulation.play import cluster, policy
from tests.simulation.readings import mirror, read
from tests.simulation.ringed import TWO, riak_policy, ringed

ONE = NodeName("es1")


@pytest.mark.parametrize(("budget", "allowed"), [(1, 1), (2, 2), (None, len(cluster().nodes))])
def test_as_many_nodes_may_be_down_as_the_run_allows(budget: int | None, allowed: int) -> None:
    assert mirror(cluster(), policy(max_unavailable=budget)).allowed_down == allowed


@pytest.mark.parametrize("strategy", list(Strategy))
def test_node_by_node_they_are_of_one_machine(strategy: Strategy) -> None:
    wanted = policy(strategy=strategy, zone_attribute="zone")
    assert mirror(cluster(), wanted).one_machine is (strategy is Strategy.NODE)


@pytest.mark.parametrize("accepted", [True, False])
def test_the_majority_may_go_where_its_operator_accepts_it(*, accepted: bool) -> None:
    assert mirror(cluster(), policy(accept_master_outage=accepted)).may_lose_master is accepted


def test_who_is_excluded_from_voting_is_so_by_others() -> None:
    started, seen = read(cluster(), policy())
    assert isinstance(seen.cluster, ClusterView)
    view = replace(seen.cluster, voting_exclusions=(ONE,))
    made = mirrored(started, replace(seen, cluster=view), seed=0)
    assert (made.excluded_by_others, made.exclusions) == ({ONE}, [ONE])


def test_a_copy_that_failed_too_often_is_not_tried_again() -> None:
    started, seen = read(cluster(), policy())
    assert isinstance(seen.cluster, ClusterView)
    replica = next(copy for copy in seen.cluster.copies if not copy.primary)
    recovery = Recovery(
        shard=replica.shard,
        target=ONE,
        source=None,
        stage="done",
        bytes_total=12345,
        bytes_reused=0,
        bytes_copied=12345,
        operations_replayed=0,
        done=True,
    )
    copies = tuple(each._replace(failed_attempts=5) for each in seen.cluster.copies)
    view = replace(seen.cluster, copies=copies)
    made = mirrored(started, replace(seen, cluster=view, recoveries=(recovery,)), seed=0)
    shards = {(shard.id.index, shard.id.number): shard for i in made.indices.values() for shard in i.shards}
    assert {copy.failed_attempts for shard in shards.values() for copy in shard.copies} == {5}
    sizes = {name: shard.size for name, shard in shards.items()}
    assert sizes.pop((replica.shard.index, replica.shard.number)) == 12345
    assert set(sizes.values()) <= {1 << 30}


def test_a_member_that_joins_is_joining_and_a_limit_lasts() -> None:
    world = ringed()
    world.add_member(NodeName("riak@new"))
    world.joining.add(NodeName("riak@new"))
    world.configure(TWO, configured=7, limit=7)
    made = mirror(world, riak_policy())
    assert isinstance(made, RiakWorld)
    assert made.joining == {"riak@new"}
    assert (made.vnodes[TWO].configured, made.vnodes[TWO].limit) == (7, 7)


def test_no_night_befalls_a_second_node_that_is_down_already() -> None:
    world = cluster()
    first, *others = world.nodes
    for name in others[1:]:
        world.nodes[name].process = False
    dying = {
        what.node
        for seed in range(1, 200)
        for what in (each.what for each in night(seed, world, (first,)).plan)
        if isinstance(what, mishaps.NodeDies)
    }
    assert dying == {others[0]}


def test_a_host_that_is_cut_off_for_longer_is_not_reached_sooner() -> None:
    world = cluster()
    world.nodes[ONE].unreachable_until = float("inf")
    Fate(world).befall(mishaps.HostCutOff(node=ONE, seconds=90.0))
    assert world.nodes[ONE].unreachable_until == float("inf")


@pytest.mark.parametrize("attribute", ["zone", "rack_id"])
@pytest.mark.parametrize(("forced", "share"), [((), 2), (("a", "b", "c", "d"), 1)])
def test_awareness_goes_by_the_attribute_of_the_cluster(
    attribute: str, forced: tuple[str, ...], share: int
) -> None:
    """Two copies over one zone are two a zone; over four that are forced, one."""
    world = cluster()
    for node in world.nodes.values():
        node.zone = "a"
    world.zone_attribute = attribute
    world.set(Level.PERSISTENT, AWARENESS, attribute)
    if forced:
        world.files = {**world.files, f"{FORCED_AWARENESS}{attribute}.values": forced}
    made = mirror(world, policy(zone_attribute=attribute))
    index = next(iter(made.indices.values()))
    assert share_of_a_zone(made, index, index.shards[0]) == share
    made.set(Level.PERSISTENT, AWARENESS, "another_attribute")
    assert share_of_a_zone(made, index, index.shards[0]) is None
