"""What a bulk load sends, and how segments are counted from what a server answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.bulk import BulkLoad, Dialect, load, numbered
from tests.lab.client import Access, LabClient
from tests.lab.errors import LabError
from tests.lab.segments import count_segments, told


class Canned(LabClient):
    """Answers from a table by the beginning of the path, and keeps what it was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__(Access(endpoints=()))
        self._answers = answers
        self.asked: list[tuple[str, str, Any]] = []

    def ask(self, method: str, path: str, body: Any = None, **_limits: Any) -> Any:
        self.asked.append((method, path, body))
        return next((answer for start, answer in self._answers.items() if path.startswith(start)), {})


GREEN = {"/_cluster/health": {"timed_out": False}}
SMALL = BulkLoad(indices=numbered("posts", 2), documents=10, documents_per_request=2)
ANY = Dialect(mapping={}, bulk="_bulk", unset={"index.merge.policy.segments_per_tier": None})


def bulks(client: Canned) -> dict[str, list[str]]:
    sent: dict[str, list[str]] = {}
    for _, path, body in client.asked:
        if "_bulk" in path:
            assert "?refresh=true&" in path, "each request is to leave a segment of its own"
            sent.setdefault(path.split("/")[1], []).append(body)
    return sent


def loaded(wanted: BulkLoad = SMALL) -> Canned:
    client = Canned({**GREEN, **{f"/{name}/_bulk": {"errors": False} for name in wanted.indices}})
    load(client, wanted, dialect=ANY)
    return client


def test_the_documents_are_shared_out_and_none_is_sent_twice() -> None:
    sent = bulks(loaded())
    assert {name: len(bodies) for name, bodies in sent.items()} == {"posts-01": 3, "posts-02": 3}
    lines = [json.loads(line) for bodies in sent.values() for body in bodies for line in body.splitlines()]
    ids = [line["index"]["_id"] for line in lines if "index" in line]
    assert len(ids) == len(set(ids)) == 10


def test_two_loads_hold_the_same_documents() -> None:
    first, again = bulks(loaded()), bulks(loaded())
    twin = bulks(loaded(BulkLoad(indices=("twin-01",), documents=5, documents_per_request=2)))
    assert first == again
    assert twin["twin-01"] == first["posts-01"]
    assert first["posts-01"] != first["posts-02"]


def test_the_merge_policy_is_restored_after_the_flush() -> None:
    asked = [(method, path) for method, path, _ in loaded().asked]
    steps = ["_bulk", "_flush", "_settings", "_cluster/health"]
    places = [max(at for at, (_, path) in enumerate(asked) if step in path) for step in steps]
    assert places == sorted(places)
    assert "_cluster/health" in asked[2][1], "before the first document: replicas get segments of their own"
    (settings,) = [body for _, path, body in loaded().asked if path.endswith("_settings")]
    assert settings == {
        "index.merge.policy.segments_per_tier": None,
        "index.refresh_interval": "1s",
        "index.translog.durability": "request",
    }


def test_a_refused_document_ends_the_load() -> None:
    client = Canned({**GREEN, "/posts-01/_bulk": {"errors": True, "items": ["no"]}})
    with pytest.raises(LabError, match=r"posts-01.*the cluster refused documents"):
        load(client, BulkLoad(indices=("posts-01",), documents=4), dialect=ANY)


def test_an_index_that_does_not_become_green_ends_the_load() -> None:
    with pytest.raises(LabError, match="not green"):
        load(Canned({"/_cluster/health": {"timed_out": True}}), SMALL, dialect=ANY)


def copy(node: str, *, primary: bool, searched: int, committed: int) -> dict[str, Any]:
    segments = {
        f"_{number}": {
            "num_docs": 10,
            "size_in_bytes": 100,
            "search": number < searched,
            "committed": number < committed,
        }
        for number in range(max(searched, committed))
    }
    return {
        "routing": {"state": "STARTED", "primary": primary, "node": node},
        "num_search_segments": searched,
        "num_committed_segments": committed,
        "segments": segments,
    }


def test_every_copy_is_counted_by_its_node() -> None:
    shards = {
        "0": [
            copy("A", primary=True, searched=3, committed=7),
            copy("B", primary=False, searched=5, committed=4),
        ]
    }
    client = Canned(
        {
            "/_nodes": {"nodes": {"A": {"name": "es1"}, "B": {"name": "es2"}}},
            "/posts-*/_segments": {"indices": {"posts-01": {"shards": shards}}},
        }
    )
    first, second = count_segments(client, "posts-*")
    assert (first.node, first.primary, first.searched, first.committed, first.most) == ("es1", True, 3, 7, 7)
    assert (second.node, second.primary, second.most) == ("es2", False, 5)
    assert (first.documents, first.bytes) == (30, 300), "what waits to be deleted is not searched"
    assert told((first, second)) == (
        "2 copies on 2 nodes, 0 MiB; segments of a copy, least/median/most: searched 3/4/5, committed 4/6/7"
    )
    assert told(()) == "no copies"
