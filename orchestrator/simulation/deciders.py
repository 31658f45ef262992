"""Where a copy may be allocated: the allocation deciders of the simulated cluster.

They share the names of settings alone with the program's own reading of these rules
(`elasticsearch/rules/returning.py`), which is judged by them; both are compared with what real
servers said.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, Protocol

from orchestrator.elasticsearch.rules.settings import AWARENESS, FORCED_AWARENESS, listed
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS, disables
from orchestrator.model.cluster import DATA_ROLES, NodeName, Role, ShardId
from orchestrator.model.observation import SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode, SimShard
from orchestrator.simulation.placement import Placement
from orchestrator.simulation.recoveries import Recoveries
from orchestrator.simulation.ways import Ways

PREFIX: Final = "cluster.routing.allocation."
LIMIT: Final = f"{PREFIX}total_shards_per_node"
SAME_HOST: Final = f"{PREFIX}same_shard.host"
_KINDS: Final = ("require", "include", "exclude")
OF_PLACES: Final = (LIMIT, SAME_HOST, AWARENESS, FORCED_AWARENESS, *(f"{PREFIX}{kind}." for kind in _KINDS))
"""How the settings begin that decide where copies may be."""
_ADDRESSES: Final = ("_ip", "_host_ip", "_publish_ip")


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
    persistent: dict[str, SettingValue]
    transient: dict[str, SettingValue]
    files: dict[str, SettingValue]

    stalled_until: Instant
    missing: dict[ShardId, Instant]
    whole: list[tuple[Instant, bool]]

    def effective(self, key: str) -> SettingValue | None:
        """The value in force."""
        ...

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
    """What decides on copies besides their index and their nodes: all settings."""
    return (world.zone_attribute, world.ways, *map(dict, (world.transient, world.persistent, world.files)))


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


def zone_has_room(world: Ground, index: SimIndex, shard: SimShard, node: SimNode, *, less: int = 0) -> bool:
    """Whether awareness lets one more copy of the shard go to this node, with `less` copies in its zone."""
    return _room_in(world, index, shard, node.zone) + less > 0


def _room_in(world: Ground, index: SimIndex, shard: SimShard, zone: str | None) -> float:
    """How many more copies of the shard awareness lets into a zone; below 0 for too many, which may stay.

    A node that lacks the attribute may have no copy, whichever leaves it.
    """
    share = share_of_a_zone(world, index, shard)
    if share is None:
        return inf
    return -inf if zone is None else share - copies_in(world, shard, zone)


def allows(world: Ground, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether a replica may go to this node, by all of these deciders."""
    return (
        zone_has_room(world, index, shard, node)
        and version_allows(world, shard, node)
        and takes(world, index, node)
        and _apart(world, shard, node)
    )


def remains(world: Ground, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether a node may keep the copy that it has."""
    return _but_for_limits(world, index, shard, node) and _below_limits(world, index, node, without=(index,))


def _but_for_limits(world: Ground, index: SimIndex, shard: SimShard, node: SimNode) -> bool:
    """Whether a node may have its copy again, as far as it matters not how many others it has."""
    return (
        index.allocation_enable in (None, "all")
        and zone_has_room(world, index, shard, node, less=1)
        and _fits(world, index, node)
        and _apart(world, shard, node)
    )


def may_return(world: Ground, index: SimIndex, shard: SimShard, own: SimNode) -> bool:
    """Whether some node, a member or not, may have the copy of this node once it was down.

    Of the limits of a node it has what the others leave that come back to it, in whatever order.
    """
    if has_place(world, index, shard, without=own):
        return True
    gone = [
        of
        for of, each in shards_of(world)
        if own.name in each.taken and len(each.started) > 1 and not _but_for_limits(world, of, each, own)
    ]
    return _but_for_limits(world, index, shard, own) and _below_limits(
        world, index, own, without=[index, *gone]
    )


def has_place(world: Ground, index: SimIndex, shard: SimShard, *, without: SimNode | None = None) -> bool:
    """Whether some node, a member or not, may have one more copy, `without` the one of this node."""
    holders = shard.taken
    if index.allocation_enable not in (None, "all"):
        return False
    gone, zone = (None, None) if without is None else (without.name, without.zone)
    return any(
        node.holds_data
        and node.name not in holders
        and zone_has_room(world, index, shard, node, less=int(zone is not None and node.zone == zone))
        and takes(world, index, node)
        and _apart(world, shard, node, without=gone)
        for node in world.nodes.values()
    )


def _apart(world: Ground, shard: SimShard, node: SimNode, without: NodeName | None = None) -> bool:
    """Whether no other node of its machine has a copy, where that matters."""
    if world.effective(SAME_HOST) != "true":
        return True
    others = {copy.node for copy in shard.copies} - {None, node.name, without}
    return all(world.nodes[name].place != node.place for name in others if name is not None)


def takes(world: Ground, index: SimIndex, node: SimNode) -> bool:
    """Filters, tiers and limits of the index and of the cluster."""
    return _below_limits(world, index, node) and _fits(world, index, node)


def _below_limits(world: Ground, index: SimIndex, node: SimNode, *, without: Sequence[SimIndex] = ()) -> bool:
    """Limits of the index and of the cluster; copies that move count where they are.

    Copies of the node that are not counted are named by their indices in `without`.
    """
    own, most = index.rules.get("total_shards_per_node", ""), count_of(world, LIMIT, 0)
    if most and world.placement.held[node.name] - len(without) >= most:
        return False
    if own.isdigit() and int(own):
        here = sum(copy.node == node.name for shard in index.shards for copy in shard.copies)
        return here - sum(one is index for one in without) < int(own)
    return True


def _fits(world: Ground, index: SimIndex, node: SimNode) -> bool:
    """Filters and tiers of the index and of the cluster."""
    rules = (index.rules, _of_cluster(world))
    return _tier_fits(world, index, node) and all(_passes(world, node, each) for each in rules)


def _tier_fits(world: Ground, index: SimIndex, node: SimNode) -> bool:
    wanted = listed(index.rules.get("include._tier_preference"))
    everywhere = {role.value for each in world.placement.members.nodes for role in each.roles if wanted}
    if not wanted or "data" in everywhere:
        return True
    tier = next((name for name in wanted if name in everywhere), None)
    return tier in {role.value for role in node.roles}


def _of_cluster(world: Ground) -> dict[str, str]:
    """The filters of the cluster, by what follows `cluster.routing.allocation.`."""
    keys = {key for layer in (world.files, world.persistent, world.transient) for key in layer}
    found = {key.removeprefix(PREFIX): world.effective(key) for key in keys if key.startswith(PREFIX)}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _passes(world: Ground, node: SimNode, rules: Mapping[str, str]) -> bool:
    """Whether a node fits all filters of `require`, one of those of `include`, and none of `exclude`."""
    included: list[bool] = []
    for key, value in rules.items():
        kind, _, of = key.partition(".")
        if kind not in _KINDS or not value or of == "_tier_preference":
            continue
        known = _known(world, node, of)
        like = str.__eq__ if of == "_id" else _like
        hits = [any(like(one, each) for one in known) for each in listed(value)]
        required = any if of in _ADDRESSES else all
        if kind == "include":
            included += hits
        elif any(hits) if kind == "exclude" else not required(hits):
            return False
    return not included or any(included)


def _like(name: str, pattern: str) -> bool:
    """Whether a name is like a pattern, in which only `*` is special."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


def _known(world: Ground, node: SimNode, attribute: str) -> Sequence[str]:
    """What a node is called, for a filter by this attribute."""
    match attribute:
        case "_name":
            return (node.name,)
        case "_id":
            return (node.node_id,)
        case "_host":
            return (node.host, node.place)
        case "_ip" | "_host_ip" | "_publish_ip":
            return (node.place,)
        case "_tier":
            return [role.value for role in (DATA_ROLES if Role.DATA in node.roles else node.roles)]
        case world.zone_attribute if node.zone is not None:
            return (node.zone,)
        case _:
            return ()


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
    zones = world.placement.members.zones.union(forced) - {None}
    return -(-len(shard.copies) // max(1, len(zones)))


def copies_in(world: Ground, shard: SimShard, zone: str | None) -> int:
    """Copies of a shard in a zone, including those that are moving there."""
    return sum(copy.node is not None and world.nodes[copy.node].zone == zone for copy in shard.copies)


def count_of(world: Ground, key: str, default: int) -> int:
    """The number in a setting; `default` where it is no number."""
    value = world.effective(key)
    return int(value) if isinstance(value, str) and value.isdigit() else default


def places_for(world: Ground, index: SimIndex, shard: SimShard) -> int:
    """How many copies of a shard the nodes hold or can take, members or not, by all of these deciders."""
    holders = {copy.relocating_to or copy.node for copy in shard.copies} - {None}
    if index.allocation_enable not in (None, "all"):
        return len(holders)
    able = Counter(
        node.zone
        for node in world.nodes.values()
        if node.name not in holders
        and node.holds_data
        and version_allows(world, shard, node)
        and takes(world, index, node)
        and _apart(world, shard, node)
    )
    room = {zone: max(0, _room_in(world, index, shard, zone)) for zone in able}
    return len(holders) + int(sum(min(count, room[zone]) for zone, count in able.items()))
