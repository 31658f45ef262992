"""Merging indices: what is due, begun within limits, never twice at a time, counted on every copy, held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.engine.changes import from_record
from orchestrator.merging.due import PastMerges, leftovers, merge_targets, nodes_due
from orchestrator.merging.rules import MERGE_RULES, OWN_RULES
from orchestrator.merging.settling import left_behind
from orchestrator.model.action import Flush, RefreshIndex, SetIndexSettings
from orchestrator.model.cluster import CopyState, Incarnation, NodeName
from orchestrator.model.event import Requested, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merge_event import IndexMerged, MergeBegun, MergeDue, MergeWarned
from orchestrator.model.merging import (
    BulkIndex,
    BulkView,
    LoaderLeftover,
    LoaderSettings,
    MergePolicy,
    MergeTarget,
    Writes,
)
from orchestrator.model.observation import LeaseView
from orchestrator.model.phase import Outcome, Phase, Request
from orchestrator.model.policy import DisabledPredicate
from orchestrator.model.reading import Unknown
from orchestrator.simulation import views
from orchestrator.view.progress import half_done, left_to_do
from tests.simulation.play import cluster, policy
from tests.unit.engine.asking import ES1, ES2, begun
from tests.unit.engine.merge_steps import POSTS, WANTED
from tests.unit.engine.merging_play import MEGABYTE, WRITTEN, Play, index, play

UNREAD: Final = Unknown(reason="3 shards did not answer")
OTHER_UUID: Final = "of-another-cluster"


def _begun(name: str = "posts", **wanted: Any) -> Play:
    """A run whose first merge has been sent."""
    run = play(index(name), **wanted)
    run.until_sent()
    return run


# Once, and counted ------------------------------------


def test_an_index_is_merged_once_refreshed_and_counted() -> None:
    run = play(index("posts"))
    run.end_one_by_one("posts")
    run.finishes("posts")
    (merged,) = run.told(IndexMerged)
    assert isinstance(merged, IndexMerged)
    assert (merged.index, merged.segments, len(merged.incarnations)) == ("posts", 5, 6)
    sent = [type(action) for action in run.sent]
    assert sent.index(RefreshIndex) < sent.index(Flush)
    few = play(index("posts", segments=5))
    few.finishes()
    assert few.told(MergeBegun) + few.told(IndexMerged) == []


def test_a_merge_that_runs_is_not_asked_for_again() -> None:
    """Nor by a new process; nor if its task is lost, while merges of its shards run."""
    for resumes, read in ((False, {"tasks": 1}), (True, {"tasks": 1}), (False, {"tasks": 0, "merging": 1})):
        run = _begun()
        run.change("posts", **read)
        if resumes:
            run.resumed()
        run.waits("posts")
        run.merged("posts")
        run.finishes("posts")
    ended = _begun()
    ended.merged("posts")
    ended.resumed()
    ended.finishes("posts")


def test_what_neither_runs_nor_has_ended_is_asked_for_again() -> None:
    """After as long as what was sent may still come, and by a new process after a look for writes."""
    for lost, resumes in ((True, False), (True, True), (False, True)):
        run = play(index("posts"))
        run.loses_answers(times=lost)
        run.until_sent()
        run.loses_answers(times=False)
        run.change("posts", tasks=0)
        if resumes:
            run.resumed()
        sent = run.now
        run.until_sent(2)
        assert run.now - sent >= 30.0, (lost, resumes)
    run = _begun()
    run.change("posts", tasks=0)
    run.resumed()
    run.reads_writes()
    looked_at = run.now
    run.until_sent(2)
    assert run.now - looked_at >= 5.0


def test_a_merge_in_doubt_is_looked_for_before_it_is_sent_again() -> None:
    run = play(index("posts"))
    run.loses_answers()
    run.until_sent()
    run.loses_answers(times=False)
    run.change("posts", tasks=1)
    run.waits("posts")


def test_a_written_index_is_not_merged_before_its_merge_can_end() -> None:
    run = play(index("posts"), allow_writes=True)
    run.loses_answers()
    run.until_sent()
    run.loses_answers(times=False)
    asked = run.now
    run.change("posts", tasks=0, writes=WRITTEN)
    while run.now < asked + 25.0:
        run.step()
    assert run.ended() == {}
    run.until(Phase.FINISHING)
    assert "written" in run.ended()["posts"]


def test_a_lost_merge_is_sent_again_only_while_nothing_holds_it() -> None:
    run = _begun()
    run.change("posts", tasks=0, writes=WRITTEN)
    run.stands_down(Outcome.HELD, "index posts: is still written", merges=("posts",))
    run = _begun()
    run.change("posts", tasks=0)
    run.add_copy("posts", CopyState.RELOCATING)
    run.waits("posts")
    run.now += 3600.0
    run.stands_down(Outcome.HELD, merges=("posts",))


def test_a_merge_is_counted_on_every_copy_after_a_refresh() -> None:
    run = _begun()
    run.step()
    run.change("posts", tasks=0)  # it has ended; searches still see the segments of before
    run.step()
    assert isinstance(run.sent[-1], RefreshIndex)
    run.merged("posts")
    run.finishes("posts")
    run = _begun()
    first, second = run.bulk["posts-uuid"].copies
    run.change("posts", copies=(replace(first, searched=3), replace(second, searched=6)), tasks=0)
    run.until_sent(2)


def test_an_index_is_not_merged_while_its_end_cannot_be_told() -> None:
    """A copy is away; no master shows the lives of nodes; another cluster answers."""
    for change in ("a copy is away", "no master", "another cluster"):
        run = play(index("posts"), index("users"))
        run.until_sent()
        seen = run.seen
        run.merged("posts")
        merged = run.seen.bulk
        if change == "a copy is away":
            run.add_copy("posts", CopyState.UNASSIGNED, primary=False, node=None)
            run.waits("posts")
        elif change == "no master":
            run.look(cluster=Unknown(reason="503: no master"))
            run.waits("posts", why="503: no master")
        else:
            run.look(bulk=BulkView(indices={}), cluster=replace(run.view, uuid=OTHER_UUID))
            run.waits("posts", by="cluster_is_the_one_named")
        assert run.ended() == {}, change
        run.look(cluster=seen.cluster, bulk=merged)
        run.until_sent(2)
        run.step()
        run.merged("users")
        run.finishes("posts", "users")
        assert run.ended() == {"posts": "", "users": ""}


def test_a_node_away_at_the_end_of_a_merge_keeps_its_life() -> None:
    run = _begun()
    *others, es6 = run.view.nodes
    run.merged("posts")
    run.look(cluster=replace(run.view, nodes=tuple(others)))
    run.until(Phase.MERGED)
    (merged,) = run.told(IndexMerged)
    assert isinstance(merged, IndexMerged)
    assert merged.incarnations[es6.name] == es6.incarnation


def test_an_index_that_is_gone_is_done_with() -> None:
    run = play(index("posts"), index("likes", nodes=("es3",)))
    run.until_sent(2)
    run.merged("posts")
    run.look(run.bulk["posts-uuid"])
    run.until(Phase.FINISHING)
    assert run.ended() == {"posts": "", "likes": "it is gone"}


# Merges that fail or are late ------------------------------------


def test_a_merge_that_fails_or_never_ends_fails_the_run() -> None:
    unauthorized = "403: action [indices:admin/forcemerge] is unauthorized"
    run = play(index("posts"))
    run.in_vain = True
    vain = "index posts: the copy of shard 0 on es1 has 20 segments after 3 merges"
    run.stands_down(Outcome.FAILED, vain, merges=("posts",) * 3)
    run = play(index("posts"))
    run.failing = {type(one): (unauthorized, False) for one in _begun().sent if "Merge" in type(one).__name__}
    run.until(Phase.STANDING_DOWN)
    assert run.given_up is not None
    assert "is unauthorized" in run.given_up.reason
    run = _begun(deadline=30.0)
    late = "the merge of posts continues in the cluster"
    run.stands_down(Outcome.FAILED, late, merges=("posts",))
    run = _begun(deadline=600.0)
    run.look(bulk=Unknown(reason="[posts][0] has 0 started primaries"))
    run.now += 300.0
    run.step()
    assert run.given_up is None
    run.now += 300.0
    unseen = "the merge of posts has not been seen to end within 600 s"
    run.stands_down(
        Outcome.FAILED, unseen, "0 started primaries", "continues in the cluster", merges=("posts",)
    )


def _back_with_copies_of_two() -> Play:
    """Both were merged where they had copies, all but in time; es2 has brought back a copy of each."""
    a, b = index("a", nodes=("es1", "es2")), index("b", nodes=("es3", "es2"))
    run = play(replace(a, copies=a.copies[:1]), replace(b, copies=b.copies[:1]), deadline=3600.0)
    run.until_sent(2)
    run.now += 3240.0
    for found in (a, b):
        run.merged(found.name)
        run.change(found.name, copies=(*run.bulk[found.uuid].copies, found.copies[1]))
    return run


def test_a_merge_has_its_time_from_when_it_was_sent() -> None:
    """Neither a reading that fails nor a hold that passes with time is counted as a late merge.

    A node that returned merges its indices one by one.
    """
    for meanwhile in ("nothing", "unread", "held"):
        run = _back_with_copies_of_two()
        run.until_sent(3)
        run.now += 3000.0  # since the first merges of both more than the deadline
        bulk, view = run.seen.bulk, run.view
        if meanwhile == "unread":
            run.look(bulk=UNREAD)
        elif meanwhile == "held":
            run.merged("a")
            run.add_copy("b", CopyState.RELOCATING)
        run.waits("a", "b", "a")
        run.look(cluster=view, **({"bulk": bulk} if meanwhile == "unread" else {}))
        run.merged("a")
        run.until_sent(4)
        run.now += 3000.0
        run.step()
        run.merged("b")
        run.finishes("a", "b", "a", "b")
    run = _back_with_copies_of_two()
    run.until_sent(3)
    run.now += 3700.0
    late = "the merge of a has not ended within 3600 s"
    run.stands_down(Outcome.FAILED, late, merges=("a", "b", "a"))


def test_a_merge_on_a_node_waits_for_one_in_doubt_there() -> None:
    run = _back_with_copies_of_two()
    run.loses_answers()
    run.until_sent(3)
    sent = run.now
    run.loses_answers(times=False)
    run.until_sent(4)
    assert run.now - sent >= 30.0, "until then the merge of a may begin"


def test_an_index_is_merged_when_a_copy_returns_unmerged() -> None:
    """The copy was away when the run began. Writes make segments too: with those nothing is concluded."""
    for writes in (None, Writes(operations=200, sequence=199)):
        a, b = index("a"), index("b", nodes=("es3", "es4"))
        few = replace(b, copies=(replace(b.copies[0], searched=5),))
        run = play(a, few)
        run.until_sent()
        run.change("b", copies=(few.copies[0], b.copies[1]), writes=writes or few.writes)
        for _ in range(2):  # it is written down that the index is to be merged, and then it is
            run.step()
        assert len(run.told(MergeDue)) == (writes is None)
        for name in run.merges:
            run.merged(name)
        run.finishes(*(("a",) if writes else ("a", "b")))
        assert [one.target.index for one in run.state.merging.indices.values() if one.due] == run.merges


# Limits ------------------------------------


def test_how_many_indices_are_merged_at_a_time(subtests: pytest.Subtests) -> None:
    """In all, and on a node; room on the disk is for what is being merged too."""
    three = 300 * MEGABYTE
    for what, indices, wanted, first, then in [
        ("in all", [index(f"i{n}", nodes=(f"es{n}",)) for n in range(1, 4)], {"at_once": 2}, "i1 i2", "i3"),
        ("on a node", [index("a"), index("b", nodes=("es2", "es3"))], {"at_once": 5}, "a", "b"),
        ("no common node", [index(n, nodes=(e,)) for n, e in zip("abc", ("es1", "es1", "es3"), strict=True)],
         {}, "a c", "b"),
        ("room", [index(n, nodes=("es1",), bytes_each=three) for n in "ab"],
         {"at_once": 2, "per_node": 2, "room_bytes": 500 * MEGABYTE}, "a", "b"),
    ]:  # fmt: skip
        with subtests.test(what):
            run = play(*indices, **wanted)
            run.until_sent(len(first.split()))
            run.waits(*first.split())
            run.merged(run.merges[0])
            run.until_sent(len(first.split()) + 1)
            assert run.merges[-1] == then


def test_a_merge_of_an_earlier_run_counts_towards_the_limits() -> None:
    """It is of the smaller index: the larger one, first in the order, waits for it on their nodes."""
    run = play(index("large", bytes_each=9 * MEGABYTE), index("small"), at_once=2, per_node=1)
    run.change("small", tasks=1)
    run.waits()
    (found,) = run.told(MergeBegun)
    assert isinstance(found, MergeBegun)
    assert (found.index, found.found) == ("small", True)
    run.merged("small")
    run.until_sent()
    assert run.merges == ["large"]


# Rules ------------------------------------

Wrong = Callable[[Play], object]


def _writes(run: Play, written: Writes = WRITTEN) -> None:
    run.reads_writes()
    run.change("posts", writes=written)


def _refused_only_by(name: str) -> Play:
    run = play(index("posts"))
    wrong: dict[str, Wrong] = {
        "index_is_not_written": _writes,
        "disk_has_room": lambda run: run.look(
            disks={each: replace(disk, room_bytes=1) for each, disk in run.seen.disks.items()}
        ),
        "no_copy_on_its_way": lambda run: run.add_copy("posts", CopyState.RELOCATING),
    }
    wrong[name](run)
    return run


def test_every_rule_is_asked_before_a_merge() -> None:
    for rule in OWN_RULES:
        run = _refused_only_by(rule.name)
        for _ in range(20):
            run.step()
        held = [hold.predicate for hold in run.state.in_phase.holds]
        said = f"{run.given_up.reason if run.given_up else ''} {held}"
        assert [other.name for other in MERGE_RULES if other.name in said] == [rule.name]
        assert run.merges == []


def test_index_is_not_written_holds_the_step_before_any_merge(subtests: pytest.Subtests) -> None:
    """Told by two readings some seconds apart; of an index with few segments too, and of a merged one."""
    run = play(index("posts"))
    run.reads_writes()
    first = run.now
    run.until_sent()
    assert run.now - first >= 5.0
    went = "index_is_not_written: index posts: is still written: sequence numbers went from 99 to 149"
    unnumbered = Writes(operations=100, sequence=None)
    for what, segments, before, after, said in [
        ("written", 20, None, WRITTEN, (went, "--allow-writes")),
        ("few segments", 2, None, WRITTEN, ("index posts: is still written",)),
        ("no numbers", 20, unnumbered, Writes(operations=101, sequence=None), ("1 documents were indexed",)),
        ("counted anew", 20, None, Writes(operations=0, sequence=99), ()),
    ]:
        with subtests.test(what):
            posts = index("posts", segments=segments)
            run = play(index("quiet", nodes=("es3",)), replace(posts, writes=before or posts.writes))
            _writes(run, after)
            if said:
                run.stands_down(Outcome.HELD, *said)
            else:
                run.until_sent(2)
    merged = play(index("posts"))  # its merge was begun by a run that did not see its end
    merged.merged("posts")
    _writes(merged)
    merged.stands_down(Outcome.HELD, "index posts: is still written")
    assert merged.ended() == {}


def test_an_index_that_is_written_later_holds_what_is_left() -> None:
    run = play(index("a"), index("b"))
    run.until_sent()
    run.change("b", writes=WRITTEN)
    run.waits("a")  # the merge under way is seen to its end first
    run.merged("a")
    run.stands_down(Outcome.HELD, "index b", merges=("a",))


def test_allowed_writes_go_on_and_say_what_that_means() -> None:
    run = play(index("posts", bytes_each=6 * 10**9), allow_writes=True, room_bytes=10**12)
    _writes(run)
    run.until_sent()
    (warned,) = run.told(MergeWarned)
    assert isinstance(warned, MergeWarned)
    for said in ("new writes make new segments", "does not merge a segment above 5.4 GB again"):
        assert said in warned.what
    run.merged("posts", segments=6)
    run.change("posts", writes=Writes(operations=190, sequence=189))
    run.finishes("posts")


def test_disk_has_room_shows_its_arithmetic() -> None:
    run = play(index("posts", bytes_each=800 * MEGABYTE), room_bytes=500 * MEGABYTE)
    run.stands_down(
        Outcome.HELD,
        "disk_has_room: index posts: merging its copies on es1 may take 800.0 MB more",
        "es1 has room for 500.0 MB below its high watermark: 300.0 MB too little",
    )
    run = play(index("posts"))
    disks = {name: replace(disk, room_bytes=None) for name, disk in run.seen.disks.items()}
    run.look(disks=disks)
    run.stands_down(Outcome.HELD, "the room on es1's disk is not known")


def test_no_copy_on_its_way_waits(subtests: pytest.Subtests) -> None:
    """Nothing of a red shard was counted: few segments of the others say nothing."""
    rule = "no_copy_on_its_way"
    for state in (CopyState.INITIALIZING, CopyState.RELOCATING):
        with subtests.test(state=state):
            run = play(index("posts"))
            view = run.add_copy("posts", state, node=ES2)
            run.waits(by=rule)
            run.look(cluster=view)
            run.until_sent()
    run = play(index("posts", segments=9, nodes=("es1",)))
    run.change("posts", copies=())
    run.waits(why="no copy of it is started")
    run = play(index("posts"))
    run.look(bulk=UNREAD)
    run.waits(why=UNREAD.reason)
    for segments, nodes in ((5, ("es1",)), (20, ("es1",)), (20, ())):
        with subtests.test("red", segments=segments, nodes=nodes):
            run = play(index("posts", segments=segments, nodes=nodes))
            view = _red(run)
            run.waits(by=rule)
            assert run.state.phase is Phase.MERGING
            run.look(cluster=view)
            run.change("posts", copies=index("posts").copies)
            run.until_sent()
    off = DisabledPredicate(name=rule, subject="index posts")
    for wanted in ({"accept_red": frozenset({"posts"})}, {"disabled_predicates": (off,)}):
        with subtests.test("accepted", wanted=wanted):
            run = play(index("posts"), policy=wanted)
            _red(run)
            run.end_one_by_one("posts")
            run.finishes("posts")


def _red(run: Play) -> object:
    """A second shard of posts has no copy."""
    view = run.add_copy("posts", CopyState.UNASSIGNED, primary=True, node=None)
    *others, copy = run.view.copies
    red = copy._replace(shard=copy.shard._replace(number=1))
    run.look(cluster=replace(view, copies=(*others, red)))
    return view


def test_what_holds_a_restart_holds_its_merges() -> None:
    """The lease, and hosts of the nodes to restart; merges alone need no host."""
    run = play(index("posts"))
    run.look(lease=LeaseView(held=False, holder="bo@other", refreshed=90.0))
    run.waits()
    run = play(index("posts"))
    run.look(hosts={ES2: Unknown(reason="ssh: connection refused")})
    run.until_sent()
    run = play(index("posts"), nodes=("es1", "es2"))
    hosts = run.seen.hosts
    run.look(hosts={**hosts, ES2: Unknown(reason="ssh: the host key is another one")})
    run.stands_down(Outcome.HELD, "selected_hosts_ready")
    run = play(index("posts"), nodes=("es1", "es2"))
    run.look(hosts={**hosts, ES2: Unknown(reason="ssh: timed out", passes=True)})
    run.until(Phase.MERGING)
    run.waits(steps=3)
    run.look(hosts=hosts)
    run.until_sent()


# Pause and stop ------------------------------------


def test_a_pause_waits_for_the_merge_and_begins_no_other() -> None:
    """Nor for an index that had few segments when the run began; what is left counts it all the same."""
    b = index("b", nodes=("es3", "es4"))
    few = replace(b, copies=(replace(b.copies[0], searched=5),))
    for other, unmerged in ((index("b"), None), (few, (few.copies[0], b.copies[1]))):
        run = play(index("a"), other)
        run.until_sent()
        run.happens(Requested(request=Request.PAUSE, by="bo"))
        if unmerged is None:
            run.waits("a")
        else:
            run.change("b", copies=unmerged)
            run.step()
            assert run.given_up is None
        run.merged("a")
        run.stands_down(Outcome.PAUSED, "asked to pause by bo", merges=("a",))
        assert (left_to_do(run.state), half_done(run.state)) == ("1 index", "1 of 2 indices merged")
        run.resumed()
        assert left_to_do(run.state) == "1 index"
        run.until_sent(2)
        assert run.merges == ["a", "b"]


def test_a_stop_leaves_at_once_and_says_that_the_merge_goes_on() -> None:
    run = _begun("a")
    run.happens(Requested(request=Request.STOP, by="bo"))
    run.step()
    assert run.given_up is not None
    assert run.given_up.outcome is Outcome.INTERRUPTED
    assert "the merge of a continues in the cluster" in run.given_up.reason


# After the merges ------------------------------------

RIGHT: Final = LoaderSettings(number_of_replicas=1, refresh_interval="1s", translog_durability="request")
LOADED: Final = {"replicas": 0, "refresh_interval": "-1", "translog_durability": "async"}
KEYS: Final = ("index.number_of_replicas", "index.refresh_interval", "index.translog.durability")


def test_a_loaders_settings_are_restored_after_the_merge() -> None:
    run = play(index("posts", nodes=("es1",), **LOADED), put_right=RIGHT)
    run.end_one_by_one("posts")
    run.until(Phase.MERGED)
    run.step()
    setting = run.sent[-1]
    assert isinstance(setting, SetIndexSettings)
    assert setting.wanted == dict(zip(KEYS, ("1", "1s", "request"), strict=True))
    assert setting.found == dict(zip(KEYS, ("0", "-1", "async"), strict=True))
    run.change("posts", replicas=1, refresh_interval="1s", translog_durability="request")
    view = run.add_copy("posts", CopyState.INITIALIZING, primary=False)
    run.waits("posts")
    assert run.state.phase is Phase.MERGED
    run.look(cluster=view)
    run.finishes("posts")
    assert sum(isinstance(action, SetIndexSettings) for action in run.sent) == 1


def test_which_settings_are_left_alone(subtests: pytest.Subtests) -> None:
    for what, settings, right in [
        ("the playbook says nothing", LOADED, None),
        ("somebody wanted it so", {"replicas": 2, "refresh_interval": "30s"}, RIGHT),
    ]:
        with subtests.test(what):
            wanted = {"put_right": right} if right else {}
            run = play(index("posts", segments=3, **settings), **wanted)
            run.finishes()
            assert not any(isinstance(action, SetIndexSettings) for action in run.sent)
    run = play(index("posts", segments=3, replicas=0), put_right=RIGHT)
    run.failing[SetIndexSettings] = ("403: unauthorized", False)
    run.stands_down(Outcome.FAILED, "the settings of index posts could not be put right: 403: unauthorized")
    run = play(index("posts"), put_right=RIGHT, nodes=("es1",))
    run.end_one_by_one("posts")
    run.until(Phase.MERGED)
    before = len(run.sent)
    run.look(bulk=BulkView(indices={}), cluster=replace(run.view, uuid=OTHER_UUID))
    run.waits("posts")
    assert (run.state.phase, len(run.sent)) == (Phase.MERGED, before), "another cluster gets nothing"


def test_the_first_wave_comes_after_the_merges() -> None:
    run = play(index("posts"), nodes=("es1",))
    run.end_one_by_one("posts")
    run.until(Phase.GATED)
    assert run.state.merging.settled


def test_a_run_that_restores_merges_nothing() -> None:
    """It would end as done without that: what it takes over from the record is no merge."""
    other = begun(cluster(3), replace(policy(), merge=WANTED)).begun
    record = LeaseRecord(epoch=1, run="dead", owner="ann@a", process="p", started="2026-11-01T00:00:00Z")
    started, *_ = from_record(record, replace(other, indices=(POSTS,)))
    assert isinstance(started, RunStarted)
    assert (started.repairs, started.policy.merge, started.indices) == ("dead", None, ())


# What a run after a bulk load has to do ------------------------------------

VIEW: Final = views.cluster(cluster(3))
ALL: Final = tuple(node.name for node in VIEW.nodes)
LIVES: Final = {node.name: node.incarnation for node in VIEW.nodes}
EARLIER: Final = {name: Incarnation(ephemeral_id=f"earlier-{name}") for name in ALL}
ONE_LEFT: Final = LoaderLeftover(index="a", setting=KEYS[0], found="0", put_right=True)


def _bulk(*found: BulkIndex) -> BulkView:
    return BulkView(indices={one.uuid: one for one in found})


def _targets(*found: BulkIndex, **past: Any) -> tuple[MergeTarget, ...]:
    wanted = MergePolicy(patterns=("posts-*",), max_segments=5)
    return merge_targets(_bulk(*found), wanted, PastMerges(**past))


def _ended(name: str, lives: Mapping[NodeName, Incarnation]) -> dict[str, IndexMerged]:
    uuid = f"{name}-uuid"
    merged = IndexMerged(index=name, index_uuid=uuid, segments=5, bytes=1, seconds=1.0, incarnations=lives)
    return {uuid: merged}


def test_merge_targets_are_due_by_one_copy_or_an_unseen_end() -> None:
    a = index("a", segments=5)
    six = replace(a, copies=(a.copies[0], replace(a.copies[1], searched=6)))
    found = {one.index: one.due for one in _targets(six, index("b", segments=5))}
    assert found == {"a": True, "b": False}
    (unseen,) = _targets(a, unfinished=frozenset({"a-uuid"}))
    assert unseen.due
    sizes = (index("c", bytes_each=7), index("b", bytes_each=7), index("a", bytes_each=100))
    assert [one.index for one in _targets(*sizes)] == ["a", "b", "c"], "the largest first, then by name"


def test_nodes_due(subtests: pytest.Subtests) -> None:
    """All while an index is due; else those still in the life in which a merge of these indices ended."""
    few, both = (index("a", segments=5),), (index("a", segments=5), index("b", segments=5))
    nameless = replace(VIEW, nodes=tuple(replace(node, incarnation=Incarnation()) for node in VIEW.nodes))
    for what, found, past, left, view, due in [
        ("one is due", (index("a", segments=6),), {}, (), VIEW, ALL),
        ("nothing was ever merged", few, {}, (), VIEW, ()),
        ("the same lives", few, _ended("a", LIVES), (), VIEW, ALL),
        ("one restarted since", few, _ended("a", {**LIVES, ALL[0]: EARLIER[ALL[0]]}), (), VIEW, ALL[1:]),
        ("all restarted since", few, _ended("a", EARLIER), (), VIEW, ()),
        ("one came in later", few, _ended("a", dict(list(LIVES.items())[:2])), (), VIEW, ALL[:2]),
        ("any of the indices", both, {**_ended("a", EARLIER), **_ended("b", LIVES)}, (), VIEW, ALL),
        ("no other index", both, _ended("c", LIVES), (), VIEW, ()),
        ("lives that are not told", few, _ended("a", LIVES), (), nameless, ALL),
        ("a leftover is put right", few, {}, (ONE_LEFT,), VIEW, ALL),
        ("a leftover is only said", few, {}, (replace(ONE_LEFT, put_right=False),), VIEW, ()),
    ]:
        with subtests.test(what):
            assert nodes_due(ALL, view, _targets(*found), PastMerges(ended=past), left) == due


def test_leftovers_of_a_loader(subtests: pytest.Subtests) -> None:
    loaded = index("a", nodes=("es1",), **LOADED)
    assert left_behind(loaded) == tuple(zip(KEYS, ("0", "-1", "async"), strict=True))
    assert left_behind(index("a", refresh_interval="30s", translog_durability="request")) == ()
    cleared = LoaderSettings(number_of_replicas=1, refresh_interval="", translog_durability="request")
    for what, right, put_right, wanted in [
        ("the playbook says nothing", LoaderSettings(), False, (None, None, None)),
        ("it is put right", cleared, True, ("1", None, "request")),
    ]:
        with subtests.test(what):
            found = leftovers(_bulk(loaded, index("b", nodes=("es1",))), right, VIEW)
            assert {(one.index, one.setting, one.found, one.put_right, one.wanted) for one in found} == {
                ("a", key, value, put_right, want)
                for key, value, want in zip(KEYS, ("0", "-1", "async"), wanted, strict=True)
            }
    twice = LoaderSettings(number_of_replicas=2, refresh_interval="30s", translog_durability="request")
    assert leftovers(_bulk(index("a", nodes=(str(ES1),))), twice, VIEW) == ()
