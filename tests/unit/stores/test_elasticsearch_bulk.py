"""Segments, writes and force-merges that run, from answers of real nodes; and the same answers, damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from orchestrator.model.merging import BulkIndex
from orchestrator.model.reading import Reading, Unknown
from orchestrator.stores.elasticsearch.parse_bulk import BulkState, parse_bulk_index, parse_bulk_state
from orchestrator.stores.elasticsearch.parse_merges import RunningMerge, named_otherwise, parse_merges
from orchestrator.stores.elasticsearch.resolve import parse_names, parse_resolution
from tests.unit.stores.cases import known
from tests.unit.stores.recordings import BULK, raw

each_version = pytest.mark.parametrize("version", BULK)
Change = Callable[[Any], object]


def damaged(version: str, name: str, change: Change) -> Any:
    answer = raw(version, name)
    change(answer)
    return answer


def states_of(version: str, moment: str = "loaded") -> dict[str, BulkState]:
    states = known(parse_bulk_state(raw(version, f"{moment}.indices")))
    return {state.name: state for state in states.values()}


def parsed(version: str, name: str = "posts", moment: str = "loaded", **more: Any) -> Reading[BulkIndex]:
    """An index from the recorded answers; `segments`, `writes` and the dialect's words may be others."""
    given = {
        "segments": raw(version, f"{moment}.segments"),
        "writes": raw(version, f"{moment}.writes"),
        "sequence_numbers": True,
        **more,
    }
    return parse_bulk_index(states_of(version, moment)[name], **given)


def _copies(answer: Any) -> Any:
    return answer["indices"]["posts"]["shards"]["0"]


@each_version
def test_parse_bulk_index_counts_what_a_search_goes_through(version: str) -> None:
    posts, people, empty = (known(parsed(version, name)) for name in ("posts", "people", "empty"))
    listed = [len(each["segments"]) for each in _copies(raw(version, "loaded.segments"))]
    assert min(listed) > 7, "a flush without a refresh has left segments that are committed alone"
    assert [each.segments for each in posts.copies] == [7, 7]
    assert posts.segments == 7
    assert sorted(each.primary for each in posts.copies) == [False, True]
    assert {each.node for each in posts.copies} <= {"es1", "es2", "es3"}
    assert all(0 < each.largest_bytes < each.bytes for each in posts.copies)
    assert posts.bytes == sum(each.bytes for each in posts.copies)
    people_copies = sorted((each.shard.number, each.segments, each.primary) for each in people.copies)
    assert people_copies == [(0, 3, True), (1, 3, True)]
    assert [(each.segments, each.bytes, each.largest_bytes) for each in empty.copies] == [(0, 0, 0)] * 3
    assert (posts.replicas, posts.refresh_interval, posts.translog_durability) == (1, "-1", "async")
    assert (people.replicas, people.refresh_interval, people.translog_durability) == (0, "-1", None)
    assert (empty.replicas, empty.refresh_interval, empty.translog_durability) == (2, None, None)
    # 350 documents and one that was deleted again: the primary's alone, though replicas count them too.
    assert (posts.writes.operations, posts.writes.sequence) == (352, 351)
    assert (people.writes.operations, people.writes.sequence) == (120, 118)
    assert (empty.writes.operations, empty.writes.sequence) == (0, -1)
    assert (posts.merging, posts.tasks, posts.under_way) == (0, 0, False)
    states = states_of(version)
    open_ones = {"posts": True, "people": True, "empty": True, "shut": False}
    assert {name: state.open for name, state in states.items()} == open_ones
    assert states["shut"].copies == ()


@each_version
def test_a_merge_counts_when_searches_see_it(version: str) -> None:
    merged = known(parsed(version, moment="merged"))
    refreshed = known(parsed(version, moment="merged", segments=raw(version, "refreshed.segments")))
    # OpenSearch goes on with the old ones until it is refreshed.
    assert merged.segments == (7 if "opensearch" in version else 2)
    assert refreshed.segments == 2


def _only_searched(answer: Any) -> None:
    """What is taken off the end of a list of segments must be one that is searched."""
    for each in _copies(answer):
        each["segments"] = {name: value for name, value in each["segments"].items() if value["search"]}


SEGMENTS: tuple[tuple[Change, str], ...] = (
    (lambda answer: _copies(answer).pop(), "is started, but its answer lacks its segments"),
    (lambda answer: answer["indices"].pop("posts"), "its answer lacks its segments"),
    (lambda answer: _copies(answer)[0]["routing"].update(node="another"), "its answer lacks its segments"),
    (lambda answer: answer["_shards"].update(failed=1, failures=["why"]), "1 copies did not send"),
    (lambda answer: answer.pop("_shards"), "_shards.failed is absent"),
    (lambda answer: _copies(answer)[0].pop("segments"), "7 are searched, and 0 are listed"),
    (lambda answer: _copies(answer)[0].pop("num_search_segments"), "num_search_segments is absent"),
    (lambda answer: _copies(answer)[0]["segments"].popitem(), "listed"),
)


def test_segments_that_are_not_all_there_are_unknown(subtests: pytest.Subtests) -> None:
    for version, (change, said) in product(BULK, SEGMENTS):
        with subtests.test(version, said=said):
            segments = damaged(version, "loaded.segments", _only_searched)
            assert isinstance(parsed(version, segments=segments), BulkIndex)
            change(segments)
            read = parsed(version, segments=segments)
            assert isinstance(read, Unknown)
            assert said in read.reason


WRITES: tuple[Change, ...] = (
    lambda answer: _copies(answer).clear(),
    lambda answer: answer["_shards"].update(failed=2),
    lambda answer: [each.pop("seq_no") for each in _copies(answer)],
    lambda answer: [each["seq_no"].pop("max_seq_no") for each in _copies(answer)],
    lambda answer: [each["indexing"].pop("index_total") for each in _copies(answer)],
    lambda answer: [each["indexing"].update(delete_total=-1) for each in _copies(answer)],
    lambda answer: [each.pop("merges") for each in _copies(answer)],
)


def _routing(answer: Any) -> Any:
    return answer["routing_table"]["indices"]["posts"]["shards"]["0"]


def _posts(answer: Any) -> Any:
    return answer["metadata"]["indices"]["posts"]


STATES: tuple[Change, ...] = (
    lambda answer: answer.pop("cluster_name"),
    lambda answer: answer["routing_table"]["indices"].pop("posts"),
    lambda answer: answer["nodes"].clear(),
    lambda answer: [each.update(state="GREAT") for each in _routing(answer)],
    lambda answer: [each.update(primary=False) for each in _routing(answer)],
    lambda answer: [each.update(state="INITIALIZING") for each in _routing(answer)],
    lambda answer: [each.pop("node") for each in _routing(answer)],
    lambda answer: _posts(answer).update(state="ajar"),
    lambda answer: _posts(answer)["settings"]["index"].pop("uuid"),
    lambda answer: _posts(answer)["settings"]["index"].pop("number_of_replicas"),
)


def _tasks(answer: Any) -> Iterator[Any]:
    for node in answer["nodes"].values():
        yield from node["tasks"].values()


MERGES: tuple[Change, ...] = (
    lambda answer: answer.update(node_failures=[{"type": "failed_node_exception"}]),
    lambda answer: answer.update(task_failures=[{"reason": "timed out"}]),
    lambda answer: answer.pop("nodes"),
    lambda answer: [node.pop("tasks") for node in answer["nodes"].values()],
    lambda answer: [task.pop("action") for task in _tasks(answer)],
    lambda answer: [task.pop("parent_task_id", None) for task in _tasks(answer)],
)


def test_answers_that_are_not_whole_are_unknown(subtests: pytest.Subtests) -> None:
    reads: tuple[tuple[str, tuple[Change, ...], Callable[[str, Any], object]], ...] = (
        ("loaded.writes", WRITES, lambda version, answer: parsed(version, writes=answer)),
        ("loaded.indices", STATES, lambda _, answer: parse_bulk_state(answer)),
        ("merging.merges", MERGES, lambda _, answer: parse_merges(answer)),
    )
    for version, (name, changes, read) in product(BULK, reads):
        for number, change in enumerate(changes):
            with subtests.test(version, name=name, number=number):
                assert isinstance(read(version, damaged(version, name, change)), Unknown)


def test_without_sequence_numbers_operations_alone_are_read() -> None:
    writes = damaged("9.1.0", "loaded.writes", WRITES[2])
    read = known(parsed("9.1.0", writes=writes, sequence_numbers=False)).writes
    assert (read.operations, read.sequence) == (352, None)


def test_committed_segments_count_where_a_flush_loses_a_merge() -> None:
    answer = raw("9.1.0", "loaded.segments")
    for committed in (40, 0):
        for each in _copies(answer):
            each["num_committed_segments"] = committed
        later = known(parsed("9.1.0", segments=answer, merge_committed=True))
        before = known(parsed("9.1.0", segments=answer, merge_committed=False))
        assert later.segments < 40
        assert before.segments == max(committed, later.segments)
    del _copies(answer)[0]["num_committed_segments"]
    assert isinstance(parsed("9.1.0", segments=answer, merge_committed=False), Unknown)


@each_version
def test_a_copy_that_is_not_started_is_not_asked_for(version: str) -> None:
    answer = raw(version, "loaded.indices")
    for each in _routing(answer):
        each["state"] = each["state"] if each["primary"] else "INITIALIZING"
    posts = next(state for state in known(parse_bulk_state(answer)).values() if state.name == "posts")
    assert [each.primary for each in posts.copies] == [True]


@each_version
def test_parse_merges_finds_each_request_once(version: str) -> None:
    assert known(parse_merges(raw(version, "loaded.merges"))) == ()
    merging = known(parse_merges(raw(version, "merging.merges")))
    named = sorted(repr(merge.named) for merge in merging)
    assert named == sorted(map(repr, [("many",), ("lots",), ("ma*", "people"), ()]))
    # Where the node that was asked is gone, its merge goes on as parts on other nodes. Such a part has no
    # description on OpenSearch, and then it may be for any index.
    answer = raw(version, "orphaned.merges")
    left = known(parse_merges(answer))
    assert {merge.task for merge in left} == {merge.task for merge in merging}
    listed = {task_id for node in answer["nodes"].values() for task_id in node["tasks"]}
    wanted = None if "opensearch" in version else ("many",)
    assert [merge.named for merge in left if merge.task not in listed] == [wanted]
    for said in (None, "", "merging something", "Force-merge indices"):
        answer = raw(version, "merging.merges")
        for task in _tasks(answer):
            task["description"] = said
        assert [merge.named for merge in known(parse_merges(answer))] == [None] * 4


def test_which_indices_a_merge_covers() -> None:
    names = ("posts-1", "all-posts")
    for named, covered in [
        (("posts-1",), True),
        (("other", "posts-*"), True),
        (("all-*",), True),  # by an alias
        (("_all",), True),
        ((), True),  # of all indices
        (("posts-*", "-posts-1"), True),  # left out again, which is not looked into
        (("<posts-{now/d}>",), True),  # a date is not worked out
        (None, True),  # it cannot be read
        (("posts",), False),
        (("posts-10", "posts.1", "p*2"), False),
    ]:
        assert RunningMerge(task="n:1", named=named).covers(names) is covered, named
    ours = RunningMerge(task="n:1", named=("a", "b"))
    of_all, other = RunningMerge(task="n:3", named=()), RunningMerge(task="n:2", named=("*",))
    assert not named_otherwise([ours], {"a", "b", "c"})
    assert named_otherwise([ours], {"a"})
    assert named_otherwise([ours, other], {"a", "b"})
    assert not named_otherwise([of_all], {"a"}), "it is for all in any case"


@each_version
def test_names_of_real_nodes(version: str) -> None:
    answer = raw(version, "names")
    stream = next(name for name in answer["metadata"]["indices"] if name.startswith(".ds-"))
    found = known(parse_resolution(answer, ["*"]))
    assert [each.name for each in found.open] == [stream, "empty", "people", "posts"]
    assert [each.name for each in found.closed] == ["shut"]
    assert [each.name for each in found.hidden] == ["shy"]
    by_alias = known(parse_resolution(answer, ["all-posts,stream-a"]))
    assert [each.name for each in by_alias.open] == [stream, "posts"]
    names = known(parse_names(answer))
    assert names[found.open[0].uuid] == {stream, "stream-a"}
    assert names[found.open[3].uuid] == {"posts", "all-posts"}
