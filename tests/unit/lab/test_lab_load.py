"""The load's book-keeping: which endpoint is next, what is counted, which documents are missing."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.scripted_http import ScriptedServer, reply
from tests.lab.client import Access
from tests.lab.demo import keep_report, summary
from tests.lab.load import Load, LoadProfile, Rotation, Tally, Verification


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


def test_the_tally_counts_requests_and_reasons() -> None:
    tally = Tally()
    tally.acknowledge(["d1", "d2"])
    tally.acknowledge(["d2"])
    tally.answered("searching", partial=1)
    tally.failed("searching", "status 503")
    tally.failed("indexing", "status 503")
    tally.answered("indexing")
    tally.failed("indexing", "document refused: unavailable_shards_exception", sent=0)
    tally.abandoned("searching")
    result = tally.result()
    tally.failed("searching", "after the picture")
    assert result.acknowledged == 2
    searching = result.searching
    assert (searching.sent, searching.failed, searching.abandoned, searching.partial) == (2, 1, 1, 1)
    assert (result.indexing.sent, result.indexing.failed) == (2, 2), "a refusal is no further request"
    assert result.reasons == {"status 503": 2, "document refused: unavailable_shards_exception": 1}
    assert tally.wait_acknowledged(2, 0.0)
    assert not tally.wait_acknowledged(3, 0.01)


def test_verify_names_missing_and_duplicated_documents() -> None:
    page = {"_shards": {"failed": 0}, "timed_out": False, "_scroll_id": "s"}
    hits = [{"_id": each} for each in ("d1", "d2", "d2", "d9")]
    with ScriptedServer() as server:
        server.on("/load/_refresh", reply({}, headers={}))
        server.on("/load/_search", reply({**page, "hits": {"hits": hits}}, headers={}))
        server.on("/_search/scroll", reply({**page, "hits": {"hits": []}}, headers={}))
        load = Load(Access(endpoints=(server.url,)))
        load._tally.acknowledge(["d1", "d2", "d3"])
        found = load.verify()
    assert found == Verification(acknowledged=3, missing=("d3",), duplicated=("d2",), unacknowledged=1)
    assert not found.whole
    rows = dict(summary(load.result(), found, ["transient x: None -> 1"]))
    assert (rows["of these missing"], rows["of these there twice"]) == ("1", "1")
    assert rows["settings not as before"] == "transient x: None -> 1"


def test_the_report_of_the_demo_outlives_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with TemporaryDirectory() as folder:
        assert keep_report(Path(folder)) is None
        (Path(folder) / "reports").mkdir()
        (Path(folder) / "reports" / "run-1.html").write_text("page")
        kept = keep_report(Path(folder))
    assert kept is not None
    assert (kept.read_text(), kept.parent) == ("page", tmp_path)
