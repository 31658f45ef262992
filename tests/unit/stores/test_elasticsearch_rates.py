"""The speed of recoveries that nodes have of their own: no cluster setting may slow one of them down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import BANDWIDTH, limit_changes
from orchestrator.model.cluster import Role
from orchestrator.model.observation import Look, SettingsView
from orchestrator.model.policy import Kind, Policy
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.fields import Malformed
from orchestrator.stores.elasticsearch.recovery_rates import (
    OwnRate,
    goes_by_memory,
    parse_own_rate,
    rate_of,
    with_largest_rate,
)
from tests.fakes.clock import ManualClock
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.unit.stores.scripted import SETTINGS, STATE, be

MB, GB = 1 << 20, 1 << 30
NOW = (9, 1, 0)
COLD, FROZEN = frozenset({Role.DATA_COLD}), frozenset({Role.DATA_FROZEN})
HOT = frozenset({Role.DATA_HOT, Role.DATA_CONTENT})


def test_before_1_6_the_default_is_half() -> None:
    assert rate_of(HOT, OwnRate(), None, version=(1, 5, 2)) == 20 * MB
    assert rate_of(HOT, OwnRate(), None, version=(1, 6, 0)) == 40 * MB


def test_the_default_of_a_cold_or_frozen_node_goes_by_its_memory() -> None:
    """As in Elasticsearch's `RecoverySettings`."""
    table = {
        4 * GB: 40,
        4 * GB + 1: 60,
        8 * GB: 60,
        16 * GB: 90,
        32 * GB: 125,
        32 * GB + 1: 250,
        512 * GB: 250,
    }
    for roles in (COLD, FROZEN, COLD | FROZEN, COLD | {Role.INGEST}):
        assert goes_by_memory(roles)
        assert {size: rate_of(roles, OwnRate(), size, version=NOW) for size in table} == {
            size: rate * MB for size, rate in table.items()
        }
        assert rate_of(roles, OwnRate(), None, version=NOW) == 250 * MB, "the largest, as for unknown memory"
    for roles in (
        HOT,
        COLD | {Role.MASTER},
        COLD | HOT,
        frozenset({Role.DATA}),
        frozenset({Role.COORDINATING}),
    ):
        assert not goes_by_memory(roles)
        assert rate_of(roles, OwnRate(), 512 * GB, version=NOW) == 40 * MB


def test_what_a_nodes_file_says_goes_before_its_default() -> None:
    def own(value: object) -> OwnRate:
        return parse_own_rate({"indices": {"recovery": {"max_bytes_per_sec": value}}}, "x")

    assert rate_of(COLD, own("30mb"), 64 * GB, version=NOW) == 30 * MB
    assert rate_of(HOT, own("-1"), None, version=NOW) == rate_of(HOT, own("0b"), None, version=NOW) == 0
    assert parse_own_rate(None, "x") == OwnRate()
    by_hardware = parse_own_rate({"node": {"bandwidth": {"recovery": {"network": "1gb"}}}}, "x")
    assert rate_of(HOT, by_hardware, None, version=NOW) is None
    for damaged in (7, "fast", ["1mb"]):
        with pytest.raises(Malformed):
            own(damaged)


def test_the_limit_is_above_the_fastest_node_or_not_raised(subtests: pytest.Subtests) -> None:
    for rates, raised in [
        ((40 * MB, 40 * MB), True),
        ((40 * MB, 90 * MB), True),
        ((40 * MB, 125 * MB), False),
        ((40 * MB, 0), False),
        ((40 * MB, None), False),
    ]:
        with subtests.test(rates=rates, raised=raised):
            answered = SettingsView(files={BANDWIDTH: "40mb"})
            changes = limit_changes(
                with_largest_rate(answered, rates), Policy(kind=Kind.ELASTICSEARCH, cluster="prod")
            )
            assert any(change.key == BANDWIDTH for change in changes) is raised


def test_a_cluster_setting_counts_for_every_node() -> None:
    written = SettingsView(persistent={BANDWIDTH: "50mb"}, files={BANDWIDTH: "40mb"})
    assert with_largest_rate(written, [250 * MB]) == written


def _member(name: str, roles: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "ephemeral_id": f"life-{name}",
        "transport_address": "127.0.0.1:9300",
        "roles": roles,
        "version": "9.1.0",
        "attributes": {},
    }


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    roles = {"hot1": ["data_hot", "data_content", "master"], "cold1": ["data_cold"]}
    members = {f"id-{name}": _member(name, each) for name, each in roles.items()}
    state = {
        "cluster_name": "prod",
        "cluster_uuid": "u",
        "version": 7,
        "state_uuid": "seven",
        "master_node": "id-hot1",
        "nodes": members,
        "metadata": {
            "cluster_uuid": "u",
            "cluster_coordination": {"last_committed_config": ["id-hot1"], "voting_config_exclusions": []},
            "indices": {},
        },
        "routing_table": {"indices": {}},
    }
    lives = {
        key: {
            "name": each["name"],
            "version": "9.1.0",
            "roles": each["roles"],
            "jvm": {"start_time_in_millis": 1},
            "settings": {},
        }
        for key, each in members.items()
    }
    with ScriptedServer() as running:
        be(running, "hot1").on(STATE, reply(state))
        same = {"state_uuid": "seven", "master_node": "id-hot1"}
        running.on("/_cluster/state/version,master_node", reply(same))
        running.on("/_nodes/id-hot1,id-cold1/jvm,http,settings,plugins", reply({"nodes": lives}))
        defaults = {BANDWIDTH: "40mb"}
        running.on(SETTINGS, reply({"persistent": {}, "transient": {}, "defaults": defaults}))
        yield running


@pytest.mark.parametrize(("memory", "rate"), [(16 * GB, 90 * MB), (64 * GB, 250 * MB), (None, 250 * MB)])
def test_the_rate_of_a_node_that_does_not_answer_counts(
    server: ScriptedServer, memory: int | None, rate: int
) -> None:
    path = "/_nodes/id-cold1/stats/os"
    told = {} if memory is None else {"os": {"mem": {"total_in_bytes": memory}}}
    server.on(path, reply({"cluster_name": "prod", "nodes": {"id-cold1": told}}))
    client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=ManualClock())
    port = ElasticsearchCluster(client)
    for _ in range(2):
        read = port.observe({Look.CLUSTER, Look.SETTINGS})
        assert isinstance(read.settings, SettingsView), (read.settings, read.cluster)
        assert read.settings.files[BANDWIDTH] == f"{rate}b"
    port.close()
    assert server.paths().count(path) == 1
