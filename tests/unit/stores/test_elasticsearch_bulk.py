"""Segments, writes and force-merges that run, from answers of real nodes; and the same answers, damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.merging import BulkIndex
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.resolution import Resolution
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.dialect import NEWEST
from orchestrator.stores.elasticsearch.parse_bulk import BulkState, parse_bulk_index, parse_bulk_state
from orchestrator.stores.elasticsearch.parse_merges import RunningMerge, named_otherwise, parse_merges
from orchestrator.stores.elasticsearch.resolve import parse_names, parse_resolution

DATA = Path(__file__).parents[2] / "data" / "elasticsearch"
each_version = pytest.mark.parametrize("version", ["9.1.0", "8.19.0", "opensearch-2.19.0"])


def body(version: str, name: str) -> Any:
    return json.loads((DATA / version / f"{name}.json").read_text())["body"]


def states_of(version: str, moment: str = "loaded") -> dict[str, BulkState]:
    states = parse_bulk_state(body(version, f"{moment}.indices"))
    assert not isinstance(states, Unknown), states
    return {state.name: state for state in states.values()}


def parsed(
    version: str, name: str, moment: str = "loaded", *, segments: Any = None, writes: Any = None
) -> Reading[BulkIndex]:
    return parse_bulk_index(
        states_of(version, moment)[name],
        segments=body(version, f"{moment}.segments") if segments is None else segments,
        writes=body(version, f"{moment}.writes") if writes is None else writes,
        sequence_numbers=True,
    )


def index_of(version: str, name: str, moment: str = "loaded") -> BulkIndex:
    index = parsed(version, name, moment)
    assert isinstance(index, BulkIndex), index
    return index


@each_version
def test_what_a_search_goes_through_counts(version: str) -> None:
    posts = index_of(version, "posts")
    listed = [
        len(copy["segments"]) for copy in body(version, "loaded.segments")["indices"]["posts"]["shards"]["0"]
    ]
    assert min(listed) > 7, "a flush without a refresh has left segments that are committed alone"
    assert [each.segments for each in posts.copies] == [7, 7]
    assert posts.segments == 7
    assert sorted(each.primary for each in posts.copies) == [False, True]
    assert {each.node for each in posts.copies} <= {"es1", "es2", "es3"}
    for each in posts.copies:
        assert 0 < each.largest_bytes < each.bytes
    assert posts.bytes == sum(each.bytes for each in posts.copies)


@each_version
def test_a_merge_counts_when_searches_see_it(version: str) -> None:
    merged = index_of(version, "posts", "merged")
    refreshed = parsed(version, "posts", "merged", segments=body(version, "refreshed.segments"))
    assert isinstance(refreshed, BulkIndex)
    # OpenSearch goes on with the old ones until it is refreshed.
    assert merged.segments == (7 if "opensearch" in version else 2)
    assert refreshed.segments == 2


@each_version
def test_every_shard_and_copy_is_there(version: str) -> None:
    people, empty = index_of(version, "people"), index_of(version, "empty")
    assert sorted((each.shard.number, each.segments, each.primary) for each in people.copies) == [
        (0, 3, True),
        (1, 3, True),
    ]
    assert [(each.segments, each.bytes, each.largest_bytes) for each in empty.copies] == [(0, 0, 0)] * 3


@each_version
def test_settings_and_writes(version: str) -> None:
    posts, people, empty = (index_of(version, name) for name in ("posts", "people", "empty"))
    assert (posts.replicas, posts.refresh_interval, posts.translog_durability) == (1, "-1", "async")
    assert (people.replicas, people.refresh_interval, people.translog_durability) == (0, "-1", None)
    assert (empty.replicas, empty.refresh_interval, empty.translog_durability) == (2, None, None)
    # 350 documents and one that was deleted again: the primary's alone, though replicas count them too.
    assert (posts.writes.operations, posts.writes.sequence) == (352, 351)
    assert (people.writes.operations, people.writes.sequence) == (120, 118)
    assert (empty.writes.operations, empty.writes.sequence) == (0, -1)
    assert (posts.merging, posts.tasks, posts.under_way) == (0, 0, False)


@each_version
def test_closed_ones_are_told_and_gone_ones_are_left_out(version: str) -> None:
    states = states_of(version)
    assert {name: state.open for name, state in states.items()} == {
        "posts": True,
        "people": True,
        "empty": True,
        "shut": False,
    }
    assert states["shut"].copies == ()


def damaged(answer: Any, change: Callable[[Any], object]) -> Any:
    other = copy.deepcopy(answer)
    change(other)
    return other


def _copies(answer: Any) -> Any:
    return answer["indices"]["posts"]["shards"]["0"]


def test_segments_that_are_not_all_there_are_unknown(subtests: pytest.Subtests) -> None:
    for change, said in [
        (lambda answer: _copies(answer).pop(), "is started, but its answer lacks its segments"),
        (lambda answer: answer["indices"].pop("posts"), "its answer lacks its segments"),
        (
            lambda answer: _copies(answer)[0]["routing"].update(node="another"),
            "its answer lacks its segments",
        ),
        (lambda answer: answer["_shards"].update(failed=1, failures=["why"]), "1 copies did not send"),
        (lambda answer: answer.pop("_shards"), "_shards.failed is absent"),
        (lambda answer: _copies(answer)[0].pop("segments"), "7 are searched, and 0 are listed"),
        (lambda answer: _copies(answer)[0].pop("num_search_segments"), "num_search_segments is absent"),
        (lambda answer: _copies(answer)[0]["segments"].popitem(), "listed"),
    ]:
        for version in ["9.1.0", "8.19.0", "opensearch-2.19.0"]:
            with subtests.test(change=change, said=said, version=version):
                # What is taken off the end of a list of segments must be one that is searched.
                whole = damaged(body(version, "loaded.segments"), _only_searched)
                assert isinstance(parsed(version, "posts", segments=whole), BulkIndex)
                read = parsed(version, "posts", segments=damaged(whole, change))
                assert isinstance(read, Unknown)
                assert said in read.reason


def _only_searched(answer: Any) -> None:
    for each in _copies(answer):
        each["segments"] = {name: value for name, value in each["segments"].items() if value["search"]}


def test_counters_that_are_not_all_there_are_unknown(subtests: pytest.Subtests) -> None:
    for change in [
        lambda answer: _copies(answer).clear(),
        lambda answer: answer["_shards"].update(failed=2),
        lambda answer: [each.pop("seq_no") for each in _copies(answer)],
        lambda answer: [each["seq_no"].pop("max_seq_no") for each in _copies(answer)],
        lambda answer: [each["indexing"].pop("index_total") for each in _copies(answer)],
        lambda answer: [each["indexing"].update(delete_total=-1) for each in _copies(answer)],
        lambda answer: [each.pop("merges") for each in _copies(answer)],
    ]:
        for version in ["9.1.0", "8.19.0", "opensearch-2.19.0"]:
            with subtests.test(change=change, version=version):
                writes = damaged(body(version, "loaded.writes"), change)
                assert isinstance(parsed(version, "posts", writes=writes), Unknown)


def test_versions_without_sequence_numbers_have_none() -> None:
    writes = damaged(
        body("9.1.0", "loaded.writes"), lambda answer: [each.pop("seq_no") for each in _copies(answer)]
    )
    index = parse_bulk_index(
        states_of("9.1.0")["posts"],
        segments=body("9.1.0", "loaded.segments"),
        writes=writes,
        sequence_numbers=False,
    )
    assert isinstance(index, BulkIndex)
    assert (index.writes.operations, index.writes.sequence) == (352, None)


def test_committed_segments_count_where_a_flush_loses_a_merge() -> None:
    def read(segments: Any, *, merge_committed: bool) -> Reading[BulkIndex]:
        return parse_bulk_index(
            states_of("9.1.0")["posts"],
            segments=segments,
            writes=body("9.1.0", "loaded.writes"),
            sequence_numbers=True,
            merge_committed=merge_committed,
        )

    answer = body("9.1.0", "loaded.segments")
    for committed in (40, 0):
        for each in _copies(answer):
            each["num_committed_segments"] = committed
        later, before = (read(answer, merge_committed=truth) for truth in (True, False))
        assert isinstance(later, BulkIndex)
        assert isinstance(before, BulkIndex)
        assert later.segments < 40
        assert before.segments == max(committed, later.segments)
    del _copies(answer)[0]["num_committed_segments"]
    assert isinstance(read(answer, merge_committed=False), Unknown)


def _routing(answer: Any) -> Any:
    return answer["routing_table"]["indices"]["posts"]["shards"]["0"]


def test_a_state_that_is_not_whole_is_unknown(subtests: pytest.Subtests) -> None:
    for change in [
        lambda answer: answer.pop("cluster_name"),
        lambda answer: answer["routing_table"]["indices"].pop("posts"),
        lambda answer: answer["nodes"].clear(),
        lambda answer: [each.update(state="GREAT") for each in _routing(answer)],
        lambda answer: [each.update(primary=False) for each in _routing(answer)],
        lambda answer: [each.update(state="INITIALIZING") for each in _routing(answer)],
        lambda answer: [each.pop("node") for each in _routing(answer)],
        lambda answer: answer["metadata"]["indices"]["posts"].update(state="ajar"),
        lambda answer: answer["metadata"]["indices"]["posts"]["settings"]["index"].pop("uuid"),
        lambda answer: answer["metadata"]["indices"]["posts"]["settings"]["index"].pop("number_of_replicas"),
    ]:
        for version in ["9.1.0", "8.19.0", "opensearch-2.19.0"]:
            with subtests.test(change=change, version=version):
                assert isinstance(parse_bulk_state(damaged(body(version, "loaded.indices"), change)), Unknown)


@each_version
def test_a_copy_that_is_not_started_is_not_asked_for(version: str) -> None:
    def change(answer: Any) -> None:
        for each in _routing(answer):
            if not each["primary"]:
                each["state"] = "INITIALIZING"

    states = parse_bulk_state(damaged(body(version, "loaded.indices"), change))
    assert not isinstance(states, Unknown)
    posts = next(state for state in states.values() if state.name == "posts")
    assert [each.primary for each in posts.copies] == [True]


def merges_in(version: str, moment: str) -> tuple[RunningMerge, ...]:
    merges = parse_merges(body(version, f"{moment}.merges"))
    assert not isinstance(merges, Unknown), merges
    return merges


@each_version
def test_each_request_is_one_merge_on_any_number_of_nodes(version: str) -> None:
    assert merges_in(version, "loaded") == ()
    named = [merge.named for merge in merges_in(version, "merging")]
    assert sorted(map(repr, named)) == sorted(map(repr, [("many",), ("lots",), ("ma*", "people"), ()]))


@each_version
def test_a_merge_is_seen_when_the_node_that_was_asked_is_gone(version: str) -> None:
    began = {merge.task for merge in merges_in(version, "merging")}
    left = merges_in(version, "orphaned")
    assert {merge.task for merge in left} == began
    # A part of it has no description on OpenSearch, and then it may be for any index.
    wanted = None if "opensearch" in version else ("many",)
    listed = {
        task_id for node in body(version, "orphaned.merges")["nodes"].values() for task_id in node["tasks"]
    }
    assert [merge.named for merge in left if merge.task not in listed] == [wanted]


def test_which_indices_a_merge_is_for() -> None:
    def covers(*named: str, names: tuple[str, ...] = ("posts-1", "all-posts")) -> bool:
        return RunningMerge(task="n:1", named=named).covers(names)

    assert covers("posts-1")
    assert covers("other", "posts-*")
    assert covers("all-*"), "by an alias"
    assert covers("_all")
    assert covers(), "of all indices"
    assert covers("posts-*", "-posts-1"), "left out again, which is not looked into"
    assert covers("<posts-{now/d}>"), "a date is not worked out"
    assert RunningMerge(task="n:1", named=None).covers(("posts-1",)), "what cannot be read"
    assert not covers("posts")
    assert not covers("posts-10", "posts.1", "p*2")


def test_when_all_names_are_needed() -> None:
    ours = RunningMerge(task="n:1", named=("a", "b"))
    assert not named_otherwise([ours], {"a", "b", "c"})
    assert named_otherwise([ours], {"a"})
    assert named_otherwise([ours, RunningMerge(task="n:2", named=("*",))], {"a", "b"})
    assert not named_otherwise([RunningMerge(task="n:3", named=())], {"a"}), "it is for all in any case"


def test_a_task_list_that_is_not_whole_is_unknown(subtests: pytest.Subtests) -> None:
    for change in [
        lambda answer: answer.update(node_failures=[{"type": "failed_node_exception"}]),
        lambda answer: answer.update(task_failures=[{"reason": "timed out"}]),
        lambda answer: answer.pop("nodes"),
        lambda answer: [node.pop("tasks") for node in answer["nodes"].values()],
        lambda answer: [
            task.pop("action") for node in answer["nodes"].values() for task in node["tasks"].values()
        ],
        lambda answer: [
            task.pop("parent_task_id", None)
            for node in answer["nodes"].values()
            for task in node["tasks"].values()
        ],
    ]:
        for version in ["9.1.0", "8.19.0", "opensearch-2.19.0"]:
            with subtests.test(change=change, version=version):
                assert isinstance(parse_merges(damaged(body(version, "merging.merges"), change)), Unknown)


def test_a_description_that_cannot_be_read_is_for_all(subtests: pytest.Subtests) -> None:
    for said in [None, "", "merging something", "Force-merge indices"]:
        for version in ["9.1.0", "8.19.0", "opensearch-2.19.0"]:
            with subtests.test(said=said, version=version):
                answer = body(version, "merging.merges")
                for node in answer["nodes"].values():
                    for task in node["tasks"].values():
                        task["description"] = said
                merges = parse_merges(answer)
                assert not isinstance(merges, Unknown)
                assert [merge.named for merge in merges] == [None] * 4


@each_version
def test_names_of_real_nodes(version: str) -> None:
    answer = body(version, "names")
    stream = next(name for name in answer["metadata"]["indices"] if name.startswith(".ds-"))
    found = parse_resolution(answer, ["*"])
    assert isinstance(found, Resolution)
    assert [each.name for each in found.open] == [stream, "empty", "people", "posts"]
    assert [each.name for each in found.closed] == ["shut"]
    assert [each.name for each in found.hidden] == ["shy"]
    by_alias = parse_resolution(answer, ["all-posts,stream-a"])
    assert isinstance(by_alias, Resolution)
    assert [each.name for each in by_alias.open] == [stream, "posts"]
    names = parse_names(answer)
    assert not isinstance(names, Unknown)
    assert names[found.open[0].uuid] == {stream, "stream-a"}
    assert names[found.open[3].uuid] == {"posts", "all-posts"}


def test_names_are_asked_for_in_parts_that_fit_a_request_line() -> None:
    names = [f"{number:03}-{'ü' * 90}" for number in range(30)]
    parts = list(calls.request_lines(names))
    assert [name for part in parts for name in part] == names
    assert len(parts) > 1
    for part in parts:
        assert len(calls.segments(NEWEST, part).path) < 2100
    assert list(calls.request_lines([])) == []
    assert list(calls.request_lines(["ü" * 127])) == [("ü" * 127,)]
