"""A simulated cluster that is made of a reading is like the one that was read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from orchestrator.elasticsearch.rules.settings import AWARENESS, FORCED_AWARENESS
from orchestrator.errors import UsageError
from orchestrator.model.action import SettingChange, WriteSettings
from orchestrator.model.allocation import ALLOCATION, FLAGS
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.gate import CommandGate, GateView
from orchestrator.model.observation import ClusterView, HostView, Level, Observation, Recovery
from orchestrator.model.policy import Strategy
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import RiakView
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.deciders import share_of_a_zone
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.glance import glance
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.nights import night
from orchestrator.simulation.parts import GateState
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_mishaps import OwnershipMoves
from orchestrator.simulation.riak_parts import SimMove
from orchestrator.simulation.world import World
from tests.simulation.chance import chance, world_of
from tests.simulation.chance_riak import FIRST, chance_riak
from tests.simulation.chance_riak import world_of as riak_world_of
from tests.simulation.old import OF_0_90, aged
from tests.simulation.play import cluster, policy
from tests.simulation.readings import mirror, read, started_on
from tests.simulation.ringed import (
    FOUR,
    ONE,
    THREE,
    TWO,
    by_location,
    by_sets,
    located,
    riak_policy,
    ringed,
    unlocated,
)
from tests.simulation.scene import ES1, Scene


def lasting(view: ClusterView) -> tuple[object, ...]:
    """What must be the same in a world that begins a new life: all but ids of lives and counters."""
    nodes = {
        (node.name, node.node_id, node.roles, node.version, tuple(node.attributes.items()))
        for node in view.nodes
    }
    copies = {
        (str(c.shard), c.primary, c.node, c.started, c.allocation_id if c.started else None)
        for c in view.copies
    }
    indices = sorted((replace(i, uuid="") for i in view.indices), key=lambda i: i.name)
    return view.name, view.uuid, view.distribution, view.master, view.voters, nodes, copies, indices


def test_a_mirror_of_elasticsearch_shows_what_was_read(subtests: pytest.Subtests) -> None:
    for seed in range(24):
        with subtests.test(seed=seed):
            drawn = chance(seed)
            world = world_of(drawn)
            rules = ({}, {"exclude._ip": "10.0.0.1,10.0.0.2", "total_shards_per_node": "2"})[seed % 2]
            next(iter(world.indices.values())).rules = rules
            wanted = replace(drawn.wanted, gates=(), merge=None)
            started, seen = read(world, wanted)
            made = glance(mirrored(started, seen, seed=0), started)
            assert isinstance(seen.cluster, ClusterView)
            assert isinstance(made.cluster, ClusterView)
            assert lasting(made.cluster) == lasting(seen.cluster)
            assert [(n.host, n.address) for n in made.cluster.nodes] == [
                (n.host, n.address) for n in seen.cluster.nodes
            ]
            assert (made.settings, made.activity, made.health) == (seen.settings, seen.activity, seen.health)
            assert (made.hosts.keys(), made.tuning) == (seen.hosts.keys(), seen.tuning)


def test_a_mirror_of_riak_shows_what_was_read(subtests: pytest.Subtests) -> None:
    for seed in range(FIRST, FIRST + 24):
        with subtests.test(seed=seed):
            drawn = chance_riak(seed)
            started, seen = read(riak_world_of(drawn), replace(drawn.wanted, gates=()))
            made = glance(mirrored(started, seen, seed=0), started)
            assert isinstance(seen.cluster, ClusterView)
            assert isinstance(made.cluster, ClusterView)
            assert made.cluster.riak == seen.cluster.riak
            assert lasting(made.cluster) == lasting(seen.cluster)
            assert made.settings == seen.settings


def _riak(world: World) -> RiakView:
    view = views.cluster(world)
    assert view.riak is not None
    return view.riak


def test_what_is_wrong_with_a_ring_is_in_its_mirror() -> None:
    world = ringed()
    node = world.nodes[THREE]
    node.process, node.member_life = False, None
    world.vnodes[THREE].running = 0
    world.fall_back(0, TWO)
    OwnershipMoves(to=FOUR, partitions=2, seconds=1e9).on_ring(world)
    made = mirror(world, riak_policy())
    assert isinstance(made, RiakWorld)
    was, now = _riak(world), _riak(made)
    assert not isinstance(was.cluster, Unknown)
    assert not isinstance(now.cluster, Unknown)
    assert now.cluster.members == was.cluster.members
    assert made.moves, "an exchange, which changes no share"
    assert isinstance(was.transfers, dict)
    assert isinstance(now.transfers, dict)
    assert list(now.transfers.values()) == list(was.transfers.values())
    assert THREE not in made.up


def test_partitions_that_change_their_owner_are_mirrored() -> None:
    world = ringed()
    numbers = [number for number, owner in enumerate(world.ring.owners) if owner == ONE][:2]
    world.moves = [SimMove(partition=number, to=FOUR, since=world.agenda.now) for number in numbers]
    made = mirror(world, riak_policy())
    assert isinstance(made, RiakWorld)
    assert [(made.ring.owners[move.partition], move.to) for move in made.moves] == [(ONE, FOUR)] * 2
    assert _riak(made).cluster == _riak(world).cluster


def test_hand_offs_that_wait_come_to_their_end() -> None:
    world = ringed()
    world.fall_back(0, TWO)
    made = mirror(world, riak_policy())
    assert isinstance(made, RiakWorld)
    assert len(made.fallbacks) == 1
    made.agenda.advance(120.0)
    assert made.fallbacks == []


def test_a_copy_on_its_way_begins_anew_and_arrives() -> None:
    world = cluster()
    shard = next(iter(world.indices.values())).shards[0]
    replica = next(copy for copy in shard.copies if not copy.primary)
    seen, view = _view()
    copies = tuple(
        c._replace(state=CopyState.INITIALIZING) if c.allocation_id == replica.allocation_id else c
        for c in view.copies
    )
    world_of_it = _mirrored(seen, copies=copies)
    assert sum(not copy.started for copy in views.cluster(world_of_it).copies) == 1
    world_of_it.agenda.advance(600.0)
    assert all(copy.started for copy in views.cluster(world_of_it).copies)


def test_a_snapshot_that_runs_ends_some_time() -> None:
    world = cluster()
    world.begin_snapshot("repository/nightly")
    made = mirror(world, policy())
    assert made.snapshots == ("repository/nightly",)
    made.agenda.advance(3600.0)
    assert made.snapshots == ()


def test_hosts_gates_and_kernels_are_as_they_were_read() -> None:
    world = cluster()
    gate = CommandGate(name="queue", run="true", folder="/")
    wanted = policy(gates=(gate,))
    started, seen = read(world, wanted)
    silent = NodeName("es2")
    said: Reading[GateView]
    for state, said in (
        (GateState.UNREADABLE, Unknown(reason="no answer")),
        (GateState.CLOSED, GateView(open=False, evidence="7")),
        (GateState.OPEN, GateView(open=True, evidence="0")),
    ):
        made = mirrored(started, replace(seen, gates={"queue": said}), seed=0)
        assert made.gates["queue"].state is state
    away = replace(seen, hosts={**seen.hosts, silent: Unknown(reason="no route")})
    made = mirrored(started, away, seed=0)
    assert [name for name, node in made.nodes.items() if node.unreachable_until > 0.0] == [silent]


@pytest.mark.parametrize("part", ["cluster", "settings", "activity", "disks"])
def test_what_is_unknown_cannot_be_rehearsed(part: str) -> None:
    started, seen = read(cluster(), policy())
    unread = replace(seen, **{part: Unknown(reason="503 no master")})
    with pytest.raises(UsageError, match=r"cannot be rehearsed: .* could not be read: 503 no master"):
        mirrored(started, unread, seed=0)


def test_nor_can_a_ring_that_is(subtests: pytest.Subtests) -> None:
    for part in ["ring", "n_vals", "cluster", "waiting"]:
        with subtests.test(part=part):
            started, seen = read(ringed(), riak_policy())
            assert isinstance(seen.cluster, ClusterView)
            riak = replace(_riak(ringed()), **{part: Unknown(reason="cut off")})
            with pytest.raises(UsageError, match=r"cannot be rehearsed: .* could not be read: cut off"):
                mirrored(started, replace(seen, cluster=replace(seen.cluster, riak=riak)), seed=0)


def _mirrored(seen: Observation, **of_view: object) -> World:
    """The mirror of a reading of three nodes, whose view of the cluster is changed."""
    assert isinstance(seen.cluster, ClusterView)
    changed = replace(seen, cluster=replace(seen.cluster, **of_view))
    return mirrored(started_on(cluster(), policy()), changed, seed=0)


def _view() -> tuple[Observation, ClusterView]:
    seen = read(cluster(), policy())[1]
    assert isinstance(seen.cluster, ClusterView)
    return seen, seen.cluster


def test_a_voter_that_is_away_counts_as_it_does_for_the_run() -> None:
    seen, view = _view()
    voters = {*(view.voters or ()), "away-1", "away-2"}
    made = _mirrored(seen, voters=frozenset(voters))
    shown = glance(made, started_on(cluster(), policy())).cluster
    assert isinstance(shown, ClusterView)
    assert (shown.voters, len(shown.nodes)) == (voters, len(view.nodes))
    assert {name for name, node in made.nodes.items() if not node.process} == {"away-1", "away-2"}


def test_clones_of_an_image_are_machines_and_one_address_is_one() -> None:
    seen, view = _view()
    first, second, third, *_ = (node.name for node in view.nodes)
    hosts = {
        name: replace(host, machine_id="image") if isinstance(host, HostView) else host
        for name, host in seen.hosts.items()
    }
    made = _mirrored(replace(seen, hosts=hosts))
    assert len({node.machine for node in made.nodes.values()}) == len(made.nodes)
    del hosts[third]  # it is not of the run, and was not asked
    address = view.members[second].address
    nodes = tuple(replace(node, address=address) if node.name == third else node for node in view.nodes)
    made = _mirrored(replace(seen, hosts=hosts), nodes=nodes)
    assert made.nodes[second].machine == made.nodes[third].machine != made.nodes[first].machine


def test_the_aftermath_leaves_out_what_others_set() -> None:
    world = cluster()
    world.set(Level.PERSISTENT, "a.b", "1")
    before = settings(world)
    assert aftermath(world, before).not_as_found == ()
    world.set(Level.PERSISTENT, "a.b", "2")
    world.set(Level.TRANSIENT, "c", "3")
    world.nodes[NodeName("es1")].process = False
    left = aftermath(world, before)
    assert left.not_as_found == ("a.b: was 1, is 2", "c: was not set, is 3")
    assert left.down == (NodeName("es1"),)
    world.meddle(Level.TRANSIENT, "c", "3")
    assert aftermath(world, before).not_as_found == ("a.b: was 1, is 2",)
    assert aftermath(world, before).by_others == ("c: was not set, is 3",)


def test_the_aftermath_of_a_ring_tells_of_limits() -> None:
    world = ringed()
    before = settings(world)
    world.set(Level.TRANSIENT, f"transfer_limit.{FOUR}", "8")
    assert aftermath(world, before).not_as_found == (f"transfer_limit.{FOUR}: was 2, is 8",)
    world.meddle(Level.TRANSIENT, f"transfer_limit.{FOUR}", "8")
    assert aftermath(world, before).not_as_found == ()


def test_a_run_on_0_90_withholds_replicas_by_a_flag() -> None:
    """A rehearsal too: the world that is made of a reading of such a cluster has its ways."""
    made = mirror(aged(cluster(), OF_0_90, "0.90.13"), policy())
    assert (made.ways, ALLOCATION in made.files) == (OF_0_90, False)
    sent = Scene(name="0.90", of=lambda: made).play().sent(WriteSettings)
    written = [change for each in sent if isinstance(each, WriteSettings) for change in each.changes]
    flag = SettingChange(level=Level.PERSISTENT, key=FLAGS["primaries"], found=None, wanted="true")
    assert flag in [replace(change, found=None) for change in written]
    assert ALLOCATION not in {change.key for change in written}
    assert None not in {change.wanted for change in written}


# What the world is judged by, and no view shows -----------------------------------------------------------


def test_a_mirror_is_judged_by_what_the_run_may_do(subtests: pytest.Subtests) -> None:
    together, by_place = (TWO, THREE), by_sets(zone_attribute="location")
    pair = partial(located, together)
    for of, wanted, attribute, value in (
        (pair, riak_policy(), "allowed_down", 1),
        (pair, by_location(), "allowed_down", 2),
        (pair, by_place, "allowed_down", 2),
        (pair, by_place, "across_zones", False),
        (unlocated, by_sets(), "across_zones", True),
        (unlocated, by_sets(), "allowed_down", 2),  # a third
        (unlocated, by_sets(max_unavailable=1), "allowed_down", 1),
        (unlocated, by_sets(max_unavailable=5), "allowed_down", 5),
        (partial(unlocated, 3), by_sets(), "allowed_down", 1),
        (unlocated, by_place, "allowed_down", 1),
        (cluster, policy(max_unavailable=1), "allowed_down", 1),
        (cluster, policy(max_unavailable=2), "allowed_down", 2),
        (cluster, policy(max_unavailable=None), "allowed_down", 3),
        (cluster, policy(accept_red=frozenset({"logs"})), "exempt_indices", {"logs"}),
        *((cluster, policy(accept_master_outage=yes), "may_lose_master", yes) for yes in (True, False)),
        *(
            (cluster, policy(strategy=each, zone_attribute="zone"), "one_machine", each is Strategy.NODE)
            for each in Strategy
        ),
    ):
        with subtests.test(attribute=attribute, value=value):
            assert getattr(mirror(of(), wanted), attribute) == value


def test_who_is_excluded_from_voting_is_so_by_others() -> None:
    made = _mirrored(_view()[0], voting_exclusions=(ES1,))
    assert (made.excluded_by_others, made.exclusions) == ({ES1}, [ES1])


def test_a_copy_that_failed_too_often_is_not_tried_again() -> None:
    seen, view = _view()
    replica = next(copy for copy in view.copies if not copy.primary)
    recovery = Recovery(
        shard=replica.shard,
        target=ES1,
        source=None,
        stage="done",
        bytes_total=12345,
        bytes_reused=0,
        bytes_copied=12345,
        operations_replayed=0,
        done=True,
    )
    copies = tuple(each._replace(failed_attempts=5) for each in view.copies)
    made = _mirrored(replace(seen, recoveries=(recovery,)), copies=copies)
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
    world.nodes[ES1].unreachable_until = float("inf")
    Fate(world).befall(mishaps.HostCutOff(node=ES1, seconds=90.0))
    assert world.nodes[ES1].unreachable_until == float("inf")


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
