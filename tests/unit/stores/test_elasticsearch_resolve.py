"""What patterns stand for, by metadata in the shape that real nodes give it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.resolution import Resolution
from orchestrator.stores.elasticsearch.resolve import parse_resolution, patterns_in


def index(*aliases: str, state: str = "open", hidden: str | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {"uuid": f"u{len(aliases)}"}
    if hidden is not None:
        settings["hidden"] = hidden
    return {"state": state, "aliases": list(aliases), "settings": {"index": settings}}


METADATA: dict[str, Any] = {
    "cluster_name": "lab",
    "metadata": {
        "indices": {
            "posts-1": index("posts", ".secret"),
            "posts-2": index("posts"),
            "posts-old": index(state="close"),
            "posts-shy": index(hidden="true"),
            "posts-bold": index(hidden="false"),
            ".dotted": index(),
            ".ds-stream-a-000001": index(hidden="true"),
        },
        "data_stream": {
            "data_stream": {"stream-a": {"indices": [{"index_name": ".ds-stream-a-000001"}]}},
            "data_stream_aliases": {"streams": {"data_streams": ["stream-a"]}},
        },
    },
}
STREAM = ".ds-stream-a-000001"


def resolved(*patterns: str, body: Any = METADATA) -> Resolution:
    found = parse_resolution(body, patterns)
    assert isinstance(found, Resolution), found
    return found


def test_open_indices(subtests: pytest.Subtests) -> None:
    for pattern, names in [
        ("posts-1", ["posts-1"]),
        ("posts", ["posts-1", "posts-2"]),
        ("posts-*", ["posts-1", "posts-2", "posts-bold"]),
        ("*-1,posts-2", ["posts-1", "posts-2"]),
        ("posts-1,posts-1,posts", ["posts-1", "posts-2"]),
        ("posts-shy", ["posts-shy"]),
        ("posts-shy,posts-*", ["posts-1", "posts-2", "posts-bold", "posts-shy"]),
        (".dot*", [".dotted"]),
        (".secret", ["posts-1"]),
        (".s*", ["posts-1"]),
        ("stream-a", [STREAM]),
        ("stream*", [STREAM]),
        ("streams", [STREAM]),
        (".ds-*", [STREAM]),
        ("*", [STREAM, "posts-1", "posts-2", "posts-bold"]),
        ("_all", [STREAM, "posts-1", "posts-2", "posts-bold"]),
        ("posts.1", []),
        ("posts-?", []),
        ("Posts-1", []),
    ]:
        with subtests.test(pattern=pattern, names=names):
            assert [each.name for each in resolved(pattern).open] == names


def test_closed_and_hidden_ones_are_told_apart() -> None:
    found = resolved("posts-*", ".*old", "*t*")
    assert [each.name for each in found.closed] == ["posts-old"]
    assert [each.name for each in found.hidden] == [".dotted", "posts-shy"]
    assert found.unmatched == (".*old",)
    assert [each.name for each in resolved("posts-old").closed] == ["posts-old"]


def test_each_pattern_without_an_index_is_named() -> None:
    found = resolved("none,posts-1", "no-*", "-posts-1")
    assert found.unmatched == ("none", "no-*", "-posts-1")
    nothing = {"cluster_name": "lab"}
    assert resolved("*", body=nothing) == Resolution(unmatched=("*",))


def test_it_is_the_index_of_that_uuid() -> None:
    assert [each.uuid for each in resolved("posts-2").open] == ["u1"]


def test_an_answer_that_is_none_is_unknown(subtests: pytest.Subtests) -> None:
    for body in [
        {},
        "nothing",
        {"cluster_name": "c", "metadata": {"indices": []}},
        {"cluster_name": "c", "metadata": {"indices": {"a": {"state": "open"}}}},
        {
            "cluster_name": "c",
            "metadata": {"indices": {"a": {"state": "ajar", "settings": {"index": {"uuid": "u"}}}}},
        },
        {"cluster_name": "c", "metadata": {"data_stream": {"data_stream": {"s": {}}}}},
    ]:
        with subtests.test(body=body):
            assert isinstance(parse_resolution(body, ["*"]), Unknown)


def test_patterns_are_told_apart_and_kept_once() -> None:
    assert patterns_in(["a, b", "a", ",c,"]) == ("a", "b", "c")
