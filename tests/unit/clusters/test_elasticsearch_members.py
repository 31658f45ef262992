"""Nodes of different versions, and nodes without a name: what the program calls them, and how it asks them.

In the middle of an upgrade the lowest version decides, by whichever endpoint it is read. Before 5.0 a node
without `node.name` has another name and id at each start: its address is its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.elasticsearch.calls import get
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.elasticsearch.old_versions import parse_names
from orchestrator.elasticsearch.parse_cluster import parse_cluster, parse_lives, process_of
from orchestrator.model.action import Done, ExcludeFromVoting, ProbeSettings, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.reading import Reading, Unknown
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.unit.clusters.cases import known, why
from tests.unit.clusters.recordings import ASKED, Moment, reshaped
from tests.unit.clusters.scripted import HEALTH, MEMBERS, PROBE

Open = Callable[..., ElasticsearchClient]


# Versions that change while a run goes on ------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster(version="9.1.0") as running:
        yield running


def test_a_node_of_an_unknown_version_that_joins_later(cluster: SmallCluster, client: Open) -> None:
    """No further stop: nothing can be read. What the run changed is still restored, under its lease."""
    asked = client(cluster.url)
    port = ElasticsearchCluster(asked)
    known(port.observe([Look.CLUSTER]).cluster)
    cluster.upgrade("es3", "10.0.0")
    assert "Elasticsearch 10.0.0 on es3" in why(port.observe([Look.CLUSTER]).cluster)
    assert isinstance(port.observe([Look.SETTINGS]).settings, Unknown)
    assert port.perform(ProbeSettings()) == Done()
    assert ElasticsearchLease(asked).read() is None, "the lease can still be read"
    cluster.upgrade("es3", "9.2.0")
    known(port.observe([Look.CLUSTER]).cluster)


def test_a_refused_cluster_is_sent_no_write(cluster: SmallCluster, client: Open) -> None:
    cluster.upgrade("es2", "10.0.0")
    asked = client(cluster.url)
    assert isinstance(ElasticsearchCluster(asked).perform(ProbeSettings()), Refused)
    assert isinstance(ElasticsearchLease(asked).read(), Unknown)
    assert {each.method for each in cluster.asked} == {"GET"}


def test_a_run_sees_nodes_become_newer(cluster: SmallCluster, client: Open) -> None:
    """The older form is used while one node needs it, also while that node is down."""
    exclusion = ExcludeFromVoting(node=NodeName("es1"))
    cluster.upgrade("es3", "7.17.28")
    for name in ("es1", "es2"):
        cluster.upgrade(name, "7.5.2")
    asked = client(cluster.url)
    port = ElasticsearchCluster(asked)
    forms = []
    for name in ("es1", "es2"):
        port.observe([Look.CLUSTER])
        asked.avoid([NodeName(name)])
        asked.only([NodeName(each) for each in ("es1", "es2", "es3") if each != name])
        forms.append("/es1?" in port.describe(exclusion))
        cluster.upgrade(name, "7.17.28")
        asked.avoid([])
    port.observe([Look.CLUSTER])
    forms.append("/es1?" in port.describe(exclusion))
    assert forms == [True, True, False]


# Nodes without a name --------------------------------------------------------------------------------------


def _node(name: str, address: str, port: str = "", own: str = "") -> dict[str, Any]:
    """A node of 1.7 as `_nodes` lists it."""
    settings = {"transport.tcp.port": port} if port else {}
    return {
        "name": name,
        "version": "1.7.6",
        "transport_address": f"inet[/{address}]",
        "http": {"publish_address": f"inet[/{address}]"},
        "jvm": {"start_time_in_millis": 5},
        "settings": settings | ({"node.name": own} if own else {}),
    }


def _view(**nodes: dict[str, Any]) -> Reading[ClusterView]:
    lives: Any = parse_lives(reshaped("1.7.6", ASKED["lives"], {"nodes": nodes}))
    state = {"cluster_name": "c", "version": 1, "nodes": nodes, "metadata": {}}
    answer = reshaped("1.7.6", ASKED["state"], state)
    return reading(parse_cluster, answer, lives, distribution="elasticsearch")


def test_the_same_node_is_another_process_with_the_same_name() -> None:
    named = _node("es2", "10.1.0.2:9300", own="es2")
    before = known(_view(a=_node("Thor", "10.1.0.1:9300"), b=named)).nodes
    after = known(_view(c=_node("Loki", "10.1.0.1:9301"), b=named)).nodes
    assert [node.name for node in before] == [node.name for node in after] == ["10.1.0.1", "es2"]
    assert [node.own_name for node in (*before, *after)] == ["Thor", "", "Loki", ""]
    assert after[0].incarnation.differs_from(before[0].incarnation)


def test_nodes_that_share_an_address_hold() -> None:
    fixed = _view(a=_node("Thor", "10.1.0.1:9300", "9300"), b=_node("Loki", "10.1.0.1:9301", "9301"))
    assert [node.name for node in known(fixed).nodes] == ["10.1.0.1:9300", "10.1.0.1:9301"]
    for name in ("Loki", "Thor"):
        shared = _view(a=_node("Thor", "10.1.0.1:9300"), b=_node(name, "10.1.0.1:9301"))
        assert "share the address 10.1.0.1: set `node.name`" in why(shared)


def test_a_node_without_a_name_is_called_by_its_address(server: ScriptedServer, client: Open) -> None:
    one = {"cluster_name": "c", "nodes": {"a": _node("Thor", "10.1.0.1:9300")}}
    for path in (PROBE, MEMBERS, "/_nodes/settings"):
        server.on(path, reply(one, headers={}))
    server.on(HEALTH, reply({"status": "green"}, headers={}))
    asked = client(server.url)
    assert not isinstance(asked.dialect(), Fault)
    found = asked.server()
    assert not isinstance(found, Fault)
    assert found.name == "10.1.0.1"
    assert isinstance(asked.read(get(HEALTH)), Answer)
    answer = asked.read(get(MEMBERS))
    assert isinstance(answer, Answer)
    assert answer.body["nodes"]["a"]["name"] == "10.1.0.1"
    assert parse_names(one) == {"a": "10.1.0.1"}


def test_a_node_that_lacks_a_fact_is_unknown_alone(subtests: pytest.Subtests) -> None:
    """The others are known, and not asked again; that one says in the reading what of it is not known."""
    for lacks in (
        {"jvm": None},
        {"plugins": [{}]},
        {"version": "nine"},
        {"roles": "data"},
        {"settings": {"indices": {"recovery": {"max_bytes_per_sec": "fast"}}}},
    ):
        for version in ("9.1.0", "8.19.0"):
            with subtests.test(lacks=lacks, version=version):
                moment = Moment(version, "down")
                answer, nodes = moment.body("lives"), moment.body("state")["nodes"]
                first, *others = [node_id for node_id in answer["nodes"] if node_id in nodes]
                answer["nodes"][first] |= lacks
                lives = parse_lives(answer)
                assert set(lives) >= set(others)
                view = moment.view({process_of(each, nodes[each]): lives[each] for each in others})
                unknown = [node.node_id for node in view.nodes if node.plugins is None]
                assert (first in lives, unknown) == (False, [first])
