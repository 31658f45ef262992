"""Answers of real nodes of older generations (`tests/data/elasticsearch-old/<version>/`), read."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import limit_changes, withhold_changes
from orchestrator.model.action import (
    Done,
    Flush,
    ForceMerge,
    RefreshIndex,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
)
from orchestrator.model.cluster import Role
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Activity, ClusterView, HealthView, Level, Look, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.runtime.clock import SystemClock
from orchestrator.stores.elasticsearch import before_one, calls
from orchestrator.stores.elasticsearch.access import Access, Limits, published_places
from orchestrator.stores.elasticsearch.act import outcome_of, request_for
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.connection import parse_server
from orchestrator.stores.elasticsearch.dialect import LEGACY_TEMPLATE, Dialect, family_of
from orchestrator.stores.elasticsearch.faults import Answer, error_fault
from orchestrator.stores.elasticsearch.fields import Malformed, NotYetReported
from orchestrator.stores.elasticsearch.file_values import file_values, with_smallest_quorum
from orchestrator.stores.elasticsearch.lease import _records, lease_body
from orchestrator.stores.elasticsearch.parse import (
    parse_health,
    parse_merge_pools,
    parse_recoveries,
    parse_settings,
)
from orchestrator.stores.elasticsearch.parse_cluster import parse_cluster
from orchestrator.stores.elasticsearch.parse_disks import parse_disks
from orchestrator.stores.elasticsearch.parse_nodes import Life, attributed_roles, parse_lives, process_of
from orchestrator.stores.elasticsearch.request import Request
from orchestrator.stores.lease_record import encode
from tests.fakes.scripted_http import ScriptedServer, reply

RECORD = LeaseRecord(
    epoch=3,
    run="r1",
    owner="ops@bastion",
    process="boot/1/2",
    started="2026-11-01T00:00:00Z",
    heartbeat=7,
    debts=(SettingChange(level=Level.PERSISTENT, key="a", found=None, wanted='pri"maries'),),
    replicas=(),
    excluded=(),
    in_hand=(),
)
DATA = Path(__file__).parents[2] / "data" / "elasticsearch-old"
VERSIONS = sorted(folder.name for folder in DATA.iterdir())
BEFORE_SEVEN = ("0.90.13", "1.1.2", "1.4.5", "1.7.6", "2.4.6", "5.6.16", "6.8.23")


def body(version: str, name: str) -> Any:
    """The answer as it is read: that of 0.90 in the form of later versions."""
    answer = json.loads((DATA / version / f"{name}.json").read_text())["body"]
    _, dialect = dialect_of(version)
    asked: dict[str, Request] = {
        "state": calls.state(dialect, Limits(), with_snapshots=False),
        "lives": calls.lives(["x"], dialect),
    }
    reshape = asked[name].reshape if name in asked else None
    if name == "recoveries" and dialect.recovery_call == "_status":
        names = {node_id: node["name"] for node_id, node in body(version, "state")["nodes"].items()}
        return before_one.recoveries(answer, names)
    return answer if reshape is None else reshape(answer)


def dialect_of(version: str) -> tuple[str, Dialect]:
    product, _, number = version.rpartition("-")
    dialect = family_of(product or "elasticsearch", number)
    assert dialect is not None
    return product or "elasticsearch", dialect


def lives_of(version: str) -> dict[str, Life]:
    _, dialect = dialect_of(version)
    nodes = body(version, "state")["nodes"]
    by_id = parse_lives(body(version, "lives"), roles_listed=dialect.roles_in_nodes)
    return {process_of(node_id, nodes[node_id]): life for node_id, life in by_id.items()}


def view_of(version: str) -> ClusterView:
    product, dialect = dialect_of(version)
    view = parse_cluster(body(version, "state"), lives_of(version), distribution=product, dialect=dialect)
    assert isinstance(view, ClusterView), view
    return view


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_cluster_is_read(version: str) -> None:
    product, dialect = dialect_of(version)
    server = parse_server(body(version, "identity"), "")
    assert (server.distribution, server.version) == (product, version.rpartition("-")[2])
    view = view_of(version)
    assert view.uuid
    assert [node.name for node in view.nodes] == ["es1", "es2", "es3"]
    assert all({Role.DATA, Role.MASTER} <= node.roles for node in view.nodes)
    assert all(node.incarnation.ephemeral_id and node.incarnation.started_at_ms for node in view.nodes)
    assert view.voters == {node.node_id for node in view.nodes}
    assert view.voting_by_count is (version in BEFORE_SEVEN)
    assert len(view.copies) == 4
    assert all(copy.started for copy in view.copies)
    waited = None if dialect.queue_times else 5.0
    assert not isinstance(parse_health(body(version, "health"), waited=waited), Unknown)
    recoveries = parse_recoveries(body(version, "recoveries"), uuids={"posts": "x"}, finished_on=["es1"])
    assert not isinstance(recoveries, Unknown)
    settings = settings_of(version)
    disks = parse_disks(body(version, "disks"), settings, roles_listed=dialect.roles_in_nodes)
    assert not isinstance(disks, Unknown)
    assert set(disks) == {"es1", "es2", "es3"}


def settings_of(version: str) -> SettingsView:
    _, dialect = dialect_of(version)
    lives = list(lives_of(version).values())
    old = None if dialect.null_resets else file_values(lives[0].settings, lives[0].server.version)
    if version == "5.6.16":  # its recording is of a call that it refuses
        return SettingsView(files=file_values(lives[0].settings, "2.4.6"))
    read = parse_settings(body(version, "settings"), old_files=old)
    assert isinstance(read, SettingsView), read
    assert read.resets is dialect.null_resets
    return read


def test_before_five_files_then_defaults_count() -> None:
    settings = settings_of("2.4.6")
    assert settings.effective("cluster.routing.allocation.enable") == "all"
    assert settings.effective("cluster.routing.allocation.disk.threshold_enabled") == "false", "from its file"
    assert settings.restored("cluster.routing.allocation.enable", None) == "all"
    assert settings.restored("cluster.routing.allocation.enable", "none") == "none"
    assert replace(settings, resets=True).restored("cluster.routing.allocation.enable", None) is None
    assert file_values({}, "1.5.2")["indices.recovery.max_bytes_per_sec"] == "20mb"
    assert (
        file_values({"indices.recovery.max_bytes_per_sec": "5mb"}, "2.4.6")[
            "indices.recovery.max_bytes_per_sec"
        ]
        == "5mb"
    )


def test_the_smallest_quorum_in_the_files_counts() -> None:
    nodes = [(life.server.version, life.settings) for life in lives_of("6.8.23").values()]
    key = "discovery.zen.minimum_master_nodes"
    assert with_smallest_quorum(SettingsView(), nodes).effective(key) == "2"
    unset = with_smallest_quorum(SettingsView(), [*nodes, ("6.8.23", {})])
    assert unset.effective(key) == "1", "not set on one node"
    seven = with_smallest_quorum(SettingsView(), [*nodes, ("7.17.28", {})])
    assert seven.effective(key) == "2", "a node of 7 needs none"
    assert with_smallest_quorum(SettingsView(persistent={key: "3"}), nodes).effective(key) == "3"


def test_roles_before_five_are_attributes() -> None:
    for attributes, roles in [
        ({}, {Role.DATA, Role.MASTER}),
        ({"master": "false"}, {Role.DATA}),
        ({"data": "false"}, {Role.MASTER}),
        ({"client": "true", "data": "false"}, {Role.COORDINATING}),
        ({"data": "false", "master": "false"}, {Role.COORDINATING}),
    ]:
        assert attributed_roles({"attributes": attributes}) == roles, attributes


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lease_comes_back_as_it_went(version: str) -> None:
    _, dialect = dialect_of(version)
    sent = lease_body(RECORD, dialect, LEGACY_TEMPLATE)
    # What a node answers: the template by its name, with the alias as it was sent (seen on each version).
    flat = {f"index.{key}": value for key, value in sent.get("settings", {}).items()}
    answer = Answer(status=200, body={"orchestrate-lease-3": {**sent, "settings": flat, "mappings": {}}})
    (kept,) = _records(answer, LEGACY_TEMPLATE)
    assert (kept.epoch, kept.content) == (3, encode(RECORD))
    assert list(_records(Answer(status=404, body={}), LEGACY_TEMPLATE)) == []
    assert ("index_patterns" in sent) is (version not in BEFORE_SEVEN[:-1])


def test_what_1_7_lacks_is_read_otherwise() -> None:
    answer = body("1.7.6", "health")
    drained = parse_health(answer, waited=5.0)
    waiting = parse_health({**answer, "timed_out": True}, waited=5.0)
    assert isinstance(drained, HealthView)
    assert isinstance(waiting, HealthView)
    assert (drained.oldest_task, waiting.oldest_task) == (0.0, 5.0)
    assert view_of("1.7.6").uuid == "lab", "it has no uuid: its name"
    assert {node.address for node in view_of("1.7.6").nodes} == {"127.0.0.1"}
    assert published_places("inet[/127.0.0.1:9200]") == (("127.0.0.1", 9200),)
    assert published_places("inet[es1/127.0.0.1:9200]") == (("es1", 9200), ("127.0.0.1", 9200))


def test_what_0_90_lacks_is_read_otherwise() -> None:
    view = view_of("0.90.13")
    assert {index.filters for index in view.indices} == {'{"require": {"zone": "*"}}'}, "settings are flat"
    recoveries = parse_recoveries(
        body("0.90.13", "recoveries"), uuids={"posts": "x"}, finished_on=["es1", "es2", "es3"]
    )
    assert not isinstance(recoveries, Unknown)
    assert len(recoveries) == len(view.copies)
    assert {(each.target, each.shard.number) for each in recoveries} == {
        (copy.node, copy.shard.number) for copy in view.copies
    }
    primaries = {copy.shard.number: copy.node for copy in view.copies if copy.primary}
    for each in recoveries:
        local = each.target == primaries[each.shard.number]
        assert each.source == (None if local else primaries[each.shard.number])
    answer = json.loads((DATA / "0.90.13" / "recoveries.json").read_text())["body"]
    with pytest.raises(NotYetReported):
        before_one.recoveries(answer, {})
    health = parse_health({**body("0.90.13", "health"), "timed_out": True}, waited=5.0)
    assert isinstance(health, HealthView)
    assert health.pending_tasks == 1, "it does not list them"


def test_flags_of_an_index_of_0_90_are_its_enable() -> None:
    for flags, enable in [
        ({}, None),
        ({"disable_allocation": "false"}, None),
        ({"disable_replica_allocation": "true"}, "primaries"),
        ({"disable_allocation": "1", "disable_replica_allocation": "true"}, "none"),
        ({"disable_new_allocation": "true"}, None),
    ]:
        settings = {f"index.routing.allocation.{key}": value for key, value in flags.items()}
        answer = before_one.state({"metadata": {"indices": {"posts": {"settings": settings}}}})
        read = answer["metadata"]["indices"]["posts"]["settings"]
        assert read == ({} if enable is None else {"index": {"routing": {"allocation": {"enable": enable}}}})


def test_0_90_is_asked_in_its_own_words() -> None:
    _, dialect = dialect_of("0.90.13")
    limits = Limits()
    of_state = "/_cluster/state?master_timeout=5s&filter_blocks=true"
    for request, said in [
        (
            calls.state(dialect, limits, with_snapshots=True),
            of_state,
        ),
        (
            calls.lives(["a", "b"], dialect),
            "/_nodes/a,b?timeout=5s&clear=true&plugin=true&jvm=true&http=true&settings=true",
        ),
        (calls.recoveries(dialect, active_only=True), "/_status?recovery=true"),
        (calls.writes(dialect, ["p"]), "/p/_stats?clear=true&indexing=true&merge=true&level=shards"),
        (
            calls.index_uuids(dialect, limits, ["p", "größe+1"]),
            f"{of_state}&filter_nodes=true&filter_routing_table=true&filter_indices=p,gr%C3%B6%C3%9Fe%2B1",
        ),
    ]:
        assert request.target == said
    gone = calls.index_uuids(dialect, limits, ["p"])
    assert 404 in gone.accept
    assert gone.reshape is not None
    assert gone.reshape({"error": "nested: IndexMissingException[[p] missing]"})["metadata"] == {
        "indices": {}
    }
    for bad in ({"error": "another error"}, {"metadata": {"indices": {"p": 5}}}):
        with pytest.raises(Malformed):
            gone.reshape(bad)
    for bad in ({"nodes": {"a": 5}}, {"nodes": {"a": {"settings": 5}}}):
        with pytest.raises(Malformed):
            before_one.node_facts(bad)
    wanted = SetIndexSettings(index="p", index_uuid="u", found={}, wanted={"index.refresh_interval": "1s"})
    assert "expand_wildcards" not in request_for(wanted, dialect).params, "it would be a setting"


@pytest.mark.parametrize("version", ["1.1.2", "1.4.5"])
def test_before_1_5_sizes_of_recoveries_have_other_names(version: str) -> None:
    answer = body(version, "recoveries")
    read = parse_recoveries(answer, uuids={"posts": "x"}, finished_on=["es1", "es2", "es3"])
    assert not isinstance(read, Unknown)
    sizes = [each["index"]["bytes"] for each in answer["posts"]["shards"]]
    assert [(each.bytes_total, each.bytes_reused, each.bytes_copied) for each in read] == [
        (size["total"], size["reused"], size["recovered"]) for size in sizes
    ]
    assert any(each.bytes_copied for each in read)
    of_its_own_disk = answer["posts"]["shards"][0]
    of_its_own_disk |= {"type": "GATEWAY"}
    of_its_own_disk["index"]["bytes"] = {"total": 9, "reused": 9, "recovered": 9}  # seen after a restart
    again = parse_recoveries(answer, uuids={"posts": "x"}, finished_on=["es1", "es2", "es3"])
    assert not isinstance(again, Unknown)
    first = again[0]
    assert (first.bytes_total, first.bytes_reused, first.bytes_copied) == (9, 9, 0)
    del answer["posts"]["shards"][0]["index"]["bytes"]
    assert isinstance(parse_recoveries(answer, uuids={"posts": "x"}, finished_on=[]), Unknown)


def test_before_1_6_no_call_names_the_wildcards() -> None:
    """1.1 refuses `expand_wildcards=none`; 1.4 and 1.5 take it for a setting of the index (seen)."""
    settings = SetIndexSettings(index="p", index_uuid="u", found={}, wanted={"index.refresh_interval": "1s"})
    for version, sent in [("0.90.13", False), ("1.1.2", False), ("1.5.2", False), ("1.7.6", True)]:
        _, dialect = dialect_of(version)
        for request in (
            calls.segments(dialect, ["p"]),
            calls.writes(dialect, ["p"]),
            calls.bulk_state(dialect, Limits(), ["p"]),
            calls.index_uuids(dialect, Limits(), ["p"]),
            request_for(ForceMerge(index="p", index_uuid="u", max_segments=5), dialect),
            request_for(RefreshIndex(index="p", index_uuid="u"), dialect),
            request_for(SetReplicas(index="p", index_uuid="u", found=1, wanted=2), dialect),
            request_for(settings, dialect),
        ):
            assert ("expand_wildcards" in request.params) is sent, (version, request)


def test_before_2_3_a_merge_is_seen_in_the_thread_pool() -> None:
    answer = body("1.7.6", "pools")
    assert parse_merge_pools(answer, snapshots=()) == Activity(
        snapshots=(), merges=frozenset(), reindexes=frozenset()
    )
    for counter in ("active", "queue"):
        busy = json.loads(json.dumps(answer))
        node = next(iter(busy["nodes"].values()))
        node["thread_pool"]["optimize"][counter] = 1
        seen = parse_merge_pools(busy, snapshots=())
        assert isinstance(seen, Activity)
        assert seen.merges == {node["name"]}
    assert isinstance(parse_merge_pools({"nodes": {}}, snapshots=()), Unknown)


@pytest.mark.parametrize("look", [[Look.ACTIVITY], [Look.ACTIVITY, Look.CLUSTER]], ids=["alone", "beside"])
def test_a_snapshot_is_seen_where_the_state_lacks_it(look: list[Look]) -> None:
    identity, pools = body("1.7.6", "identity"), body("1.7.6", "pools")
    for version, path in [("1.7.6", "/_snapshot/_status"), ("2.4.6", "/_cluster/state/customs")]:
        assert calls.snapshots(dialect_of(version)[1], Limits()).path == path
    with ScriptedServer() as server:
        answers = {
            "/_nodes/_local/http": identity,
            "/_nodes/http": identity,
            "/_nodes/settings": body("1.7.6", "lives"),
            "/_cluster/state/master_node,nodes,metadata,routing_table,version": body("1.7.6", "state"),
            "/_nodes/stats/thread_pool": pools,
            "/_snapshot/_status": body("1.7.6", "snapshots"),
        }
        for asked, answer in answers.items():
            server.on(asked, reply(answer, headers={}))
        client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=SystemClock())
        with closing(client):
            port = ElasticsearchCluster(client)
            activity = port.observe(look).activity
            assert isinstance(activity, Activity), activity
            assert activity.snapshots == ("r/s1",)
            server.on("/_snapshot/_status", reply({"cluster_name": "lab"}, headers={}))
            assert isinstance(port.observe(look).activity, Unknown), "an answer of another form"


def test_1_7_has_no_setting_for_rebalance() -> None:
    policy = Policy(kind="elasticsearch", cluster="lab", rebalance_while_running="none")
    for version, written in [("0.90.13", False), ("1.7.6", False), ("2.4.6", True)]:
        changes = limit_changes(settings_of(version), policy)
        assert any(change.key == "cluster.routing.rebalance.enable" for change in changes) is written


def test_before_five_streams_are_raised_and_restored() -> None:
    policy = Policy(kind="elasticsearch", cluster="lab")
    key = "indices.recovery.concurrent_streams"
    for version, wanted in [("0.90.13", ["5"]), ("2.4.6", ["5"]), ("6.8.23", [])]:
        settings = settings_of(version)
        assert [change.wanted for change in limit_changes(settings, policy) if change.key == key] == wanted
    settings = settings_of("0.90.13")
    assert settings.restored(key, None) == "3"
    more = replace(settings, persistent={key: "8"})
    assert key not in {change.key for change in limit_changes(more, policy)}, "never lowered"
    none = replace(policy, recovery_limits=replace(policy.recovery_limits, concurrent_streams=None))
    assert key not in {change.key for change in limit_changes(settings, none)}
    assert file_values({"index.shard.recovery.concurrent_streams": "9"}, "0.90.13")[key] == "9"
    assert file_values({"index.shard.recovery.concurrent_streams": "9", key: "4"}, "0.90.13")[key] == "4"
    prefix = "cluster.routing.allocation."
    both = {f"{prefix}concurrent_recoveries": "8", f"{prefix}node_concurrent_recoveries": "3"}
    assert file_values(both, "1.7.6")[f"{prefix}node_concurrent_recoveries"] == "8", "the other way round"


def test_before_one_allocation_is_disabled_by_flags() -> None:
    settings = replace(settings_of("0.90.13"), allocation_flags=True)
    assert "cluster.routing.allocation.enable" not in settings.files
    for while_down, flag in [("primaries", "disable_replica_allocation"), ("none", "disable_allocation")]:
        policy = Policy(kind="elasticsearch", cluster="lab", allocation_while_down=while_down)
        changes = withhold_changes(settings, policy)
        key = f"cluster.routing.allocation.{flag}"
        assert [(each.key, each.found, each.wanted) for each in changes] == [(key, None, "true")]
        assert settings.restored(key, None) == "false"


def test_errors_before_two_have_their_later_types() -> None:
    for text, kind in [
        ("IndexMissingException[[nothing] missing]", "index_not_found_exception"),
        (
            "RemoteTransportException[[es3][inet[/127.0.0.1:1]][a]]; nested: MasterNotDiscoveredException[]",
            "master_not_discovered_exception",
        ),
        ("no such thing", None),
    ]:
        fault = error_fault(404, {"error": text}, url="u", call="GET /", access=Access(endpoints=()))
        assert fault.error_type == kind


def test_the_settings_of_five_are_asked_without_a_time_limit() -> None:
    for version, timeout, defaults in [
        ("5.6.16", False, True),
        ("2.4.6", False, False),
        ("7.5.2", True, True),
    ]:
        _, dialect = dialect_of(version)
        request = calls.settings(dialect, Limits())
        assert ("master_timeout" in request.params) is timeout
        assert ("include_defaults" in request.params) is defaults


def test_a_synced_flush_that_missed_copies_is_done() -> None:
    answer = Answer(status=409, body={"_shards": {"total": 4, "successful": 2, "failed": 2}})
    assert outcome_of(Flush(), answer) == Done(output="2 of 4 copies flushed, 2 failed")
