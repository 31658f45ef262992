"""Which copy goes where, and how long it takes: the deciders that a rolling restart has to do with.

Modelled: the enable decider at both levels and per index file default, same-shard, the limits of concurrent
recoveries, delayed allocation after a node left, in-sync sets, re-use of what lies on a returning node's
disk, recoveries as long as their bytes, five failed attempts, awareness (forced too) where the cluster has
one for replicas. Not modelled: rebalancing, disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from orchestrator.engine.kinds.elasticsearch.settings import (
    ALLOCATION,
    AWARENESS,
    BANDWIDTH,
    CONCURRENT_RECOVERIES,
    FORCED_AWARENESS,
    INITIAL_PRIMARIES,
    bytes_of,
    listed,
)
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.observation import SettingValue
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode, SimRecovery, SimShard

MAX_ATTEMPTS: Final = 5
"""`index.allocation.max_retries`."""

_DELAYED_SECONDS: Final = 60.0
"""`index.unassigned.node_left.delayed_timeout`."""

_DIVERGED_SHARE: Final = 0.02
"""Of a copy on disk that has to be copied again after a short absence."""

_OVERHEAD_SECONDS: Final = 0.4
_FROM_DISK_SECONDS: Final = 1.0
_FIRST_WRITE_SECONDS: Final = 3.0
"""After so long an index that is written has acknowledged something without the copy that is away."""


class Ground(Protocol):
    """What allocation needs of the world."""

    agenda: Agenda
    master: NodeName | None
    nodes: dict[NodeName, SimNode]
    indices: dict[str, SimIndex]
    recoveries: list[SimRecovery]

    def effective(self, key: str) -> SettingValue | None:
        """The value that counts."""
        ...

    def changed(self, what: str) -> None:
        """The cluster state is another one now."""
        ...

    def next_id(self) -> str:
        """A new allocation id."""
        ...


def shards_of(world: Ground) -> Iterator[tuple[SimIndex, SimShard]]:
    """Every shard with its index."""
    for index in world.indices.values():
        for shard in index.shards:
            yield index, shard


def reroute(world: Ground) -> None:
    """Assign what may be assigned now."""
    if world.master is None:
        return
    enable = str(world.effective(ALLOCATION) or "all")
    for _, shard in shards_of(world):
        for copy in shard.copies:
            if copy.state is not CopyState.UNASSIGNED or copy.failed_attempts >= MAX_ATTEMPTS:
                continue
            if copy.primary:
                _assign_primary(world, shard, copy, enable)
            else:
                _assign_replica(world, shard, copy, enable)


def _assign_primary(world: Ground, shard: SimShard, copy: SimCopy, enable: str) -> None:
    if enable == "none" or (enable == "new_primaries" and not copy.fresh):
        return
    if copy.fresh:
        place = _emptiest(world, shard)
        if place is None:
            return
        _begin(world, shard, copy, place, seconds=0.2, total=0, reused=0)
        return
    holders = [n for n in shard.on_disk if world.nodes[n].joined and shard.on_disk[n] in shard.in_sync]
    limit = _count(world, INITIAL_PRIMARIES, 4)
    for place in holders:
        if _arriving(world, place) < limit:
            copy.allocation_id = shard.on_disk[place]
            _begin(world, shard, copy, place, seconds=_FROM_DISK_SECONDS, total=shard.size, reused=shard.size)
            return


def _assign_replica(world: Ground, shard: SimShard, copy: SimCopy, enable: str) -> None:
    primary = shard.primary
    if enable != "all" or primary not in shard.started:
        return
    taken = {other.node for other in shard.copies}
    limit = _count(world, CONCURRENT_RECOVERIES, 2)
    free = [
        n
        for n in world.nodes.values()
        if n.joined and n.holds_data and n.name not in taken and _zone_has_room(world, shard, n)
    ]
    returning = [n.name for n in free if n.name in shard.on_disk]
    place = next((name for name in returning if _arriving(world, name) < limit), None)
    if place is None and not returning:
        if copy.left_at is not None and world.agenda.now < copy.left_at + _DELAYED_SECONDS:
            return  # `left` has put a reroute for the end of the delay on the agenda
        candidate = _emptiest(world, shard, among={n.name for n in free})
        place = candidate if candidate and _arriving(world, candidate) < limit else None
    if place is None:
        return
    copied = int(shard.size * _DIVERGED_SHARE) if place in shard.on_disk else shard.size
    rate = bytes_of(world.effective(BANDWIDTH)) or 40 << 20
    seconds = _OVERHEAD_SECONDS + copied / rate
    _begin(world, shard, copy, place, seconds=seconds, total=shard.size, reused=shard.size - copied)


def _zone_has_room(world: Ground, shard: SimShard, node: SimNode) -> bool:
    """Awareness: copies are spread over the zones that are there, and over those that are forced.

    As `AwarenessAllocationDecider` counts: no zone has more than its share of the copies, rounded up.
    """
    if "zone" not in listed(world.effective(AWARENESS)):
        return True
    members = [n for n in world.nodes.values() if n.joined and n.holds_data]
    zones = {n.zone for n in members} | set(listed(world.effective(f"{FORCED_AWARENESS}zone.values")))
    here = sum(copy.node is not None and world.nodes[copy.node].zone == node.zone for copy in shard.copies)
    return here + 1 <= -(-len(shard.copies) // len(zones))


def _emptiest(world: Ground, shard: SimShard, *, among: set[NodeName] | None = None) -> NodeName | None:
    """The data node with the fewest copies that has none of this shard."""
    taken = {other.node for other in shard.copies}
    load = {
        n.name: 0
        for n in world.nodes.values()
        if n.joined and n.holds_data and n.name not in taken and (among is None or n.name in among)
    }
    for _, other in shards_of(world):
        for copy in other.copies:
            if copy.node in load:
                load[copy.node] += 1
    return min(load, key=lambda name: (load[name], name)) if load else None


def _arriving(world: Ground, place: NodeName) -> int:
    return sum(
        copy.node == place and copy.state is CopyState.INITIALIZING
        for _, shard in shards_of(world)
        for copy in shard.copies
    )


def _count(world: Ground, key: str, default: int) -> int:
    value = world.effective(key)
    return int(value) if isinstance(value, str) and value.isdigit() else default


def _begin(
    world: Ground, shard: SimShard, copy: SimCopy, place: NodeName, *, seconds: float, total: int, reused: int
) -> None:
    copy.ticket += 1
    ticket, source = copy.ticket, None if copy.primary else shard.primary.node
    copy.state, copy.node = CopyState.INITIALIZING, place
    if copy.allocation_id is None or not copy.primary:
        copy.allocation_id = world.next_id()
    recovery = SimRecovery(
        shard=shard.id,
        target=place,
        source=source,
        total=total,
        reused=reused,
        began=world.agenda.now,
        ends=world.agenda.now + seconds,
    )
    world.recoveries[:] = [r for r in world.recoveries if (r.shard, r.target) != (shard.id, place)]
    world.recoveries.append(recovery)
    world.agenda.after(seconds, lambda: _end(world, shard, copy, ticket, recovery))
    world.changed(f"{shard.id} begins on {place}")


def _end(world: Ground, shard: SimShard, copy: SimCopy, ticket: int, recovery: SimRecovery) -> None:
    if copy.ticket != ticket or copy.state is not CopyState.INITIALIZING or world.master is None:
        if copy.ticket == ticket and copy.state is CopyState.INITIALIZING:
            world.agenda.after(1.0, lambda: _end(world, shard, copy, ticket, recovery))
        return
    if shard.failing > 0 and not copy.primary:
        shard.failing -= 1
        _unassign(copy, "ALLOCATION_FAILED")
        copy.failed_attempts += 1
        world.changed(f"{shard.id} failed on {recovery.target}")
        reroute(world)
        return
    recovery.done = True
    copy.state, copy.reason, copy.left_at, copy.failed_attempts = CopyState.STARTED, None, None, 0
    if copy.allocation_id is not None and copy.node is not None:
        if copy.fresh and copy.primary:
            shard.in_sync.clear()
        shard.in_sync.add(copy.allocation_id)
        shard.on_disk[copy.node] = copy.allocation_id
    copy.fresh = False
    shard.lost_at = None
    if len(shard.started) == len(shard.copies):
        shard.in_sync = {str(c.allocation_id) for c in shard.started}
    world.changed(f"{shard.id} started on {copy.node}")
    reroute(world)


def _unassign(copy: SimCopy, reason: str) -> None:
    copy.ticket += 1
    copy.state, copy.node, copy.reason = CopyState.UNASSIGNED, None, reason
    copy.relocating_to = None
    if not copy.primary:
        copy.allocation_id = None


def left(world: Ground, name: NodeName) -> None:
    """A node is no member any more: its copies are unassigned, replicas are promoted, recoveries lost."""
    for index, shard in shards_of(world):
        for copy in shard.copies:
            if copy.relocating_to == name:
                copy.ticket += 1
                copy.state, copy.relocating_to = CopyState.STARTED, None
        here = [copy for copy in shard.copies if copy.node == name]
        had_primary = any(copy.primary for copy in here)
        for copy in here:
            served = copy in shard.started
            primary = copy.primary
            _unassign(copy, "NODE_LEFT")
            copy.left_at = world.agenda.now
            if primary:
                _promote(shard, copy)
            if served and not shard.started:
                shard.lost_at = world.agenda.now
        if had_primary:
            _abandon(shard)
        if here and index.written:
            world.agenda.after(_FIRST_WRITE_SECONDS, lambda shard=shard: _write(shard))  # type: ignore[misc]  # a default binds the loop's value
    world.agenda.after(_DELAYED_SECONDS, lambda: reroute(world))


def _promote(shard: SimShard, lost: SimCopy) -> None:
    heir = next((c for c in shard.started if c.allocation_id in shard.in_sync), None)
    if heir is not None:
        lost.primary, heir.primary = False, True
        lost.allocation_id = None


def _abandon(shard: SimShard) -> None:
    """Replicas on their way have lost their source with the primary, whether another is promoted or none.

    As `RoutingNodes.failShard` does; seen on real nodes in `tests/integration/test_overlap_on_nodes.py`.
    """
    for copy in shard.copies:
        if copy.state is CopyState.INITIALIZING and not copy.primary:
            _unassign(copy, "PRIMARY_FAILED")


def _write(shard: SimShard) -> None:
    """The first acknowledged write while a copy is away makes it stale."""
    if shard.primary in shard.started:
        shard.in_sync &= {str(c.allocation_id) for c in shard.started}


def retry_failed(world: Ground) -> None:
    """Forget the failed attempts."""
    for _, shard in shards_of(world):
        for copy in shard.copies:
            copy.failed_attempts = 0
    reroute(world)


def set_replicas(world: Ground, index: SimIndex, wanted: int) -> None:
    """Give an index so many replicas."""
    index.replicas = wanted
    for shard in index.shards:
        spare = [copy for copy in reversed(shard.copies) if not copy.primary]
        # What is not started goes first, then the last ones.
        spare.sort(key=lambda copy: copy.state is CopyState.STARTED)
        for copy in spare[: len(spare) - wanted if len(spare) > wanted else 0]:
            shard.copies.remove(copy)
            copy.ticket += 1
            shard.in_sync.discard(str(copy.allocation_id))
            if copy.node is not None:
                shard.on_disk.pop(copy.node, None)
        for _ in range(wanted - len(spare)):
            shard.copies.append(SimCopy(shard=shard.id, primary=False, reason="REPLICA_ADDED"))
    world.changed(f"{index.name} has {wanted} replicas")
    reroute(world)


def relocate(world: Ground, copy: SimCopy, target: NodeName, seconds: float) -> None:
    """Move a copy; it serves where it is until it has arrived."""
    copy.ticket += 1
    ticket = copy.ticket
    copy.state, copy.relocating_to = CopyState.RELOCATING, target
    world.changed(f"{copy.shard} begins to move to {target}")
    world.agenda.after(seconds, lambda: _arrived(world, copy, target, ticket))


def _arrived(world: Ground, copy: SimCopy, target: NodeName, ticket: int) -> None:
    if copy.ticket != ticket or copy.state is not CopyState.RELOCATING:
        return
    shard = next(shard for _, shard in shards_of(world) if shard.id == copy.shard)
    if copy.node is not None:
        shard.on_disk.pop(copy.node, None)
    copy.state, copy.node, copy.relocating_to = CopyState.STARTED, target, None
    shard.on_disk[target] = str(copy.allocation_id)
    world.changed(f"{copy.shard} has moved to {target}")
