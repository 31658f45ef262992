"""Parse the cluster state: membership, metadata and routing of one moment. Pure.

An absent part counts as empty only where the server omits empty parts (`filter_path` does). If a required
part is absent, the whole reading is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.elasticsearch.dialect import ClusterUuid, Dialect, VotingExclusions, parse_version
from orchestrator.elasticsearch.fields import (
    Malformed,
    answer_of,
    given,
    items,
    mapping,
    number,
    text,
    within,
)
from orchestrator.elasticsearch.parse_nodes import Life, parse_nodes
from orchestrator.model.cluster import CopyState, Index, Node, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.copies import Copies
from orchestrator.model.observation import ClusterView

STATE_FIELDS: Final = (
    "cluster_name",
    "cluster_uuid",
    "version",
    "state_uuid",
    "master_node",
    "nodes.*.name",
    "nodes.*.ephemeral_id",
    "nodes.*.transport_address",
    "nodes.*.attributes",
    "nodes.*.roles",
    "nodes.*.version",
    "metadata.cluster_uuid",
    "metadata.cluster_coordination.last_committed_config",
    "metadata.cluster_coordination.voting_config_exclusions",
    "metadata.node_shutdown",
    "metadata.indices.*.state",
    "metadata.indices.*.in_sync_allocations",
    "metadata.indices.*.ilm.action",
    "metadata.indices.*.ilm.step",
    "metadata.indices.*.settings.index.uuid",
    "metadata.indices.*.settings.index.number_of_replicas",
    "metadata.indices.*.settings.index.auto_expand_replicas",
    "metadata.indices.*.settings.index.routing.allocation",
    "metadata.indices.*.settings.index.store.type",
    "routing_table.indices.*.shards.*.state",
    "routing_table.indices.*.shards.*.primary",
    "routing_table.indices.*.shards.*.node",
    "routing_table.indices.*.shards.*.relocating_node",
    "routing_table.indices.*.shards.*.shard",
    "routing_table.indices.*.shards.*.allocation_id.id",
    "routing_table.indices.*.shards.*.recovery_source.type",
    "routing_table.indices.*.shards.*.unassigned_info.reason",
    "routing_table.indices.*.shards.*.unassigned_info.failed_attempts",
)
"""The filter of the cluster state. Without it, mappings and features are nearly all of the answer."""
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
def parse_cluster(
    body: Any, lives: Mapping[str, Life], *, distribution: str, dialect: Dialect
) -> ClusterView:
    """A `_cluster/state` answer as a model object.

    Args:
        body: the parsed answer.
        lives: facts of nodes, by ephemeral id.
        distribution: `elasticsearch` or `opensearch`.
        dialect: dialect of its version.

    Raises:
        ReadFailed: any part of it is invalid.
    """
    nodes = parse_nodes(
        body, lives, roles_in_state=dialect.roles_in_state, ephemeral_ids=dialect.ephemeral_ids
    )
    if not nodes:
        raise Malformed("no node is listed")
    places = {node_id: node.name for node_id, node in nodes.items()}
    names = list(places.values())
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise Malformed(f"several nodes are called {', '.join(twice)}: names must be unique")
    metadata = mapping(within(body, "metadata"), "metadata")
    indices = _indices(metadata, in_sync_listed=dialect.in_sync)
    counted = dialect.voting is VotingExclusions.NONE and "cluster_coordination" not in metadata
    coordination = (
        {} if counted else mapping(metadata.get("cluster_coordination"), "metadata.cluster_coordination")
    )
    uuid = {
        ClusterUuid.TOP: within(body, "cluster_uuid"),
        ClusterUuid.METADATA: metadata.get("cluster_uuid"),
        ClusterUuid.NONE: within(body, "cluster_name"),
    }[dialect.cluster_uuid]
    master_id = within(body, "master_node")
    return ClusterView(
        name=text(within(body, "cluster_name"), "cluster_name"),
        uuid=text(uuid, "cluster_uuid"),
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


def _indices(metadata: dict[str, Any], *, in_sync_listed: bool) -> dict[str, Index]:
    listed = mapping(metadata.get("indices", {}), "metadata.indices")
    return {
        name: _index(name, mapping(value, f"metadata.indices.{name}"), in_sync_listed=in_sync_listed)
        for name, value in listed.items()
    }


def _index(name: str, value: dict[str, Any], *, in_sync_listed: bool) -> Index:
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
        in_sync=_in_sync(value, f"{where}.in_sync_allocations") if in_sync_listed else None,
        shrinks=within(value, "ilm", "action") == "shrink" and within(value, "ilm", "step") != "ERROR",
    )


def _in_sync(index: dict[str, Any], where: str) -> dict[int, frozenset[str]]:
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
