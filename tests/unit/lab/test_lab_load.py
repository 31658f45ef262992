"""The load's book-keeping: turns, counts, and what the summary says of them."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.fakes.scripted_http import ScriptedServer, reply
from tests.lab.client import Access
from tests.lab.demo import DemoSummary
from tests.lab.load import Load, LoadProfile, Rotation, Verification
from tests.lab.seed import SeedIndex, bulk_body
from tests.lab.settings import SettingChange, SettingsPicture, changes
from tests.lab.tally import Latencies, Tally, latencies


def test_turns_go_round_and_leave_out_who_failed() -> None:
    rotation = Rotation(("a", "b", "c"), shun_seconds=1.0)
    assert [rotation.choose(0.0) for _ in range(4)] == ["a", "b", "c", "a"]
    rotation.shun("b", 0.0)
    assert [rotation.choose(0.5) for _ in range(3)] == ["c", "a", "c"]
    assert "b" in [rotation.choose(1.0) for _ in range(3)]


def test_when_all_are_shunned_the_first_to_come_free_is_tried() -> None:
    rotation = Rotation(("a", "b"), shun_seconds=1.0)
    rotation.shun("b", 0.0)
    rotation.shun("a", 0.5)
    assert rotation.choose(0.6) == "b"
    assert rotation.none_left(0.6)
    assert not rotation.none_left(1.1)


def test_a_load_that_every_node_refuses_pauses() -> None:
    """Elasticsearch 1.7 without a master answers a write at once: 900 a second were sent (seen)."""
    with ScriptedServer() as server:
        server.on("/load", reply({}, headers={}))
        server.on("/_cluster/health/load", reply({"timed_out": False}, headers={}))
        server.on("/load/_bulk", reply({"error": "no master"}, status=503, headers={}))
        load = Load(Access(endpoints=(server.url,)), LoadProfile(searches_per_second=0.1))
        load.start()
        time.sleep(0.5)
        indexing = load.stop().indexing
    assert 1 <= indexing.failed <= 6
    assert indexing.sent == indexing.failed


def test_the_tally_counts_and_writes_the_ledger(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "acknowledged")
    tally.acknowledge(["d1", "d2"])
    assert (tmp_path / "acknowledged").read_text() == "d1\nd2\n", "on disk when acknowledged, not at the end"
    tally.acknowledge(["d2"])
    tally.answered("searching", 0.5, partial=1)
    tally.failed("searching", "status 503")
    tally.failed("indexing", "status 503")
    tally.answered("indexing", 0.1)
    tally.refused("indexing", "document refused: unavailable_shards_exception")
    tally.abandoned("searching")
    tally.close()
    result = tally.result()
    assert result.acknowledged == 2
    searching = result.searching
    assert (searching.sent, searching.failed, searching.abandoned, searching.partial) == (2, 1, 1, 1)
    assert (result.indexing.sent, result.indexing.failed) == (2, 2), "a refusal is no further request"
    assert result.reasons == {"status 503": 2, "document refused: unavailable_shards_exception": 1}
    assert tally.wait_acknowledged(2, 0.0)
    assert not tally.wait_acknowledged(3, 0.01)


def test_latencies() -> None:
    assert latencies([]) == Latencies(median=0.0, p99=0.0, longest=0.0)
    assert latencies(float(n) for n in range(100)) == Latencies(median=50.0, p99=99.0, longest=99.0)


def picture(persistent: dict[str, str], transient: dict[str, str]) -> SettingsPicture:
    return SettingsPicture(persistent=persistent, transient=transient)


def test_settings_are_compared_level_by_level() -> None:
    before = picture({"a": "1", "b": "2"}, {"c": "3"})
    assert changes(before, before) == ()
    assert changes(before, picture({"b": "5", "c": "3"}, {})) == (
        SettingChange(level="persistent", name="a", before="1", after=None),
        SettingChange(level="persistent", name="b", before="2", after="5"),
        SettingChange(level="persistent", name="c", before=None, after="3"),
        SettingChange(level="transient", name="c", before="3", after=None),
    )


def test_the_summary_is_good_only_with_nothing_missing_or_left() -> None:
    tally = Tally()
    tally.acknowledge(["d1", "d2"])

    def summary(*missing: str, left: tuple[SettingChange, ...] = ()) -> DemoSummary:
        return DemoSummary(
            server="elasticsearch-9.1.0",
            node_seconds={"es1": 6.04},
            total_seconds=20.0,
            load=tally.result(),
            verification=Verification(acknowledged=2, missing=missing, duplicated=(), unacknowledged=0),
            settings_left=left,
        )

    assert summary().good
    assert not summary("d1").good
    change = SettingChange(level="transient", name="x", before=None, after="1")
    assert not summary(left=(change,)).good
    rows = dict(summary("d1", left=(change,)).rows())
    assert rows["es1, stop to recovered"] == "6.0 s"
    assert rows["of these missing"] == "1"
    assert rows["settings not as before"] == "transient x: None -> 1"


def test_the_same_seed_gives_the_same_documents() -> None:
    index = SeedIndex(name="posts", document_bytes=100)
    first, second = (bulk_body(index, range(2), random.Random(7)) for _ in range(2))  # noqa: S311  (test data)
    assert first == second
    lines = first.splitlines()
    assert len(lines) == 4
    assert '"posts-1"' in lines[2]
    assert 90 <= len(lines[1]) - len('{"number": 0, "text": ""}') <= 100
