"""Merging as the simulated cluster does it, and what its judge must notice, with no program at work."""

from __future__ import annotations

import pytest

from orchestrator.model.action import (
    Done,
    ForceMerge,
    InDoubt,
    RefreshIndex,
    Refused,
    SetIndexSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import BulkIndex, BulkView
from orchestrator.model.observation import EVERYTHING, Level
from orchestrator.model.reading import Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import allocation, merges, mishaps, segments
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation import index_mishaps, node_mishaps, program_mishaps
from tests.simulation.loaded import SIZE, index_of, left_behind, loaded, merged_policy, merging

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
COPY_SECONDS = SIZE / (50 << 20)


def begun(world: World, *trips: Trip, plan: tuple[Mishap, ...] = (), **changes: object) -> Simulation:
    """A run that merges has begun, and has looked twice; its verbs are the test's."""
    simulation = Simulation(world, trips=trips, plan=plan)
    simulation.begin(merged_policy(merging(**changes)))
    look(simulation)
    look(simulation)
    return simulation


def look(simulation: Simulation, *, seconds: float = 5.0) -> BulkView:
    """Some time later, everything is read."""
    simulation.world.agenda.advance(seconds)
    simulation.cluster.observe(EVERYTHING)
    read = simulation.cluster.bulk(tuple(simulation.world.indices))
    assert isinstance(read, BulkView), read
    return read


def force(name: str = "posts-1", *, most: int = 5) -> ForceMerge:
    return ForceMerge(index=name, index_uuid=f"{name}-uuid", max_segments=most)


def of(read: BulkView, name: str = "posts-1") -> BulkIndex:
    return read.indices[f"{name}-uuid"]


def counts(read: BulkView, name: str = "posts-1") -> list[int]:
    return [copy.segments for copy in of(read, name).copies]


def said(simulation: Simulation) -> str:
    return "; ".join(simulation.world.violations)


def test_two_copies_never_have_the_same_segments() -> None:
    found = counts(look(begun(loaded())))
    assert len(found) == 4
    assert len({*found}) > 1
    assert min(found) >= 20


def test_one_copy_at_a_time_is_merged_on_a_node() -> None:
    simulation = begun(loaded())
    assert simulation.cluster.perform(force()) == Done()
    assert of(look(simulation)).merging == 3, "es2 has two copies"
    read = look(simulation, seconds=COPY_SECONDS)
    assert (of(read).merging, of(read).tasks) == (1, 1)
    assert sorted(counts(read))[:3] == [5, 5, 5]
    assert max(counts(read)) >= 20
    read = look(simulation, seconds=COPY_SECONDS)
    assert (of(read).merging, of(read).tasks) == (0, 0)
    assert counts(read) == [5] * 4
    assert not said(simulation)


def test_a_merge_outlives_its_caller() -> None:
    simulation = begun(loaded(), Trip(verb="force_merge", how=How.UNACKNOWLEDGED))
    assert isinstance(simulation.cluster.perform(force()), InDoubt)
    assert counts(look(simulation, seconds=3 * COPY_SECONDS)) == [5] * 4


@pytest.mark.parametrize("how", [How.LOST, How.REFUSED])
def test_one_that_is_lost_merges_nothing(how: How) -> None:
    simulation = begun(loaded(), Trip(verb="force_merge", how=how))
    assert simulation.cluster.perform(force()) != Done()
    assert of(look(simulation)).tasks == 0


def test_one_that_is_done_late_is_judged_by_what_runs_then() -> None:
    simulation = begun(loaded(), Trip(verb="force_merge", how=How.LATE, late=14.0))
    assert isinstance(simulation.cluster.perform(force()), InDoubt)
    assert of(look(simulation, seconds=1.0)).tasks == 0
    simulation.cluster.perform(force())
    assert not said(simulation)
    assert of(look(simulation, seconds=10.0)).tasks == 2
    assert "posts-1 is merged twice at a time" in said(simulation)


def test_searches_see_a_merge_after_a_refresh() -> None:
    simulation = begun(left_behind(loaded()))
    simulation.cluster.perform(force())
    assert min(counts(look(simulation, seconds=3 * COPY_SECONDS))) >= 20
    simulation.cluster.perform(RefreshIndex(index="posts-1", index_uuid="posts-1-uuid"))
    assert counts(look(simulation)) == [5] * 4


def test_a_node_that_dies_leaves_its_copies_unmerged() -> None:
    world = loaded()
    simulation = begun(world)
    simulation.cluster.perform(force())
    world.agenda.advance(5.0)
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=5.0))
    read = look(simulation, seconds=3 * COPY_SECONDS)
    by_node = {copy.node: copy.segments for copy in of(read).copies}
    assert (by_node[ES1], by_node[ES3]) == (5, 5)
    assert by_node[ES2] >= 20
    assert of(read).tasks == 0


@pytest.mark.parametrize("found", [True, False], ids=["found without a place", "lost during the run"])
def test_a_copy_without_a_place_is_excused_only_if_found_so(*, found: bool) -> None:
    world = loaded()
    simulation = begun(world)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "none")
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=5.0))
    world.agenda.advance(60.0)
    if found:
        simulation = begun(world)
    simulation.cluster.perform(force())
    world.agenda.advance(3 * COPY_SECONDS)
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    allocation.reroute(world)
    world.agenda.advance(600.0)
    simulation.cluster.perform(RefreshIndex(index="posts-1", index_uuid="posts-1-uuid"))
    assert (merges.unmerged(world, "posts-1-uuid", 5) == []) is found


def test_where_a_started_copy_does_not_answer_nothing_is_known() -> None:
    world = loaded()
    simulation = begun(world)
    world.detection_seconds = 60.0
    simulation.fate.befall(mishaps.NodeDies(node=ES2))
    read = simulation.cluster.bulk(tuple(world.indices))
    assert isinstance(read, Unknown)
    assert "es2" in read.reason


def test_a_copy_made_from_a_peer_has_the_segments_of_the_peer() -> None:
    world = loaded(replicas=0)
    simulation = begun(world)
    simulation.cluster.perform(force())
    world.agenda.advance(3 * COPY_SECONDS)
    wanted = SetIndexSettings(
        index="posts-1", index_uuid="posts-1-uuid", found={}, wanted={"index.number_of_replicas": "1"}
    )
    simulation.cluster.perform(wanted)
    read = look(simulation, seconds=120.0)
    assert counts(read) == [5] * 4
    assert of(read).replicas == 1


def test_a_copy_that_replays_operations_gets_a_few_segments_more() -> None:
    world = loaded()
    index = index_of(world, "posts-1")
    shard = index.shards[0]
    before = segments.searched(world, index, shard, ES2)
    segments.recovered(world, shard, ES2, ES1, copied=False, operations=4000)
    assert segments.searched(world, index, shard, ES2) == before + 2
    segments.recovered(world, shard, ES2, ES1, copied=True, operations=0)
    assert segments.searched(world, index, shard, ES2) == segments.searched(world, index, shard, ES1)


def test_writes_add_segments_and_move_counters() -> None:
    simulation = begun(loaded())
    before = of(look(simulation))
    assert of(look(simulation)).writes == before.writes
    simulation.fate.befall(index_mishaps.WriterBegins(index="posts-1", seconds=60.0))
    after = of(look(simulation, seconds=45.0))
    assert after.writes.operations > before.writes.operations
    assert after.writes.sequence is not None
    assert before.writes.sequence is not None
    assert after.writes.sequence > before.writes.sequence
    assert after.segments == before.segments + 2
    still = of(look(simulation, seconds=60.0)).writes
    assert of(look(simulation)).writes == still


def test_a_restart_sets_the_operations_back_and_not_the_sequence() -> None:
    world = loaded()
    simulation = begun(world)
    simulation.fate.befall(index_mishaps.WriterBegins(index="posts-1", seconds=5.0))
    before = of(look(simulation, seconds=30.0)).writes
    for node in (ES1, ES2, ES3):
        simulation.fate.befall(mishaps.NodeDies(node=node, back_after=1.0))
        world.agenda.advance(60.0)
    after = of(look(simulation)).writes
    assert after.operations < before.operations
    assert after.sequence == before.sequence


def test_settings_of_after_the_load_are_set() -> None:
    simulation = begun(left_behind(loaded()))
    wanted = {"index.refresh_interval": None, "index.translog.durability": "request"}
    action = SetIndexSettings(index="posts-1", index_uuid="posts-1-uuid", found={}, wanted=wanted)
    assert of(look(simulation)).refresh_interval == "-1"
    simulation.cluster.perform(action)
    read = of(look(simulation))
    assert (read.refresh_interval, read.translog_durability) == (None, "request")


def test_an_index_that_is_gone_or_closed_is_not_in_the_reading() -> None:
    simulation = begun(loaded())
    simulation.cluster.perform(force("posts-1"))
    simulation.cluster.perform(force("posts-2"))
    simulation.fate.befall(index_mishaps.IndexDeleted(index="posts-1", made_again=True))
    simulation.fate.befall(index_mishaps.IndexClosed(index="posts-2"))
    read = look(simulation)
    assert "posts-1-uuid" not in read.indices, "the one of that name is another one"
    assert "posts-1-uuid-1" in read.indices
    assert "posts-2-uuid" not in read.indices
    assert merges.running(simulation.world) == []
    assert isinstance(simulation.cluster.perform(force("posts-2")), Refused)
    assert simulation.cluster.perform(force("posts-9")) == Done(), "what is gone needs no merge"


def test_a_node_whose_merge_was_lost_goes_on_with_the_next() -> None:
    """What waited behind a merge of an index that was closed was told by no reading, and waited on."""
    simulation = begun(loaded())
    world = simulation.world
    simulation.cluster.perform(force("posts-1"))
    simulation.fate.befall(index_mishaps.MergedByOthers(index="posts-2", max_segments=5))
    simulation.fate.befall(index_mishaps.IndexClosed(index="posts-1"))
    assert of(look(simulation, seconds=0.1), "posts-2").merging == len({*merges.at_work(world)}) > 0
    look(simulation, seconds=4 * COPY_SECONDS)
    assert merges.running(world) == []


def test_a_disk_that_is_full_keeps_its_copies_as_they_are() -> None:
    world = loaded()
    simulation = begun(world)
    merges.fill(world, ES2, 0.9999, 3600.0)
    simulation.cluster.perform(force())
    by_node = {copy.node: copy.segments for copy in of(look(simulation, seconds=90.0)).copies}
    assert by_node[ES2] >= 20
    assert by_node[ES1] == 5


def test_a_merge_takes_room_while_it_goes_on() -> None:
    world = loaded()
    simulation = begun(world)
    before = merges.room(world, ES2)
    simulation.cluster.perform(force())
    world.agenda.advance(1.0)
    assert before - merges.room(world, ES2) == pytest.approx(SIZE, rel=0.01)
    world.agenda.advance(3 * COPY_SECONDS)
    assert merges.room(world, ES2) == before


def test_without_a_task_list_only_merges_under_way_are_told() -> None:
    world = loaded()
    world.forced.task_list = False
    simulation = begun(world)
    simulation.cluster.perform(force())
    read = of(look(simulation))
    assert (read.tasks, read.tasks_known, read.under_way) == (0, False, True)


def test_without_a_task_list_the_answer_comes_when_it_has_ended() -> None:
    world = loaded()
    world.forced.task_list = False
    simulation = begun(world)
    assert isinstance(simulation.cluster.perform(force()), InDoubt)
    look(simulation, seconds=3 * COPY_SECONDS)
    assert simulation.cluster.perform(force()) == Done(), "there was nothing left to do"


def test_old_readings_tell_of_the_tasks_of_now() -> None:
    simulation = begun(loaded())
    simulation.fate.befall(program_mishaps.StaleReadings(seconds=100.0))
    simulation.cluster.perform(force())
    read = of(look(simulation, seconds=COPY_SECONDS + 1.0))
    assert read.tasks == 1
    assert {copy.segments >= 20 for copy in read.copies} == {True}


@pytest.mark.parametrize(("first", "second"), [(0.87, 0.93), (0.93, 0.87), (0.93, 0.93)])
def test_a_disk_that_fills_twice_at_a_time_is_cleared_of_both(first: float, second: float) -> None:
    simulation = begun(loaded())
    world = simulation.world
    found = merges.used(world, ES2)
    simulation.fate.befall(node_mishaps.DiskFills(node=ES2, share=first, seconds=600.0))
    world.agenda.advance(100.0)
    simulation.fate.befall(node_mishaps.DiskFills(node=ES2, share=second, seconds=600.0))
    assert merges.used(world, ES2) == max(first, second)
    world.agenda.advance(550.0)
    assert merges.used(world, ES2) == second
    world.agenda.advance(100.0)
    assert merges.used(world, ES2) == found


def test_the_end_is_judged_by_every_copy() -> None:
    simulation = begun(loaded())
    simulation.cluster.perform(force())
    world = simulation.world
    world.agenda.advance(COPY_SECONDS + 5.0)
    found = merges.unmerged(world, "posts-1-uuid", 5)
    assert len(found) == 1
    assert "on es2" in found[0]


def test_a_copy_that_was_away_during_the_merge_is_no_fault() -> None:
    simulation = begun(loaded())
    world = simulation.world
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=20.0))
    world.agenda.advance(5.0)
    simulation.cluster.perform(force())
    world.agenda.advance(3 * COPY_SECONDS + 60.0)
    index = world.indices["posts-1-uuid"]
    kept = [shard.segments[ES2].count for shard in index.shards if ES2 in shard.segments]
    assert max(kept) > 5, "it came back with what it had"
    assert merges.unmerged(world, index.uuid, 5) == []
    back = merges.unmerged(world, index.uuid, 5, away=True)
    assert len(back) == sum(count > 5 for count in kept), "they are known apart"


def test_a_copy_that_arrives_during_the_merge_is_to_be_merged() -> None:
    simulation = begun(loaded())
    world = simulation.world
    index = index_of(world, "posts-1")
    allocation.stall(world, 30.0)
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=5.0))
    world.agenda.advance(20.0)
    simulation.cluster.perform(force())
    world.agenda.advance(3 * COPY_SECONDS)
    assert "es2" in "; ".join(merges.unmerged(world, index.uuid, 5))


def test_targets_have_too_many_segments_or_are_being_merged() -> None:
    world = loaded()
    simulation = begun(world)
    simulation.cluster.perform(force())
    world.agenda.advance(3 * COPY_SECONDS)
    simulation.fate.befall(index_mishaps.MergedByOthers(index="posts-2", max_segments=1))
    world.agenda.advance(COPY_SECONDS + 1.0)
    other = simulation.elsewhere("run-2")
    state = other.begin(merged_policy())
    due = {one.target.index: one.target.due for one in state.merging.indices.values()}
    assert due == {"posts-1": False, "posts-2": True, "posts-3": True}
