"""Where a copy may be allocated: the allocation deciders of the simulated cluster."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from orchestrator.engine.kinds.elasticsearch.settings import (
    AWARENESS,
    CONCURRENT_RECOVERIES,
    FORCED_AWARENESS,
    INITIAL_PRIMARIES,
    listed,
)
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS, disables
from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.observation import SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode, SimShard
from orchestrator.simulation.placement import Placement
from orchestrator.simulation.recoveries import Recoveries
from orchestrator.simulation.ways import Ways

_PREFIX: Final = "cluster.routing.allocation."
_LIMIT: Final = f"{_PREFIX}total_shards_per_node"
_KINDS: Final = ("require", "include", "exclude")
_FILTERS: Final = tuple(f"{kind}.{of}" for kind in _KINDS for of in ("_name", "zone"))
_RULES: Final = (
    _LIMIT,
    *(f"{_PREFIX}{each}" for each in _FILTERS),
    ALLOCATION,
    *FLAGS.values(),
    INITIAL_PRIMARIES,
    CONCURRENT_RECOVERIES,
    AWARENESS,
)


class Ground(Protocol):
    """What allocation needs of the world."""

    agenda: Agenda
    master: NodeName | None
    nodes: dict[NodeName, SimNode]
    indices: dict[str, SimIndex]
    placement: Placement
    recoveries: Recoveries
    story: list[tuple[Instant, str]]
    zone_attribute: str
    ways: Ways

    def effective(self, key: str) -> SettingValue | None:
        """The value in force."""
        ...

    stalled_until: Instant
    missing: dict[ShardId, Instant]
    whole: list[tuple[Instant, bool]]

    def changed(self, what: str) -> None:
        """Record a change of the cluster state."""
        ...

    def jittered(self, seconds: Seconds) -> Seconds:
        """This duration, varied at random."""
        ...

    def next_id(self) -> str:
        """A new allocation id."""
        ...


def shards_of(world: Ground) -> Iterator[tuple[SimIndex, SimShard]]:
    """Every shard with its index."""
    for index in world.indices.values():
        for shard in index.shards:
            yield index, shard


def data_nodes(world: Ground) -> Sequence[NodeName]:
    """Members that hold data."""
    return world.placement.members.data


def rules(world: Ground) -> tuple[object, ...]:
    """The settings, besides those of an index, by which copies are allocated."""
    forced = f"{FORCED_AWARENESS}{world.zone_attribute}.values"
    keys = (*_RULES, forced)
    return (world.zone_attribute, world.ways, *[world.effective(key) for key in keys])


def enabled(world: Ground, index: SimIndex, copy: SimCopy) -> bool:
    """The enable decider. The index's setting overrides the cluster's.

    A primary that is on some node's disk is never refused: where the decider says no, its allocation is
    forced (`canForceAllocatePrimary`).
    """
    if world.ways.allocation_flags:
        return _not_disabled(world, index, copy)
    enable = index.allocation_enable or world.effective(ALLOCATION) or "all"
    if enable == "all":
        return True
    return copy.primary and (not copy.fresh or enable != "none")


def _not_disabled(world: Ground, index: SimIndex, copy: SimCopy) -> bool:
    """The same by flags: the primary of a new index has a flag of its own (`DisableAllocationDecider`)."""
    if copy.primary:
        return not (copy.fresh and disables(DISABLE_NEW, world.effective(DISABLE_NEW)))
    return index.allocation_enable is None and replicas_go_anywhere(world)


def replicas_go_anywhere(world: Ground) -> bool:
    """Whether the cluster's settings let every copy be allocated."""
    if world.ways.allocation_flags:
        return not any(disables(key, world.effective(key)) for key in FLAGS.values())
    return world.effective(ALLOCATION) == "all"


def zone_has_room(world: Ground, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether awareness lets one more copy of the shard go to this node."""
    share = share_of_a_zone(world, index, shard)
    return share is None or copies_in(world, shard, node.zone) < share


def allows(world: Ground, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether a replica may go to this node, by all of these deciders."""
    return (
        zone_has_room(world, index, shard, node)
        and version_allows(world, shard, node)
        and takes(world, index, node)
    )


def takes(world: Ground, index: SimIndex, node: SimNode) -> bool:
    """Filters, tiers and limits of the index and of the cluster; copies that move count where they are."""
    of_index = sum(copy.node == node.name for shard in index.shards for copy in shard.copies)
    of_all = world.placement.held[node.name]
    limits = (
        (index.rules.get("total_shards_per_node"), of_index),
        (world.effective(_LIMIT), of_all),
    )
    if any(isinstance(most, str) and 0 < int(most) <= count for most, count in limits):
        return False
    wanted = listed(index.rules.get("include._tier_preference"))
    everywhere = [role.value for each in world.placement.members.nodes for role in each.roles]
    if wanted and "data" not in everywhere:
        tier = next((name for name in wanted if name in everywhere), None)
        if tier not in [role.value for role in node.roles]:
            return False
    for of in (index.rules, _of_cluster(world)):
        for kind in _KINDS:
            rules = {key.partition(".")[2]: value for key, value in of.items() if key.startswith(f"{kind}.")}
            rules.pop("_tier_preference", None)
            if not _passes(world, node, kind, rules):
                return False
    return True


def _of_cluster(world: Ground) -> dict[str, str]:
    """The filters of the cluster, by what follows `cluster.routing.allocation.`."""
    found = {key: world.effective(f"{_PREFIX}{key}") for key in _FILTERS}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _passes(world: Ground, node: SimNode, kind: str, rules: Mapping[str, str]) -> bool:
    known = {"_name": node.name, "_id": node.node_id, world.zone_attribute: node.zone}
    patterns = [(known.get(name) or "", pattern) for name in rules for pattern in listed(rules[name])]
    hits = [fnmatch.fnmatchcase(value, pattern) for value, pattern in patterns]
    if not hits:
        return True
    return all(hits) if kind == "require" else any(hits) is (kind == "include")


def version_allows(world: Ground, shard: SimShard, node: SimNode) -> bool:
    """Whether a replica may go to this node: its version must not be older than the primary's node."""
    source = shard.primary.node
    if source is None or world.nodes[source].version == node.version:
        return True
    return _parts_of(node.version) >= _parts_of(world.nodes[source].version)


def _parts_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def share_of_a_zone(world: Ground, index: SimIndex, shard: SimShard) -> int | None:
    """Awareness: how many copies a zone may have; None = any number.

    Counts like `AwarenessAllocationDecider`: the copies divided by the number of present and forced zones,
    rounded up. An index that expands to all nodes is on all of them, regardless of zones.
    """
    everywhere = index.auto_expand is not None and index.auto_expand.endswith("-all")
    attribute = world.zone_attribute
    if everywhere or attribute not in listed(world.effective(AWARENESS)):
        return None
    forced = listed(world.effective(f"{FORCED_AWARENESS}{attribute}.values"))
    zones = world.placement.members.zones.union(forced)
    return -(-len(shard.copies) // len(zones))


def copies_in(world: Ground, shard: SimShard, zone: str | None) -> int:
    """Copies of a shard in a zone, including those that are moving there."""
    return sum(copy.node is not None and world.nodes[copy.node].zone == zone for copy in shard.copies)


def count_of(world: Ground, key: str, default: int) -> int:
    """The number in a setting; `default` where it is no number."""
    value = world.effective(key)
    return int(value) if isinstance(value, str) and value.isdigit() else default


def places_for(world: Ground, index: SimIndex, shard: SimShard) -> int:
    """How many copies of a shard the nodes can hold, members or not, with awareness and versions."""
    share = share_of_a_zone(world, index, shard)
    holders = {copy.node for copy in shard.copies}
    able = (
        node
        for node in world.nodes.values()
        if node.name in holders or (version_allows(world, shard, node) and takes(world, index, node))
    )
    zones = Counter(node.zone for node in able if node.holds_data)
    return sum(count if share is None else min(count, share) for count in zones.values())
