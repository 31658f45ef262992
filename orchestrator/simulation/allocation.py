"""What happens to the copies: assigned, recovered, started, left behind, promoted.

Modelled: the deciders in `deciders.py`, delayed allocation after a node left, in-sync sets, recoveries that
last by their bytes or, from a returning node's disk, by the operations missed, five failed attempts, replicas
that follow the data nodes. A searchable snapshot waits for its node. Not modelled: rebalancing, disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orchestrator.elasticsearch.rules.settings import (
    BANDWIDTH,
    CONCURRENT_RECOVERIES,
    INITIAL_PRIMARIES,
    bytes_of,
)
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation import segments
from orchestrator.simulation.deciders import (
    LIMIT,
    Ground,
    allows,
    count_of,
    data_nodes,
    enabled,
    remains,
    replicas_go_anywhere,
    rules,
    shards_of,
    takes,
)
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode, SimShard
from orchestrator.simulation.placement import Slots, Until, Wait
from orchestrator.simulation.recoveries import SimRecovery

MAX_ATTEMPTS: Final = 5
"""`index.allocation.max_retries`."""

_DIVERGED_SHARE: Final = 0.3
"""Share of a copy on disk that has to be copied again where the operations are gone."""

_WRITTEN_A_SECOND: Final = 200.0
_REPLAYED_A_SECOND: Final = 20_000.0
"""Operations a second, for each shard."""

_OVERHEAD_SECONDS: Final = 0.4
_NOT_YET: Final = 0.001  # a smaller value is a rounding error
_VACATED_SECONDS: Final = 5.0
"""So often a move that allocation does not let begin is tried again."""
_FROM_DISK_SECONDS: Final = 1.0
_FIRST_WRITE_SECONDS: Final = 3.0
"""An index that is being written acknowledges a write without the absent copy after this long."""


def reroute(world: Ground) -> None:
    """Assign every copy that may be assigned now."""
    if world.master is None:
        return
    for index, shard in world.placement.due(rules(world)):
        waiting = [copy for copy in shard.copies if copy.state is CopyState.UNASSIGNED]
        waiting.sort(key=_unassigned_since)
        world.placement.wait(shard, [_assign(world, index, shard, copy) for copy in waiting])


def _assign(world: Ground, index: SimIndex, shard: SimShard, copy: SimCopy) -> Wait:
    """Assign a copy if it may be assigned now. Returns what it waits for; an assigned one for a change."""
    if copy.failed_attempts >= MAX_ATTEMPTS:
        return Until.CHANGED
    if not enabled(world, index, copy):
        if copy.from_snapshot is not None:
            shard.never = True
        return Until.ENABLED
    if shard.never:
        return Until.CHANGED
    if copy.primary:
        return _assign_primary(world, index, shard, copy)
    return _assign_replica(world, index, shard, copy)


def _unassigned_since(copy: SimCopy) -> Instant:
    return copy.left_at or 0.0  # a copy that never had a node has waited longest


def _assign_primary(world: Ground, index: SimIndex, shard: SimShard, copy: SimCopy) -> Wait:
    if copy.fresh:
        free = [name for name in data_nodes(world) if takes(world, index, world.nodes[name])]
        place = world.placement.emptiest(shard, free)
        if place is not None and copy.from_snapshot is not None:
            _begin(world, shard, copy, place, seconds=copy.from_snapshot, total=shard.size, reused=0)
        elif place is not None:
            _begin(world, shard, copy, place, seconds=0.2, total=0, reused=0)
        return Until.CHANGED
    limit, full = count_of(world, INITIAL_PRIMARIES, 4), list[NodeName]()
    # Without in-sync sets any copy becomes the primary, the latest of those that are there.
    by_age = sorted(shard.on_disk, key=lambda place: place in shard.missed_since)
    for place in shard.on_disk if world.ways.in_sync else by_age:
        known = not world.ways.in_sync or shard.on_disk[place] in shard.in_sync
        if not world.nodes[place].joined or not known:
            continue
        if world.placement.arriving[place, True] < limit:
            copy.allocation_id = shard.on_disk[place]
            _begin(world, shard, copy, place, seconds=_FROM_DISK_SECONDS, total=shard.size, reused=shard.size)
            return Until.CHANGED
        full.append(place)
    return Slots(full, limit, primary=True) if full else Until.CHANGED


def _assign_replica(world: Ground, index: SimIndex, shard: SimShard, copy: SimCopy) -> Wait:
    if not shard.primary.serves:
        return Until.CHANGED
    arriving = world.placement.arriving
    taken = shard.taken
    limit = count_of(world, CONCURRENT_RECOVERIES, 2)

    def free(among: Iterable[SimNode]) -> list[NodeName]:
        return [
            node.name
            for node in among
            if node.joined
            and node.holds_data
            and node.name not in taken
            and allows(world, index, shard, node)
        ]

    returning = free(world.nodes[name] for name in world.placement.in_order(shard.on_disk))
    place = next((name for name in returning if arriving[name, False] < limit), None)
    if place is None and returning:
        return Slots(returning, limit)
    if place is None:
        if copy.left_at is not None and world.agenda.now < copy.left_at + index.delay * world.ways.delays:
            return Until.ALWAYS  # `left` has scheduled a reroute for the end of the delay
        place = world.placement.emptiest(shard, free(world.placement.members.nodes))
        if place is None:
            limited = index.rules or world.effective(LIMIT) is not None
            return Until.ALWAYS if limited else Until.CHANGED
        if arriving[place, False] >= limit:
            return Until.ALWAYS  # with other numbers of copies another node is the emptiest
    _begin_replica(world, index, shard, copy, place)
    return Until.CHANGED


def _begin_replica(world: Ground, index: SimIndex, shard: SimShard, copy: SimCopy, place: NodeName) -> None:
    """Replay operations that the copy on disk missed, if the primary still has them, else copy the files."""
    since = shard.missed_since.get(place, world.agenda.now)
    missed = world.agenda.now - since
    copied = operations = 0
    if place not in shard.on_disk:
        copied = shard.size
    elif missed > index.keeps:
        copied = int(shard.size * _DIVERGED_SHARE)
    else:
        operations = int(missed * _WRITTEN_A_SECOND)
    rate = bytes_of(world.effective(BANDWIDTH)) or 40 << 20
    seconds = _OVERHEAD_SECONDS + copied / rate + operations / _REPLAYED_A_SECOND
    reused = shard.size - copied
    _begin(world, shard, copy, place, seconds=seconds, total=shard.size, reused=reused, operations=operations)


def _begin(
    world: Ground,
    shard: SimShard,
    copy: SimCopy,
    place: NodeName,
    *,
    seconds: Seconds,
    total: int,
    reused: int,
    operations: int = 0,
) -> None:
    copy.ticket += 1
    ticket, source = copy.ticket, None if copy.primary else shard.primary.node
    seconds = world.jittered(seconds) + max(0.0, world.stalled_until - world.agenda.now)
    copy.state, copy.node = CopyState.INITIALIZING, place
    if copy.allocation_id is None or not copy.primary:
        copy.allocation_id = world.next_id()
    recovery = SimRecovery(
        shard=shard.id,
        target=place,
        source=source,
        total=total,
        reused=reused,
        operations=operations,
        began=world.agenda.now,
        ends=world.agenda.now + seconds,
    )
    world.recoveries.begin(recovery)
    world.agenda.after(seconds, lambda: _end(world, shard, copy, ticket, recovery))
    world.changed(f"{shard.id} begins on {place}")


def _end(world: Ground, shard: SimShard, copy: SimCopy, ticket: int, recovery: SimRecovery) -> None:
    if copy.ticket != ticket or copy.state is not CopyState.INITIALIZING or world.master is None:
        if copy.ticket == ticket and copy.state is CopyState.INITIALIZING:
            world.agenda.after(1.0, lambda: _end(world, shard, copy, ticket, recovery))
        return
    if recovery.ends - world.agenda.now > _NOT_YET:  # it made no progress for a while
        world.agenda.after(
            recovery.ends - world.agenda.now, lambda: _end(world, shard, copy, ticket, recovery)
        )
        return
    if not copy.primary and (shard.failing > 0 or _out_of_reach(world, recovery)):
        shard.failing = max(0, shard.failing - 1)
        _unassign(copy, "ALLOCATION_FAILED")
        copy.failed_attempts += 1
        world.changed(f"{shard.id} failed on {recovery.target}")
        reroute(world)
        return
    world.recoveries.end(recovery)
    copy.state, copy.reason, copy.left_at, copy.failed_attempts = CopyState.STARTED, None, None, 0
    if copy.allocation_id is not None and copy.node is not None:
        if copy.fresh and copy.primary:
            shard.in_sync = frozenset()
        shard.in_sync |= {copy.allocation_id}
        shard.on_disk = {**shard.on_disk, copy.node: copy.allocation_id}
        shard.missed_since.pop(copy.node, None)
        if shard.segments:
            copied, operations = recovery.reused < recovery.total, recovery.operations
            segments.recovered(world, shard, copy.node, recovery.source, copied=copied, operations=operations)
    copy.fresh, copy.from_snapshot = False, None
    shard.lost_at = None
    if shard.had and len(shard.started) >= shard.had:
        found_again(world, shard)
    if len(shard.started) == len(shard.copies):
        shard.in_sync = frozenset(str(c.allocation_id) for c in shard.started)
        segments.forget(shard)
    world.changed(f"{shard.id} started on {copy.node}")
    reroute(world)


def found_again(world: Ground, shard: SimShard) -> None:
    """Forget the copies of the shard that were missing since a stop by the program."""
    shard.had = 0
    if shard.id in world.missing:
        del world.missing[shard.id]
        if not world.missing:
            world.whole.append((world.agenda.now, True))


def _out_of_reach(world: Ground, recovery: SimRecovery) -> bool:
    """Whether one of the two nodes of a recovery can reach only the master."""
    ends = [world.nodes[name] for name in (recovery.source, recovery.target) if name is not None]
    return any(world.agenda.now < node.apart_from_peers_until for node in ends)


def stall(world: Ground, seconds: Seconds) -> None:
    """No recovery makes progress for this long, neither a running one nor one that begins meanwhile."""
    world.stalled_until = max(world.stalled_until, world.agenda.now + seconds)
    for recovery in world.recoveries.running:
        recovery.ends += seconds


def _unassign(copy: SimCopy, reason: str) -> None:
    copy.ticket += 1
    copy.state, copy.node, copy.reason = CopyState.UNASSIGNED, None, reason
    copy.relocating_to = None
    if not copy.primary:
        copy.allocation_id = None


def left(world: Ground, name: NodeName) -> None:
    """A node left the cluster: its copies are unassigned, replicas are promoted, recoveries lost."""
    node = world.nodes[name]
    alone = not node.stopped_by_us or node.service is ServiceState.RUNNING  # a stop that is not done yet
    for index, shard in world.placement.on(name):
        for copy in shard.copies:
            if copy.relocating_to == name:
                copy.ticket += 1
                copy.state, copy.relocating_to = CopyState.STARTED, None
        here = [copy for copy in shard.copies if copy.node == name]
        had_primary = any(copy.primary for copy in here)
        for copy in here:
            served = copy.serves
            if served and index.written:
                shard.missed_since[name] = world.agenda.now
            primary = copy.primary
            _unassign(copy, "NODE_LEFT")
            copy.left_at, copy.left_alone = world.agenda.now, alone
            if primary:
                _promote(shard, copy)
            if served and not shard.started:
                shard.lost_at = world.agenda.now
        if had_primary:
            _abandon(shard)
        if here and index.written:
            world.agenda.after(_FIRST_WRITE_SECONDS, lambda shard=shard: _write(shard))  # type: ignore[misc]  # a default binds the loop's value
    _miss(world)
    for delay in sorted({index.delay for index in world.indices.values()}):
        world.agenda.after(delay, lambda: reroute(world))


def _miss(world: Ground) -> None:
    """Note the shards that have lost a copy since a stop by the program."""
    for _, shard in world.placement.missed(besides=world.missing):
        if len(shard.started) < shard.had:
            if not world.missing:
                world.whole.append((world.agenda.now, False))
            world.missing[shard.id] = world.agenda.now


def expand(world: Ground) -> None:
    """Set the replicas of auto-expanding indices to the number of data nodes.

    A replica that is removed with its node returns with it. A copy that a stop took down is missing until
    then.
    """
    others = len(data_nodes(world)) - 1
    for index in world.indices.values():
        if index.auto_expand is None:
            continue
        least, _, most = index.auto_expand.partition("-")
        wanted = max(int(least), others if most == "all" else min(int(most), others))
        if wanted != index.replicas:
            _resize(world, index, wanted)


def _promote(shard: SimShard, lost: SimCopy) -> None:
    heir = next((c for c in shard.started if c.allocation_id in shard.in_sync), None)
    if heir is not None:
        lost.primary, heir.primary = False, True
        lost.allocation_id = None


def _abandon(shard: SimShard) -> None:
    """Replicas in recovery have lost their source, the primary, even if another copy is promoted.

    As `RoutingNodes.failShard` does; seen on real nodes in `tests/integration/test_overlap_on_nodes.py`.
    """
    for copy in shard.copies:
        if copy.state is CopyState.INITIALIZING and not copy.primary:
            _unassign(copy, "PRIMARY_FAILED")


def _write(shard: SimShard) -> None:
    """The first acknowledged write while a copy is away makes it stale."""
    if shard.primary.serves:
        shard.in_sync &= {str(c.allocation_id) for c in shard.started}


def retry_failed(world: Ground) -> None:
    """Forget the failed attempts."""
    for _, shard in shards_of(world):
        for copy in shard.copies:
            if copy.failed_attempts:
                copy.failed_attempts = 0
    reroute(world)


def set_replicas(world: Ground, index: SimIndex, wanted: int) -> None:
    """Set an index's number of replicas. Copies beyond that number are not waited for any more."""
    if wanted < index.replicas:
        for shard in index.shards:
            found_again(world, shard)
            shard.gone_alone = 0
    _resize(world, index, wanted)


def _resize(world: Ground, index: SimIndex, wanted: int) -> None:
    index.replicas = wanted
    for shard in index.shards:
        spare = [copy for copy in reversed(shard.copies) if not copy.primary]
        # Copies that are not started are removed first, then the last ones.
        spare.sort(key=lambda copy: copy.state is CopyState.STARTED)
        for copy in spare[: len(spare) - wanted if len(spare) > wanted else 0]:
            shard.copies = tuple(
                other for other in shard.copies if other is not copy
            )  # the in-sync set keeps its id, as a real cluster's does
            shard.gone_alone += copy.left_alone and not copy.serves
            copy.ticket += 1
            if copy.node is not None:
                shard.leave(copy.node)
        for _ in range(wanted - len(spare)):
            alone = shard.gone_alone > 0
            shard.gone_alone -= alone
            added = SimCopy(shard=shard.id, primary=False, reason="REPLICA_ADDED", left_alone=alone)
            shard.copies += (added,)
    world.changed(f"{index.name} has {wanted} replicas")
    reroute(world)


def rule(world: Ground, index: SimIndex, rules: Mapping[str, str]) -> None:
    """Another operator sets where copies of an index may be, instead of all rules that it had."""
    index.allocation_enable = rules.get("enable")
    index.rules = {key: value for key, value in rules.items() if key != "enable"}
    index.ruled_at = world.agenda.now
    said = ", ".join(f"{key}: {value}" for key, value in rules.items())
    world.changed(f"{index.name} is allocated by {said or 'no rule of its own'}")
    vacate(world)
    reroute(world)


def vacate(world: Ground) -> None:
    """Copies move that may not stay on their nodes, to others that take them, once allocation lets them."""
    if world.master is None or not replicas_go_anywhere(world):
        world.agenda.after(_VACATED_SECONDS, lambda: vacate(world))
        return
    for index, shard in list(shards_of(world)):
        for copy in shard.copies:
            own = world.nodes.get(copy.node) if copy.node is not None else None
            stays = index.allocation_enable not in (None, "all") or copy.state is not CopyState.STARTED
            if own is None or stays or remains(world, index, shard, own):
                continue
            nodes = (world.nodes[name] for name in data_nodes(world))
            free = [node.name for node in nodes if allows(world, index, shard, node)]
            target = world.placement.emptiest(shard, free)
            if target is not None:
                rate = bytes_of(world.effective(BANDWIDTH)) or 40 << 20
                relocate(world, copy, target, world.jittered(_OVERHEAD_SECONDS + shard.size / rate))


def relocate(world: Ground, copy: SimCopy, target: NodeName, seconds: float) -> None:
    """Move a copy. It serves at its source until it has arrived."""
    copy.ticket += 1
    ticket = copy.ticket
    copy.state, copy.relocating_to = CopyState.RELOCATING, target
    world.changed(f"{copy.shard} begins to move to {target}")
    world.agenda.after(seconds, lambda: _arrived(world, copy, target, ticket))


def _arrived(world: Ground, copy: SimCopy, target: NodeName, ticket: int) -> None:
    if copy.ticket != ticket or copy.state is not CopyState.RELOCATING:
        return
    found = world.placement.shard(copy.shard)
    if found is None:
        return
    _, shard = found
    if copy.node is not None:
        shard.leave(copy.node)
        if copy.node in shard.segments:
            shard.segments[target] = shard.segments.pop(copy.node)
    for recovery in world.recoveries.running:
        if recovery.shard == copy.shard and recovery.source == copy.node:
            recovery.source, recovery.shown = target, None  # a primary that has moved serves from there
    copy.state, copy.node, copy.relocating_to = CopyState.STARTED, target, None
    shard.on_disk = {**shard.on_disk, target: str(copy.allocation_id)}
    world.changed(f"{copy.shard} has moved to {target}")
