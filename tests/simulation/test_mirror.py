"""A simulated cluster that is made of a reading is like the one that was read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.errors import UsageError
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.gate import CommandGate, GateView
from orchestrator.model.observation import ClusterView, HostView, Level
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.riak import RiakView
from orchestrator.simulation import views
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.glance import glance
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.parts import GateState
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_mishaps import OwnershipMoves
from orchestrator.simulation.world import World
from tests.simulation.chance import chance, world_of
from tests.simulation.chance_riak import FIRST, chance_riak
from tests.simulation.chance_riak import world_of as riak_world_of
from tests.simulation.play import cluster, policy
from tests.simulation.readings import mirror, read, started_on
from tests.simulation.ringed import (
    FOUR,
    THREE,
    TWO,
    by_location,
    by_sets,
    located,
    riak_policy,
    ringed,
    unlocated,
)


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
    for seed in range(60):
        with subtests.test(seed=seed):
            drawn = chance(seed)
            world = world_of(drawn)
            wanted = replace(drawn.wanted, gates=(), merge=None)
            started, seen = read(world, wanted)
            made = glance(mirrored(started, seen, seed=0), started)
            assert isinstance(seen.cluster, ClusterView)
            assert isinstance(made.cluster, ClusterView)
            assert lasting(made.cluster) == lasting(seen.cluster)
            assert (made.settings, made.activity, made.health) == (seen.settings, seen.activity, seen.health)
            assert (made.hosts.keys(), made.tuning) == (seen.hosts.keys(), seen.tuning)


def test_a_mirror_of_riak_shows_what_was_read(subtests: pytest.Subtests) -> None:
    for seed in range(FIRST, FIRST + 60):
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
    assert now.ring_status == replace_unheard(was, now)
    assert isinstance(was.transfers, dict)
    assert isinstance(now.transfers, dict)
    assert list(now.transfers.values()) == list(was.transfers.values())
    assert now.cluster == was.cluster or THREE not in made.up
    assert THREE not in made.up


def replace_unheard(was: RiakView, now: RiakView) -> object:
    """A ring that was just changed is ready a few seconds later: the mirror begins with it heard of."""
    assert not isinstance(was.ring_status, Unknown)
    assert not isinstance(now.ring_status, Unknown)
    return replace(was.ring_status, ring_ready=now.ring_status.ring_ready)


def test_hand_offs_that_wait_come_to_their_end() -> None:
    world = ringed()
    world.fall_back(0, TWO)
    made = mirror(world, riak_policy())
    assert isinstance(made, RiakWorld)
    assert len(made.fallbacks) == 1
    made.agenda.advance(120.0)
    assert made.fallbacks == []


def test_as_many_nodes_of_a_location_may_be_down_as_there_are() -> None:
    together = (TWO, THREE)
    assert mirror(located(together), riak_policy()).allowed_down == 1
    assert mirror(located(together), by_location()).allowed_down == len(together)
    sets = by_sets(zone_attribute="location")
    assert mirror(located(together), sets).allowed_down == len(together)
    assert not mirror(located(together), sets).across_zones


@pytest.mark.parametrize(("budget", "allowed"), [(None, 2), (1, 1), (5, 5)])
def test_without_locations_a_third_may_be_down(budget: int | None, allowed: int) -> None:
    made = mirror(unlocated(), by_sets(max_unavailable=budget))
    assert (made.allowed_down, made.across_zones) == (allowed, True)
    assert mirror(unlocated(3), by_sets()).allowed_down == 1
    assert mirror(unlocated(), by_sets(zone_attribute="location", max_unavailable=None)).allowed_down == 1


def test_a_copy_on_its_way_begins_anew_and_arrives() -> None:
    world = cluster()
    shard = next(iter(world.indices.values())).shards[0]
    replica = next(copy for copy in shard.copies if not copy.primary)
    seen = read(world, policy())[1]
    assert isinstance(seen.cluster, ClusterView)
    copies = tuple(
        c._replace(state=CopyState.INITIALIZING) if c.allocation_id == replica.allocation_id else c
        for c in seen.cluster.copies
    )
    world_of_it = mirrored(
        started_on(world, policy()), replace(seen, cluster=replace(seen.cluster, copies=copies)), seed=0
    )
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
    for part in ["ring", "n_vals", "members", "transfers", "ring_status"]:
        with subtests.test(part=part):
            started, seen = read(ringed(), riak_policy())
            assert isinstance(seen.cluster, ClusterView)
            riak = replace(_riak(ringed()), **{part: Unknown(reason="cut off")})
            with pytest.raises(UsageError, match=r"cannot be rehearsed: .* could not be read: cut off"):
                mirrored(started, replace(seen, cluster=replace(seen.cluster, riak=riak)), seed=0)


def test_an_index_that_may_be_red_is_exempt_as_it_is_for_the_run() -> None:
    started, seen = read(cluster(), policy(accept_red=frozenset({"logs"})))
    assert mirrored(started, seen, seed=0).exempt_indices == {"logs"}


def test_a_voter_that_is_away_counts_as_it_does_for_the_run() -> None:
    started, seen = read(cluster(), policy())
    assert isinstance(seen.cluster, ClusterView)
    assert seen.cluster.voters is not None
    voters = {*seen.cluster.voters} | {"away-1", "away-2"}
    view = replace(seen.cluster, voters=frozenset(voters))
    made = mirrored(started, replace(seen, cluster=view), seed=0)
    shown = glance(made, started).cluster
    assert isinstance(shown, ClusterView)
    assert (shown.voters, len(shown.nodes)) == (voters, len(view.nodes))
    assert {name for name, node in made.nodes.items() if not node.process} == {"away-1", "away-2"}


def test_clones_of_an_image_are_machines_and_one_address_is_one() -> None:
    started, seen = read(cluster(), policy())
    assert isinstance(seen.cluster, ClusterView)
    first, second, third, *_ = (node.name for node in seen.cluster.nodes)
    hosts = {
        name: replace(host, machine_id="image") if isinstance(host, HostView) else host
        for name, host in seen.hosts.items()
    }
    made = mirrored(started, replace(seen, hosts=hosts), seed=0)
    assert len({node.machine for node in made.nodes.values()}) == len(made.nodes)
    del hosts[third]  # it is not of the run, and was not asked
    address = seen.cluster.members[second].address
    nodes = tuple(
        replace(node, address=address) if node.name == third else node for node in seen.cluster.nodes
    )
    view = replace(seen.cluster, nodes=nodes)
    made = mirrored(started, replace(seen, cluster=view, hosts=hosts), seed=0)
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
    assert left.not_as_found == ("a.b: was 1, is 2", "c: was absent, is 3")
    assert left.down == (NodeName("es1"),)
    world.meddle(Level.TRANSIENT, "c", "3")
    assert aftermath(world, before).not_as_found == ("a.b: was 1, is 2",)
    assert aftermath(world, before).by_others == ("c: was absent, is 3",)


def test_the_aftermath_of_a_ring_tells_of_limits() -> None:
    world = ringed()
    before = settings(world)
    world.set(Level.TRANSIENT, f"transfer_limit.{FOUR}", "8")
    assert aftermath(world, before).not_as_found == (f"transfer_limit.{FOUR}: was 2, is 8",)
    world.meddle(Level.TRANSIENT, f"transfer_limit.{FOUR}", "8")
    assert aftermath(world, before).not_as_found == ()
