"""Before 5.0 a node without `node.name` has another name and id at each start: its address is its name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import family_of
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.naming import host_of, name_of, parse_names, renamed
from orchestrator.stores.elasticsearch.parse_cluster import parse_cluster
from orchestrator.stores.elasticsearch.parse_nodes import Life, parse_lives
from orchestrator.stores.elasticsearch.request import get
from tests.fakes.scripted_http import ScriptedServer, reply

FIXED = {"transport.tcp.port": "9301"}


def _node(name: str, address: str, **settings: str) -> dict[str, Any]:
    """A node of 1.7 as `_nodes` lists it."""
    return {
        "name": name,
        "version": "1.7.6",
        "transport_address": f"inet[/{address}]",
        "http": {"publish_address": f"inet[/{address}]"},
        "jvm": {"start_time_in_millis": 5},
        "settings": settings,
    }


def _view(nodes: Mapping[str, dict[str, Any]]) -> ClusterView | Unknown:
    dialect = family_of("elasticsearch", "1.7.6")
    assert dialect is not None
    lives: dict[str, Life] = parse_lives({"nodes": nodes}, roles_listed=False)
    state = {
        "cluster_name": "c",
        "version": 1,
        "nodes": {
            node_id: {"name": node["name"], "transport_address": node["transport_address"]}
            for node_id, node in nodes.items()
        },
        "metadata": {},
    }
    return parse_cluster(state, lives, distribution="elasticsearch", dialect=dialect)


@pytest.mark.parametrize(
    ("address", "settings", "name"),
    [
        ("10.1.0.1:9300", {}, "10.1.0.1"),
        ("10.1.0.1:9301", FIXED, "10.1.0.1:9301"),
        ("10.1.0.1:9301", {"transport.tcp.port": "9300-9400"}, "10.1.0.1"),
        # A node shows its own address with the host name of its `network.host`; the others show it without.
        ("es1/10.1.0.1:9301", {}, "10.1.0.1"),
        ("es1/10.1.0.1:9301", FIXED, "10.1.0.1:9301"),
        ("[::1]:9301", FIXED, "[::1]:9301"),
        ("[::1]:9301", {}, "::1"),
        ("10.1.0.1:9301", {**FIXED, "node.name": "Thor"}, "Thor"),
        ("10.1.0.1:9301", {"node.name": ""}, "10.1.0.1"),
    ],
)
def test_a_node_without_a_name_is_known_by_its_address(
    address: str, settings: dict[str, str], name: str
) -> None:
    node = {"name": "Thor", "transport_address": f"inet[/{address}]".replace("[/es1", "[es1")}
    assert name_of(node, settings, "x") == name
    assert host_of("inet[es1/10.1.0.1:9300]", "x") == "es1"
    assert host_of("127.0.0.1:9300", "x") == "127.0.0.1", "from 2.0 on without the frame"


def test_the_same_node_is_another_process_with_the_same_name() -> None:
    before = _view(
        {"a": _node("Thor", "10.1.0.1:9300"), "b": _node("es2", "10.1.0.2:9300", **{"node.name": "es2"})}
    )
    after = _view(
        {"c": _node("Loki", "10.1.0.1:9301"), "b": _node("es2", "10.1.0.2:9300", **{"node.name": "es2"})}
    )
    assert isinstance(before, ClusterView)
    assert isinstance(after, ClusterView)
    assert [node.name for node in before.nodes] == [node.name for node in after.nodes] == ["10.1.0.1", "es2"]
    assert [node.own_name for node in (*before.nodes, *after.nodes)] == ["Thor", "", "Loki", ""]
    one, other = before.nodes[0].incarnation, after.nodes[0].incarnation
    assert other.differs_from(one)


def test_nodes_that_share_an_address_hold() -> None:
    fixed = _view(
        {
            "a": _node("Thor", "10.1.0.1:9300", **{"transport.tcp.port": "9300"}),
            "b": _node("Loki", "10.1.0.1:9301", **FIXED),
        }
    )
    assert isinstance(fixed, ClusterView)
    assert [node.name for node in fixed.nodes] == ["10.1.0.1:9300", "10.1.0.1:9301"]
    for name in ("Loki", "Thor"):
        shared = _view({"a": _node("Thor", "10.1.0.1:9300"), "b": _node(name, "10.1.0.1:9301")})
        assert isinstance(shared, Unknown)
        assert "share the address 10.1.0.1: set `node.name`" in shared.reason


def test_every_answer_has_the_address_in_place_of_the_name() -> None:
    names = {"a": NodeName("10.1.0.1")}
    body = {"nodes": {"a": {"name": "Thor", "fs": 1}, "b": {"name": "es2"}}, "cluster_name": "c"}
    assert renamed(body, names) == {
        "nodes": {"a": {"name": "10.1.0.1", "own_name": "Thor", "fs": 1}, "b": {"name": "es2"}},
        "cluster_name": "c",
    }
    shard = {"id": 0, "source": {"id": "b", "name": "es2"}, "target": {"id": "a", "name": "Thor"}}
    assert renamed({"posts": {"shards": [shard]}}, names)["posts"]["shards"] == [
        {**shard, "target": {"id": "a", "name": "10.1.0.1", "own_name": "Thor"}}
    ]
    for body in ([1], {"posts": {"shards": [5]}}, {"nodes": {"a": 5}}):
        assert renamed(body, names) == body
    assert renamed({"status": "green"}, names) == {"status": "green"}


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Retries cost a test nothing."""


def test_nothing_is_sent_to_a_node_that_goes_down_by_its_address() -> None:
    with ScriptedServer() as server:
        one = {"cluster_name": "c", "nodes": {"a": _node("Thor", "10.1.0.1:9300")}}
        for path in ("/_nodes/_local/http", "/_nodes/http", "/_nodes/settings"):
            server.on(path, reply(one, headers={}))
        server.on("/_cluster/health", reply({"status": "green"}, headers={}))
        client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=_Clock())
        try:
            assert not isinstance(client.dialect(), Fault)
            found = client.server()
            assert not isinstance(found, Fault)
            assert found.name == "10.1.0.1"
            assert isinstance(client.read(get("/_cluster/health")), Answer)
            answer = client.read(get("/_nodes/http"))
            assert isinstance(answer, Answer)
            assert answer.body["nodes"]["a"]["name"] == "10.1.0.1"
            client.avoid([NodeName("10.1.0.1")])
            assert isinstance(client.read(get("/_cluster/health")), Fault)
        finally:
            client.close()
    assert parse_names(one) == {"a": "10.1.0.1"}
