"""Answers that depend on the version, provoked on real nodes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.bulk import BulkReader
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.dialect import dialect_for
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.parse import parse_health
from orchestrator.model.action import Done, Flush
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import Activity, HealthView, Look, NodesJoined
from orchestrator.model.reading import Unknown
from orchestrator.runtime.waiting import SystemClock
from tests.integration.generations import Story, assert_settings, prepare, restarted_once, run
from tests.integration.restarting import events, held_by, restart
from tests.lab.layout import LabNode
from tests.lab.nodes import LabCluster
from tests.lab.segments import count_segments

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.part(name="versions")]

ALONE = (LabNode(name="es1", zone="a"),)
TAKE_AWAY = {"persistent": {"archived.*": None}, "transient": {"archived.*": None}}


@contextmanager
def _port(lab: LabCluster) -> Iterator[ElasticsearchCluster]:
    client = ElasticsearchClient(Access(endpoints=lab.endpoints), clock=SystemClock())
    with closing(client):
        yield ElasticsearchCluster(client)


def _answer(lab: LabCluster, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body, whatever they are."""
    with closing(lab.client) as client:
        answer = client.send(lab.endpoints[0], method, path, body, seconds=60.0)
    return answer.status, answer.body


@pytest.mark.parametrize(
    ("version", "timed_out", "synced", "segments"),
    [
        ("0.90.13", None, False, 10),
        ("1.1.2", 200, False, None),
        ("1.4.5", 200, False, 10),
        ("1.7.6", 200, True, 1),
        ("2.4.6", 408, True, 1),
        ("6.8.23", 408, True, None),
        ("7.5.2", 408, True, None),
        ("8.19.0", 408, False, None),
        ("opensearch-1.3.20", 408, False, None),
        ("opensearch-3.3.0", 408, False, None),
    ],
)
def test_answers_of_a_version(
    *, version: str, timed_out: int | None, synced: bool, segments: int | None
) -> None:
    """Each question whose answer depends on the version, asked of one node of it.

    Args:
        version: of the server.
        timed_out: the status of a health that did not come about in time.
        synced: whether it can flush in a synced way.
        segments: how many a restarted node opens of an index whose merge no flush has kept.
    """
    with LabCluster.start(version=version, nodes=ALONE, heap_mb=256) as lab:
        if timed_out is not None:
            health_that_timed_out_is_no_answer(lab, timed_out)
            a_snapshot_in_progress_is_listed(lab)
        if synced:
            a_synced_flush_answered_409_is_done(lab)
        if segments is not None:
            a_merge_that_a_flush_does_not_keep_is_not_counted(lab, segments)


def health_that_timed_out_is_no_answer(lab: LabCluster, status: int) -> None:
    """By whichever status: the body says whether it timed out."""
    answered, told = _answer(lab, "GET", "/_cluster/health?wait_for_nodes=ge(2)&timeout=1s")
    assert (answered, told["timed_out"]) == (status, True)
    dialect = dialect_for(lab.distribution.product.value, lab.distribution.version)
    late = reading(parse_health, dialect.spelled(calls.health()).reshape(told))
    assert isinstance(late, HealthView)
    assert not late.settled
    with _port(lab) as port:
        assert port.watch(NodesJoined(count=2), 1.0) is False
        assert port.watch(NodesJoined(count=1), 5.0) is True


def a_snapshot_in_progress_is_listed(lab: LabCluster) -> None:
    """The cluster state of 1.7 lacks it: a node that stopped then would leave the snapshot partial."""
    client = lab.client
    client.ask("PUT", "/saved", {"settings": {"number_of_shards": 1, "number_of_replicas": 0}})
    client.ask("GET", "/_cluster/health/saved?wait_for_status=green")
    kind = "doc" if lab.distribution.before(7) else "_doc"
    for number in range(50):  # words of their own, so that the files stay large
        words = " ".join(str(number * 1000 + each) for each in range(500))
        client.ask("PUT", f"/saved/{kind}/{number}", {"text": words})
    client.ask("POST", "/saved/_flush")
    where = {"location": str(lab.directory / "snapshots" / "mine"), "max_snapshot_bytes_per_sec": "10kb"}
    client.ask("PUT", "/_snapshot/mine", {"type": "fs", "settings": where})
    with _port(lab) as port:

        def listed() -> list[object]:
            looks = ([Look.ACTIVITY], [Look.CLUSTER, Look.ACTIVITY])
            found = [port.observe(look).activity for look in looks]
            read = (each.snapshots if isinstance(each, Activity) else each for each in found)
            return [
                each if isinstance(each, Unknown) else [(one.name, one.nodes) for one in each]
                for each in read
            ]

        assert listed() == [[], []]
        client.ask("PUT", "/_snapshot/mine/now?wait_for_completion=false")
        assert listed() == [[("mine/now", ("es1",))]] * 2
        client.ask("DELETE", "/_snapshot/mine/now")
        assert listed() == [[], []]
    client.ask("DELETE", "/saved")


def a_synced_flush_answered_409_is_done(lab: LabCluster) -> None:
    """Some copies could not be flushed: their recovery takes longer, and nothing else follows."""
    nowhere = {"index.routing.allocation.require._name": "nobody", "number_of_replicas": 0}
    for name, settings in (("here", {"number_of_replicas": 0}), ("nowhere", nowhere)):
        body = {"settings": {"number_of_shards": 1, **settings}}
        lab.client.ask("PUT", f"/{name}?wait_for_active_shards=0", body)
    lab.client.ask("GET", "/_cluster/health/here?wait_for_status=green")
    status, told = _answer(lab, "POST", "/_flush/synced")
    assert status == 409, told
    assert told["_shards"]["failed"] == 1, told
    with _port(lab) as port:
        assert port.perform(Flush()) == Done(output="1 of 2 copies flushed, 1 failed")
    lab.client.ask("DELETE", "/here,nowhere")


def a_merge_that_a_flush_does_not_keep_is_not_counted(lab: LabCluster, segments: int) -> None:
    """The usual merges leave few segments to search; a restarted node opens those of its last commit."""
    client = lab.client
    settings = {
        "number_of_shards": 1,
        "number_of_replicas": 0,
        "index.refresh_interval": "-1",
        "index.merge.policy.segments_per_tier": "100",
        "index.merge.policy.floor_segment": "1b",
    }
    client.ask("PUT", "/posts", {"settings": settings})
    client.ask("GET", "/_cluster/health/posts?wait_for_status=green")
    for number in range(10):
        client.ask("PUT", f"/posts/doc/{number}", {"text": f"word{number}"})
        client.ask("POST", "/posts/_refresh")
    client.ask("POST", "/posts/_flush")
    call = "_optimize" if lab.distribution.before(2, 1) else "_forcemerge"
    client.ask("POST", f"/posts/{call}?max_num_segments=1&flush=false")
    client.ask("POST", "/posts/_refresh")
    uuid = client.ask("GET", "/posts/_settings?flat_settings=true")["posts"]["settings"]["index.uuid"]
    access = Access(endpoints=lab.endpoints)
    with _port(lab) as port, closing(ElasticsearchClient(access, clock=SystemClock())) as reader:
        assert isinstance(port.perform(Flush()), Done)
        seen = BulkReader(reader).read([uuid])
    assert isinstance(seen, BulkView)
    (copy,) = count_segments(client, "posts")
    assert copy.searched == 1
    lab.stop_nodes(["es1"])
    lab.start_nodes(["es1"])
    lab.wait_ready(status="green", seconds=60)
    (copy,) = count_segments(client, "posts")
    assert seen.indices[uuid].segments == copy.searched == segments


@pytest.mark.parametrize(
    ("older", "newer", "key", "value"),
    [
        ("7.17.28", "8.19.0", "cluster.routing.allocation.disk.include_relocations", "false"),
        (
            "opensearch-2.19.0",
            "opensearch-3.3.0",
            "cluster.service.slow_master_task_logging_threshold",
            "20s",
        ),
    ],
)
def test_archived_settings_hold_the_run_before_a_stop(
    tmp_path: Path, older: str, newer: str, key: str, value: str
) -> None:
    """A setting that the newer version does not know is archived when all nodes start again on it."""
    story, archived = Story(f"{older} to {newer}"), f"archived.{key}"
    with LabCluster.start(version=older, heap_mb=256) as lab:
        before = {**prepare(lab), "transient": {}}  # as they are once all nodes have stopped
        lab.client.ask("PUT", "/_cluster/settings", {"persistent": {key: value}})
        lab.stop_nodes()
        for node in lab.nodes:
            lab.upgrade(node.name, newer)
        lab.start_nodes()
        lab.wait_ready(status="green", seconds=120)
        found = {**before["persistent"], archived: value}
        update = {"transient": {"indices.recovery.max_bytes_per_sec": "41mb"}}
        assert _answer(lab, "PUT", "/_cluster/settings", update)[0] == 400

        def held() -> None:
            code, lines = restart(lab, tmp_path)
            assert (code, held_by(lines)) == (3, {("settings_are_writable", "cluster settings")})
            told = events(lines, "hold")[-1]["evidence"]
            for word in (archived, "look at them", '"persistent": {"archived.*": null}'):
                assert word in told, events(lines, "hold")
            refused = events(lines, "action_failed")
            assert {line["action"]["verb"] for line in refused} <= {"probe_settings"}

        restarted_once(lab, story, held, ())
        assert_settings(lab, {**before, "persistent": found}, story)
        lab.client.ask("PUT", "/_cluster/settings", TAKE_AWAY)
        restarted_once(lab, story, lambda: run(lab, tmp_path, story, "restart", "--only", "es2"), ("es2",))
        assert_settings(lab, before, story)
