"""What the simulated world does and tells, with no program at work: indices, merges, rings, old versions.

Each script tells what is in `tests/data/worlds.txt`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from orchestrator.model.action import Flush, RefreshIndex, Refused, RunInstall, SetIndexSettings
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import Activity, ClusterView, Level, Look
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import (
    ClusterStatus,
    Membership,
    PartitionCount,
    RiakView,
    SignsOfLife,
    Transfers,
)
from orchestrator.riak.rules.quorum import breaches
from orchestrator.simulation import (
    allocation,
    installs,
    machines,
    membership,
    merges,
    mishaps,
    riak_mishaps,
    segments,
    views,
)
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.facts import Fact
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.ways import Ways
from orchestrator.simulation.world import World
from tests.fakes.riak_rings import claimed
from tests.simulation import index_mishaps, nights, node_mishaps, program_mishaps, shrink
from tests.simulation.chance import Chance, by_chance, chance
from tests.simulation.loaded import SIZE, index_of, left_behind, loaded, merged_policy
from tests.simulation.old import OF_0_90, OF_1_4, OF_1_7, aged
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation
from tests.simulation.ringed import FIVE, FOUR, TWO, ringed
from tests.simulation.scene import ES1, ES2, ES3
from tests.simulation.script import (
    Script,
    Step,
    Tells,
    answer,
    forced,
    given,
    merge,
    on_cluster,
    read,
    same_as_recorded,
    start,
    stop,
    withhold,
)
from tests.simulation.upgrading import STEPS, TARGET, wanted

RECORDED: Final = Path(__file__).parents[1] / "data/worlds.txt"


def begun(with_policy: Policy, simulation: Simulation) -> None:
    simulation.begin(with_policy)


def world_of(do: Callable[[World], object]) -> Step:
    """Something that is done to the world."""
    return lambda simulation: do(simulation.world)


def said_of(tell: Callable[[World], object]) -> Tells:
    return Tells(lambda simulation: tell(simulation.world))


def after(seconds: float, *tells: Tells) -> Sequence[Step]:
    """So much later everything is read, and this is told."""
    return (seconds, read, *tells)


# Indices and nodes --------------------------------------------------------------------------------------


def _copies(name: str, world: World) -> str:
    """Where its copies are, or why they are nowhere."""
    found = (index for index in world.indices.values() if index.name == name)
    told = [
        f"{'primary' if copy.primary else 'replica'} {copy.state.value} on {copy.node}"
        if copy.state is not CopyState.UNASSIGNED
        else f"{'primary' if copy.primary else 'replica'} nowhere, {copy.reason}"
        for index in found
        for shard in index.shards
        for copy in sorted(shard.copies, key=lambda copy: not copy.primary)
    ]
    return f"{name}: {', '.join(told)}"


def copies_of(name: str) -> Tells:
    return said_of(partial(_copies, name))


def node_of(name: NodeName) -> Tells:
    def tell(world: World) -> str:
        node = world.nodes[name]
        there = f"{'joined' if node.joined else 'away'}, {'runs' if node.process else 'is down'}"
        return f"{name}: {there}, life {node.life}, {node.node_id} in {node.zone}; master {world.master}"

    return Tells(lambda simulation: tell(simulation.world))


def meddled(value: str | None) -> Step:
    return world_of(lambda world: world.meddle(Level.PERSISTENT, ALLOCATION, value))


def _copied_anew(world: World) -> str:
    to_es3 = [one for one in world.recoveries if one.target == ES3]
    whole = sum(one.reused == 0 and one.total > 0 for one in to_es3)
    return f"{whole} of {len(to_es3)} copies on es3 were made anew"


def plain(name: str, *steps: Step) -> Script:
    """A run has begun on three nodes, and disabled allocation."""
    return Script(name, *steps, begins=partial(begun, policy()), ready=(withhold,))


_REOPENED: Final = index_mishaps.IndexReopened(index="archive", seconds=5.0)
_BOUNCE: Final = (stop(ES3), 10.0, start(ES3))
# fmt: off
WORLDS: Final = (
    # Seen on 8.19: the primary comes, its replica waits; one begun under `none` has failed for good.
    plain("restores under primaries and none as on real nodes",
        index_mishaps.IndexRestored(name="first", seconds=10.0), 1.0, copies_of("first"), 60.0,
        copies_of("first"), meddled("none"), index_mishaps.IndexRestored(name="second", seconds=10.0),
        meddled(None), 60.0, copies_of("first"), copies_of("second")),
    # Seen on 8.19: its primary comes back from its disk even under `none`, its replica does not.
    plain("an index that is closed and opened as on real nodes",
        meddled("none"), index_mishaps.IndexReopened(index="archive", seconds=20.0), 10.0,
        copies_of("archive"), 20.0, copies_of("archive"), meddled(None), 30.0, copies_of("archive")),
    # The cluster refuses it: "Cannot close indices that are being restored".
    plain("an index is not closed while it is being restored",
        index_mishaps.IndexRestoredOver(index="archive", seconds=30.0), 1.0, _REOPENED,
        index_mishaps.IndexRestoredOver(index="archive", seconds=600.0), copies_of("archive"), 60.0,
        copies_of("archive"), _REOPENED, 2.0, said_of(lambda world: world.indices["archive-uuid"].closed)),
    Script("a node that flaps comes back without a restart",
        node_mishaps.NodeFlaps(node=ES3, seconds=5.0), node_of(ES3), 6.0, node_of(ES3),
        node_mishaps.NodeFlaps(node=ES1, seconds=5.0), 4.0, node_of(ES1), ready=()),
    Script("a node with an empty disk has another id and new copies",
        node_mishaps.DiskLost(node=ES3), node_mishaps.ReturnsChanged(node=ES3, zone="d"), *_BOUNCE, 200.0,
        node_of(ES3), copies_of("logs"), said_of(_copied_anew), ready=()),
    Script("a life that ends by itself ends as often as was drawn",
        node_mishaps.DiesAgain(node=ES3, times=2, after=1.0, back_after=3.0), *_BOUNCE, 100.0, node_of(ES3),
        ready=()),
)
# fmt: on

# Merges -------------------------------------------------------------------------------------------------

COPY: Final = SIZE / (50 << 20)
"""Seconds in which one copy is merged, and all of an index."""
ALL: Final = 3 * COPY


def _bulk(name: str, simulation: Simulation) -> BulkIndex | str:
    found = simulation.cluster.bulk(tuple(simulation.world.indices))
    if isinstance(found, Unknown):
        return found.reason
    return next((one for one in found.indices.values() if one.name == name), f"{name} is not read")


def segments_of(name: str) -> Tells:
    def tell(simulation: Simulation) -> str:
        one = _bulk(name, simulation)
        if isinstance(one, str):
            return one
        counts = ", ".join(f"{copy.node} {copy.segments}" for copy in one.copies)
        tasks = f"{one.tasks} tasks" if one.tasks_known else f"tasks unknown, under way {one.under_way}"
        return f"{one.uuid}, {one.replicas} replicas: {counts}; {one.merging} merging, {tasks}"

    return Tells(tell)


def _load(name: str, simulation: Simulation) -> str:
    one = _bulk(name, simulation)
    assert isinstance(one, BulkIndex)
    refresh = f"refresh {one.refresh_interval}, translog {one.translog_durability}"
    return f"{name}: {one.writes.operations} operations, sequence {one.writes.sequence}, {refresh}"


def unmerged(world: World) -> str:
    """Copies of `posts-1` with too many segments, and those that were away when it was merged."""
    uuid = index_of(world, "posts-1").uuid
    there, away = (merges.unmerged(world, uuid, 5, away=away) for away in (False, True))
    return f"unmerged: {there}, away meanwhile: {away}"


def _set_index(name: str, **wanted: str | None) -> Step:
    named = {f"index.{key}": value for key, value in wanted.items()}
    return on_cluster(SetIndexSettings(index=name, index_uuid=f"{name}-uuid", found={}, wanted=named))


def _recovered(world: World, *, copied: bool, operations: int) -> None:
    shard = index_of(world, "posts-1").shards[0]
    segments.recovered(world, shard, ES2, ES1, copied=copied, operations=operations)


def _withheld(value: str) -> Step:
    return world_of(lambda world: (world.set(Level.PERSISTENT, ALLOCATION, value), allocation.reroute(world)))


def _begun_again(simulation: Simulation) -> None:
    """Another run begins, and looks twice."""
    other = Simulation(simulation.world)
    other.begin(merged_policy())
    for _ in range(2):
        other.world.agenda.advance(5.0)
        read(other)


def _due(simulation: Simulation) -> str:
    """By index, whether another run would merge it."""
    merging = simulation.elsewhere("run-2").begin(merged_policy()).merging
    return ", ".join(f"{one.target.index} {one.target.due}" for one in merging.indices.values())


def _without_task_list() -> World:
    world = loaded()
    world.forced.task_list = False
    return world


def of_a_load(
    name: str, *steps: Step, of: Callable[[], World] = loaded, trips: Sequence[Trip] = ()
) -> Script:
    """A run that merges has begun, and has looked twice."""
    ready = (*after(5.0), *after(5.0))
    begins = partial(begun, merged_policy())
    return Script(f"merging: {name}", *steps, of=of, trips=trips, begins=begins, ready=ready)


POSTS, POSTS_2, LOAD = segments_of("posts-1"), segments_of("posts-2"), Tells(partial(_load, "posts-1"))
UNMERGED, RUNNING = said_of(unmerged), said_of(lambda world: f"{len(merges.running(world))} merges run")
ROOM: Final = said_of(lambda world: f"room on es2: {merges.room(world, ES2) >> 20} MiB")
USED: Final = said_of(lambda world: f"used of es2: {merges.used(world, ES2):.3f}")
REFRESH: Final = on_cluster(RefreshIndex(index="posts-1", index_uuid="posts-1-uuid"))
DIES: Final = mishaps.NodeDies(node=ES2, back_after=5.0)
# fmt: off
MERGES: Final = (
    of_a_load("two copies never have the same segments", *after(5.0, POSTS)),
    of_a_load("one copy at a time is merged on a node, and es2 has two",
        answer(forced()), *after(5.0, POSTS), *after(COPY, POSTS), *after(COPY, POSTS)),
    of_a_load("it outlives its caller", answer(forced()), *after(ALL, POSTS),
        trips=[Trip(verb="force_merge", how=How.UNACKNOWLEDGED)]),
    *(
        of_a_load(f"one that is {how.name} merges nothing", answer(forced()), *after(5.0, POSTS),
            trips=[Trip(verb="force_merge", how=how)])
        for how in (How.LOST, How.REFUSED)
    ),
    of_a_load("one that is done late is judged by what runs then",
        answer(forced()), *after(1.0, POSTS), merge(), *after(10.0, POSTS),
        trips=[Trip(verb="force_merge", how=How.LATE, late=14.0)]),
    of_a_load("searches see it after a refresh",
        merge(), *after(ALL, POSTS), REFRESH, *after(5.0, POSTS), of=lambda: left_behind(loaded())),
    of_a_load("a node that dies leaves its copies unmerged", merge(), 5.0, DIES, *after(ALL, POSTS)),
    *(
        of_a_load(f"a copy without a place is excused only if found so, {bool(found)}",
            _withheld("none"), DIES, 60.0, *found, merge(), ALL, _withheld("all"), 600.0, REFRESH, UNMERGED)
        for found in ([], [_begun_again])
    ),
    of_a_load("where a started copy does not answer nothing is known",
        given(detection_seconds=60.0), mishaps.NodeDies(node=ES2), POSTS),
    of_a_load("a copy made from a peer has the segments of the peer",
        merge(), ALL, _set_index("posts-1", number_of_replicas="1"), *after(120.0, POSTS),
        of=partial(loaded, replicas=0)),
    of_a_load("a copy that replays operations gets a few segments more",
        POSTS, world_of(partial(_recovered, copied=False, operations=4000)), POSTS,
        world_of(partial(_recovered, copied=True, operations=0)), POSTS),
    of_a_load("writes add segments and move counters",
        *after(5.0, LOAD), *after(5.0, LOAD, POSTS),
        index_mishaps.WriterBegins(index="posts-1", seconds=60.0), *after(45.0, LOAD, POSTS),
        *after(60.0, LOAD), *after(5.0, LOAD)),
    of_a_load("a restart sets the operations back and not the sequence",
        index_mishaps.WriterBegins(index="posts-1", seconds=5.0), *after(30.0, LOAD),
        *(step for node in (ES1, ES2, ES3) for step in (mishaps.NodeDies(node=node, back_after=1.0), 60.0)),
        *after(5.0, LOAD)),
    of_a_load("settings of after the load are set",
        LOAD, _set_index("posts-1", refresh_interval=None, **{"translog.durability": "request"}),
        *after(5.0, LOAD), of=lambda: left_behind(loaded())),
    of_a_load("an index that is gone or closed is not in the reading, and what is gone needs no merge",
        merge("posts-1"), merge("posts-2"), index_mishaps.IndexDeleted(index="posts-1", made_again=True),
        index_mishaps.IndexClosed(index="posts-2"), *after(5.0, POSTS, POSTS_2), RUNNING,
        answer(forced("posts-2")), answer(forced("posts-9"))),
    # What waited behind a merge of an index that was closed was told by no reading, and waited on.
    of_a_load("a node whose merge was lost goes on with the next",
        merge("posts-1"), index_mishaps.MergedByOthers(index="posts-2", max_segments=5),
        index_mishaps.IndexClosed(index="posts-1"), *after(0.1, POSTS_2),
        said_of(lambda world: sorted({*merges.at_work(world)})), *after(4 * COPY), RUNNING),
    of_a_load("a disk that is full keeps its copies as they are",
        world_of(lambda world: merges.fill(world, ES2, 0.9999, 3600.0)), merge(), *after(90.0, POSTS)),
    of_a_load("it takes room while it goes on", ROOM, merge(), 1.0, ROOM, ALL, ROOM),
    of_a_load("without a task list only merges under way are told, and the answer comes at the end",
        answer(forced()), *after(5.0, POSTS), *after(ALL, POSTS), answer(forced()), of=_without_task_list),
    of_a_load("old readings tell of the tasks of now",
        program_mishaps.StaleReadings(seconds=100.0), merge(), *after(COPY + 1.0, POSTS)),
    *(
        of_a_load(f"a disk that fills twice at a time is cleared of both, {one} then {other}",
            USED, node_mishaps.DiskFills(node=ES2, share=one, seconds=600.0), 100.0,
            node_mishaps.DiskFills(node=ES2, share=other, seconds=600.0), USED, 550.0, USED, 100.0, USED)
        for one, other in ((0.87, 0.93), (0.93, 0.87), (0.93, 0.93))
    ),
    of_a_load("its end is judged by every copy", merge(), COPY + 5.0, UNMERGED),
    of_a_load("a copy that was away during it is no fault",
        mishaps.NodeDies(node=ES2, back_after=20.0), 5.0, merge(), ALL + 60.0, POSTS, UNMERGED),
    of_a_load("a copy that arrives during it is to be merged",
        world_of(lambda world: allocation.stall(world, 30.0)), DIES, 20.0, merge(), ALL, UNMERGED),
    of_a_load("targets have too many segments or are being merged",
        merge(), ALL, index_mishaps.MergedByOthers(index="posts-2", max_segments=1), COPY + 1.0, Tells(_due)),
)
# fmt: on

# Rings --------------------------------------------------------------------------------------------------


def _riak(world: World) -> RiakView:
    view = views.readings(world, set(Look)).cluster
    assert isinstance(view, ClusterView)
    assert view.riak is not None
    return view.riak


def _counts(counts: Sequence[PartitionCount]) -> str:
    return ", ".join(f"{count.node} {count.partitions}" for count in counts) or "none"


def transfers(world: World) -> str:
    """As the first node that is up tells of them."""
    assert isinstance(world, RiakWorld)
    said = _riak(world).transfers
    assert isinstance(said, dict)
    of_one = said[min(world.up)]
    assert isinstance(of_one, Transfers)
    waits = f"waiting {_counts(of_one.waiting)}; not running {_counts(of_one.not_running)}"
    return (
        f"{waits}; {len(of_one.active)} active; down {[*of_one.down]}; {'' if of_one.clean else 'not '}clean"
    )


def ring(world: World) -> str:
    """What changes its owner, and what is true of the ring."""
    assert isinstance(world, RiakWorld)
    status = _riak(world).cluster
    assert isinstance(status, ClusterStatus)
    owned = ", ".join(f"{name} {count}" for name, count in sorted(Counter(world.ring.owners).items()))
    wrong = [name for name in world.vnodes if breaches(world.ring, {3}, {name}) or not world.serves(name)]
    ready = status.ring_ready
    claimant = f"claimant {world.master}, up {ready is not None}, ready {ready}"
    return f"{len(world.moves)} pending; owners {owned}; {claimant}; breached or silent {wrong}"


def handed(world: World) -> str:
    assert isinstance(world, RiakWorld)
    active = sum(each.active for each in world.fallbacks)
    most = world.most_at_once.get(FOUR)
    return f"{world.handed} handed off, {len(world.fallbacks)} fallbacks, {active} active, at most {most}"


def _joining(world: World) -> str:
    status = _riak(world).cluster
    assert isinstance(status, ClusterStatus)
    return f"joining {[each.node for each in status.members if each.membership is Membership.JOINING]}"


def _service(world: World) -> str:
    """As a peer sees it, and as it is."""
    assert isinstance(world, RiakWorld)
    world.asked_after = frozenset({TWO})
    world.version += 1
    signs = _riak(world).signs[TWO]
    assert isinstance(signs, SignsOfLife)
    return f"serves {world.serves(TWO)}, up by a peer {signs.service.up}"


def machine(do: Callable[..., object], name: NodeName) -> Step:
    return world_of(lambda world: do(world, world.nodes[name]))


def _transferring(world: World) -> None:
    assert world.agenda.until(lambda: " 0 active" not in transfers(world), 120.0)


def _judged(world: World) -> None:
    """By the ring's truth, whatever the program was told."""
    assert isinstance(world, RiakWorld)
    world.last_read = world.agenda.now
    world.agenda.advance(1.0)
    world.judge_stop(world.nodes[FOUR])


def of_a_ring(name: str, *steps: Step, of: Callable[[], World] = ringed) -> Script:
    return Script(f"riak: {name}", *steps, of=of, ready=())


TRANSFERS, RING, HANDED = said_of(transfers), said_of(ring), said_of(handed)
DOWN, UP = machine(machines.stop, FOUR), machine(machines.start, FOUR)
moves = partial(riak_mishaps.OwnershipMoves, to=TWO)
# fmt: off
RINGS: Final = (
    of_a_ring("no transfer is active while a node is down", given(written=False), DOWN, 60.0, TRANSFERS),
    # It has fallbacks of its own; it is idle for less than a minute; and then the limit of its files counts.
    of_a_ring("a node that is back climbs, waits and takes back",
        DOWN, 30.0, TRANSFERS, UP, 15.0, TRANSFERS, 30.0, TRANSFERS, 40.0, TRANSFERS, 60.0, TRANSFERS,
        HANDED),
    of_a_ring("a node that dies in a hand-off breaks it off",
        DOWN, 10.0, UP, world_of(_transferring), machine(machines.die, FOUR), HANDED, 120.0, HANDED),
    # Where its own lie too close, one for one moves beside it.
    of_a_ring("partitions that move are told of until they have",
        RING, moves(partitions=2, seconds=30.0), RING, 25.0, RING, 60.0, RING),
    of_a_ring("a partition does not move while an owner is down",
        moves(partitions=1, seconds=5.0), machine(machines.stop, TWO), 300.0, RING,
        machine(machines.start, TWO), 300.0, RING),
    of_a_ring("a member that joins gets its share",
        riak_mishaps.MemberJoins(node=NodeName("riak@new"), seconds=20.0), said_of(_joining), 20.1, RING,
        300.0, RING),
    of_a_ring("a stall ends no hand-off and then all",
        DOWN, 20.0, UP, riak_mishaps.HandoffStalls(seconds=500.0), 400.0, HANDED, 300.0, HANDED),
    of_a_ring("a service that no peer sees is no stopped vnode",
        riak_mishaps.ServiceNeverUp(node=TWO), machine(machines.restart, TWO), 60.0, said_of(_service)),
    of_a_ring("the claimant that moves is asked from then on",
        RING, riak_mishaps.ClaimantMoves(to=FIVE), RING),
    of_a_ring("a stop beside partitions that move is judged",
        moves(partitions=1, seconds=900.0), 10.0, world_of(_judged), of=lambda: RiakWorld(claimed(5, 64))),
)
# fmt: on

# Old versions, as seen on real clusters (`tests/conformance`) -------------------------------------------

COUNTED: Final = Ways(voting_by_count=True)


def ended(*names: NodeName) -> Sequence[Step]:
    """Their processes end, and half a minute passes."""

    def end(world: World) -> None:
        for name in names:
            membership.process_ended(world, world.nodes[name], clean=True)

    return (world_of(end), 30.0)


def rose(name: NodeName) -> Sequence[Step]:
    return (machine(membership.process_began, name), 30.0)


def old(ways: Ways, *, quorum: str = "2", **made: object) -> Callable[[], World]:
    """Three nodes of such a generation; an index of one shard: its primary on es1, its replica on es2."""

    def make() -> World:
        world = aged(cluster(), ways, "0.90.13", quorum=quorum)
        world.add_index("posts", places=[ES1, ES2], **made)
        return world

    return make


def _voters(world: World) -> str:
    view = views.cluster(world)
    return f"by count {view.voting_by_count}: {sorted(view.voters or ())}; master {world.master}"


def _shown(world: World) -> str:
    """Why its replica is unassigned, as readings have it, and whether they list copies in sync."""
    view = views.cluster(world)
    index = next(each for each in view.indices if each.name == "posts")
    why = [c.unassigned_reason for c in view.copies if c.shard.index == "posts" and not c.primary]
    return f"{_copies('posts', world)}; read as {why}, in sync listed {index.in_sync is not None}"


def _lost_at_a_restart(world: World) -> None:
    """Both copies are only on disks, and that of es2 missed something; it is the first that is found."""
    shard = index_of(world, "posts").shards[0]
    for copy in shard.copies:
        copy.state, copy.node, copy.reason = CopyState.UNASSIGNED, None, "CLUSTER_RECOVERED"
    shard.on_disk = dict(reversed(shard.on_disk.items()))
    assert list(shard.on_disk) == ["es2", "es1"]
    shard.missed_since[ES2] = world.agenda.now
    allocation.reroute(world)


def _index_flag(value: str | None) -> Step:
    def do(world: World) -> None:
        index_of(world, "posts").allocation_enable = value
        allocation.reroute(world)

    return world_of(do)


def _snapshots(ways: Ways, by_state: bool, simulation: Simulation) -> str:  # noqa: FBT001  (a case)
    """Those that a reading lists, where it goes by the cluster state or not."""
    simulation.world.begin_snapshot("repository/nightly")
    port = simulation.cluster
    assert port.reads_state_for_snapshots() is ways.snapshots_in_state, "by the table of versions"
    port.reads_state_for_snapshots = partial(bool, by_state)
    activity = port.observe((Look.ACTIVITY,)).activity
    assert isinstance(activity, Activity)
    return str([each.name for each in activity.snapshots])


def _written(value: bool) -> Step:  # noqa: FBT001
    return world_of(lambda world: setattr(index_of(world, "posts-1"), "written", value))


def _merged_without_commit(world: World) -> None:
    segments.merged_without_commit(world, index_of(world, "posts-1"), 2)


def of_a_version(name: str, *steps: Step, of: Callable[[], World]) -> Script:
    return Script(f"old: {name}", *steps, of=of, ready=())


POSTS_0, VOTERS = said_of(_shown), said_of(_voters)
OF_2: Final = replace(OF_1_7, snapshots_in_state=True)
LOADED_1_4: Final = partial(loaded, indices=1)
# fmt: off
OLD: Final = (
    *(
        of_a_version(f"before 7 as many nodes elect as a setting says, {quorum}",
            *ended(ES2), VOTERS, *ended(ES3), VOTERS, *rose(ES2), VOTERS, of=old(COUNTED, quorum=quorum))
        for quorum in ("2", "1")
    ),
    of_a_version("before 7 every node that may be elected votes",
        VOTERS, given(ways=COUNTED), world_of(membership.reconfigure), VOTERS, of=partial(cluster, 4)),
    *(
        of_a_version(f"before 1 a new primary has a flag of its own: {flag}",
            world_of(lambda world, flag=flag: world.set(Level.PERSISTENT, flag, "true")),
            world_of(lambda world: world.create_index("new")), 30.0, copies_of("new"), of=old(OF_0_90))
        for flag in (FLAGS["primaries"], FLAGS["none"], DISABLE_NEW, ALLOCATION)
    ),
    *(
        of_a_version(f"before 5 a copy that missed writes becomes primary, {in_sync=}",
            world_of(lambda world: world.set(Level.PERSISTENT, ALLOCATION, "primaries")),
            *ended(ES2), *rose(ES2), *ended(ES1), POSTS_0,
            of=old(Ways(voting_by_count=True, in_sync=in_sync), written=True))
        for in_sync in (False, True)
    ),
    of_a_version("before 5 the latest of the copies becomes primary",
        world_of(_lost_at_a_restart), POSTS_0, of=old(Ways(voting_by_count=True, in_sync=False))),
    of_a_version("before 1 an index has flags of its own",
        _index_flag("none"), *ended(ES2), POSTS_0, _index_flag(None), POSTS_0, of=old(OF_0_90)),
    *(
        of_a_version(f"before 1.7 a copy is made anew at once, {delays=}",
            *ended(ES2), POSTS_0, of=old(Ways(voting_by_count=True, delays=delays)))
        for delays in (False, True)
    ),
    *(
        of_a_version(f"before 2 the cluster state lists no snapshot: {version}, {by_state=}",
            Tells(partial(_snapshots, ways, by_state)),
            of=lambda ways=ways, version=version: aged(cluster(), ways, version))
        for version, ways in (("1.7.6", OF_1_7), ("2.4.6", OF_2))
        for by_state in (True, False)
    ),
    *(
        of_a_version(f"before 1.6 a restart loses a merge without a commit, {keeps=}, {written=}",
            POSTS, world_of(_merged_without_commit), POSTS, _written(written), on_cluster(Flush()),
            _written(False), world_of(lambda world: world.set(Level.PERSISTENT, ALLOCATION, "primaries")),
            *ended(ES2), *rose(ES2), _withheld("all"), 30.0, POSTS, copies_of("posts-1"),
            of=lambda keeps=keeps: aged(LOADED_1_4(), replace(OF_1_4, keeps_merges=keeps), "1.4.5"))
        for keeps, written in ((False, False), (False, True), (True, False))
    ),
    # By default it flushes at its end, so that a restarted node has the merged segments.
    of_a_version("before 1.6 the call of a force-merge commits",
        world_of(_merged_without_commit), POSTS,
        world_of(lambda world: merges.begin(world, index_of(world, "posts-1"), 5, ours=True)), POSTS,
        of=lambda: aged(LOADED_1_4(), OF_1_4, "1.4.5")),
)
# fmt: on


def test_the_world_does_and_tells_what_is_recorded() -> None:
    assert same_as_recorded((*WORLDS, *MERGES, *RINGS, *OLD), RECORDED)


# Guests -----------------------------------------------------------------------------------------------


def test_a_guest_runs_while_the_host_waits_one_thread_at_a_time() -> None:
    agenda, told = Agenda(start=0.0), list[tuple[str, float]]()

    def guest() -> None:
        for _ in range(3):
            agenda.advance(4.0)
            told.append(("guest", agenda.now))

    invited = agenda.invite(guest)
    agenda.after(5.0, lambda: told.append(("world", agenda.now)))
    agenda.advance(6.0)
    told.append(("host", agenda.now))
    assert told == [("guest", 4.0), ("world", 5.0), ("host", 6.0)]
    assert agenda.until(lambda: invited.over, 100.0)
    assert told[3:] == [("guest", 8.0), ("guest", 12.0)]
    assert agenda.now == 12.0


def test_a_guest_is_sent_home_and_its_failure_is_kept() -> None:
    agenda = Agenda(start=0.0)

    def fails() -> None:
        agenda.advance(1.0)
        raise ValueError("wrong")

    failing, staying = agenda.invite(fails), agenda.invite(lambda: agenda.advance(1e9))
    agenda.advance(10.0)
    assert isinstance(failing.failure, ValueError)
    assert not staying.over
    agenda.dismiss()
    assert staying.over
    assert staying.failure is None


# The draws -------------------------------------------------------------------------------------------


def test_a_third_of_the_seeds_each_is_plain_ordinary_and_worse() -> None:
    before = [chance(seed, ordinary=False) for seed in range(300)]
    drawn = [by_chance(one) for one in before]
    same = sum(one == other for one, other in zip(drawn, before, strict=True))
    ordinary = sum(one.ordinary for one in drawn)
    assert 70 < same < 130
    assert 70 < ordinary < 130
    for one in drawn:
        if one.ordinary:
            assert all(isinstance(mishap.what, nights.ORDINARY_KINDS) for mishap in one.plan)
            assert one.wanted.timeout is None
        else:
            assert one.wanted == before[one.seed].wanted


def test_a_failing_run_is_shrunk_to_what_it_fails_of() -> None:
    """By a rule of the test's own: what is left is needed, all of it."""
    kinds = ("NodeFlaps", "SnapshotBegun")
    seed = next(
        seed
        for seed in range(2000)
        if set(kinds) <= {type(mishap.what).__name__ for mishap in chance(seed).plan}
        and len(chance(seed).plan) > 5
    )

    def breaks(drawn: Chance) -> str | None:
        found = {type(mishap.what).__name__ for mishap in drawn.plan}
        return "both" if set(kinds) <= found else None

    shortest = shrink.shrunk(chance(seed), breaks=breaks)
    assert sorted(type(mishap.what).__name__ for mishap in shortest.plan) == sorted(kinds)
    assert (shortest.trips, shortest.crashes, shortest.jitter) == ((), (), 0.0)
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink.shrunk(replace(chance(seed), plan=()), breaks=breaks)


def test_a_shrunk_run_is_printed_as_a_test() -> None:
    mishap = Mishap(what=node_mishaps.NodeFlaps(node=ES3, seconds=5.0), verb="stop", target="es2")
    drawn = replace(chance(1), plan=(mishap,), trips=(Trip(verb="stop", how=How.LOST),), crashes=(3, 4))
    text = shrink.scene(drawn)
    assert "plan=(Mishap(what=NodeFlaps(node='es3', seconds=5.0), verb='stop', target='es2'),)," in text
    assert "trips=(Trip(verb='stop', how=How.LOST),)," in text
    assert "crashes=(3, 4,)," in text
    compile(text, "scene", "exec")


# Installs -----------------------------------------------------------------------------------------------


def test_run_install_that_arrives_beside_a_start_is_refused() -> None:
    """On a host it asks the service manager, for which a start under way counts as running."""
    world = cluster(3)
    node = world.nodes[ES1]
    machines.stop(world, node)
    world.agenda.advance(30.0)
    machines.start(world, node)
    step = RunInstall(node=ES1, number=0, step=STEPS[0], ticket="r/es1/0/1", target=TARGET)
    assert not node.process
    assert installs.begin(world, node, step) == Refused(reason="its service runs", passes=True)


def test_a_step_that_others_left_out_is_no_lack_of_this_run() -> None:
    """Their run ended after the first of two steps: the version is the target's, and this run says so."""
    node = cluster(3).nodes[ES2]
    node.version, node.began = TARGET, 2.0
    node.facts.append(Fact(at=1.0, what="installed 0", alive=False, by="run-of-another"))
    asked = policy(upgrade=wanted())
    assert len(STEPS) == 2
    assert installs.lacking(node, asked, 0.0) == ["install step 1 never ran on es2"]
    assert installs.lacking(node, asked, 0.0, by_others=True) == []
