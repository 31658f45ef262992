"""Parse the cluster state: membership, metadata and routing of one moment, and each node's own facts. Pure.

An absent part counts as empty only where the server omits empty parts (`filter_path` does). If a required
part is absent, the whole reading is unknown.
"""

from __future__ import annotations

import json
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
    answer_of,
    given,
    items,
    mapping,
    number,
    text,
    unlisted,
    within,
)
from orchestrator.elasticsearch.old_versions import OWN_NAME, flattened, host_of, is_named, name_of, renames
from orchestrator.elasticsearch.recovery_rates import OwnRate, parse_own_rate
from orchestrator.model.cluster import CopyState, Incarnation, Index, Node, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.copies import Copies
from orchestrator.model.observation import ClusterView

_STATES: Final = {state.value: state for state in CopyState}
_STARTED: Final = CopyState.STARTED
_UNASSIGNED: Final = CopyState.UNASSIGNED
_RELOCATING: Final = CopyState.RELOCATING
_SNAPSHOT_STORES: Final = frozenset({"snapshot", "remote_snapshot"})
"""`index.store.type` of searchable snapshots: Elasticsearch 7.10 and later; OpenSearch 2.4 and later."""
_AS_TEXT: Final = json.JSONEncoder(sort_keys=True)
_ABSENT: Final = frozenset({"", "_absent_"})
"""The value in an exclusion for a name or an id that is unknown to the server."""


@answer_of("cluster state")
def parse_cluster(body: Any, lives: Mapping[str, Life], *, distribution: str) -> ClusterView:
    """A `_cluster/state` answer as a model object.

    Args:
        body: the parsed answer.
        lives: facts of nodes, by ephemeral id.
        distribution: `elasticsearch` or `opensearch`.

    Raises:
        ReadFailed: any part of it is invalid.
    """
    nodes = parse_nodes(body, lives)
    if not nodes:
        raise Malformed("no node is listed")
    places = {node_id: node.name for node_id, node in nodes.items()}
    names = list(places.values())
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise Malformed(f"several nodes are called {', '.join(twice)}: names must be unique")
    metadata = mapping(within(body, "metadata"), "metadata")
    indices = _indices(metadata)
    counted = unlisted(metadata, "cluster_coordination")
    coordination = (
        {} if counted else mapping(metadata.get("cluster_coordination"), "metadata.cluster_coordination")
    )
    master_id = within(body, "master_node")
    return ClusterView(
        name=text(within(body, "cluster_name"), "cluster_name"),
        uuid=text(within(body, "cluster_uuid"), "cluster_uuid"),
        version=min((node.version for node in nodes.values()), key=_version_order),
        distribution=distribution,
        state_version=number(within(body, "version"), "version"),
        master=_place(master_id, places, "the master"),
        nodes=tuple(sorted(nodes.values(), key=lambda node: node.name)),
        indices=tuple(indices[name] for name in sorted(indices)),
        copies=_copies(body, indices, places),  # type: ignore[arg-type]  # it is read as a tuple is
        voters=_eligible(nodes) if counted else _voters(coordination),
        voting_by_count=counted,
        voting_exclusions=() if counted else _exclusions(coordination),
        shutdowns=_shutdowns(metadata),
    )


def _version_order(version: str) -> tuple[int, int, int]:
    try:
        return parse_version(version)
    except ValueError as error:
        raise Malformed(str(error)) from error


def _eligible(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Before 7.0 every master-eligible node votes."""
    return frozenset(node_id for node_id, node in nodes.items() if Role.MASTER in node.roles)


def _voters(coordination: dict[str, Any]) -> frozenset[str]:
    where = "metadata.cluster_coordination.last_committed_config"
    voters = items(coordination.get("last_committed_config"), where)
    return frozenset(text(voter, where) for voter in voters)


def _exclusions(coordination: dict[str, Any]) -> tuple[str, ...]:
    where = "metadata.cluster_coordination.voting_config_exclusions"
    found: list[str] = []
    for value in items(coordination.get("voting_config_exclusions"), where):
        exclusion = mapping(value, where)
        name, node_id = exclusion.get("node_name"), exclusion.get("node_id")
        given = [known for known in (name, node_id) if isinstance(known, str) and known not in _ABSENT]
        if not given:
            raise Malformed(f"{where} names no node")
        found.append(given[0])
    return tuple(found)


def _shutdowns(metadata: dict[str, Any]) -> tuple[str, ...]:
    """Node ids with a shutdown record: under `nodes`, an object by node id, or a list of records."""
    where = "metadata.node_shutdown"
    nodes = mapping(metadata.get("node_shutdown", {}), where).get("nodes", {})
    if isinstance(nodes, list):
        return tuple(sorted(text(within(record, "node_id"), f"{where}: node_id") for record in nodes))
    return tuple(sorted(mapping(nodes, f"{where}.nodes")))


def _indices(metadata: dict[str, Any]) -> dict[str, Index]:
    listed = mapping(metadata.get("indices", {}), "metadata.indices")
    return {name: _index(name, mapping(value, f"metadata.indices.{name}")) for name, value in listed.items()}


def _index(name: str, value: dict[str, Any]) -> Index:
    where = f"metadata.indices.{name}"
    settings = mapping(within(value, "settings", "index"), f"{where}.settings.index")
    state = text(value.get("state"), f"{where}.state")
    if state not in ("open", "close"):
        raise Malformed(f"{where}.state is {state}")
    auto_expand = settings.get("auto_expand_replicas")
    return Index(
        name=name,
        uuid=text(settings.get("uuid"), f"{where}: uuid"),
        open=state == "open",
        replicas=number(settings.get("number_of_replicas"), f"{where}: number_of_replicas"),
        auto_expand=None if auto_expand in (None, "false", False) else str(auto_expand),
        filters=_filters(within(settings, "routing", "allocation")),
        allocation_enable=_first_text(within(settings, "routing", "allocation", "enable")),
        searchable_snapshot=_first_text(within(settings, "store", "type")) in _SNAPSHOT_STORES,
        in_sync=_in_sync(value, f"{where}.in_sync_allocations"),
        shrinks=within(value, "ilm", "action") == "shrink" and within(value, "ilm", "step") != "ERROR",
    )


def _in_sync(index: dict[str, Any], where: str) -> dict[int, frozenset[str]] | None:
    if unlisted(index, "in_sync_allocations"):
        return None
    return {
        number(shard, where): frozenset([text(copy, where) for copy in items(copies, where)])
        for shard, copies in mapping(index.get("in_sync_allocations"), where).items()
    }


def _filters(allocation: Any) -> str:
    """The allocation filters of an index, as one text, without `enable`."""
    given_ = (
        {key: value for key, value in allocation.items() if key != "enable"}
        if isinstance(allocation, dict)
        else {}
    )
    return _AS_TEXT.encode(given_) if given_ else ""


def _first_text(*values: Any) -> str | None:
    for value in values:
        if isinstance(value, str) and value:
            return value
    return None


def _copies(body: Any, indices: Mapping[str, Index], places: Mapping[str, NodeName]) -> Copies:
    table = mapping(given(within(body, "routing_table", "indices"), {}), "routing_table.indices")
    if strangers := sorted(set(table) - set(indices)):
        raise Malformed(f"index {strangers[0]} has a routing but no metadata")
    # Closed indices have routing since 7.2, open indices always.
    if unrouted := sorted(name for name, index in indices.items() if index.open and name not in table):
        raise Malformed(f"index {unrouted[0]} has metadata but no routing")
    found: dict[ShardId, tuple[ShardCopy, ...]] = {}
    for name, value in sorted(table.items()):  # each master lists them in its own order
        where, uuid = f"routing_table.indices.{name}.shards", indices[name].uuid
        for number_text, copies in mapping(within(value, "shards"), where).items():
            shard = ShardId(name, uuid, number(number_text, where))
            made = [
                _started(shard, copy, places) or _copy(shard, copy, places)
                for copy in items(copies, f"{where}.{number_text}")
            ]
            found[shard] = (*found[shard], *made) if shard in found else tuple(made)
    return Copies.of(found)


def _started(shard: ShardId, copy: Any, places: Mapping[str, NodeName]) -> ShardCopy | None:
    """A copy of the most usual form; None for any other. A large cluster has a million of them."""
    if not isinstance(copy, dict) or "unassigned_info" in copy or "recovery_source" in copy:
        return None
    primary, node_id, allocation = copy.get("primary"), copy.get("node"), copy.get("allocation_id")
    allocated = allocation.get("id") if isinstance(allocation, dict) else None
    if copy.get("state") != "STARTED" or not isinstance(primary, bool) or not isinstance(node_id, str):
        return None
    if node_id not in places or not isinstance(allocated, str) or not allocated:
        return None
    return ShardCopy(shard, primary, _STARTED, places[node_id], None, allocated)


def _copy(shard: ShardId, value: Any, places: Mapping[str, NodeName]) -> ShardCopy:
    where = f"a copy of {shard}"
    copy = mapping(value, where)
    primary, known_as, node = copy.get("primary"), copy.get("state"), _place(copy.get("node"), places, where)
    if not isinstance(primary, bool):
        raise Malformed(f"{where} does not say whether it is the primary")
    state = _STATES.get(known_as) if isinstance(known_as, str) else None
    if state is None:
        raise Malformed(f"{where} is in state {known_as!r}")
    if (node is None) is not (state is _UNASSIGNED):
        raise Malformed(f"{where} is {state.value} on {node}")
    reason, attempts = None, 0
    if "unassigned_info" in copy:
        unassigned = mapping(copy["unassigned_info"], f"{where}: unassigned_info")
        reason = _first_text(unassigned.get("reason"))
        attempts = number(unassigned.get("failed_attempts", 0), f"{where}: failed_attempts")
    return ShardCopy(
        shard=shard,
        primary=primary,
        state=state,
        node=node,
        relocating_to=_place(copy.get("relocating_node"), places, where) if state is _RELOCATING else None,
        allocation_id=_first_text(within(copy, "allocation_id", "id")),
        unassigned_reason=reason,
        failed_attempts=attempts,
        from_snapshot="recovery_source" in copy and within(copy, "recovery_source", "type") == "SNAPSHOT",
    )


def _place(node_id: Any, places: Mapping[str, NodeName], where: str) -> NodeName | None:
    if node_id is None:
        return None
    found = places.get(text(node_id, where))
    if found is None:
        raise Malformed(f"{where} is on {node_id}, which is not among the nodes")
    return found


@answer_of("index metadata")
def parse_index_uuids(body: Any) -> dict[str, str]:
    """Uuids by index name, from a cluster state with only metadata; empty if there are no indices."""
    text(within(body, "cluster_name"), "cluster_name")  # the answer is valid, though it may list no index
    listed = mapping(given(within(body, "metadata", "indices"), {}), "metadata.indices")
    return {
        name: text(within(value, "settings", "index", "uuid"), f"metadata.indices.{name}: uuid")
        for name, value in listed.items()
    }


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
        if dialect is not None and dialect.accepted and renames(server):
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


def parse_lives(body: Any) -> dict[str, Life]:
    """The facts of nodes, by node id, from `_nodes/{ids}/jvm,http,settings,plugins`.

    A node of which a fact is missing or has another form is left out: what it lacks is unknown of it alone.

    Raises:
        Malformed: the answer has another form.
    """
    found: dict[str, Life] = {}
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        with suppress(Malformed):
            found[node_id] = _life(value, f"nodes.{node_id}")
    return found


def _life(value: Any, where: str) -> Life:
    node = mapping(value, where)
    address = within(node, "http", "publish_address")
    return Life(
        roles=parse_roles(node.get("roles"), f"{where}.roles"),
        server=parse_version_of(node, where),
        started_at_ms=number(
            within(node, "jvm", "start_time_in_millis"), f"{where}.jvm.start_time_in_millis"
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
    """The id of a node's process; before 5.0 it is the node id, which is new at each start (`eras`)."""
    return str(given(node.get("ephemeral_id"), node_id))


def parse_nodes(body: Any, lives: Mapping[str, Life]) -> dict[str, Node]:
    """The members, by node id, from a cluster state.

    Where this version's state lists no roles and versions, a node that has not reported them yet makes the
    reading unknown: its roles decide whether others may go down.

    Args:
        body: the cluster state.
        lives: facts of nodes, by ephemeral id.

    Raises:
        Malformed: a node lacks what it must have.
        NotYetReported: a node has joined or was restarted, and has not reported its facts yet.
    """
    found: dict[str, Node] = {}
    unnamed: frozenset[str] = frozenset()
    for node_id, value in mapping(within(body, "nodes"), "nodes").items():
        where = f"nodes.{node_id}"
        node = mapping(value, where)
        ephemeral = text(node.get("ephemeral_id"), f"{where}.ephemeral_id")
        life = lives.get(ephemeral)
        name = text(node.get("name"), f"{where}.name")
        own = text(node.get(OWN_NAME, name), f"{where}.{OWN_NAME}")
        if ephemeral == node_id and life is not None:  # before 5.0
            name = name_of(node, life.settings, where)
            unnamed |= frozenset() if is_named(life.settings) else {name}
            if name in unnamed and any(other.name == name for other in found.values()):
                raise Malformed(
                    f"several nodes without `node.name` share the address {name}: set `node.name`, or "
                    "a fixed `transport.tcp.port`, on each, which takes effect when the node starts"
                )
        if not unlisted(node, "roles"):
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
