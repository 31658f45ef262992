"""Segments, writes and force-merges that run, from answers of real nodes; and the same answers, damaged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from orchestrator.elasticsearch.bulk import (
    BulkState,
    RunningMerge,
    named_otherwise,
    parse_bulk_index,
    parse_bulk_state,
)
from orchestrator.elasticsearch.fields import reading
from orchestrator.model.merging import BulkIndex
from orchestrator.model.reading import Reading, Unknown
from tests.unit.clusters.cases import known
from tests.unit.clusters.recordings import ASKED, BULK, raw, reshaped

Change = Callable[[Any], object]


def damaged(version: str, name: str, change: Change) -> Any:
    answer = raw(version, name)
    change(answer)
    return answer


def states_of(version: str, moment: str = "loaded") -> dict[str, BulkState]:
    states = known(reading(parse_bulk_state, raw(version, f"{moment}.indices")))
    return {state.name: state for state in states.values()}


def parsed(version: str, name: str = "posts", moment: str = "loaded", **more: Any) -> Reading[BulkIndex]:
    """An index from the recorded answers; `segments` and `writes` may be others."""
    given = {
        "segments": raw(version, f"{moment}.segments"),
        "writes": raw(version, f"{moment}.writes"),
        **more,
    }
    return reading(parse_bulk_index, states_of(version, moment)[name], **given)


def _copies(answer: Any) -> Any:
    return answer["indices"]["posts"]["shards"]["0"]


def test_parse_bulk_index_counts_what_a_search_goes_through() -> None:
    """Not what is committed alone; the numbers of each version are in `data/elasticsearch-read`."""
    for version in BULK:
        listed = [len(each["segments"]) for each in _copies(raw(version, "loaded.segments"))]
        assert min(listed) > 7, "a flush without a refresh has left segments that are committed alone"
        assert known(parsed(version)).segments == 7
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


def test_writes_that_are_not_all_there_are_unknown(subtests: pytest.Subtests) -> None:
    for version, (number, change) in product(BULK, enumerate(WRITES)):
        with subtests.test(version, number=number):
            writes = damaged(version, "loaded.writes", change)
            assert isinstance(parsed(version, writes=writes), Unknown)


def test_without_sequence_numbers_operations_alone_are_read() -> None:
    writes = damaged("9.1.0", "loaded.writes", WRITES[2])
    writes = reshaped("5.6.16", ASKED["writes"], writes)
    read = known(parsed("9.1.0", writes=writes)).writes
    assert (read.operations, read.sequence) == (352, None)


def test_committed_segments_count_where_a_flush_loses_a_merge() -> None:
    answer = raw("9.1.0", "loaded.segments")
    for committed in (40, 0):
        for each in _copies(answer):
            each["num_committed_segments"] = committed
        later = known(parsed("9.1.0", segments=answer))
        before = known(parsed("9.1.0", segments=reshaped("1.4.5", ASKED["segments"], answer)))
        assert later.segments < 40
        assert before.segments == max(committed, later.segments)
    del _copies(answer)[0]["num_committed_segments"]
    lacking = reshaped("1.4.5", ASKED["segments"], answer)
    assert isinstance(parsed("9.1.0", segments=lacking), Unknown)


def test_a_copy_that_is_not_started_is_not_asked_for() -> None:
    answer = raw("9.1.0", "loaded.indices")
    for each in answer["routing_table"]["indices"]["posts"]["shards"]["0"]:
        each["state"] = each["state"] if each["primary"] else "INITIALIZING"
    posts = next(
        state for state in known(reading(parse_bulk_state, answer)).values() if state.name == "posts"
    )
    assert [each.primary for each in posts.copies] == [True]


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
