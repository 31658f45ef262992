"""Force-merges of the simulated cluster: one call per index, one copy at a time on a node.

A call continues even if the client disconnects. If a node dies or a copy leaves it, the copies that it has
not merged stay unmerged, and the other nodes continue. During its merge a copy needs twice its size on disk.
A copy without enough room stays unmerged too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds
from orchestrator.simulation import segments
from orchestrator.simulation.parts import SimIndex, SimMerge, SimShard
from orchestrator.simulation.world import World

_FULL: Final = 1.0
HIGH_WATERMARK: Final = 0.9
USED: Final = 0.4
"""Used share of every disk, unless set otherwise."""


def begin(world: World, index: SimIndex, max_segments: int, *, ours: bool) -> SimMerge:
    """The cluster starts to merge an index. A second call waits for the first."""
    merge = SimMerge(
        index=index.name, uuid=index.uuid, max_segments=max_segments, ours=ours, began=world.agenda.now
    )
    merge.left = [
        (shard, copy.node, world.nodes[copy.node].life)
        for shard in index.shards
        for copy in shard.started
        if copy.node is not None and world.nodes[copy.node].process
    ]
    for shard in index.shards:
        here = {copy.node for copy in shard.copies}
        for place, kept in shard.segments.items():
            waits = world.unassigned_before[shard.id] > 0 and place not in here
            kept.away = waits or not world.nodes[place].joined
    world.forced.running.append(merge)
    who = "" if ours else " by another client"
    world.story.append((world.agenda.now, f"{index.name} is being merged{who}"))
    for place in sorted({place for _, place, _ in merge.left}):
        _next(world, place)
    return merge


def running(world: World) -> list[SimMerge]:
    """Calls with work left. Work that was lost with its node is dropped here."""
    forced = world.forced
    for merge in forced.running:
        merge.left = [entry for entry in merge.left if _there(world, merge, entry)]
    if any(not merge.left for merge in forced.running):
        forced.running = [merge for merge in forced.running if merge.left]
    return forced.running


def of(world: World, uuid: str) -> list[SimMerge]:
    """The running calls of one index."""
    return [merge for merge in running(world) if merge.uuid == uuid] if world.forced.running else []


def has_work(world: World, merge: SimMerge) -> bool:
    """Whether a call still has something to merge: one that comes late may find everything merged."""
    index = world.indices.get(merge.uuid)
    return index is not None and any(
        segments.left(world, index, shard, place) > merge.max_segments for shard, place, _ in merge.left
    )


def at_work(world: World, uuid: str | None = None) -> Iterator[NodeName]:
    """The nodes that merge a copy now, of that index or of any index.

    A node whose merge was lost with its index or its copy goes on with the next one that waits there.
    """
    for place in list(world.forced.busy):
        _next(world, place)
    for place, (merge, _, _) in world.forced.busy.items():
        if uuid in (None, merge.uuid):
            yield place


def _there(world: World, merge: SimMerge, entry: tuple[SimShard, NodeName, int]) -> bool:
    """Whether that copy is still on that node, in the same life, and its index is open."""
    shard, place, life = entry
    node, index = world.nodes[place], world.indices.get(merge.uuid)
    if index is None or index.closed or not node.process or node.life != life:
        return False
    return any(copy.node == place and copy.serves for copy in shard.copies)


def _next(world: World, place: NodeName) -> None:
    """Start the next waiting copy of a node that merges nothing."""
    forced = world.forced
    if place in forced.busy:
        merge, shard, life = forced.busy[place]
        if _there(world, merge, (shard, place, life)):
            return
    forced.busy.pop(place, None)
    forced.writing.pop(place, None)
    for merge in list(running(world)):
        for entry in [entry for entry in merge.left if entry[1] == place]:
            if _begun(world, merge, entry):
                return
            merge.left.remove(entry)


def _begun(world: World, merge: SimMerge, entry: tuple[SimShard, NodeName, int]) -> bool:
    """Whether the merge of that copy takes time: not if there is nothing to do or no room."""
    shard, place, life = entry
    index = world.indices[merge.uuid]
    if segments.left(world, index, shard, place) <= merge.max_segments:
        segments.commit(shard, place)  # by default the call flushes at its end, whatever there was to merge
        return False
    if room(world, place, _FULL) < shard.size:
        world.story.append((world.agenda.now, f"{shard.id} is not merged on {place}: no space left"))
        return False
    world.forced.busy[place] = (merge, shard, life)
    world.forced.writing[place] = shard.size
    world.agenda.after(shard.size / world.forced.rate, lambda: _end(world, merge, entry))
    return True


def _end(world: World, merge: SimMerge, entry: tuple[SimShard, NodeName, int]) -> None:
    shard, place, life = entry
    if world.forced.busy.get(place) != (merge, shard, life):
        return
    if _there(world, merge, entry):
        index = world.indices[merge.uuid]
        segments.merged(world, index, shard, place, merge.max_segments)
        world.story.append((world.agenda.now, f"{shard.id} is merged on {place}"))
    if entry in merge.left:
        merge.left.remove(entry)
    del world.forced.busy[place]
    _next(world, place)


def used(world: World, place: NodeName) -> float:
    """The used share of a node's disk, including what its merge has written."""
    if not world.forced.busy:
        return world.disks.get(place, USED)
    writing = world.forced.writing.get(place, 0) if place in set(at_work(world)) else 0
    return world.disks.get(place, USED) + writing / world.forced.capacity


def room(world: World, place: NodeName, up_to: float = HIGH_WATERMARK) -> int:
    """Bytes that can be written there before that share is used."""
    return max(0, int((up_to - used(world, place)) * world.forced.capacity))


def fill(world: World, place: NodeName, share: float, seconds: Seconds) -> None:
    """Fill a disk for a while. Of several fills the fullest counts, and each clears only its own."""
    fills = world.forced.fills.setdefault(place, [world.disks.get(place, USED)])
    fills.append(share)
    _weigh(world, place)

    def clear() -> None:
        fills.remove(share)
        _weigh(world, place)

    world.agenda.after(seconds, clear)


def _weigh(world: World, place: NodeName) -> None:
    share = world.disks[place] = max(world.forced.fills[place])
    world.forced.filled_at[place] = world.agenda.now
    world.story.append((world.agenda.now, f"the disk of {place} is {share:.0%} full"))


def unmerged(world: World, uuid: str, max_segments: int, *, away: bool = False) -> list[str]:
    """Copies of an index with more searchable segments than that.

    `away`: only copies that were absent when the index was merged: their node was no member, or they were
    unassigned, then and when the run began. They could not be merged, and a run does not wait for a copy that
    was missing at its start. Without `away`: only the other copies.
    """
    index = world.indices.get(uuid)
    if index is None:
        return []
    found = [
        (shard, copy.node, segments.searched(world, index, shard, copy.node))
        for shard in index.shards
        for copy in shard.started
        if copy.node is not None and segments.was_away(shard, copy.node) is away
    ]
    return [f"{shard.id} on {place}: {count}" for shard, place, count in found if count > max_segments]
