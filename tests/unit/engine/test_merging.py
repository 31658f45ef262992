"""Merging indices: what its rules say, how many at a time, what is due, and settings of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.elasticsearch.rules.due import PastMerges, left_behind, leftovers, merge_targets, nodes_due
from orchestrator.elasticsearch.rules.merge import MERGE_RULES, _in_progress, _room_for_another
from orchestrator.engine.changes import from_record
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.predicates import evidence_of
from orchestrator.kinds import decide
from orchestrator.model.cluster import CopyState, Incarnation, NodeName, ShardId
from orchestrator.model.event import RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merging import (
    BulkIndex,
    BulkView,
    CopySegments,
    LoaderLeftover,
    LoaderSettings,
    MergePolicy,
    MergeTarget,
    Writes,
)
from orchestrator.model.observation import Disk
from orchestrator.model.phase import Phase
from orchestrator.model.policy import DisabledPredicate
from orchestrator.model.reading import Unknown
from orchestrator.model.work_event import IndexMerged, MergeDue
from orchestrator.simulation import views
from tests.simulation.play import cluster, policy
from tests.unit.engine.asking import (
    ES1,
    begun,
    knowing,
    question,
    seeing,
    situation_of,
    view_of,
    viewing,
    wanting,
)
from tests.unit.engine.merge_steps import POSTS, WANTED

MEGABYTE: Final = 10**6
RIGHT: Final = LoaderSettings(number_of_replicas=1, refresh_interval="1s", translog_durability="request")
LOADED: Final = {"replicas": 0, "refresh_interval": "-1", "translog_durability": "async"}
KEYS: Final = ("index.number_of_replicas", "index.refresh_interval", "index.translog.durability")


def index(
    name: str,
    *,
    segments: int = 20,
    nodes: tuple[str, ...] = ("es1", "es2"),
    bytes_each: int = MEGABYTE,
    **fields: object,
) -> BulkIndex:
    """An index of one shard, a copy on each of these nodes."""
    shard = ShardId(index=name, index_uuid=f"{name}-uuid", number=0)
    copies = tuple(
        CopySegments(
            shard=shard,
            node=NodeName(node),
            primary=number == 0,
            searched=segments,
            bytes=bytes_each,
            largest_bytes=bytes_each // 2,
        )
        for number, node in enumerate(nodes)
    )
    writes = Writes(operations=100, sequence=99)
    return replace(BulkIndex(name=name, uuid=shard.index_uuid, copies=copies, writes=writes), **fields)


# Before a merge ------------------------------------


def _said(
    found: BulkIndex,
    *,
    first: Writes | None = None,
    room: int | None = 1000 * MEGABYTE,
    beside: BulkIndex | None = None,
    unplaced: Mapping[str, object] | None = None,
    **wanted: object,
) -> list[str]:
    """What the rules say against merging it; `unplaced` are fields of one more copy of it."""
    asked = wanting(question(), **{"merge": MergePolicy(patterns=("*",)), **wanted})
    disk = Disk(used_share=0.1, over_low=False, over_high=False, room_bytes=room)
    others = () if beside is None else (beside,)
    bulk = BulkView(indices={one.uuid: one for one in (found, *others)})
    asked = seeing(asked, bulk=bulk, disks=dict.fromkeys(asked.observation.hosts, disk))
    targets = {one.uuid: replace(POSTS, index=one.name, index_uuid=one.uuid) for one in others}
    hand = {uuid: MergeProgress(target=target, begun=1.0) for uuid, target in targets.items()}
    writes = {found.uuid: first or found.writes}
    asked = knowing(
        asked, merging=Merging(indices=hand, writes=writes, writes_at=asked.observation.at - 10.0)
    )
    if unplaced is not None:
        copy = view_of(asked).copies[0]._replace(shard=found.copies[0].shard, **unplaced)
        asked = viewing(asked, copies=(*view_of(asked).copies, copy))
    asked = replace(asked, index=found)
    return [f"{rule.name}: {subject}: {evidence_of(said)}" for rule in MERGE_RULES
            for subject, said in rule.check(asked)]  # fmt: skip


def test_what_the_rules_say_against_a_merge(subtests: pytest.Subtests) -> None:
    posts, large = index("posts"), index("posts", nodes=("es1",), bytes_each=800 * MEGABYTE)
    half, other = (index(name, nodes=("es1",), bytes_each=300 * MEGABYTE) for name in ("posts", "other"))
    unnumbered = Writes(operations=100, sequence=None)
    away = {"state": CopyState.UNASSIGNED, "node": None, "primary": True}
    off = (DisabledPredicate(name="no_copy_on_its_way", subject="index posts"),)
    small: dict[str, Any] = {"room": 500 * MEGABYTE}
    writes = replace(posts, writes=Writes(operations=150, sequence=149))
    little = (
        "disk_has_room: index posts: merging its copies on es1 may take 800.0 MB more for a while "
        "(as much as they have), and es1 has room for 500.0 MB below its high watermark: 300.0 MB too little"
    )
    fewer = replace(posts, writes=Writes(operations=0, sequence=99))
    cases: list[tuple[str, BulkIndex, dict[str, Any], str]] = [
        ("none", posts, {}, ""),
        ("written", writes, {"first": posts.writes},
         "index_is_not_written: index posts: is still written: sequence numbers went from 99 to 149 in 10s"),
        ("no numbers", replace(posts, writes=Writes(operations=101, sequence=None)), {"first": unnumbered},
         "1 documents were indexed or deleted"),
        ("counted anew", fewer, {"first": posts.writes}, ""),
        ("allowed", writes, {"first": posts.writes,
                             "merge": MergePolicy(patterns=("*",), allow_writes=True)}, ""),
        ("little room", large, small, little),
        ("room for one", half, small, ""),
        ("beside another", half, {**small, "beside": other}, "and the merges under way 300.0 MB"),
        ("room unread", posts, {"room": None}, "the room on es1's disk is not known"),
        ("a copy arrives", posts, {"unplaced": {"state": CopyState.INITIALIZING, "node": "es2"}},
         "no_copy_on_its_way: index posts: [posts][0] is INITIALIZING on es2"),
        ("a copy moves", posts, {"unplaced": {"state": CopyState.RELOCATING}}, "is RELOCATING on"),
        ("a replica is away", posts, {"unplaced": {**away, "primary": False}}, ""),
        ("red", posts, {"unplaced": away}, "no copy of [posts][0] is started"),
        ("nothing started", replace(posts, copies=()), {}, "no copy of it is started"),
        ("red, and accepted", posts, {"unplaced": away, "accept_red": frozenset({"posts"})}, ""),
        ("red, and disabled", posts, {"unplaced": away, "disabled_predicates": off}, ""),
    ]  # fmt: skip
    for what, found, read, wanted in cases:
        with subtests.test(what):
            said = _said(found, **read)
            assert bool(said) is bool(wanted)
            assert wanted in "; ".join(said)


def test_how_many_indices_are_merged_at_a_time(subtests: pytest.Subtests) -> None:
    """In all, and on a node."""
    a, b, c = index("a"), index("b", nodes=("es2", "es3")), index("c", nodes=("es3", "es4"))
    for others, one, at_once, per_node, begins in [
        ((), a, 1, 1, True),
        ((a,), c, 1, 1, False),
        ((a,), c, 2, 1, True),
        ((a,), b, 2, 1, False),
        ((a,), b, 2, 2, True),
        ((a, c), b, 3, 1, False),
        ((a, c), b, 3, 2, True),
        ((a, c), b, 2, 2, False),
    ]:
        with subtests.test(others=[each.name for each in others], at_once=at_once, per_node=per_node):
            wanted = MergePolicy(patterns=("*",), at_once=at_once, per_node=per_node)
            assert _room_for_another(others, one, wanted) is begins


def test_an_index_is_due_when_a_copy_returns_unmerged(subtests: pytest.Subtests) -> None:
    """The copy was away when the run began. Writes make segments too: with those nothing is concluded."""
    written = Writes(operations=200, sequence=199)
    for what, found, looked, due in [
        ("few segments", index("posts", segments=5), 10.0, False),
        ("a copy with many", index("posts", segments=6), 10.0, True),
        ("with writes", index("posts", segments=6, writes=written), 10.0, False),
        ("looked a moment ago", index("posts", segments=6), 4.0, False),
    ]:
        with subtests.test(what):
            asked = wanting(question(), merge=MergePolicy(patterns=("*",), max_segments=5))
            asked, at = seeing(asked, bulk=_bulk(found)), asked.observation.at
            one = MergeProgress(target=replace(POSTS, due=False))
            counters = {found.uuid: Writes(operations=100, sequence=99)}
            merging = Merging(indices={found.uuid: one}, writes=counters, writes_at=at - looked)
            state = situation_of(asked, Phase.MERGING, merging=merging, since=at, started=at - 99.0).state
            told = decide(state, asked.observation, at).events
            assert [event.why for event in told if isinstance(event, MergeDue)] == (
                ["a copy of it has come back with 6 segments"] if due else []
            )


def test_a_merge_is_late_while_it_may_still_run(subtests: pytest.Subtests) -> None:
    """One that ended with too many segments waits for another, which has its own time."""
    unread = Unknown(reason="3 shards did not answer")
    for what, read, refreshed, late in [
        ("it runs", index("posts", tasks=1), None, True),
        ("its task is lost", index("posts", merging=1), None, True),
        ("it has ended", index("posts", segments=5), True, True),
        ("it waits for another", index("posts"), True, False),
        ("it was not refreshed", index("posts"), None, True),
        ("unread, and it was refreshed", unread, True, False),
        ("unread, and not refreshed", unread, None, True),
    ]:
        with subtests.test(what):
            wanted = MergePolicy(patterns=("*",), max_segments=5, deadline=3600.0)
            asked = wanting(question(), merge=wanted)
            at = asked.observation.at
            asked = seeing(asked, bulk=read if isinstance(read, Unknown) else _bulk(read))
            began = at - 3601.0
            one = MergeProgress(target=POSTS, begun=began, asked=1, asked_at=began)
            one = replace(one, refreshed_at=at - 1.0 if refreshed else None)
            for asked_at, is_late in ((began, late), (began + 1.0, False)):  # to its last moment
                sent = Merging(indices={"posts-uuid": replace(one, asked_at=asked_at)})
                state = situation_of(asked, Phase.MERGING, started=at - 9000.0, merging=sent)
                assert [merge.is_late for merge in _in_progress(state, wanted)] == [is_late]


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
    assert left_behind(loaded) == dict(zip(KEYS, ("0", "-1", "async"), strict=True))
    assert left_behind(index("a", refresh_interval="30s", translog_durability="request")) == {}
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
