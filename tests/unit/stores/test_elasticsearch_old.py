"""Answers of real nodes of older generations (`tests/data/elasticsearch-old/<version>/`), read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import limit_changes
from orchestrator.model.action import Done, Flush, SettingChange
from orchestrator.model.cluster import Role
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Activity, ClusterView, HealthView, Level, SettingsView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import Limits, published_places
from orchestrator.stores.elasticsearch.act import outcome_of
from orchestrator.stores.elasticsearch.connection import parse_server
from orchestrator.stores.elasticsearch.dialect import Dialect, family_of
from orchestrator.stores.elasticsearch.faults import Answer, error_fault
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
from orchestrator.stores.lease_record import encode

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
BEFORE_SEVEN = ("1.7.6", "2.4.6", "5.6.16", "6.8.23")


def body(version: str, name: str) -> Any:
    return json.loads((DATA / version / f"{name}.json").read_text())["body"]


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
    sent = lease_body(RECORD, dialect)
    # What a node answers: the template by its name, with the alias as it was sent (seen on each version).
    answer = Answer(status=200, body={"orchestrate-lease-3": {**sent, "settings": {}, "mappings": {}}})
    assert _records(answer) == {3: encode(RECORD)}
    assert _records(Answer(status=404, body={})) == {}
    assert ("index_patterns" in sent) is (version not in ("5.6.16", "2.4.6", "1.7.6"))


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


@pytest.mark.parametrize("version", ["1.7.6", "2.4.6"])
def test_a_node_whose_name_changes_at_a_start_is_named(version: str) -> None:
    product, dialect = dialect_of(version)
    lives = lives_of(version)
    process = next(iter(lives))
    lives[process] = replace(lives[process], settings={})
    view = parse_cluster(body(version, "state"), lives, distribution=product, dialect=dialect)
    assert isinstance(view, Unknown)
    assert "has no `node.name` in its elasticsearch.yml" in view.reason
    assert "nodes.*.settings.node.name" in calls.lives(["x"], dialect).params["filter_path"]


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


def test_1_7_has_no_setting_for_rebalance() -> None:
    policy = Policy(kind="elasticsearch", cluster="lab", rebalance_while_running="none")
    for version, written in [("1.7.6", False), ("2.4.6", True)]:
        changes = limit_changes(settings_of(version), policy)
        assert any(change.key == "cluster.routing.rebalance.enable" for change in changes) is written


def test_errors_before_two_have_their_later_types() -> None:
    for text, kind in [
        ("IndexMissingException[[nothing] missing]", "index_not_found_exception"),
        (
            "RemoteTransportException[[es3][inet[/127.0.0.1:1]][a]]; nested: MasterNotDiscoveredException[]",
            "master_not_discovered_exception",
        ),
        ("no such thing", None),
    ]:
        fault = error_fault(404, {"error": text}, url="u", call="GET /", credentials="nobody")
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
