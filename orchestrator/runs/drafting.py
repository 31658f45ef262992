"""What the first cluster file says of what was found of a cluster and of its hosts. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.config.draft import Draft, Service, scalar
from orchestrator.config.services import ELASTICSEARCH
from orchestrator.hosts.connection import UnknownKey
from orchestrator.hosts.find_service import FoundService, NotAsked
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.discovery import Found, Zones
from orchestrator.stores.elasticsearch.dialect import OPENSEARCH
from orchestrator.view.text import counted, listed

PRODUCTS: Final = {OPENSEARCH: "OpenSearch"}
_MOST_REMARKS: Final = 5
"""Reasons that are given one by one."""
_GLOB: Final = frozenset("*?[")


def product(found: Found) -> str:
    """Product and version, for people."""
    return f"{PRODUCTS.get(found.view.distribution, 'Elasticsearch')} {found.view.version}"


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
            "All keys: docs/reference/configuration.md. Check the file with `orchestrate validate`.",
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
        draft: with the rest of the section `hosts`.
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
        hosts = replace(draft.hosts, service=service, remarks=(*given, *remarks), assumed=assumed)
        return replace(draft, hosts=hosts)
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
    hosts = replace(draft.hosts, service=usual, overrides=overrides, remarks=remarks, assumed=assumed)
    return replace(draft, hosts=hosts)


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
