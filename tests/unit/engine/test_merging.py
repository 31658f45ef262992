"""Merging indices: begun within limits, never twice at a time, counted on every copy, held by its rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.changes import from_record
from orchestrator.engine.kinds.predicates import Predicate
from orchestrator.merging.rules import MERGE_RULES, OWN_RULES
from orchestrator.merging.settling import left_behind
from orchestrator.model.action import Flush, ForceMerge, RefreshIndex, SetIndexSettings
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy
from orchestrator.model.event import Requested, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeDue, MergeWarned
from orchestrator.model.merging import BulkView, LoaderSettings, Writes
from orchestrator.model.observation import ClusterView, LeaseView
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.model.policy import DisabledPredicate
from orchestrator.model.reading import Unknown
from orchestrator.runs.simulated import Simulation
from orchestrator.view.progress import half_done, left_to_do
from tests.simulation.play import cluster, policy
from tests.unit.engine.merge_steps import POSTS, WANTED
from tests.unit.engine.merging_play import MEGABYTE, Play, index, play


def _held_by(run: Play) -> str:
    """The rule by which the run gave up; it must have."""
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.HELD
    assert run.merges == []
    return run.given_up.reason


def _through(run: Play, *names: str) -> None:
    """Let these merges end as they are asked for, one after the other."""
    for count, name in enumerate(names, start=1):
        run.until_sent(count)
        run.step()
        run.merged(name)


def test_an_index_is_merged_once_refreshed_and_counted() -> None:
    run = play(index("posts"))
    _through(run, "posts")
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]
    merged = [event for event in run.events if isinstance(event, IndexMerged)]
    assert [(each.index, each.segments) for each in merged] == [("posts", 5)]
    assert set(merged[0].incarnations) == {f"es{number}" for number in range(1, 7)}
    sent = [type(action) for action in run.sent]
    assert sent.index(RefreshIndex) < sent.index(Flush)


def test_nothing_is_asked_for_while_every_index_has_few_segments() -> None:
    run = play(index("posts", segments=5))
    run.until(Phase.FINISHING)
    assert run.merges == []
    assert [event for event in run.events if isinstance(event, MergeBegun | IndexMerged)] == []


def test_a_merge_that_runs_is_not_asked_for_again() -> None:
    run = play(index("posts"))
    run.until_sent()
    for _ in range(50):
        run.step()
    assert run.merges == ["posts"]


def test_a_new_process_takes_the_merge_that_runs_for_its_own() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.resumed()
    for _ in range(50):
        run.step()
    assert run.merges == ["posts"]
    run.merged("posts")
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]


def test_a_new_process_takes_a_merge_that_has_ended_as_done() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.merged("posts")
    run.resumed()
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]


def test_what_neither_runs_nor_has_ended_is_asked_for_again() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.change("posts", tasks=0)
    run.resumed()
    run.until_sent(2)
    assert run.merges == ["posts", "posts"]


@pytest.mark.parametrize("heard", [True, False])
def test_a_new_process_waits_for_what_the_dead_one_sent_last(*, heard: bool) -> None:
    """As long as a process waits for what it has sent itself: a node that stood still takes it up late."""
    run = play(index("posts"))
    if not heard:
        run.failing[ForceMerge] = ("read timed out", True)
    run.until_sent()
    run.failing.clear()
    run.change("posts", tasks=0)
    run.resumed()
    resumed_at = run.now
    run.until_sent(2)
    assert run.now - resumed_at >= 30.0


def test_a_new_process_looks_for_writes_before_it_asks_again() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.change("posts", tasks=0)
    run.resumed()
    run.until(Phase.MERGING)
    run.step()
    looked_at = run.now
    run.until_sent(2)
    assert run.now - looked_at >= 5.0


def test_a_merge_in_doubt_is_looked_for_before_it_is_sent_again() -> None:
    run = play(index("posts"))
    run.failing[ForceMerge] = ("the connection was lost", True)
    run.until_sent()
    run.failing.clear()
    run.change("posts", tasks=1)
    for _ in range(20):
        run.step()
    assert run.merges == ["posts"]


def test_a_written_index_is_not_merged_before_its_merge_can_end() -> None:
    run = play(index("posts"), allow_writes=True)
    run.failing[ForceMerge] = ("the connection was lost", True)
    run.until_sent()
    run.failing.clear()
    asked = run.now
    run.change("posts", tasks=0, writes=Writes(operations=150, sequence=149))
    while run.now < asked + 25.0:
        run.step()
    assert not any(isinstance(event, IndexMerged) for event in run.events)
    run.until(Phase.FINISHING)
    assert any(isinstance(event, IndexMerged) and "written" in event.why for event in run.events)


def test_a_merge_in_doubt_is_not_sent_again_too_early() -> None:
    run = play(index("posts"))
    run.failing[ForceMerge] = ("the connection was lost", True)
    run.until_sent()
    asked_at = run.now
    run.until_sent(2, steps=80)
    assert run.now - asked_at >= 30.0


def test_what_was_lost_is_not_asked_for_again_once_it_is_written() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.change("posts", tasks=0, writes=Writes(operations=150, sequence=149))
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.HELD
    assert "index posts: is still written" in run.given_up.reason
    assert run.merges == ["posts"]


def test_what_was_lost_is_not_waited_for_longer_than_a_hold() -> None:
    run = play(index("posts"))
    run.until_sent()
    view = run.seen.cluster
    assert isinstance(view, ClusterView)
    moving = view.copies[0]._replace(shard=run.bulk["posts-uuid"].copies[0].shard, state=CopyState.RELOCATING)
    run.change("posts", tasks=0)
    run.look(cluster=replace(view, copies=(*view.copies, moving)))
    for _ in range(20):
        run.step()
    assert run.given_up is None
    run.now += 3600.0
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.HELD


def test_an_index_with_a_copy_away_is_not_merged() -> None:
    run = play(index("posts"))
    run.until_sent()
    view = run.seen.cluster
    assert isinstance(view, ClusterView)
    shard = run.bulk["posts-uuid"].copies[0].shard
    away = view.copies[0]._replace(shard=shard, primary=False, node=None, state=CopyState.UNASSIGNED)
    run.merged("posts")
    run.look(cluster=replace(view, copies=(*view.copies, away)))
    for _ in range(20):
        run.step()
    assert not any(isinstance(event, IndexMerged) for event in run.events)
    run.look(cluster=view)
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]


@pytest.mark.parametrize("is_written", [False, True])
def test_an_index_is_merged_when_a_copy_returns_unmerged(
    is_written: bool,  # noqa: FBT001
) -> None:
    """The copy was away when the run began. Writes make segments too: with those nothing is concluded."""
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es4"))
    few = replace(b, copies=(replace(b.copies[0], searched=5),))
    run = play(a, few)
    run.until_sent()
    writes = Writes(operations=200, sequence=199) if is_written else few.writes
    run.change("b", copies=(few.copies[0], b.copies[1]), writes=writes)
    for _ in range(2):  # it is written down that the index is to be merged, and then it is
        run.step()
    assert [event.index for event in run.events if isinstance(event, MergeDue)] == ["b"] * (not is_written)
    for name in run.merges:
        run.merged(name)
    run.until(Phase.FINISHING)
    assert run.merges == (["a"] if is_written else ["a", "b"])
    assert [one.target.index for one in run.state.merging.indices.values() if one.due] == run.merges


def test_merges_of_its_shards_count_when_the_task_is_lost() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.change("posts", tasks=0, merging=1)
    for _ in range(20):
        run.step()
    assert run.merges == ["posts"]


def test_a_merge_is_counted_only_after_a_refresh() -> None:
    run = play(index("posts"))
    run.until_sent()
    run.change("posts", tasks=1)
    run.step()
    run.change("posts", tasks=0)  # it has ended; searches still see the segments of before
    run.step()
    assert isinstance(run.sent[-1], RefreshIndex)
    run.merged("posts")
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]


def test_a_copy_that_is_never_merged_fails_the_run_and_is_named() -> None:
    run = play(index("posts"))
    run.in_vain = True
    run.until(Phase.STANDING_DOWN, steps=80)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.FAILED
    assert "index posts: the copy of shard 0 on es1 has 20 segments after 3 merges" in run.given_up.reason
    assert len(run.merges) == 3


def test_a_refused_merge_fails_the_run_with_the_clusters_words() -> None:
    run = play(index("posts"))
    run.failing[ForceMerge] = ("403: action [indices:admin/forcemerge] is unauthorized", False)
    run.until(Phase.STANDING_DOWN, steps=80)
    assert run.given_up is not None
    assert "is unauthorized" in run.given_up.reason


def test_every_copy_counts() -> None:
    run = play(index("posts"))
    run.until_sent()
    first, second = run.bulk["posts-uuid"].copies
    run.change("posts", copies=(replace(first, searched=3), replace(second, searched=6)), tasks=0)
    run.until_sent(2)
    assert run.merges == ["posts", "posts"]


def test_a_merge_that_never_ends_fails_the_run() -> None:
    run = play(index("posts"), deadline=30.0)
    run.until_sent()
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.FAILED
    assert "the merge of posts continues in the cluster" in run.given_up.reason


def _back_with_copies_of_two(deadline: float) -> Play:
    """Both were merged where they had copies, all but in time; es2 has brought back a copy of each."""
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es2"))
    run = play(replace(a, copies=a.copies[:1]), replace(b, copies=b.copies[:1]), deadline=deadline)
    run.until_sent(2)
    run.now += deadline * 0.9
    for found in (a, b):
        run.merged(found.name)
        run.change(found.name, copies=(*run.bulk[found.uuid].copies, found.copies[1]))
    run.until_sent(3, steps=80)
    return run


def test_a_merge_has_its_time_from_when_it_was_sent() -> None:
    run = _back_with_copies_of_two(deadline=3600.0)
    run.now += 3000.0  # since the first merges of both more than the deadline
    for _ in range(20):
        run.step()
    assert run.given_up is None
    assert run.merges == ["a", "b", "a"]
    run.merged("a")
    run.until_sent(4)
    run.now += 3000.0
    run.step()
    run.merged("b")
    run.until(Phase.FINISHING)
    assert run.merges == ["a", "b", "a", "b"]


def test_what_was_asked_for_again_and_never_ends_is_late_too() -> None:
    run = _back_with_copies_of_two(deadline=3600.0)
    run.now += 3700.0
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.FAILED
    assert "the merge of a has not ended within 3600 s" in run.given_up.reason


def test_a_waiting_merge_is_not_late_while_a_reading_fails() -> None:
    run = _back_with_copies_of_two(deadline=3600.0)
    run.now += 3000.0
    seen = run.seen.bulk
    run.look(bulk=Unknown(reason="3 shards did not answer"))
    for _ in range(20):
        run.step()
    assert run.given_up is None
    run.look(bulk=seen)
    run.merged("a")
    run.until_sent(4)
    assert run.merges == ["a", "b", "a", "b"]


def test_what_is_held_from_its_turn_is_not_late() -> None:
    """A rule that passes with time is waited for as any hold is, and no merge is said to run late."""
    run = _back_with_copies_of_two(deadline=3600.0)
    run.now += 3000.0
    view = run.seen.cluster
    assert isinstance(view, ClusterView)
    shard = run.bulk["b-uuid"].copies[0].shard
    moving = view.copies[0]._replace(shard=shard, state=CopyState.RELOCATING)
    run.merged("a")
    run.look(cluster=replace(view, copies=(*view.copies, moving)))
    for _ in range(20):
        run.step()
    assert run.given_up is None
    assert run.merges == ["a", "b", "a"]
    run.look(cluster=view)
    run.until_sent(4)
    assert run.merges == ["a", "b", "a", "b"]


def test_an_index_that_is_gone_is_done_with() -> None:
    run = play(index("posts"), index("likes", nodes=("es3",)))
    run.until_sent(2)
    run.merged("posts")
    run.look(run.bulk["posts-uuid"])
    run.until(Phase.FINISHING)
    why = {event.index: event.why for event in run.events if isinstance(event, IndexMerged)}
    assert why == {"posts": "", "likes": "it is gone"}


# Limits ----------------------------------------------------------------------------------------------


def test_no_more_indices_are_merged_at_a_time_than_allowed() -> None:
    run = play(*(index(f"i{n}", nodes=(f"es{n}",)) for n in range(1, 6)), at_once=2)
    run.until_sent(2)
    for _ in range(20):
        run.step()
    assert len(run.merges) == 2
    run.merged(run.merges[0])
    run.until_sent(3)


def test_a_node_merges_no_more_indices_at_a_time_than_allowed() -> None:
    run = play(index("a", nodes=("es1", "es2")), index("b", nodes=("es2", "es3")), at_once=5)
    run.until_sent()
    for _ in range(20):
        run.step()
    assert run.merges == ["a"]


def test_a_returned_node_merges_its_indices_one_by_one() -> None:
    """Both were merged where they had copies; what es2 brings back is asked for again."""
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es2"))
    run = play(replace(a, copies=a.copies[:1]), replace(b, copies=b.copies[:1]))
    run.until_sent(2)
    for found in (a, b):
        run.merged(found.name)
        merged = run.bulk[found.uuid].copies
        run.change(found.name, copies=(*merged, found.copies[1]))
    run.until_sent(3, steps=80)
    for _ in range(20):
        run.step()
    assert run.merges == ["a", "b", "a"]
    run.merged("a")
    run.until_sent(4)
    assert run.merges == ["a", "b", "a", "b"]
    run.merged("b")
    run.until(Phase.FINISHING)


def test_a_merge_on_a_node_waits_for_one_in_doubt_there() -> None:
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es2"))
    run = play(replace(a, copies=a.copies[:1]), replace(b, copies=b.copies[:1]))
    run.until_sent(2)
    for found in (a, b):
        run.merged(found.name)
        run.change(found.name, copies=(*run.bulk[found.uuid].copies, found.copies[1]))
    run.failing[ForceMerge] = ("read timed out", True)
    run.until_sent(3, steps=80)
    sent = run.now
    run.failing.clear()
    run.until_sent(4, steps=80)
    assert run.now - sent >= 30.0, "until then the merge of a may begin"


def test_what_shares_no_node_is_merged_beside() -> None:
    run = play(index("a", nodes=("es1",)), index("b", nodes=("es1",)), index("c", nodes=("es3",)))
    run.until_sent(2)
    assert run.merges == ["a", "c"]


# Rules -----------------------------------------------------------------------------------------------


def test_a_written_index_holds_the_step_before_any_merge() -> None:
    run = play(index("quiet", nodes=("es3",)), index("posts"))
    run.step()
    run.until(Phase.MERGING)
    run.step()  # the first reading of the counters
    run.change("posts", writes=Writes(operations=150, sequence=149))
    reason = _held_by(run)
    assert (
        "index_is_not_written: index posts: is still written: sequence numbers went from 99 to 149" in reason
    )
    assert "--allow-writes" in reason


def test_a_written_index_of_few_segments_holds_the_step_too() -> None:
    run = play(index("quiet", nodes=("es3",)), index("posts", segments=2))
    run.until(Phase.MERGING)
    run.step()
    run.change("posts", writes=Writes(operations=150, sequence=149))
    assert "index posts: is still written" in _held_by(run)


def test_a_merged_index_that_is_written_is_not_done() -> None:
    run = play(index("posts"))  # its merge was begun by a run that did not see its end
    run.merged("posts")
    run.until(Phase.MERGING)
    run.step()
    run.change("posts", writes=Writes(operations=150, sequence=149))
    assert "index posts: is still written" in _held_by(run)
    assert not any(isinstance(event, IndexMerged) for event in run.events)


def test_writes_are_seen_without_sequence_numbers_too() -> None:
    run = play(index("posts", writes=Writes(operations=100, sequence=None)))
    run.until(Phase.MERGING)
    run.step()
    run.change("posts", writes=Writes(operations=101, sequence=None))
    assert "1 documents were indexed or deleted" in _held_by(run)


def test_a_counter_that_began_anew_is_no_write() -> None:
    run = play(index("posts"))
    run.until(Phase.MERGING)
    run.step()
    run.change("posts", writes=Writes(operations=0, sequence=99))
    run.until_sent()
    assert run.merges == ["posts"]


def test_writes_are_told_by_two_readings_some_seconds_apart() -> None:
    run = play(index("posts"))
    run.until(Phase.MERGING)
    run.step()
    first = run.now
    run.until_sent()
    assert run.now - first >= 5.0


def test_allowed_writes_go_on_and_say_what_that_means() -> None:
    run = play(index("posts", bytes_each=6 * 10**9), allow_writes=True, room_bytes=10**12)
    run.until(Phase.MERGING)
    run.step()
    run.change("posts", writes=Writes(operations=150, sequence=149))
    run.until_sent()
    warnings = [event.what for event in run.events if isinstance(event, MergeWarned)]
    assert len(warnings) == 1
    assert "new writes make new segments" in warnings[0]
    assert "the server does not merge a segment above 5.4 GB again" in warnings[0]
    run.merged("posts", segments=6)
    run.change("posts", writes=Writes(operations=190, sequence=189))
    run.until(Phase.FINISHING)
    assert run.merges == ["posts"]


def test_an_index_that_is_written_later_holds_what_is_left() -> None:
    run = play(index("a"), index("b"))
    run.until_sent()
    run.change("b", writes=Writes(operations=900, sequence=899))
    for _ in range(10):
        run.step()
    assert run.given_up is None  # the merge in hand is seen to its end first
    run.merged("a")
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.HELD
    assert "index b" in run.given_up.reason
    assert run.merges == ["a"]


def test_too_little_disk_is_refused_with_the_arithmetic() -> None:
    run = play(index("posts", bytes_each=800 * MEGABYTE), room_bytes=500 * MEGABYTE)
    reason = _held_by(run)
    assert "disk_has_room: index posts: merging its copies on es1 may take 800.0 MB more" in reason
    assert "es1 has room for 500.0 MB below its high watermark: 300.0 MB too little" in reason


def test_what_is_being_merged_takes_room_too() -> None:
    run = play(
        index("a", nodes=("es1",), bytes_each=300 * MEGABYTE),
        index("b", nodes=("es1",), bytes_each=300 * MEGABYTE),
        at_once=2,
        per_node=2,
        room_bytes=500 * MEGABYTE,
    )
    run.until_sent()
    for _ in range(10):
        run.step()
    assert run.merges == ["a"]
    run.merged("a")
    run.until_sent(2)


def test_a_merge_of_an_earlier_run_counts_towards_the_limits() -> None:
    """It is of the smaller index: the larger one, first in the order, waits for it on their nodes."""
    run = play(index("large", bytes_each=9 * MEGABYTE), index("small"), at_once=2, per_node=1)
    run.change("small", tasks=1)
    for _ in range(20):
        run.step()
    assert run.merges == []
    (begun,) = [event for event in run.events if isinstance(event, MergeBegun)]
    assert (begun.index, begun.found) == ("small", True)
    run.merged("small")
    run.until_sent()
    assert run.merges == ["large"]


def test_a_disk_that_was_not_read_has_no_room() -> None:
    run = play(index("posts"))
    disks = {name: replace(disk, room_bytes=None) for name, disk in run.seen.disks.items()}
    run.look(disks=disks)
    assert "the room on es1's disk is not known" in _held_by(run)


@pytest.mark.parametrize("state", [CopyState.INITIALIZING, CopyState.RELOCATING])
def test_a_copy_on_its_way_is_waited_for(state: CopyState) -> None:
    run = play(index("posts"))
    view = run.seen.cluster
    assert isinstance(view, ClusterView)
    copy = view.copies[0]
    posts = run.bulk["posts-uuid"].copies[0].shard
    moving = copy._replace(shard=posts, state=state, node=NodeName("es2"))
    run.look(cluster=replace(view, copies=(*view.copies, moving)))
    for _ in range(20):
        run.step()
    assert run.merges == []
    assert [hold.predicate for hold in run.state.in_phase.holds] == ["no_copy_on_its_way"]
    run.look(cluster=view)
    run.until_sent()


def test_a_red_index_is_not_merged() -> None:
    run = play(index("posts", segments=9, nodes=("es1",)))
    run.change("posts", copies=())
    for _ in range(20):
        run.step()
    assert run.merges == []
    assert "no copy of it is started" in run.state.in_phase.holds[0].evidence


def test_an_index_with_a_red_shard_is_waited_for() -> None:
    """Nothing of that shard was counted: few segments of the others say nothing."""
    for segments, nodes in ((5, ("es1",)), (20, ("es1",)), (20, ())):
        run = play(index("posts", segments=segments, nodes=nodes))
        whole = run.seen.cluster
        shard = index("posts").copies[0].shard._replace(number=1)
        red = ShardCopy(shard=shard, primary=True, state=CopyState.UNASSIGNED, node=None)
        run.look(cluster=replace(whole, copies=(*whole.copies, red)))
        for _ in range(20):
            run.step()
        assert (run.merges, run.state.phase) == ([], Phase.MERGING)
        (hold,) = run.state.in_phase.holds
        assert (hold.predicate, hold.subject) == ("no_copy_on_its_way", "index posts")
        run.look(cluster=whole)
        run.change("posts", copies=index("posts", segments=20).copies)
        run.until_sent()


@pytest.mark.parametrize(
    "wanted",
    [
        {"accept_red": frozenset({"posts"})},
        {"disabled_predicates": (DisabledPredicate(name="no_copy_on_its_way", subject="index posts"),)},
    ],
    ids=["accepted", "disabled"],
)
def test_an_index_that_may_be_red_is_merged_where_it_is_there(wanted: dict[str, object]) -> None:
    run = play(index("posts"))
    shard = run.bulk["posts-uuid"].copies[0].shard._replace(number=1)
    red = ShardCopy(shard=shard, primary=True, state=CopyState.UNASSIGNED, node=None)
    view = run.seen.cluster
    begun = run.state.begun
    policy = replace(begun.policy, **wanted)
    run.state = replace(run.state, begun=replace(begun, policy=policy))
    run.look(cluster=replace(view, copies=(*view.copies, red)))
    _through(run, "posts")
    run.until(Phase.FINISHING)


def test_a_reading_that_fails_holds() -> None:
    run = play(index("posts"))
    run.look(bulk=Unknown(reason="3 shards did not answer"))
    for _ in range(20):
        run.step()
    assert run.merges == []
    assert run.state.in_phase.holds[0].evidence == "3 shards did not answer"


def test_a_merge_of_an_unreadable_index_is_waited_for_so_long() -> None:
    """The node with the only copy died: the merge is never counted, and the run does not stay for ever."""
    run = play(index("posts"), deadline=600.0)
    run.until_sent()
    run.look(bulk=Unknown(reason="[posts][0] has 0 started primaries"))
    run.now += 300.0
    run.step()
    assert run.given_up is None
    run.now += 300.0
    run.step()
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.FAILED
    assert "the merge of posts has not been seen to end within 600 s" in run.given_up.reason
    assert "[posts][0] has 0 started primaries" in run.given_up.reason
    assert "continues in the cluster" in run.given_up.reason


def test_an_index_is_not_gone_because_another_cluster_answers() -> None:
    run = play(index("posts"), index("users"))
    run.until_sent()
    ours = run.seen
    run.look(bulk=BulkView(indices={}), cluster=replace(ours.cluster, uuid="of-another-cluster"))
    for _ in range(20):
        run.step()
    assert not any(isinstance(event, IndexMerged) for event in run.events)
    assert run.state.in_phase.holds[0].predicate == "cluster_is_the_one_named"
    run.look(bulk=ours.bulk, cluster=ours.cluster)
    _through(run, "posts")
    _through(run, "users")
    run.until(Phase.FINISHING)


def test_another_cluster_gets_no_refresh_and_no_settings() -> None:
    run = play(index("posts"), put_right=LoaderSettings(refresh_interval="1s"), nodes=("es1",))
    _through(run, "posts")
    run.until(Phase.MERGED)
    before = len(run.sent)
    ours = run.seen.cluster
    run.look(bulk=BulkView(indices={}), cluster=replace(ours, uuid="of-another-cluster"))
    for _ in range(20):
        run.step()
    assert (run.state.phase, len(run.sent)) == (Phase.MERGED, before)


def test_the_end_of_a_merge_needs_the_lives_of_the_nodes() -> None:
    """Without them nobody would know, after a kill, which nodes are still to be restarted."""
    run = play(index("posts"))
    run.until_sent()
    ours = run.seen.cluster
    run.merged("posts")
    run.look(cluster=Unknown(reason="503: no master"))
    for _ in range(20):
        run.step()
    assert not any(isinstance(event, IndexMerged) for event in run.events)
    assert run.state.in_phase.holds[0].evidence == "503: no master"
    run.look(cluster=ours)
    run.until(Phase.FINISHING)


def test_a_node_away_at_the_end_of_a_merge_keeps_its_life() -> None:
    run = play(index("posts"))
    run.until_sent()
    ours = run.seen.cluster
    run.merged("posts")
    run.look(cluster=replace(ours, nodes=tuple(node for node in ours.nodes if node.name != "es6")))
    run.until(Phase.MERGED)
    (merged,) = [event for event in run.events if isinstance(event, IndexMerged)]
    (away,) = [node for node in ours.nodes if node.name == "es6"]
    assert merged.incarnations[NodeName("es6")] == away.incarnation


def test_without_the_lease_nothing_is_merged() -> None:
    run = play(index("posts"))
    run.look(lease=LeaseView(held=False, holder="bo@other", refreshed=90.0))
    for _ in range(20):
        run.step()
    assert run.merges == []


def test_what_would_hold_the_restart_for_good_holds_the_merge() -> None:
    run = play(index("posts"), nodes=("es1", "es2"))
    hosts = {**run.seen.hosts, NodeName("es2"): Unknown(reason="ssh: the host key is another one")}
    run.look(hosts=hosts)
    assert "selected_hosts_ready" in _held_by(run)


def test_a_host_unreachable_for_seconds_only_holds_the_merge() -> None:
    run = play(index("posts"), nodes=("es1", "es2"))
    hosts = run.seen.hosts
    run.look(hosts={**hosts, NodeName("es2"): Unknown(reason="ssh: timed out", passes=True)})
    run.until(Phase.MERGING)
    for _ in range(3):
        run.step()
    assert run.given_up is None
    assert run.merges == []
    run.look(hosts=hosts)
    run.until_sent()
    assert run.merges == ["posts"]


def test_a_merge_alone_does_not_ask_for_hosts() -> None:
    run = play(index("posts"))
    run.look(hosts={NodeName("es2"): Unknown(reason="ssh: connection refused")})
    run.until_sent()
    assert run.merges == ["posts"]


@pytest.mark.parametrize("rule", OWN_RULES, ids=lambda rule: rule.name)
def test_every_rule_is_asked_before_a_merge(rule: Predicate) -> None:
    run = _refused_only_by(rule.name)
    reasons = _reasons(run)
    assert [other.name for other in MERGE_RULES if other.name in reasons] == [rule.name]
    assert run.merges == []


def _refused_only_by(name: str) -> Play:
    run = play(index("posts"))
    if name == "index_is_not_written":
        run.until(Phase.MERGING)
        run.step()
        run.change("posts", writes=Writes(operations=150, sequence=149))
    elif name == "disk_has_room":
        run.look(disks={each: replace(disk, room_bytes=1) for each, disk in run.seen.disks.items()})
    else:
        view = run.seen.cluster
        posts = run.bulk["posts-uuid"].copies[0].shard
        moving = view.copies[0]._replace(shard=posts, state=CopyState.RELOCATING)
        run.look(cluster=replace(view, copies=(*view.copies, moving)))
    return run


def _reasons(run: Play) -> str:
    for _ in range(20):
        run.step()
        if run.given_up is not None:
            return run.given_up.reason
    return ", ".join(hold.predicate for hold in run.state.in_phase.holds)


# Pause, stop, time-out -------------------------------------------------------------------------------


def test_a_pause_waits_for_the_merge_in_hand_and_begins_no_other() -> None:
    run = play(index("a"), index("b"))
    run.until_sent()
    run.happens(Requested(request=Request.PAUSE, by="bo"))
    for _ in range(20):
        run.step()
    assert run.given_up is None
    run.merged("a")
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.PAUSED
    assert run.merges == ["a"]
    run.resumed()
    run.until_sent(2)
    assert run.merges == ["a", "b"]


def test_a_pause_does_not_wait_for_an_index_with_many_segments() -> None:
    """It had few enough when the run began; what is left counts it, before the pause and after."""
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es4"))
    few = replace(b, copies=(replace(b.copies[0], searched=5),))
    run = play(a, few)
    run.until_sent()
    run.happens(Requested(request=Request.PAUSE, by="bo"))
    run.change("b", copies=(few.copies[0], b.copies[1]))
    run.step()
    assert run.given_up is None
    run.merged("a")
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.PAUSED
    assert run.given_up.reason == "asked to pause by bo"
    assert left_to_do(run.state) == "1 index"
    assert half_done(run.state) == "1 of 2 indices merged"
    run.resumed()
    assert left_to_do(run.state) == "1 index"
    run.until_sent(2)
    assert run.merges == ["a", "b"]


def test_a_stop_leaves_at_once_and_says_that_the_merge_goes_on() -> None:
    run = play(index("a"))
    run.until_sent()
    run.happens(Requested(request=Request.STOP, by="bo"))
    run.step()
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.INTERRUPTED
    assert "the merge of a continues in the cluster" in run.given_up.reason


# After the merges ------------------------------------------------------------------------------------


def test_a_loaders_settings_are_restored_after_the_merge() -> None:
    right = LoaderSettings(number_of_replicas=1, refresh_interval="1s", translog_durability="request")
    loaded = index("posts", nodes=("es1",), replicas=0, refresh_interval="-1", translog_durability="async")
    run = play(loaded, put_right=right)
    _through(run, "posts")
    run.until(Phase.MERGED)
    run.step()
    setting = run.sent[-1]
    assert isinstance(setting, SetIndexSettings)
    assert setting.wanted == {
        "index.number_of_replicas": "1",
        "index.refresh_interval": "1s",
        "index.translog.durability": "request",
    }
    assert setting.found == {
        "index.number_of_replicas": "0",
        "index.refresh_interval": "-1",
        "index.translog.durability": "async",
    }
    run.change("posts", replicas=1, refresh_interval="1s", translog_durability="request")
    view = run.seen.cluster
    shard = run.bulk["posts-uuid"].copies[0].shard
    coming = view.copies[0]._replace(shard=shard, primary=False, state=CopyState.INITIALIZING)
    run.look(cluster=replace(view, copies=(*view.copies, coming)))
    for _ in range(20):
        run.step()
    assert run.state.phase is Phase.MERGED
    run.look(cluster=view)
    run.until(Phase.FINISHING)
    assert sum(isinstance(action, SetIndexSettings) for action in run.sent) == 1


def test_settings_are_left_alone_unless_the_playbook_says() -> None:
    run = play(index("posts", segments=3, nodes=("es1",), replicas=0, refresh_interval="-1"))
    run.until(Phase.FINISHING)
    assert not any(isinstance(action, SetIndexSettings) for action in run.sent)


def test_what_somebody_wanted_so_is_left_alone() -> None:
    right = LoaderSettings(number_of_replicas=1, refresh_interval="1s", translog_durability="request")
    run = play(index("posts", segments=3, replicas=2, refresh_interval="30s"), put_right=right)
    run.until(Phase.FINISHING)
    assert not any(isinstance(action, SetIndexSettings) for action in run.sent)


def test_settings_that_are_refused_fail_the_run() -> None:
    run = play(index("posts", segments=3, replicas=0), put_right=LoaderSettings(number_of_replicas=1))
    run.failing[SetIndexSettings] = ("403: unauthorized", False)
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert "the settings of index posts could not be put right: 403: unauthorized" in run.given_up.reason


def test_what_loaders_leave_behind_is_known() -> None:
    loaded = index("posts", replicas=0, refresh_interval="-1", translog_durability="async")
    assert left_behind(loaded) == (
        ("index.number_of_replicas", "0"),
        ("index.refresh_interval", "-1"),
        ("index.translog.durability", "async"),
    )
    assert left_behind(index("posts", refresh_interval="30s", translog_durability="request")) == ()


def test_the_first_wave_comes_after_the_merges() -> None:
    run = play(index("posts"), nodes=("es1",))
    _through(run, "posts")
    run.until(Phase.GATED)
    assert run.state.merging.settled


def test_a_run_that_restores_merges_nothing() -> None:
    """It would end as done without that: what it takes over from the record is no merge."""
    begun = Simulation(cluster(3)).begin(replace(policy(), merge=WANTED)).begun
    record = LeaseRecord(epoch=1, run="dead", owner="ann@a", process="p", started="2026-11-01T00:00:00Z")
    started, *_ = from_record(record, replace(begun, indices=(POSTS,)))
    assert isinstance(started, RunStarted)
    assert (started.repairs, started.policy.merge, started.indices) == ("dead", None, ())
