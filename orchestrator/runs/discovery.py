"""A running cluster, read from one endpoint for its first cluster file. Changes nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final
from urllib.parse import urlsplit

from orchestrator.config.cluster import ClusterFile, ClusterSpec
from orchestrator.config.secrets import SecretResolver
from orchestrator.engine.kinds.elasticsearch.settings import awareness_of
from orchestrator.errors import UsageError
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.find_service import FoundService, find_services
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.reading import Reading, Unknown
from orchestrator.ports import Clock
from orchestrator.redact import Redactor
from orchestrator.runs.access import access_of
from orchestrator.runs.file_hosts import host_settings
from orchestrator.runs.from_file import Files
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import published_places
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.stores.elasticsearch.connection import Server
from orchestrator.stores.elasticsearch.faults import Fault
from orchestrator.stores.elasticsearch.fields import reading
from orchestrator.stores.elasticsearch.parse_nodes import parse_members, process_ids

MOST_ENDPOINTS: Final = 5
"""Endpoints that are listed: enough that some are up while others are down."""
_MOST_TRIED: Final = 10
"""Nodes that are tried as endpoints: each that does not answer costs some seconds."""
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")
_INTERNAL_ATTRIBUTES: Final = ("ml.", "xpack.", "transform.", "shard_indexing_pressure")
"""Beginnings of node attributes that the server itself sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The zones of a cluster.

    Attributes:
        attribute: that of the cluster's own allocation awareness; None without one.
        nodes: the number of nodes by zone.
        others: further attributes that every node has: one of them may name zones.
        unread: why the cluster's settings cannot be read; None where they can.
    """

    attribute: str | None
    nodes: Mapping[str, int]
    others: tuple[str, ...]
    unread: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one endpoint shows of a cluster.

    Attributes:
        endpoints: the given one and further ones that answer.
        left_out: nodes that do not answer at the HTTP address that they publish, with the reason.
    """

    view: ClusterView
    zones: Zones
    endpoints: tuple[str, ...]
    left_out: Mapping[NodeName, str]


class Discovery:
    """The way to a cluster whose file is still a draft. Close it.

    Args:
        file: the draft, with one endpoint, checked by the program's own reader.
        files: environment and home, in which its secrets are looked up.
        clock: the one clock of the process.

    Raises:
        ConfigError: a certificate, key or secret that the draft names cannot be used.
    """

    def __init__(self, file: ClusterFile, files: Files, clock: Clock) -> None:
        self._redact = Redactor()
        self._resolver = SecretResolver(
            environment=files.environment,
            folder=file.path.parent,
            home=files.home,
            learn=self._redact.learn,
        )
        self._clock = clock
        self._access = access_of(file, _elasticsearch(file), self._resolver)
        self._client = ElasticsearchClient(self._access, clock=clock, redact=self._redact)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def server(self) -> Server | Fault:
        """What answers at the endpoint."""
        return self._client.server()

    def read(self) -> Found:
        """Read the cluster.

        Raises:
            UsageError: it cannot be read, or this version does not restart such a cluster.
        """
        seen = ElasticsearchCluster(self._client).observe({Look.CLUSTER, Look.SETTINGS})
        view, settings = seen.cluster, seen.settings
        if isinstance(view, Unknown):
            raise UsageError(f"the cluster cannot be read: {view.reason}")
        if isinstance(settings, Unknown):
            zones = replace(_zones(view, None), unread=settings.reason)
        else:
            zones = _zones(view, awareness_of(settings)[0])
        endpoints, left_out = self._endpoints(view, zones)
        return Found(view=view, zones=zones, endpoints=endpoints, left_out=left_out)

    def services(self, file: ClusterFile, view: ClusterView) -> Mapping[NodeName, Reading[FoundService]]:
        """What runs each node, asked of its host over SSH as the draft says.

        Args:
            file: the draft with its section `hosts`.
            view: the cluster.
        """
        outcome = self._client.read(calls.processes())
        pids = {} if isinstance(outcome, Fault) else process_ids(outcome.body)
        settings = host_settings(file, {node.name: node.address for node in view.nodes}, self._resolver)
        connections = Connections()
        try:
            found = find_services(settings.values(), pids, connections)
        finally:
            connections.close()
        return {
            node: replace(one, reason=self._redact(one.reason)) if isinstance(one, Unknown) else one
            for node, one in found.items()
        }

    def _endpoints(self, view: ClusterView, zones: Zones) -> tuple[tuple[str, ...], Mapping[NodeName, str]]:
        """The given endpoint and those of further nodes that answer, from all zones in turn."""
        given, server = self._access.endpoints[0], self._client.server()
        outcome = self._client.read(calls.members())
        if isinstance(server, Fault) or isinstance(outcome, Fault):
            return (given,), {}
        members = reading("nodes", lambda: parse_members(outcome.body))
        if isinstance(members, Unknown):
            return (given,), {}
        published = {name: each.http for name, each in members.items() if each.http is not None}
        order = [node for node in _in_turn(view, zones.attribute) if node.name != server.name]
        urls, left_out = [given], {}
        for node in order[:_MOST_TRIED]:
            if len(urls) == MOST_ENDPOINTS:
                break
            answer = self._endpoint_of(node, published.get(node.name, ""))
            if isinstance(answer, Unknown):
                left_out[node.name] = answer.reason
            elif answer not in urls:
                urls.append(answer)
        return tuple(urls), left_out

    def _endpoint_of(self, node: Node, address: str) -> Reading[str]:
        """The URL at which a node answers with its own name."""
        places = published_places(address)
        if not places:
            return Unknown(reason="it publishes no HTTP address")
        scheme = urlsplit(self._access.endpoints[0]).scheme
        hosts = [host for host, _ in places]
        if scheme == "https" and self._access.fingerprint is None:
            hosts.append(node.name)  # certificates are often for names, while addresses are published
        reasons = []
        for host in dict.fromkeys(hosts):
            url = _url(scheme, host, places[0][1])
            wrong = None if url is None else self._wrong_with(url, node.name)
            if url is not None and wrong is None:
                return url
            reasons += [wrong] if wrong else []
        return Unknown(reason=reasons[0] if reasons else "it publishes no HTTP address that can be used")

    def _wrong_with(self, url: str, node: NodeName) -> str | None:
        access = replace(self._access, endpoints=(url,))
        once = replace(self._client.limits, attempts=1)
        client = ElasticsearchClient(access, clock=self._clock, limits=once, redact=self._redact)
        try:
            server = client.server()
        finally:
            client.close()
        if isinstance(server, Fault):
            return server.reason
        return None if server.name == node else f"{url} is node {server.name}"


def _elasticsearch(file: ClusterFile) -> ClusterSpec:
    assert isinstance(file.spec, ClusterSpec)  # noqa: S101  (drafts are of this kind alone)
    return file.spec


def _url(scheme: str, host: str, port: int) -> str | None:
    """The URL of a place; None where the host cannot be part of one."""
    if _HOST.fullmatch(host):
        return f"{scheme}://{host}:{port}"
    try:
        return f"{scheme}://[{ip_address(host)}]:{port}"
    except ValueError:
        return None


def _zones(view: ClusterView, attribute: str | None) -> Zones:
    numbers = Counter(str(node.zone(attribute)) for node in view.nodes if node.zone(attribute) is not None)
    shared = set.intersection(*(set(node.attributes) for node in view.nodes)) if view.nodes else set()
    others = sorted(name for name in shared - {attribute} if not name.startswith(_INTERNAL_ATTRIBUTES))
    return Zones(attribute=attribute, nodes=dict(sorted(numbers.items())), others=tuple(others))


def _in_turn(view: ClusterView, attribute: str | None) -> Iterator[Node]:
    """The nodes, one of each zone in turn."""
    by_zone: dict[str, list[Node]] = defaultdict(list)
    for node in sorted(view.nodes, key=lambda one: one.name):
        by_zone[str(node.zone(attribute))].append(node)
    rounds = chain.from_iterable(zip_longest(*(by_zone[zone] for zone in sorted(by_zone))))
    return (node for node in rounds if node is not None)
