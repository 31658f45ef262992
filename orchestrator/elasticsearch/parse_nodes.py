"""Parse nodes from the cluster state, together with each node's own facts (`_nodes`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.elasticsearch.dialect import (
    ELASTICSEARCH,
    OPENSEARCH,
    ServerVersion,
    family_of,
    parse_version,
)
from orchestrator.elasticsearch.fields import (
    Malformed,
    NotYetReported,
    given,
    items,
    mapping,
    number,
    text,
    within,
)
from orchestrator.elasticsearch.naming import OWN_NAME, flattened, host_of, is_named, name_of
from orchestrator.elasticsearch.recovery_rates import OwnRate, parse_own_rate
from orchestrator.model.cluster import Incarnation, Node, NodeName, Role

_FIRST_WITH_BUILD_TYPE: Final = 6
_ROLES: Final = {role.value: role for role in Role} | {
    "cluster_manager": Role.MASTER,  # OpenSearch 2 and later
    "warm": Role.SEARCH,  # OpenSearch 3's name for a node of remote-backed indices
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The facts of a node, which never change while its process runs."""

    roles: frozenset[Role]
    server: ServerVersion
    started_at_ms: int
    http: str | None  # its `http.publish_address`; None if HTTP is off
    rate: OwnRate = field(default_factory=OwnRate)  # the recovery rate in its elasticsearch.yml
    # those settings of its elasticsearch.yml that were read, by their dotted names
    settings: Mapping[str, str] = field(default_factory=dict)
    plugins: frozenset[str] = frozenset()  # the plugins that it has loaded, modules aside
    host: str = ""  # the name of its machine, or its address where the server resolves no names


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node as the cluster lists it."""

    server: ServerVersion
    http: str | None  # its `http.publish_address`; None if HTTP is off


def parse_members(body: Any) -> dict[NodeName, Member]:
    """Every node from `_nodes/http`, by name.

    Raises:
        Malformed: the answer has another form, or lists no node.
    """
    found: dict[NodeName, Member] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        node = mapping(value, f"nodes.{node_id}")
        address = within(node, "http", "publish_address")
        found[NodeName(text(node.get("name"), f"nodes.{node_id}.name"))] = Member(
            server=parse_version_of(node, f"nodes.{node_id}"),
            http=address if isinstance(address, str) else None,
        )
    if not found:
        raise Malformed("no node is listed")
    return found


def ids_without_name(body: Any) -> frozenset[str]:
    """Ids of the nodes in `_nodes/http` that may have no name of their own: accepted ones before 5.0.

    Raises:
        Malformed: the answer has another form.
    """
    found: set[str] = set()
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        server = parse_version_of(mapping(value, f"nodes.{node_id}"), f"nodes.{node_id}")
        dialect = family_of(server.distribution, server.version)
        if dialect is not None and dialect.accepted and not dialect.ephemeral_ids:
            found.add(node_id)
    return frozenset(found)


def parse_version_of(node: Mapping[str, Any], where: str) -> ServerVersion:
    """The product and version of a node in an answer of `_nodes`.

    Versions 1 to 5 are OpenSearch if `build_type` is present: Elasticsearch has it since 6.3. Elasticsearch 3
    and 4 never existed. A node of 6.3 or later lists one of 5.6 with the type `unknown` (seen).

    Raises:
        Malformed: the version is not there or not valid.
    """
    version = text(node.get("version"), f"{where}.version")
    try:
        major, _, _ = parse_version(version)
    except ValueError as error:
        raise Malformed(str(error)) from error
    elastic = major >= _FIRST_WITH_BUILD_TYPE or node.get("build_type") in (None, "unknown")
    return ServerVersion(distribution=ELASTICSEARCH if elastic else OPENSEARCH, version=version)


def process_ids(body: Any) -> dict[NodeName, int]:
    """Process ids by node from `_nodes/process`; what is not there, or not readable, is left out."""
    nodes = body.get("nodes") if isinstance(body, dict) else None
    found: dict[NodeName, int] = {}
    for node in nodes.values() if isinstance(nodes, dict) else ():
        match node:
            case {"name": str(name), "process": {"id": int(pid)}} if pid > 0:
                found[NodeName(name)] = pid
            case _:
                continue  # its service is looked for by name
    return found


def parse_lives(body: Any, *, roles_listed: bool = True) -> dict[str, Life]:
    """The facts of nodes, by node id, from `_nodes/{ids}/jvm,http,settings,plugins`.

    A node of which a fact is missing or has another form is left out: what it lacks is unknown of it alone.

    Args:
        body: the answer.
        roles_listed: whether this version lists roles; otherwise they are in the node's attributes.

    Raises:
        Malformed: the answer has another form.
    """
    found: dict[str, Life] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        with suppress(Malformed):
            found[node_id] = _life(value, f"nodes.{node_id}", roles_listed=roles_listed)
    return found


def _life(value: Any, where: str, *, roles_listed: bool) -> Life:
    node = mapping(value, where)
    address = within(node, "http", "publish_address")
    return Life(
        roles=parse_roles(node.get("roles"), f"{where}.roles") if roles_listed else attributed_roles(node),
        server=parse_version_of(node, where),
        started_at_ms=number(
            given(within(node, "jvm", "start_time_in_millis"), within(node, "jvm", "start_time")),
            f"{where}.jvm.start_time_in_millis",  # on 0.90 and 1.1 it is `start_time`
        ),
        http=address if isinstance(address, str) else None,
        rate=parse_own_rate(node.get("settings"), f"{where}.settings"),
        settings=flattened(node.get("settings")),
        plugins=_plugins(node.get("plugins"), f"{where}.plugins"),
        host=host if isinstance(host := node.get("host"), str) else "",
    )


def _plugins(value: Any, where: str) -> frozenset[str]:
    """Names of plugins. An answer with only some fields leaves out an empty list.

    Raises:
        Malformed: a plugin has no name.
    """
    return frozenset(text(within(plugin, "name"), where) for plugin in items(given(value, []), where))


def attributed_roles(node: Any) -> frozenset[Role]:
    """Roles of a node before 5.0: both, unless its attributes `data`, `master` or `client` take them away."""
    attributes = mapping(given(within(node, "attributes"), {}), "attributes")
    if attributes.get("client") == "true":
        return frozenset({Role.COORDINATING})
    roles = {
        role
        for name, role in (("data", Role.DATA), ("master", Role.MASTER))
        if attributes.get(name) != "false"
    }
    return frozenset(roles) or frozenset({Role.COORDINATING})


def parse_roles(value: Any, where: str) -> frozenset[Role]:
    """Roles of a node; a node without roles only coordinates. Unknown roles are ignored.

    Raises:
        Malformed: it is not a list of texts.
    """
    names = [text(name, where) for name in items(value, where)]
    known = frozenset(_ROLES[name] for name in names if name in _ROLES)
    return known or frozenset({Role.COORDINATING})


def unfamiliar(body: Any, lives: Collection[str]) -> tuple[str, ...]:
    """Ids of nodes in a cluster state whose current process is unknown.

    Args:
        body: the cluster state.
        lives: ephemeral ids of known processes.
    """
    nodes = body.get("nodes") if isinstance(body, dict) else None
    return tuple(
        node_id
        for node_id, node in (nodes.items() if isinstance(nodes, dict) else ())
        if not (isinstance(node, dict) and process_of(node_id, node) in lives)
    )


def process_of(node_id: str, node: Mapping[str, Any]) -> str:
    """The id of a node's process: its ephemeral id; before 5.0 the node id, which is new at each start."""
    return str(given(node.get("ephemeral_id"), node_id))


def parse_nodes(
    body: Any, lives: Mapping[str, Life], *, roles_in_state: bool, ephemeral_ids: bool = True
) -> dict[str, Node]:
    """The members, by node id, from a cluster state.

    Args:
        body: the cluster state.
        lives: facts of nodes, by ephemeral id.
        roles_in_state: whether this version's state lists roles and versions. Where it does not, a node that
            has not reported them yet makes the reading unknown: its roles decide whether others may go down.
        ephemeral_ids: whether this version's state lists the processes' ids.

    Raises:
        Malformed: a node lacks what it must have.
        NotYetReported: a node has joined or was restarted, and has not reported its facts yet.
    """
    found: dict[str, Node] = {}
    unnamed: frozenset[str] = frozenset()
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        where = f"nodes.{node_id}"
        node = mapping(value, where)
        ephemeral = text(node.get("ephemeral_id") if ephemeral_ids else node_id, f"{where}.ephemeral_id")
        life = lives.get(ephemeral)
        name = text(node.get("name"), f"{where}.name")
        own = text(node.get(OWN_NAME, name), f"{where}.{OWN_NAME}")
        if not ephemeral_ids and life is not None:
            name = name_of(node, life.settings, where)
            unnamed |= frozenset() if is_named(life.settings) else {name}
            if name in unnamed and any(other.name == name for other in found.values()):
                raise Malformed(
                    f"several nodes without `node.name` share the address {name}: set `node.name`, or "
                    "a fixed `transport.tcp.port`, on each, which takes effect when the node starts"
                )
        if roles_in_state:
            roles = parse_roles(node.get("roles"), f"{where}.roles")
            version = text(node.get("version"), f"{where}.version")
        elif life is not None:
            roles, version = life.roles, life.server.version
        else:
            raise NotYetReported(f"node {name} has not reported its roles and version yet")
        found[node_id] = Node(
            name=NodeName(name),
            own_name="" if own == name else own,
            node_id=node_id,
            incarnation=Incarnation(
                ephemeral_id=ephemeral, started_at_ms=life.started_at_ms if life is not None else None
            ),
            roles=roles,
            version=version,
            plugins=life.plugins if life is not None else None,
            host=life.host if life is not None else "",
            address=host_of(node.get("transport_address"), f"transport_address of node {name}"),
            attributes={
                key: text(attribute, f"{where}.attributes.{key}")
                for key, attribute in mapping(node.get("attributes", {}), f"{where}.attributes").items()
            },
        )
    return found
