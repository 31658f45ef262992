"""Merges asked for once and indices read whole, over real sockets to a server that is scripted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.action import (
    ActionResult,
    ClusterAction,
    Done,
    ForceMerge,
    InDoubt,
    RefreshIndex,
    Refused,
    SetIndexSettings,
)
from orchestrator.model.merging import BulkView
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch import force_merge
from orchestrator.stores.elasticsearch.access import Access, Limits
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from tests.fakes.scripted_http import ScriptedServer, cut, hang, node, reply

DATA = Path(__file__).parents[2] / "data" / "elasticsearch" / "9.1.0"
CALL = "POST /posts/_forcemerge"
UUIDS = "/_cluster/state/metadata/posts"
NAMES = "/_cluster/state/metadata"
TASKS = "/_tasks"
RESULT = "/_tasks/n1%3A7"
MERGE = ForceMerge(index="posts", index_uuid="u1", max_segments=5)
OF_INDEX: tuple[ClusterAction, ...] = (
    MERGE,
    RefreshIndex(index="posts", index_uuid="u1"),
    SetIndexSettings(index="posts", index_uuid="u1", found={}, wanted={"index.refresh_interval": None}),
)


class RealClock:
    """Real time; waits are not waited out."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        threading.Event().wait(min(seconds, 0.01))


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


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        be(running, "9.1.0")
        running.on(UUIDS, reply(metadata(posts="u1")))
        running.on(NAMES, reply(metadata(posts="u1", people="u2")))
        running.on(TASKS, reply(tasks()))
        running.on(CALL, reply({"task": "n1:7"}))
        running.on(RESULT, reply({"error": {"type": "timeout", "reason": "it goes on"}}, status=500))
        running.on("POST /posts/_refresh", reply({"_shards": {"total": 2, "successful": 2, "failed": 0}}))
        running.on("PUT /posts/_settings", reply({"acknowledged": True}))
        yield running


def be(server: ScriptedServer, version: str) -> None:
    server.on("/_nodes/_local/http", reply(node("es1", version=version)))
    server.on("/_nodes/http", reply(node("es1", version=version)))


@pytest.fixture
def port(server: ScriptedServer) -> Iterator[ElasticsearchCluster]:
    limits = Limits(connect=10.0, silence=20.0, answer=30.0)
    client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=RealClock(), limits=limits)
    opened = ElasticsearchCluster(client)
    yield opened
    opened.close()


def sent(server: ScriptedServer, method: str = "POST") -> list[str]:
    return [each.target for each in server.asked if each.method == method]


def said(result: ActionResult) -> str:
    return result.output if isinstance(result, Done) else result.reason


def test_a_merge_is_asked_for_once_and_its_task_told(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    assert port.perform(MERGE) == Done(output="task n1:7")
    assert sent(server) == [port.describe(MERGE).removeprefix("POST ")]


def test_one_that_runs_is_not_asked_for_again(
    subtests: pytest.Subtests, server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    for named in ["posts", "people, posts", "p*", "all-posts", "", "<posts-{now/d}>"]:
        with subtests.test(named=named):
            server.on(TASKS, reply(tasks("people", named)))
            assert port.perform(MERGE) == Done(output="runs already: task n1:1")
            assert sent(server) == []


@pytest.mark.parametrize("named", ["people", "peop*", "all-people"])
def test_one_of_another_index_is_no_hindrance(
    server: ScriptedServer, port: ElasticsearchCluster, named: str
) -> None:
    server.on(TASKS, reply(tasks(named)))
    assert port.perform(MERGE) == Done(output="task n1:7")


@pytest.mark.parametrize(
    "answer",
    [
        reply({"error": "no"}, status=500),
        reply({"nodes": {}, "node_failures": [{"reason": "es3 did not answer"}]}),
        reply("nothing"),
    ],
)
def test_nothing_is_asked_for_while_tasks_cannot_be_read(
    server: ScriptedServer, port: ElasticsearchCluster, answer: Any
) -> None:
    server.on(TASKS, answer)
    result = port.perform(MERGE)
    assert isinstance(result, Refused)
    assert "runs already could not be read" in result.reason
    assert sent(server) == []


def test_nor_while_names_that_are_needed_cannot(server: ScriptedServer, port: ElasticsearchCluster) -> None:
    server.on(TASKS, reply(tasks("somebody-elses-*")))
    server.on(NAMES, reply({}, status=500))
    assert isinstance(port.perform(MERGE), Refused)
    assert sent(server) == []


def test_another_index_of_that_name_is_left_alone(
    subtests: pytest.Subtests, server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    for there, words in [
        (metadata(), "is gone"),
        (metadata(posts="u9"), "another one (now "),
        (metadata(other="u1"), "is gone"),
    ]:
        for action in OF_INDEX:
            with subtests.test(type(action).__name__, there=there, words=words):
                server.on(UUIDS, reply(there))
                result = port.perform(action)
                assert isinstance(result, Done)
                assert words in result.output
                assert sent(server) == sent(server, "PUT") == []


@pytest.mark.parametrize("action", OF_INDEX, ids=lambda action: type(action).__name__)
def test_an_index_that_goes_in_between_is_gone(
    server: ScriptedServer, port: ElasticsearchCluster, action: ClusterAction
) -> None:
    gone = reply({"error": {"type": "index_not_found_exception", "reason": "no such index"}}, status=404)
    for call in (CALL, "POST /posts/_refresh", "PUT /posts/_settings"):
        server.on(call, gone)
    assert port.perform(action) == Done(output="index posts is gone")


def test_what_is_refused_is_refused(server: ScriptedServer, port: ElasticsearchCluster) -> None:
    server.on(CALL, reply({"error": {"type": "index_closed_exception", "reason": "closed"}}, status=400))
    result = port.perform(MERGE)
    assert isinstance(result, Refused)
    assert "closed" in result.reason


def test_what_became_of_its_task(
    subtests: pytest.Subtests, server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    for result, expected, words in [
        ({"completed": False, "task": {}}, Done, "task n1:7"),
        (
            {"completed": True, "response": {"_shards": {"total": 4, "successful": 3, "failed": 1}}},
            Done,
            "task n1:7: 3 of 4 copies merged, 1 failed",
        ),
        (
            {"completed": True, "error": {"type": "security_exception", "reason": "you may not"}},
            Refused,
            "the force-merge of posts came to nothing (task n1:7): you may not",
        ),
        ({"completed": True, "error": {"type": "index_closed_exception", "reason": "no"}}, Refused, "no"),
        (
            {"completed": True, "error": {"type": "index_not_found_exception", "reason": "no"}},
            Done,
            "is gone",
        ),
        ({"completed": True, "error": {"type": "some_exception", "reason": "oh"}}, InDoubt, "oh"),
        ({"completed": True, "response": "what"}, InDoubt, "what"),
        ("what", Done, "task n1:7"),
    ]:
        with subtests.test(result=result, expected=expected, words=words):
            server.on(RESULT, reply(result))
            done = port.perform(MERGE)
            assert isinstance(done, expected)
            assert words in said(done)


@pytest.mark.parametrize(("after", "result"), [(tasks("posts"), Done), (tasks(), InDoubt)])
def test_after_a_lost_connection_nothing_is_sent_again(
    server: ScriptedServer, port: ElasticsearchCluster, after: Any, result: type[ActionResult]
) -> None:
    server.on(CALL, cut(b""))
    server.on(TASKS, reply(tasks()), reply(after))
    assert isinstance(port.perform(MERGE), result)
    assert len(sent(server)) == 1


@pytest.mark.parametrize(("after", "result"), [(tasks("posts"), Done), (tasks(), InDoubt)])
def test_a_call_that_waits_for_the_end_is_hung_up_on(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, after: Any, result: type[ActionResult]
) -> None:
    monkeypatch.setattr(force_merge, "PATIENCE", 0.3)
    be(server, "8.0.1")
    server.on(CALL, hang)
    server.on(TASKS, reply(tasks()), reply(after))
    client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=RealClock())
    began = time.monotonic()
    done = ElasticsearchCluster(client).perform(MERGE)
    client.close()
    assert time.monotonic() - began < 10
    assert isinstance(done, result)
    assert "did not answer in time" in said(done) or "task n1:0" in said(done)
    assert sent(server) == ["/posts/_forcemerge?max_num_segments=5&expand_wildcards=none"]


def test_a_merge_of_next_to_nothing_is_answered_at_once(
    server: ScriptedServer, port: ElasticsearchCluster
) -> None:
    be(server, "8.0.1")
    server.on(CALL, reply({"_shards": {"total": 3, "successful": 2, "failed": 1}}))
    assert port.perform(MERGE) == Done(output="2 of 3 copies merged, 1 failed")


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())["body"]


LOADED = recorded("loaded.indices")
U = {name: value["settings"]["index"]["uuid"] for name, value in LOADED["metadata"]["indices"].items()}


@pytest.fixture
def loaded(server: ScriptedServer) -> ScriptedServer:
    server.on(NAMES, reply(metadata(**U)))
    for names in ("empty,people,posts", "empty,people,posts,shut"):
        server.on(f"/_cluster/state/nodes,metadata,routing_table/{names}", reply(LOADED))
    for names in ("empty,people,posts", "people,posts,empty", "posts,people,empty", "posts,empty,people"):
        server.on(f"/{names}/_segments", reply(recorded("loaded.segments")))
        server.on(f"/{names}/_stats/indexing,merge", reply(recorded("loaded.writes")))
    return server


def test_a_reading_of_loaded_indices(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    loaded.on(TASKS, reply(tasks("posts", "all-people, nothing", "posts")))
    view = port.bulk([*U.values(), "of-one-that-is-gone"])
    assert isinstance(view, BulkView), view
    assert {view.indices[uuid].name for uuid in view.indices} == {"posts", "people", "empty"}
    assert view.closed == {U["shut"]}
    counted = {index.name: index.tasks for index in view.indices.values()}
    assert counted == {"posts": 2, "people": 1, "empty": 0}
    assert all(index.tasks_known for index in view.indices.values())


def test_it_costs_few_calls_and_tasks_come_first(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    open_ones = [uuid for name, uuid in U.items() if name != "shut"]
    assert isinstance(port.bulk(open_ones), BulkView)
    before = len(loaded.asked)
    assert isinstance(port.bulk(open_ones), BulkView)
    paths = [each.path for each in loaded.asked[before:]]
    assert [path.split("/")[-1] for path in paths] == [
        "_tasks",
        "empty,people,posts",
        "_segments",
        "indexing,merge",
    ]


def test_of_no_index_nothing_is_asked(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    assert port.bulk([]) == BulkView(indices={})
    assert loaded.asked == []


def test_when_all_are_gone_no_other_index_is_read(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    assert port.bulk(["gone"]) == BulkView(indices={})
    assert not any("_segments" in each.path or "_stats" in each.path for each in loaded.asked)


def test_another_index_of_the_name_is_not_ours(loaded: ScriptedServer, port: ElasticsearchCluster) -> None:
    assert isinstance(port.bulk(list(U.values())), BulkView)
    other = json.loads(json.dumps(LOADED))
    other["metadata"]["indices"]["posts"]["settings"]["index"]["uuid"] = "another"
    loaded.on("/_cluster/state/nodes,metadata,routing_table/empty,people,posts,shut", reply(other))
    for names in ("people,empty", "empty,people"):
        loaded.on(f"/{names}/_segments", reply(recorded("loaded.segments")))
        loaded.on(f"/{names}/_stats/indexing,merge", reply(recorded("loaded.writes")))
    view = port.bulk(list(U.values()))
    assert isinstance(view, BulkView), view
    assert {index.name for index in view.indices.values()} == {"people", "empty"}


@pytest.mark.parametrize(
    "path",
    [
        NAMES,
        TASKS,
        "/_cluster/state/nodes,metadata,routing_table/empty,people,posts,shut",
        "/posts,people,empty/_segments",
        "/posts,people,empty/_stats/indexing,merge",
    ],
)
def test_a_call_that_fails_makes_all_of_it_unknown(
    loaded: ScriptedServer, port: ElasticsearchCluster, path: str
) -> None:
    order = ",".join(name for name in LOADED["metadata"]["indices"] if name != "shut")
    loaded.on(path.replace("posts,people,empty", order), reply({"error": "no"}, status=500))
    view = port.bulk(list(U.values()))
    assert isinstance(view, Unknown)
    assert "500" in view.reason


def test_settings_that_are_none_need_no_update(server: ScriptedServer, port: ElasticsearchCluster) -> None:
    last = OF_INDEX[-1]
    assert isinstance(last, SetIndexSettings)
    assert port.perform(replace(last, wanted={})) == Done()
    assert port.perform(last) == Done()
    assert [each.json for each in server.asked if each.method == "PUT"] == [{"index.refresh_interval": None}]
