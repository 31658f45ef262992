"""What simulated clusters of old versions do differently, as seen on real ones (`tests/conformance`)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from orchestrator.model.action import Flush, SettingChange, WriteSettings
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import Activity, Level, Look
from orchestrator.model.phase import Outcome
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import allocation, membership, merges, segments, views
from orchestrator.simulation.aftermath import aftermath, settings
from orchestrator.simulation.bulk import bulk
from orchestrator.simulation.mirror import mirrored
from orchestrator.simulation.parts import SimIndex, SimShard
from orchestrator.simulation.ways import Ways
from orchestrator.simulation.world import World
from tests.simulation.loaded import index_of, loaded
from tests.simulation.old import OF_0_90, OF_1_4, OF_1_7, aged
from tests.simulation.play import cluster, policy, run
from tests.simulation.readings import read

SNAPSHOT, FEW = "repository/nightly", 2
REPLICAS, EVERYTHING = FLAGS["primaries"], FLAGS["none"]


def _old(ways: Ways, *, quorum: str = "2") -> World:
    """Three nodes of such a generation."""
    return aged(cluster(), ways, "0.90.13", quorum=quorum)


def _stop(world: World, *names: str) -> None:
    for name in names:
        membership.process_ended(world, world.nodes[NodeName(name)], clean=True)
    world.agenda.advance(30.0)


def _start(world: World, name: str) -> None:
    membership.process_began(world, world.nodes[NodeName(name)])
    world.agenda.advance(30.0)


def _posts(world: World, **made: bool) -> tuple[SimIndex, SimShard]:
    """An index of one shard: its primary on es1, its replica on es2."""
    index = world.add_index("posts", places=["es1", "es2"], **made)
    return index, index.shards[0]


@pytest.mark.parametrize(("quorum", "elected"), [("2", False), ("1", True)])
def test_before_7_as_many_nodes_elect_as_a_setting_says(quorum: str, elected: bool) -> None:  # noqa: FBT001  (a case)
    world = _old(Ways(voting_by_count=True), quorum=quorum)
    _stop(world, "es2")
    assert world.master is not None
    shown = views.cluster(world)
    assert shown.voting_by_count
    assert shown.voters == {"id-es1", "id-es3"}
    _stop(world, "es3")
    assert (world.master is not None) is elected
    _start(world, "es2")
    assert world.master is not None


def test_before_1_a_new_primary_has_a_flag_of_its_own(subtests: pytest.Subtests) -> None:
    for flag, primary, replica in [
        (REPLICAS, CopyState.STARTED, CopyState.UNASSIGNED),
        (EVERYTHING, CopyState.STARTED, CopyState.UNASSIGNED),
        (DISABLE_NEW, CopyState.UNASSIGNED, CopyState.UNASSIGNED),
        (ALLOCATION, CopyState.STARTED, CopyState.STARTED),
    ]:
        with subtests.test(flag=flag):
            world = _old(OF_0_90)
            world.set(Level.PERSISTENT, flag, "true")
            world.create_index("new")
            world.agenda.advance(30.0)
            made = next(index for index in world.indices.values() if index.name == "new").shards[0]
            assert [copy.state for copy in made.copies] == [primary, replica]


def test_before_5_a_copy_that_missed_writes_becomes_primary(subtests: pytest.Subtests) -> None:
    for in_sync, state in ((False, CopyState.STARTED), (True, CopyState.UNASSIGNED)):
        with subtests.test(in_sync=in_sync):
            world = _old(Ways(voting_by_count=True, in_sync=in_sync))
            world.set(Level.PERSISTENT, ALLOCATION, "primaries")
            _, shard = _posts(world, written=True)
            _stop(world, "es2")
            _start(world, "es2")
            _stop(world, "es1")
            assert shard.primary.state is state
            listed = next(index for index in views.cluster(world).indices if index.name == "posts").in_sync
            assert (listed is not None) is in_sync


def test_before_5_the_latest_of_the_copies_becomes_primary() -> None:
    world = _old(Ways(voting_by_count=True, in_sync=False))
    _, shard = _posts(world)
    for copy in shard.copies:
        copy.state, copy.node, copy.reason = CopyState.UNASSIGNED, None, "CLUSTER_RECOVERED"
    shard.on_disk = dict(reversed(shard.on_disk.items()))
    assert list(shard.on_disk) == ["es2", "es1"]
    shard.missed_since[NodeName("es2")] = world.agenda.now
    allocation.reroute(world)
    assert shard.primary.node == "es1"


def test_before_7_every_node_that_may_be_elected_votes() -> None:
    world = cluster(4)
    assert len(world.voters) == 3
    world.ways = Ways(voting_by_count=True)
    membership.reconfigure(world)
    assert views.cluster(world).voters == {"id-es1", "id-es2", "id-es3", "id-es4"}


def test_before_1_an_index_has_flags_of_its_own() -> None:
    world = _old(OF_0_90)
    index, shard = _posts(world)
    index.allocation_enable = "none"
    _stop(world, "es2")
    replica = next(copy for copy in shard.copies if not copy.primary)
    assert replica.state is CopyState.UNASSIGNED
    shown = [c for c in views.cluster(world).copies if c.shard == shard.id and not c.primary]
    assert [copy.unassigned_reason for copy in shown] == [None]
    index.allocation_enable = None
    allocation.reroute(world)
    assert replica.node == "es3"


def test_before_1_7_a_copy_is_made_anew_at_once(subtests: pytest.Subtests) -> None:
    for delays, node, reason in ((False, "es3", None), (True, None, "NODE_LEFT")):
        with subtests.test(delays=delays):
            world = _old(Ways(voting_by_count=True, delays=delays))
            _, shard = _posts(world)
            _stop(world, "es2")
            replica = next(copy for copy in shard.copies if not copy.primary)
            assert replica.node == node
            shown = [c for c in views.cluster(world).copies if c.shard == shard.id and not c.primary]
            assert [copy.unassigned_reason for copy in shown] == [reason]


def test_a_run_on_0_90_withholds_replicas_by_a_flag() -> None:
    """A rehearsal too: the world that is made of a reading of such a cluster has its ways."""
    started, seen = read(_old(OF_0_90), policy())
    mirror = mirrored(started, seen, seed=0)
    assert mirror.ways == OF_0_90
    assert ALLOCATION not in mirror.files
    before = settings(mirror)
    simulation, state = run(mirror)
    assert state.outcome is Outcome.DONE, state.message
    assert mirror.violations == []
    sent = [action for action in simulation.cluster.sent if isinstance(action, WriteSettings)]
    written = [change for action in sent for change in action.changes]
    assert SettingChange(level=Level.PERSISTENT, key=REPLICAS, found=None, wanted="true") in [
        replace(change, found=None) for change in written
    ]
    assert ALLOCATION not in {change.key for change in written}
    assert None not in {change.wanted for change in written}
    assert aftermath(mirror, before).not_as_found == ()


def test_before_2_the_cluster_state_lists_no_snapshot(subtests: pytest.Subtests) -> None:
    of_2 = replace(OF_1_7, snapshots_in_state=True)
    for version, ways, by_state in (
        ("1.7.6", OF_1_7, True),
        ("1.7.6", OF_1_7, False),
        ("2.4.6", of_2, True),
        ("2.4.6", of_2, False),
    ):
        with subtests.test(version=version, by_state=by_state):
            world = aged(cluster(), ways, version)
            world.begin_snapshot(SNAPSHOT)
            port = Simulation(world).cluster
            assert port.reads_state_for_snapshots() is ways.snapshots_in_state, "by the table of versions"
            port.reads_state_for_snapshots = partial(bool, by_state)
            activity = port.observe((Look.ACTIVITY,)).activity
            assert isinstance(activity, Activity)
            listed = ways.snapshots_in_state or not by_state
            assert [each.name for each in activity.snapshots] == ([SNAPSHOT] if listed else [])


def test_before_1_6_a_restart_loses_a_merge_without_a_commit(subtests: pytest.Subtests) -> None:
    for ways, write, kept in (
        (OF_1_4, False, False),
        (OF_1_4, True, True),
        (replace(OF_1_4, keeps_merges=True), False, True),
    ):
        with subtests.test(keeps=ways.keeps_merges, write=write):
            world = aged(loaded(indices=1), ways, "1.4.5")
            index = index_of(world, "posts-1")
            shard, place = index.shards[0], NodeName("es2")
            loaded_with = segments.searched(world, index, shard, place)
            segments.merged_without_commit(world, index, FEW)
            assert segments.searched(world, index, shard, place) == FEW
            index.written = write
            Simulation(world).cluster.perform(Flush())
            index.written = False
            world.set(Level.PERSISTENT, ALLOCATION, "primaries")
            _stop(world, place)
            _start(world, place)
            world.set(Level.PERSISTENT, ALLOCATION, "all")
            allocation.reroute(world)
            world.agenda.advance(30.0)
            assert len(shard.started) == len(shard.copies)
            assert segments.searched(world, index, shard, place) == (FEW if kept else loaded_with)


def test_before_1_6_the_call_of_a_force_merge_commits() -> None:
    """By default it flushes at its end, so that a restarted node has the merged segments."""
    world = aged(loaded(indices=1), OF_1_4, "1.4.5")
    index = index_of(world, "posts-1")
    segments.merged_without_commit(world, index, FEW)
    assert _most(world, index) >= 20
    merges.begin(world, index, 5, ours=True)
    assert _most(world, index) == FEW


def _most(world: World, index: SimIndex) -> int:
    read = bulk(world, (index.uuid,))
    assert isinstance(read, BulkView)
    return read.indices[index.uuid].segments
