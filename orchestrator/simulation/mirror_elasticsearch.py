"""A simulated cluster of Elasticsearch or OpenSearch that starts as a real one was read.

Unknown facts are assumed at their worst: every open index is being written. Sizes of shards are those of the
recoveries that the cluster still lists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.model.cluster import CopyState, Index, Node, Role, ShardCopy, ShardId
from orchestrator.model.observation import Activity, ClusterView, Observation, ServiceState, SettingsView
from orchestrator.model.policy import Policy, ZeroReplicas
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.simulation import allocation
from orchestrator.simulation.parts import SimCopy, SimIndex, SimShard
from orchestrator.simulation.required import require
from orchestrator.simulation.ways import ways_of
from orchestrator.simulation.world import World

_SIZE: Final = 1 << 30
"""Bytes of a shard without a listed recovery: enough for a copy to take seconds, not zero time."""
_OTHERS_WORK: Final[Seconds] = 600.0
"""Assumed duration of running snapshots and merges, since their end is not known."""


def mirrored_elasticsearch(view: ClusterView, seen: Observation, policy: Policy, seed: int) -> World:
    """Build the cluster of Elasticsearch or OpenSearch of this reading.

    Raises:
        UsageError: the settings, the disks or what runs there could not be read.
    """
    world = World(seed=seed, name=view.name, allowed_down=policy.max_unavailable or len(view.nodes))
    world.agenda.now = seen.at
    world.distribution, world.version = view.distribution, view.state_version
    world.zone_attribute = policy.zone_attribute or world.zone_attribute
    world.may_lose_master = policy.accept_master_outage
    settings = require(seen.settings, "the settings")
    world.ways = ways_of(view, settings)
    _settings(world, settings)
    for node in view.nodes:
        _node(world, node, policy.zone_attribute)
    if view.voters is not None:
        _voters(world, view.voters)
    world.master = view.master
    world.excluded_by_others = {name for name in world.nodes if name in view.voting_exclusions}
    world.exclusions = sorted(world.excluded_by_others)
    sizes = _sizes(seen)
    for index in view.indices:
        _index(world, index, view, sizes)
    world.exempt_indices |= policy.accept_red  # the copies of these indices never hold a stop
    if policy.zero_replicas is ZeroReplicas.ACCEPT:
        world.exempt_without_replicas = policy.zero_replicas_accepted
    for name, disk in require(seen.disks, "the disks").items():
        world.disks[name] = disk.used_share
    _work(world, require(seen.activity, "what runs in the cluster"))
    allocation.reroute(world)
    return world


def _settings(world: World, settings: SettingsView) -> None:
    world.persistent, world.transient = dict(settings.persistent), dict(settings.transient)
    world.files = {**(world.files if settings.resets else {}), **settings.files}


def _node(world: World, node: Node, zone_attribute: str | None) -> None:
    made = world.add_node(node.name, roles=node.roles, zone=node.zone(zone_attribute))
    made.node_id, made.version = node.node_id, node.version
    made.address, made.host = node.address, node.host


def _voters(world: World, ids: Collection[str]) -> None:
    """Set the voting configuration. An absent voter has no name in the reading, so its id is used."""
    for away in sorted({*ids} - {node.node_id for node in world.nodes.values()}):
        node = world.add_node(away, roles=frozenset({Role.MASTER}))
        node.node_id, node.service = away, ServiceState.STOPPED
        node.process, node.member_life = False, None
    world.voters = {node.name for node in world.nodes.values() if node.node_id in ids}


def _sizes(seen: Observation) -> Mapping[tuple[str, int], int]:
    """Bytes of the shards, by index uuid and number, where recoveries list them."""
    read = () if isinstance(seen.recoveries, Unknown) else seen.recoveries
    return {(each.shard.index_uuid, each.shard.number): each.bytes_total for each in read if each.bytes_total}


def _index(world: World, index: Index, view: ClusterView, sizes: Mapping[tuple[str, int], int]) -> None:
    """Add one index with its copies at their places."""
    made = SimIndex(
        name=index.name,
        uuid=f"{index.name}-uuid",
        replicas=index.replicas,
        written=index.open,
        closed=not index.open,
        auto_expand=index.auto_expand,
        allocation_enable=index.allocation_enable,
        searchable_snapshot=index.searchable_snapshot,
        rules=_rules(json.loads(index.filters)) if index.filters else {},
        shrinks=index.shrinks,
    )
    for shard, copies in view.shards.items():
        if shard.index_uuid != index.uuid:
            continue
        one = SimShard(
            id=ShardId(index=index.name, index_uuid=made.uuid, number=shard.number),
            size=sizes.get((shard.index_uuid, shard.number), _SIZE),
        )
        for copy in copies:
            _copy(world, one, copy)
        known = (index.in_sync or {}).get(shard.number)
        one.in_sync |= known if known is not None else set(one.on_disk.values())
        made.shards += (one,)
    world.put(made)


def _rules(given: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """The rules of an index by their whole names, as `SimIndex.rules` has them."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            found |= _rules(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = ",".join(value) if isinstance(value, list) else str(value)
    return found


def _copy(world: World, shard: SimShard, copy: ShardCopy) -> None:
    """Add a copy. A recovery starts again from zero, since its progress does not carry over."""
    made = SimCopy(shard=shard.id, primary=copy.primary, failed_attempts=copy.failed_attempts)
    if copy.started and copy.node is not None:
        made.node, made.state = copy.node, CopyState.STARTED
        made.allocation_id = copy.allocation_id or world.next_id()
        shard.on_disk = {**shard.on_disk, copy.node: made.allocation_id}
    else:
        made.reason = copy.unassigned_reason or "REPLICA_ADDED"
    shard.copies += (made,)


def _work(world: World, activity: Activity) -> None:
    names = tuple(snapshot.name for snapshot in activity.snapshots)
    world.snapshots, world.merges = names, set(activity.merges)

    def done() -> None:
        world.snapshots = tuple(each for each in world.snapshots if each not in names)
        world.merges -= activity.merges
        world.changed("what others had begun is done")

    if activity.snapshots or activity.merges:
        world.agenda.after(_OTHERS_WORK, done)
