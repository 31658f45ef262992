"""Watermarks in all the forms in which they can be set."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Disk, SettingsView
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch.fields import Malformed, parse_size
from orchestrator.stores.elasticsearch.parse_disks import (
    parse_data_paths,
    parse_disks,
    parse_stored,
    parse_watermark,
)

GB = 1024**3
KEY = "cluster.routing.allocation.disk."


def test_watermarks(subtests: pytest.Subtests) -> None:
    for watermark, headroom, total_gb, free_gb, passed in [
        ("85%", None, 100, 16, False),
        ("85%", None, 100, 14, True),
        ("0.85", None, 100, 14, True),
        ("0.85", None, 100, 16, False),
        ("50gb", None, 1000, 51, False),
        ("50gb", None, 1000, 49, True),
        ("1tb", None, 4000, 1000, True),
        # 85 % of 10 TB would leave 1500 GB free; the headroom asks for no more than 200.
        ("85%", "200gb", 10_000, 300, False),
        ("85%", "200gb", 10_000, 190, True),
        ("85%", "-1", 10_000, 300, True),
        ("85%", "200gb", 100, 14, True),
    ]:
        with subtests.test(watermark=watermark, headroom=headroom):
            mark = parse_watermark(watermark, headroom, "low")
            assert mark.passed(total=total_gb * GB, available=free_gb * GB) is passed


def test_what_is_no_watermark(subtests: pytest.Subtests) -> None:
    for value in ["", "much", "-5gb", "85%%", None, ("85%",), "1.5.5"]:
        with subtests.test(value=value), pytest.raises(Malformed):
            parse_watermark(value, None, "low")  # type: ignore[arg-type]  # what a server might send


@pytest.mark.parametrize(
    ("text", "size"), [("1024", 1024), ("1kb", 1024), ("1.5gb", 3 * GB // 2), ("41943040b", 40 * 1024**2)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "x") == size


def answer(roles: list[str], *paths: tuple[int, int], failed: int = 0) -> dict[str, object]:
    data = [{"total_in_bytes": total * GB, "available_in_bytes": free * GB} for total, free in paths]
    node = {"name": "es1", "roles": roles, "fs": {"data": data}}
    return {"_nodes": {"total": 1, "successful": 1 - failed, "failed": failed}, "nodes": {"x": node}}


def settings(**more: str) -> SettingsView:
    files = {f"{KEY}watermark.low": "85%", f"{KEY}watermark.high": "90%", f"{KEY}threshold_enabled": "true"}
    return SettingsView(files=files, persistent={f"{KEY}{key}": value for key, value in more.items()})


def disk(read: object) -> Disk:
    assert isinstance(read, dict), read
    return read[NodeName("es1")]  # type: ignore[no-any-return]  # the test's own helper


def test_the_fullest_path_counts() -> None:
    found = disk(parse_disks(answer(["data"], (100, 50), (100, 12)), settings()))
    assert found.used_share == pytest.approx(0.88)
    assert (found.over_low, found.over_high) == (True, False)


def test_thresholds_that_are_off_hold_nothing() -> None:
    found = disk(parse_disks(answer(["data"], (100, 1)), settings(threshold_enabled="false")))
    assert found.used_share == pytest.approx(0.99)
    assert (found.over_low, found.over_high) == (False, False)


@pytest.mark.parametrize("roles", [["master"], ["data_frozen"], []])
def test_nodes_that_take_no_ordinary_copies_have_no_watermark(roles: list[str]) -> None:
    found = disk(parse_disks(answer(roles, (100, 1)), settings()))
    assert (found.over_low, found.over_high) == (False, False)


def test_a_node_that_did_not_answer_is_left_out() -> None:
    told = answer(["data"], (100, 50))
    read = parse_disks({**told, "_nodes": {"total": 2, "successful": 1, "failed": 1}}, settings())
    assert set(read) == {"es1"}  # type: ignore[arg-type]  # a mapping, or the test fails


def test_an_answer_of_no_node_makes_all_unknown() -> None:
    assert isinstance(parse_disks(answer(["data"], (100, 50), failed=1), settings()), Unknown)


def test_a_watermark_that_is_not_known_makes_all_unknown() -> None:
    read = parse_disks(answer(["data"], (100, 50)), SettingsView())
    assert isinstance(read, Unknown)
    assert "watermark.low is absent" in read.reason


def test_data_paths_are_told_by_node() -> None:
    fs = {"data": [{"path": "/var/lib/a"}, {"path": "/var/lib/b"}]}
    told = {"nodes": {"x": {"name": "es1", "fs": fs}, "y": {"name": "es2"}}}
    assert parse_data_paths(told) == {NodeName("es1"): ("/var/lib/a", "/var/lib/b")}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"nodes": {"x": {"name": "es1", "fs": {"data": "/var/lib/a"}}}},
        {"nodes": {"x": {"name": "es1", "fs": {"data": [{"path": None}]}}}},
        {"nodes": {"x": {"fs": {"data": [{"path": "/var/lib/a"}]}}}},
    ],
)
def test_data_paths_of_another_form_are_unknown(told: object) -> None:
    assert isinstance(parse_data_paths(told), Unknown)


def test_room(subtests: pytest.Subtests) -> None:
    for roles, paths, more, room_gb in [
        (["data"], [(100, 50)], {}, 40),
        (["data"], [(100, 10)], {}, 0),
        (["data"], [(100, 1)], {}, 0),
        (["data"], [(100, 50)], {"watermark.high": "20gb"}, 30),
        (["data"], [(10_000, 800)], {"watermark.high.max_headroom": "150gb"}, 650),
        # The path with the least room, which need not be the fullest by its share.
        (["data"], [(100, 50), (1000, 120)], {}, 20),
        (["data"], [(100, 50)], {"threshold_enabled": "false"}, 50),
        (["data"], [(100, 50), (100, 3)], {"threshold_enabled": "false"}, 3),
        (["data_frozen"], [(100, 3)], {}, 3),
    ]:
        with subtests.test(roles=roles, paths=paths, more=more, room_gb=room_gb):
            found = disk(parse_disks(answer(roles, *paths), settings(**more)))
            assert found.room_bytes == pytest.approx(room_gb * GB, abs=1)


def test_no_more_than_the_room_passes_no_watermark(subtests: pytest.Subtests) -> None:
    for total, available in [(100, 10), (1000, 101), (1000, 100), (999, 100), (7, 1)]:
        with subtests.test(total=total, available=available):
            mark = parse_watermark("90%", None, "high")
            room = mark.room(total=total, available=available)
            assert not mark.passed(total=total, available=available - room) or room == 0
            assert mark.passed(total=total, available=available - room - 1)


def test_what_a_node_stores_is_read_where_it_says_so() -> None:
    body = {
        "nodes": {
            "a": {"name": "es1", "indices": {"store": {"size_in_bytes": 7}}},
            "b": {"name": "es2"},
        }
    }
    assert parse_stored(body) == {"es1": 7}
    assert parse_stored({"nodes": {}}) == {}
    for wrong in ({}, {"nodes": []}, {"nodes": {"a": {"indices": {"store": {"size_in_bytes": "7"}}}}}):
        assert isinstance(parse_stored(wrong), Unknown), wrong
