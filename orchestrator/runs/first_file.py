"""The first cluster file: what an endpoint and the hosts show of a running cluster, and its text for it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final
from urllib.parse import urlsplit

from orchestrator.config.cluster import ClusterFile
from orchestrator.config.draft import Draft, Service, scalar
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.config.secrets import SecretResolver
from orchestrator.config.services import ELASTICSEARCH
from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import published_places
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.cluster import ElasticsearchCluster
from orchestrator.elasticsearch.connection import Server
from orchestrator.elasticsearch.dialect import OPENSEARCH
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import reading
from orchestrator.elasticsearch.parse_cluster import parse_members, process_ids
from orchestrator.elasticsearch.rules.settings import awareness_of
from orchestrator.errors import UsageError
from orchestrator.hosts.connection import UnknownKey
from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.find_service import FoundService, NotAsked, find_services
from orchestrator.model.cluster import Node, NodeName
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.reading import Reading, Unknown
from orchestrator.names import PRODUCTS
from orchestrator.ports import Clock
from orchestrator.redact import Redactor
from orchestrator.runs.from_file import Files
from orchestrator.runs.reach import access_of, host_settings
from orchestrator.view.text import counted, listed

MOST_ENDPOINTS: Final = 5
"""Endpoints that are listed: enough that some are up while others are down."""
_MOST_TRIED: Final = 10
"""Nodes that are tried as endpoints: each that does not answer costs some seconds."""
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")
_INTERNAL_ATTRIBUTES: Final = ("ml.", "xpack.", "transform.", "shard_indexing_pressure")
"""Beginnings of node attributes that the server itself sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The zones of a cluster."""

    attribute: str | None  # that of the cluster's own allocation awareness; None without one
    nodes: Mapping[str, int]  # the number of nodes by zone
    others: tuple[str, ...]  # further attributes that every node has: one of them may name zones
    unread: str | None = None  # why the cluster's settings cannot be read; None where they can


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one endpoint shows of a cluster."""

    view: ClusterView
    zones: Zones
    endpoints: tuple[str, ...]  # the given one and further ones that answer
    # nodes that do not answer at the HTTP address that they publish, with the reason
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
        members = reading(parse_members, outcome.body)
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


_MOST_REMARKS: Final = 5
"""Reasons that are given one by one."""
_GLOB: Final = frozenset("*?[")


def product(found: Found) -> str:
    """Product and version, for people."""
    return f"{PRODUCTS.get(found.view.distribution, PRODUCTS['elasticsearch'])} {found.view.version}"


def with_cluster(draft: Draft, found: Found) -> Draft:
    """The draft with all that the cluster itself shows."""
    nodes = len(found.view.nodes)
    remarks = with_reasons("No endpoint of", found.left_out)
    if len(found.endpoints) == 1 < nodes:
        remarks = (
            "Add those of other nodes, unless it is a load balancer: one must answer while it is down.",
            *remarks,
        )
    return replace(
        draft,
        name=found.view.name,
        endpoints=found.endpoints,
        endpoint_remarks=remarks,
        nodes=nodes,
        zones=_zone_remarks(found.zones, nodes),
        head=(
            f"Cluster {found.view.name}: {product(found)}, {counted(nodes, 'node')}.",
            "Written by `orchestrate init`. Read it, and correct what is not right.",
            "All keys: `orchestrate explain configuration`. Check the file with `orchestrate validate`.",
        ),
    )


def usual_unit(distribution: str) -> str:
    """The systemd unit of the product's own packages."""
    return "opensearch" if distribution == OPENSEARCH else ELASTICSEARCH.unit


def with_services(
    draft: Draft,
    services: Mapping[NodeName, Reading[FoundService]],
    distribution: str,
    unit: str | None = None,
) -> Draft:
    """The draft with what runs the nodes. What was neither found nor given is assumed, and marked so.

    Args:
        draft: with the rest of the section `hosts` of the file.
        services: by node; empty where the hosts were not asked.
        distribution: of the cluster.
        unit: the systemd unit that the operator names, for nodes whose service was not found.
    """
    found = {
        node: Service(manager=one.manager.value, unit=one.unit)
        for node, one in sorted(services.items())
        if not isinstance(one, Unknown)
    }
    missing = [node for node, one in sorted(services.items()) if isinstance(one, Unknown)]
    remarks = tuple(f"{said[:1].upper()}{said[1:]}" for said in (*not_found(services), *no_root(services)))
    manager = ELASTICSEARCH.manager.value
    if not found:
        why = "no service was found on a host" if services else "the hosts were not read"
        given = (f"The unit was given to `init`; {why}.",) if unit else ()
        service = Service(manager=manager, unit=unit or usual_unit(distribution))
        assumed = () if unit else (f"the service is {manager} {service.unit}, the usual one, as {why}",)
        return replace(draft, service=service, service_remarks=(*given, *remarks), assumed=assumed)
    assumed = ()
    if missing and unit:
        remarks = (f"The unit of {listed(missing)} was given to `init`.", *remarks)
        found |= {node: Service(manager=manager, unit=unit) for node in missing}
    elif missing:
        assumed = (f"the service of {listed(missing)} is that of the other nodes",)
    seen = [node for node in found if node not in missing]
    usual = _usual(found)
    overrides: dict[str, Service] = {
        node: one for node, one in found.items() if one != _of_node(usual, node) and not _GLOB & set(node)
    }
    globs = [node for node, one in found.items() if one != _of_node(usual, node) and node not in overrides]
    remarks = (f"The service was found over SSH on {listed(seen)}.", *remarks)
    if globs:
        remarks = (*remarks, f"Another service, and a name that reads as a glob: {listed(globs)}.")
    return replace(draft, service=usual, overrides=overrides, service_remarks=remarks, assumed=assumed)


def _usual(found: Mapping[NodeName, Service]) -> Service:
    """The service of most nodes; with `{node}` where that fits more of them."""
    plain, placed = Counter(found.values()), Counter(_template(one, node) for node, one in found.items())
    (usual, many), (template, more) = plain.most_common(1)[0], placed.most_common(1)[0]
    return template if more > many else usual


def _template(service: Service, node: NodeName) -> Service:
    return replace(service, unit=service.unit.replace(node, "{node}"))


def _of_node(service: Service, node: NodeName) -> Service:
    return replace(service, unit=service.unit.replace("{node}", node))


def _zone_remarks(zones: Zones, nodes: int) -> tuple[str, ...]:
    if zones.unread is not None:
        first = f"Zones are not known: the cluster's settings cannot be read ({zones.unread})."
    elif zones.attribute is None:
        first = "The cluster has no zones: it has no allocation awareness."
    else:
        numbers = ", ".join(f"{zone} ({counted(number, 'node')})" for zone, number in zones.nodes.items())
        without = nodes - sum(zones.nodes.values())
        rest = f", {counted(without, 'node')} without" if without and numbers else ""
        shown = f"{numbers}{rest}" if numbers else "no node has it"
        first = f"Zones: the cluster's awareness attribute is {zones.attribute}: {shown}."
    if zones.attribute is None and zones.others:
        return (
            f"{first} All nodes have these attributes: {listed(zones.others)}. Name one of them for zones:",
            f"zone_attribute: {scalar(zones.others[0])}",
        )
    return (first,)


def not_found(services: Mapping[NodeName, Reading[FoundService]]) -> tuple[str, ...]:
    """Why services were not found, in a few sentences: a host that was not asked is the matter itself."""
    apart, unread, absent = {}, {}, {}
    for node, one in sorted(services.items()):
        match one:
            case NotAsked(key=UnknownKey()):
                apart[node] = "the host key is not known"
            case NotAsked(reason=reason):
                unread[node] = reason
            case Unknown(reason=reason):
                absent[node] = reason
            case _:
                pass
    return (
        *with_reasons("no connection to", apart | unread),
        *with_reasons("service not found on", absent),
    )


def no_root(services: Mapping[NodeName, Reading[FoundService]]) -> tuple[str, ...]:
    """On which hosts no command can be run as root, and what to do."""
    why = "there is doas and no sudo, which is not supported: install sudo, or log in as root"
    return with_reasons(
        "no command as root on",
        {
            node: why
            for node, one in sorted(services.items())
            if isinstance(one, FoundService) and one.only_doas
        },
    )


def with_reasons(what: str, reasons: Mapping[NodeName, str]) -> tuple[str, ...]:
    """A sentence for each reason, with its nodes; the ones past `_MOST_REMARKS` are counted."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, why in reasons.items():
        nodes[why].append(node)
    shown = [f"{what} {listed(names)}: {why}" for why, names in nodes.items()]
    more = sum(len(names) for names in list(nodes.values())[_MOST_REMARKS:])
    rest = (f"{what} {counted(more, 'more node')}, for reasons like these",) if more else ()
    return (*shown[:_MOST_REMARKS], *rest)
