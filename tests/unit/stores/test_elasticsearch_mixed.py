"""A cluster in the middle of an upgrade: the lowest version decides, by whichever endpoint it is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import Done, ExcludeFromVoting, ProbeSettings, Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Look
from orchestrator.model.reading import Unknown
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.dialect import (
    COMPONENT_TEMPLATE,
    LEGACY_TEMPLATE,
    Dialect,
    ServerVersion,
    VotingExclusions,
    dialect_of,
    parse_version,
)
from orchestrator.stores.elasticsearch.faults import Fault
from orchestrator.stores.elasticsearch.lease import ElasticsearchLease
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import ELASTIC, ScriptedServer, node, reply

PROBE, MEMBERS = "/_nodes/_local/http", "/_nodes/http"


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Retries cost a test nothing."""


@contextmanager
def _client(server: ScriptedServer) -> Iterator[ElasticsearchClient]:
    client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=_Clock())
    try:
        yield client
    finally:
        client.close()


def _through(first: str, nodes: dict[str, tuple[str, str | None]]) -> Dialect | Fault:
    """The dialect that a run speaks whose first endpoint is this node."""
    listed: dict[str, Any] = {"cluster_name": "c", "nodes": {}}
    for name, (version, build) in nodes.items():
        listed["nodes"] |= node(name, version=version, build=build)["nodes"]
    with ScriptedServer() as server:
        version, build = nodes[first]
        said = ELASTIC if version in ("7.17.28", "9.1.0", "10.0.0") else {}
        server.on(PROBE, reply(node(first, version=version, build=build), headers=said))
        server.on(MEMBERS, reply(listed, headers={}))
        own = {
            key: {**value, "settings": {"node.name": value["name"]}} for key, value in listed["nodes"].items()
        }
        server.on("/_nodes/settings", reply({"nodes": own}, headers={}))
        with _client(server) as client:
            return client.dialect()


def test_the_lowest_version_decides_by_every_endpoint(subtests: pytest.Subtests) -> None:
    nodes = {"es1": ("7.17.28", "zip"), "es2": ("7.5.2", "zip"), "es3": ("7.17.28", "zip")}
    for first in nodes:
        with subtests.test(first=first):
            spoken = _through(first, nodes)
            assert isinstance(spoken, Dialect), spoken
            assert spoken.voting is VotingExclusions.PATH


def test_a_node_of_five_is_no_opensearch_to_one_of_six() -> None:
    nodes = {"es1": ("6.8.23", "zip"), "es2": ("5.6.16", "unknown")}
    spoken = _through("es1", nodes)
    assert isinstance(spoken, Dialect), spoken
    assert spoken.family == "Elasticsearch 5"


def test_nodes_that_are_not_listed_leave_the_version_unknown() -> None:
    with ScriptedServer() as server:
        server.on(PROBE, reply(node("es1")))
        server.on(MEMBERS, reply({"error": {"type": "boom", "reason": "full"}}, status=500))
        with _client(server) as client:
            assert isinstance(client.server(), Fault)
            assert isinstance(client.dialect(), Fault), "it is known of the first endpoint only"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"es1": ("9.1.0", "zip"), "es2": ("10.0.0", "zip")}, "Elasticsearch 10.0.0 on es2 ("),
        ({"es1": ("2.3.0", None), "es2": ("2.2.0", None)}, "Elasticsearch 2.2.0 on es2 ("),
        (
            {"es1": ("7.10.2", "zip"), "os1": ("1.3.20", "zip")},
            "different products (Elasticsearch 7.10.2 on es1, OpenSearch 1.3.20 on os1)",
        ),
    ],
)
def test_a_strange_node_is_refused_by_name(nodes: dict[str, tuple[str, str | None]], reason: str) -> None:
    for first in nodes:
        refused = _through(first, nodes)
        assert isinstance(refused, Fault)
        assert reason in refused.reason
        assert "not in this version" in refused.reason


def test_a_node_that_hides_its_product_from_the_others() -> None:
    """OpenSearch 1 in a cluster of Elasticsearch 7.10 is listed as 7.10.2."""
    listed = node("es1", version="7.10.2")
    listed["nodes"] |= node("os1", version="7.10.2")["nodes"]
    with ScriptedServer() as server:
        server.on(PROBE, reply(node("os1", version="1.3.20"), headers={}))
        server.on(MEMBERS, reply(listed, headers={}))
        with _client(server) as client:
            refused = client.dialect()
            assert isinstance(refused, Fault)
            assert "OpenSearch 1.3.20 on os1" in refused.reason


def test_a_hidden_product_must_be_named(subtests: pytest.Subtests) -> None:
    """A proxy removes the header: only the cluster file says whether it is Elasticsearch."""
    for stated, product, version, expected in (
        ("8.19.0", None, None, "write `product` and `version` in the cluster file"),
        ("8.19.0", "elasticsearch", "8.19.0", "Elasticsearch 8"),
        ("8.19.1", "elasticsearch", "8.19", "Elasticsearch 8"),
        ("8.18.0", "elasticsearch", "8.19.0", "below that of the cluster file: Elasticsearch 8.19.0"),
        ("8.19.0", "opensearch", "3.1.0", "OpenSearch 8.19.0"),
        ("7.13.4", None, None, "Elasticsearch 7"),
        ("7.13.4", "opensearch", "1.3.0", "is Elasticsearch 7.13.4, and the cluster file names OpenSearch"),
        ("2.19.0", None, None, "OpenSearch 2"),
        ("12.0.0", None, None, "Elasticsearch 12.0.0 on es1 (this version restarts "),
    ):
        with subtests.test(stated=stated, product=product, version=version), ScriptedServer() as server:
            for path in (PROBE, MEMBERS):
                server.on(path, reply(node("es1", version=stated), headers={}))
            access = Access(endpoints=(server.url,), product=product, version=version)
            client = ElasticsearchClient(access, clock=_Clock())
            found = client.dialect()
            client.close()
            assert expected in (found.reason if isinstance(found, Fault) else found.family), found


def test_many_strange_nodes_are_counted() -> None:
    old = ServerVersion(distribution="elasticsearch", version="1.0.3")
    with pytest.raises(NotInThisVersion, match=r"1\.0\.3 on es0, es1, es2, es3, es4 and 4 more"):
        dialect_of({f"es{number}": old for number in range(9)})


UPGRADES = (
    ("elasticsearch", "2.3.0", "2.4.6"),
    ("elasticsearch", "5.6.16", "6.8.23"),
    ("elasticsearch", "6.8.23", "7.17.28"),
    ("elasticsearch", "7.5.2", "7.17.28"),
    ("elasticsearch", "7.17.28", "8.19.0"),
    ("elasticsearch", "8.19.0", "9.1.0"),
    ("opensearch", "1.3.20", "2.19.0"),
    ("opensearch", "2.19.0", "3.1.0"),
)


def test_every_upgrade_speaks_the_older_version(subtests: pytest.Subtests) -> None:
    for product, old, new in UPGRADES:
        with subtests.test(product=product, old=old, new=new):
            both = [ServerVersion(distribution=product, version=version) for version in (new, old)]
            found = dialect_of({"es1": both[0], "es2": both[1]})
            assert found == dialect_of({"es2": both[1]})
            assert found.family != dialect_of({"es1": both[0]}).family or old in ("2.3.0", "7.5.2")


def test_the_lowest_version_decides_on_the_form_of_the_lease(subtests: pytest.Subtests) -> None:
    for product, old, new in UPGRADES:
        with subtests.test(product=product, old=old, new=new):
            spoken = dialect_of(
                {each: ServerVersion(distribution=product, version=each) for each in (old, new)}
            )
            before = product == "elasticsearch" and parse_version(old) < (7, 8, 0)
            assert spoken.lease_forms[0] == (LEGACY_TEMPLATE if before else COMPONENT_TEMPLATE)


def test_the_lease_is_read_in_every_form() -> None:
    with SmallCluster(version="2.19.0") as cluster, _client(cluster) as client:
        ElasticsearchLease(client).read()
        paths = [path for path in cluster.paths() if "orchestrate-lease" in path]
        assert paths == ["/_component_template/orchestrate-lease-*", "/_template/orchestrate-lease-*"]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster(version="9.1.0") as running:
        yield running


def test_a_node_of_an_unknown_version_that_joins_later(cluster: SmallCluster) -> None:
    """No further stop: nothing can be read. What the run changed is still restored, under its lease."""
    with _client(cluster) as client:
        port = ElasticsearchCluster(client)
        assert not isinstance(port.observe([Look.CLUSTER]).cluster, Unknown)
        cluster.upgrade("es3", "10.0.0")
        seen = port.observe([Look.CLUSTER]).cluster
        assert isinstance(seen, Unknown)
        assert "Elasticsearch 10.0.0 on es3" in seen.reason
        assert isinstance(port.observe([Look.SETTINGS]).settings, Unknown)
        assert port.perform(ProbeSettings()) == Done()
        assert ElasticsearchLease(client).read() is None, "the lease can still be read"
        cluster.upgrade("es3", "9.2.0")
        assert not isinstance(port.observe([Look.CLUSTER]).cluster, Unknown)


def test_a_run_sees_nodes_become_newer(cluster: SmallCluster) -> None:
    """The older form is used while one node needs it, also while that node is down."""
    exclusion = ExcludeFromVoting(node=NodeName("es1"))
    cluster.upgrade("es3", "7.17.28")
    for name in ("es1", "es2"):
        cluster.upgrade(name, "7.5.2")
    with _client(cluster) as client:
        port = ElasticsearchCluster(client)
        forms = []
        for name in ("es1", "es2"):
            port.observe([Look.CLUSTER])
            client.avoid([NodeName(name)])
            client.only([NodeName(each) for each in ("es1", "es2", "es3") if each != name])
            forms.append("/es1?" in port.describe(exclusion))
            cluster.upgrade(name, "7.17.28")
            client.avoid([])
        port.observe([Look.CLUSTER])
        forms.append("/es1?" in port.describe(exclusion))
    assert forms == [True, True, False]


def test_a_refused_cluster_is_sent_no_write(cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "10.0.0")
    with _client(cluster) as client:
        assert isinstance(ElasticsearchCluster(client).perform(ProbeSettings()), Refused)
        assert isinstance(ElasticsearchLease(client).read(), Unknown)
    assert {asked.method for asked in cluster.asked} == {"GET"}
