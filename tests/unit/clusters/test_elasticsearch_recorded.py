"""Answers of real nodes of every generation, read: what each cluster was, and what only some versions had."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.connection import parse_server
from orchestrator.elasticsearch.fields import Malformed, reading
from orchestrator.elasticsearch.old_versions import with_smallest_quorum
from orchestrator.elasticsearch.parse import (
    parse_health,
    parse_recoveries,
    parse_snapshots,
    parse_tasks,
    parse_watermark,
)
from orchestrator.elasticsearch.parse_cluster import unfamiliar
from orchestrator.elasticsearch.rules.settings import limit_changes, withhold_changes
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Look, RunningSnapshot, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Reading, Unknown
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.unit.clusters.cases import known, why
from tests.unit.clusters.recordings import (
    ASKED,
    LIMITS,
    NEW,
    OLD,
    READ_AS,
    Moment,
    body,
    dialect_of,
    raw,
    read_as,
    reshaped,
)
from tests.unit.clusters.scripted import MEMBERS, PROBE, STATE

POLICY = Policy(kind="elasticsearch", cluster="lab")
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
NODES = ("es1", "es2", "es3")


def test_what_every_recorded_answer_is_read_as(subtests: pytest.Subtests) -> None:
    """Nodes, indices, copies, settings, recoveries, …: `data/elasticsearch-read/`."""
    assert {"9.1.0", "8.19.0", "opensearch-2.19.0"} <= set(NEW)
    for version in (*NEW, *OLD):
        with subtests.test(version):
            file = READ_AS / f"{version}.txt"
            if os.environ.get(REWRITE):
                file.write_text(read_as(version))
            assert read_as(version) == file.read_text(), f"run with {REWRITE}=1 and read the diff"


def test_parse_cluster_is_the_same_in_each_masters_order(subtests: pytest.Subtests) -> None:
    """Else the reasons of two plans of one state differ."""
    for version in NEW:
        with subtests.test(version):
            settled = Moment(version, "settled")
            turned = settled.body("state")
            for part in (turned["routing_table"]["indices"], turned["metadata"]["indices"]):
                assert len(part) > 1
                for name in reversed(list(part)):
                    part[name] = part.pop(name)
            one, other = settled.view(), known(settled.parsed(turned))
            assert list(one.shards) == list(other.shards)
            assert one.indices == other.indices


def test_unfamiliar_and_roles_by_version(subtests: pytest.Subtests) -> None:
    for version in NEW:
        with subtests.test(version):
            settled, after = Moment(version, "settled"), body(version, "recovering.state")
            (new,) = unfamiliar(after, settled.lives())
            assert after["nodes"][new]["ephemeral_id"] not in settled.lives()
            assert unfamiliar(settled.body("state"), settled.lives()) == ()
            view = settled.parsed(settled.body("state"), {})
            if version.startswith(("8", "9")):
                assert known(view).nodes[0].incarnation.started_at_ms is None, (
                    "what is not known is not made up"
                )
            else:
                assert "has not reported its roles" in why(view)


def test_an_answer_that_is_late_or_of_several_nodes() -> None:
    late = known(reading(parse_health, body("9.1.0", "settled.health") | {"timed_out": True}))
    assert not late.settled
    with pytest.raises(Malformed, match="3 nodes say"):
        parse_server(body("9.1.0", "settled.lives"), "Elasticsearch")


def settled_with(*path: str | int, by: Any) -> Reading[ClusterView]:
    """The settled 9.1.0 with another value at a place of its state."""
    settled = Moment("9.1.0", "settled")
    state = inner = settled.body("state")
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by
    return settled.parsed(state)


def test_a_copy_is_on_a_node_or_unassigned_and_never_both(subtests: pytest.Subtests) -> None:
    first = ("routing_table", "indices", "posts", "shards", "0", 0)
    whole = body("9.1.0", "settled.state")
    copy_ = whole["routing_table"]["indices"]["posts"]["shards"]["0"][0]
    ids = {each["name"]: node_id for node_id, each in whole["nodes"].items()}
    for change, reason in [
        ({"node": "nobody"}, "nobody, which is not among the nodes"),
        ({"state": "STARTED", "node": None}, "is STARTED on None"),
        ({"state": "UNASSIGNED", "node": ids["es1"]}, "is UNASSIGNED on es1"),
    ]:
        with subtests.test(reason):
            view = settled_with(*first, by={**copy_, **change})
            assert isinstance(view, Unknown)
            assert reason in view.reason


def test_parts_of_the_state_that_the_lab_does_not_have() -> None:
    nodes = body("9.1.0", "settled.state")["nodes"]
    same = settled_with("nodes", by={each: {**node, "name": "same"} for each, node in nodes.items()})
    assert isinstance(same, Unknown)
    assert "several nodes are called same" in same.reason
    for shutdowns in ({"n1": {"type": "RESTART"}}, [{"node_id": "n1", "type": "RESTART"}]):
        view = known(settled_with("metadata", "node_shutdown", by={"nodes": shutdowns}))
        assert view.shutdowns == ("n1",)
    of_posts = ("metadata", "indices", "posts", "settings", "index", "store")
    view = known(settled_with(*of_posts, by={"type": "snapshot"}))
    assert [index.name for index in view.indices if index.searchable_snapshot] == ["posts"]


# Older generations -----------------------------------------------------------------------------------------


def test_before_five_files_then_defaults_count() -> None:
    settings, enable = Moment("2.4.6").settings(), "cluster.routing.allocation.enable"
    assert settings.effective(enable) == "all"
    assert settings.effective("cluster.routing.allocation.disk.threshold_enabled") == "false", "from its file"
    assert settings.restored(enable, None) == "all"
    assert settings.restored(enable, "none") == "none"
    assert replace(settings, resets=True).restored(enable, None) is None


def test_with_smallest_quorum_takes_that_of_the_files() -> None:
    nodes = [(life.server.version, life.settings) for life in Moment("6.8.23").lives().values()]
    key = "discovery.zen.minimum_master_nodes"
    for view, more, quorum in [
        (SettingsView(), [], "2"),
        (SettingsView(), [("6.8.23", {})], "1"),  # not set on one node
        (SettingsView(), [("7.17.28", {})], "2"),  # a node of 7 needs none
        (SettingsView(persistent={key: "3"}), [], "3"),
    ]:
        assert with_smallest_quorum(view, [*nodes, *more]).effective(key) == quorum


def test_what_1_7_and_0_90_lack_is_read_otherwise() -> None:
    for timed_out, oldest in ((False, 0.0), (True, 5.0)):
        read = known(
            reading(
                parse_health,
                reshaped("1.7.6", ASKED["health"], {**raw("1.7.6", "health"), "timed_out": timed_out}),
            )
        )
        assert read.oldest_task == oldest
    oldest_health = reshaped("0.90.13", ASKED["health"], {**raw("0.90.13", "health"), "timed_out": True})
    assert known(reading(parse_health, oldest_health)).pending_tasks == 1, "it does not list them"
    unnamed = reshaped("0.90.13", ASKED["recoveries"], raw("0.90.13", "recoveries"))
    read = reading(parse_recoveries, unnamed, uuids=dict.fromkeys(unnamed, "x"), finished_on=NODES)
    assert isinstance(read, Unknown)
    assert read.passes
    assert "is not among the nodes that were read" in read.reason


def test_reshaped_answers_of_0_90_are_malformed_or_whole() -> None:
    gone = dialect_of("0.90.13").spelled(calls.index_uuids(LIMITS, ["p"]))
    assert 404 in gone.accept
    missing = gone.reshape({"error": "nested: IndexMissingException[[p] missing]"})
    assert missing["metadata"] == {"indices": {}}
    for reshape, bad in (
        (gone.reshape, {"error": "another error"}),
        (gone.reshape, {"metadata": {"indices": {"p": 5}}}),
    ):
        with pytest.raises(Malformed):
            reshape(bad)


def test_before_1_5_a_copy_that_was_there_has_another_size() -> None:
    answer = raw("1.4.5", "recoveries")
    shard = answer["posts"]["shards"][0]
    shard["type"] = "GATEWAY"
    shard["index"]["bytes"] = {"total": 9, "reused": 9, "recovered": 9}  # seen after a restart
    of_1_4 = reshaped("1.4.5", ASKED["recoveries"], answer)
    first = known(reading(parse_recoveries, of_1_4, uuids={"posts": "x"}, finished_on=NODES))[0]
    assert (first.bytes_total, first.bytes_reused, first.bytes_copied) == (9, 9, 0)
    del shard["index"]["bytes"]
    of_1_4 = reshaped("1.4.5", ASKED["recoveries"], answer)
    assert isinstance(reading(parse_recoveries, of_1_4, uuids={"posts": "x"}, finished_on=[]), Unknown)


def test_before_2_3_a_merge_is_seen_in_the_thread_pool() -> None:
    answer = raw("1.7.6", "pools")
    for counter in ("active", "queue"):
        busy = copy.deepcopy(answer)
        node = next(iter(busy["nodes"].values()))
        node["thread_pool"]["optimize"][counter] = 1
        tasks = reshaped("1.7.6", ASKED["pools"], busy)
        assert known(reading(parse_tasks, tasks, snapshots=())).merges == {node["name"]}
        del node["thread_pool"]["optimize"][counter]
        read = known(reading(parse_tasks, reshaped("1.7.6", ASKED["pools"], busy), snapshots=()))
        assert (read.merges, read.unread) == (frozenset(), {node["name"]})


def test_where_a_snapshot_has_not_ended(subtests: pytest.Subtests) -> None:
    """By the cluster state, and by `_snapshot/_status`, which has a tree of indices and other words."""
    names = {"repository": "r", "snapshot": "s", "start_time_millis": 1000}
    parts = [("SUCCESS", "a"), ("ABORTED", "b"), ("INIT", "c"), ("ABORTED", "b"), ("MISSING", None)]
    shards = [{"index": "logs", "shard": 0, "state": state, "node": node} for state, node in parts]
    for listed, aborted, since, nodes, done in [
        ({**names, "state": "ABORTED", "shards": shards}, True, 1.0, ("b", "c"), 0.4),
        ({**names, "state": "STARTED", "shards": shards[:2]}, False, 1.0, ("b",), 0.5),
        ({**names, "state": "INIT"}, False, 1.0, (), None),
        ({**names, "state": "ABORTED", "start_time_millis": 0, "shards": {}}, True, None, (), None),
    ]:
        with subtests.test(listed=listed):
            found = reading(parse_snapshots, {"cluster_name": "lab", "snapshots": {"snapshots": [listed]}})
            wanted = RunningSnapshot(name="r/s", aborted=aborted, since=since, nodes=nodes, done=done)
            assert found == (wanted,)
    by_stage = {"shards": {"0": {"stage": "FINALIZE", "node": "b"}, "1": {"stage": "DONE", "node": "a"}}}
    began = {"start_time_in_millis": 1000}
    status = {"snapshots": [{**names, "state": "ABORTED", "stats": began, "indices": {"logs": by_stage}}]}
    found = reading(parse_snapshots, reshaped("1.7.6", ASKED["snapshots"], status))
    assert found == (RunningSnapshot(name="r/s", aborted=True, since=1.0, nodes=(NodeName("b"),), done=0.5),)


@pytest.mark.parametrize("look", [[Look.ACTIVITY], [Look.ACTIVITY, Look.CLUSTER]], ids=["alone", "beside"])
def test_a_snapshot_is_seen_where_the_state_lacks_it(
    server: ScriptedServer, port: ElasticsearchCluster, look: list[Look]
) -> None:
    for version, path in [("1.7.6", "/_snapshot/_status"), ("2.4.6", "/_cluster/state/customs")]:
        assert dialect_of(version).spelled(ASKED["snapshots"]).path == path
    for path, name in {
        PROBE: "identity",
        MEMBERS: "identity",
        "/_nodes/settings": "lives",
        STATE: "state",
        "/_nodes/stats/thread_pool": "pools",
        "/_snapshot/_status": "snapshots",
    }.items():
        server.on(path, reply(raw("1.7.6", name), headers={}))
    (running,) = known(port.observe(look).activity).snapshots
    assert (running.name, running.since, running.aborted) == ("r/s1", 1795677407.353, False)
    assert running.nodes
    server.on("/_snapshot/_status", reply({"cluster_name": "lab"}, headers={}))
    assert isinstance(port.observe(look).activity, Unknown), "an answer of another form"


def test_limit_changes_of_old_versions() -> None:
    """1.7 has no setting for rebalance; before 5.0 streams are raised, never lowered, and restored."""
    key, rebalance = "indices.recovery.concurrent_streams", "cluster.routing.rebalance.enable"
    for version, rebalances, streams in [
        ("0.90.13", False, ["5"]),
        ("1.7.6", False, ["5"]),
        ("2.4.6", True, ["5"]),
        ("6.8.23", True, []),
    ]:
        settings = Moment(version).settings()
        changes = limit_changes(settings, replace(POLICY, rebalance_while_running="none"))
        assert any(change.key == rebalance for change in changes) is rebalances
        assert [change.wanted for change in changes if change.key == key] == streams
    settings = Moment("0.90.13").settings()
    assert settings.restored(key, None) == "3"
    unset = replace(POLICY, recovery_limits=replace(POLICY.recovery_limits, concurrent_streams=None))
    for view, policy in ((replace(settings, persistent={key: "8"}), POLICY), (settings, unset)):
        assert key not in {change.key for change in limit_changes(view, policy)}


def test_withhold_changes_before_one_are_flags() -> None:
    settings = replace(Moment("0.90.13").settings(), allocation_flags=True)
    assert "cluster.routing.allocation.enable" not in settings.files
    for while_down, flag in [("primaries", "disable_replica_allocation"), ("none", "disable_allocation")]:
        changes = withhold_changes(settings, replace(POLICY, allocation_while_down=while_down))
        key = f"cluster.routing.allocation.{flag}"
        assert [(each.key, each.found, each.wanted) for each in changes] == [(key, None, "true")]
        assert settings.restored(key, None) == "false"


# Watermarks ------------------------------------------------------------------------------------------------

GB = 1 << 30


def test_a_watermark_is_passed(subtests: pytest.Subtests) -> None:
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
        with subtests.test(watermark=watermark, headroom=headroom, free_gb=free_gb):
            mark = parse_watermark(watermark, headroom, "low")
            assert mark.passed(total=total_gb * GB, available=free_gb * GB) is passed


def test_no_more_than_the_room_passes_no_watermark() -> None:
    mark = parse_watermark("90%", None, "high")
    for total, available in [(100, 10), (1000, 101), (1000, 100), (999, 100), (7, 1)]:
        room = mark.room(total=total, available=available)
        assert not mark.passed(total=total, available=available - room) or room == 0
        assert mark.passed(total=total, available=available - room - 1)
