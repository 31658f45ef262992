"""Merges whose answer is lost, and indices read whole, over real sockets; see also `tests/data/exchanges`."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.elasticsearch import eras
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.model.action import (
    ActionResult,
    Done,
    ForceMerge,
    InDoubt,
)
from orchestrator.model.merging import BulkView
from orchestrator.model.reading import Unknown
from tests.fakes.scripted_http import ScriptedServer, cut, hang, reply
from tests.unit.clusters.cases import known
from tests.unit.clusters.recordings import raw
from tests.unit.clusters.scripted import be, sent

CALL, UUIDS, NAMES = "POST /posts/_forcemerge", "/_cluster/state/metadata/posts", "/_cluster/state/metadata"
TASKS, RESULT = "/_tasks", "/_tasks/n1%3A7"
MERGE = ForceMerge(index="posts", index_uuid="u1", max_segments=5)


def tasks(*descriptions: str) -> Any:
    listed = {
        f"n1:{number}": {
            "action": "indices:admin/forcemerge",
            "description": f"Force-merge indices [{named}], maxSegments[1], onlyExpungeDeletes[false]",
        }
        for number, named in enumerate(descriptions)
    }
    return {"nodes": {"n1": {"name": "es1", "tasks": listed}} if listed else {}}


def metadata(**uuids: str) -> Any:
    indices = {
        name: {"state": "open", "aliases": [f"all-{name}"], "settings": {"index": {"uuid": uuid}}}
        for name, uuid in uuids.items()
    }
    return {"cluster_name": "c", "metadata": {"indices": indices}}


@pytest.fixture(autouse=True)
def one_index(server: ScriptedServer) -> None:
    """The server has the index, no merge runs, and what is asked for is done."""
    server.on(UUIDS, reply(metadata(posts="u1")))
    server.on(NAMES, reply(metadata(posts="u1", people="u2")))
    server.on(TASKS, reply(tasks()))
    server.on(CALL, reply({"task": "n1:7"}))
    server.on(RESULT, reply({"error": {"type": "timeout", "reason": "it goes on"}}, status=500))


def said(result: ActionResult) -> str:
    return result.output if isinstance(result, Done) else result.reason


@pytest.mark.parametrize(("after", "result"), [(tasks("posts"), Done), (tasks(), InDoubt)])
def test_after_a_lost_answer_nothing_is_sent_again(
    server: ScriptedServer,
    client: Callable[..., ElasticsearchClient],
    monkeypatch: pytest.MonkeyPatch,
    after: Any,
    result: type[ActionResult],
) -> None:
    """Before 8.1 the call waits for the end of the merge: it is hung up on."""
    monkeypatch.setattr(eras, "MERGE_SECONDS", 0.3)
    waiting = "/posts/_forcemerge?max_num_segments=5&expand_wildcards=none"
    for version, answer, target in (
        ("9.1.0", cut(b""), f"{waiting}&wait_for_completion=false"),
        ("8.0.1", hang, waiting),
    ):
        server.asked.clear()
        be(server, version=version).on(CALL, answer)
        server.on(TASKS, reply(tasks()), reply(after))
        began = time.monotonic()
        done = ElasticsearchCluster(client(server.url)).perform(MERGE)
        assert time.monotonic() - began < 10
        assert isinstance(done, result)
        assert answer is not hang or "did not answer in time" in said(done) or "task n1:0" in said(done)
        assert sent(server, "POST") == [target]


# Indices read whole ----------------------------------------------------------------------------------------

LOADED = raw("9.1.0", "loaded.indices")
U = {name: value["settings"]["index"]["uuid"] for name, value in LOADED["metadata"]["indices"].items()}
OPEN = [name for name in LOADED["metadata"]["indices"] if name != "shut"]
ALL = "/_cluster/state/nodes,metadata,routing_table/empty,people,posts,shut"


@pytest.fixture
def loaded(server: ScriptedServer) -> ScriptedServer:
    server.on(NAMES, reply(metadata(**U)))
    for path in (ALL, ALL.removesuffix(",shut")):
        server.on(path, reply(LOADED))
    for names in (OPEN, sorted(OPEN), [name for name in OPEN if name != "posts"], ["empty", "people"]):
        server.on(f"/{','.join(names)}/_segments", reply(raw("9.1.0", "loaded.segments")))
        server.on(f"/{','.join(names)}/_stats/indexing,merge", reply(raw("9.1.0", "loaded.writes")))
    return server


def names_in(view: BulkView) -> set[str]:
    return {index.name for index in view.indices.values()}


def test_a_reading_of_loaded_indices(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    loaded.on(TASKS, reply(tasks("posts", "all-people, nothing", "posts")))
    view = known(port.bulk([*U.values(), "of-one-that-is-gone"]))
    assert view.closed == {U["shut"]}
    counted = {index.name: index.tasks for index in view.indices.values()}
    assert counted == {"posts": 2, "people": 1, "empty": 0}
    assert all(index.tasks_known for index in view.indices.values())


def test_bulk_costs_few_calls_and_tasks_come_first(
    loaded: ScriptedServer, port: ElasticsearchCluster
) -> None:
    open_ones = [U[name] for name in OPEN]
    known(port.bulk(open_ones))
    before = len(loaded.asked)
    known(port.bulk(open_ones))
    last = [each.path.split("/")[-1] for each in loaded.asked[before:]]
    assert last == ["_tasks", "empty,people,posts", "_segments", "indexing,merge"]


def test_bulk_of_no_index_asks_nothing(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    assert port.bulk([]) == BulkView(indices={})
    assert loaded.asked == []
    assert port.bulk(["gone"]) == BulkView(indices={})
    assert not any("_segments" in each.path or "_stats" in each.path for each in loaded.asked)


def test_bulk_leaves_out_another_index_of_the_name(
    loaded: ScriptedServer, port: ElasticsearchCluster
) -> None:
    assert names_in(known(port.bulk(list(U.values())))) == {"posts", "people", "empty"}
    other = copy.deepcopy(LOADED)
    other["metadata"]["indices"]["posts"]["settings"]["index"]["uuid"] = "another"
    loaded.on(ALL, reply(other))
    assert names_in(known(port.bulk(list(U.values())))) == {"people", "empty"}


def test_a_call_that_fails_makes_all_of_it_unknown(
    subtests: pytest.Subtests, loaded: ScriptedServer, client: Callable[..., ElasticsearchClient]
) -> None:
    order = ",".join(OPEN)
    for path in (NAMES, TASKS, ALL, f"/{order}/_segments", f"/{order}/_stats/indexing,merge"):
        with subtests.test(path):
            before = loaded.answers[path]
            loaded.on(path, reply({"error": "no"}, status=500))
            view = ElasticsearchCluster(client(loaded.url)).bulk(list(U.values()))
            loaded.on(path, *before)
            assert isinstance(view, Unknown)
            assert "500" in view.reason
