"""Number of segments of each copy, and how writes, recoveries and refreshes change it.

Each copy of a shard merges by itself and has its own segments. Modelled: a copy made from a peer's files has
the peer's segments. A copy recovered by operations keeps its own, plus a few more. While an index is written,
segments are added, and the usual merges turn ten of them into one. The result of a force-merge is searchable
after a refresh. A merge that no commit has is lost with its node's process (`Ways.keeps_merges`). Not
modelled: deleted documents, sizes of single segments except the largest.
"""

from __future__ import annotations

from typing import Final, Protocol
from zlib import crc32

from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import Writes
from orchestrator.model.reading import Instant
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.parts import SimIndex, SimNode, SimSegments, SimShard
from orchestrator.simulation.ways import Ways

WRITTEN_A_SECOND: Final = 200
"""Operations a second, for each shard."""

_NEW_SEGMENT_SECONDS: Final = 20.0
_MERGED_AT: Final = 10
"""`index.merge.policy.segments_per_tier`: this many small segments become one."""

_NOT_LOADED: Final = 3
"""Assumed segments of a copy whose segments are not tracked."""

BY_HAND: Final = "-1"
"""A refresh interval with which new documents become searchable only after a manual refresh."""


class SegmentWorld(Protocol):
    """What segments need of the world."""

    agenda: Agenda
    nodes: dict[NodeName, SimNode]
    story: list[tuple[Instant, str]]
    ways: Ways
    indices: dict[str, SimIndex]


def load(world: SegmentWorld, index: SimIndex, segments: int) -> None:
    """A bulk load has left about this many segments in every copy. No two copies have the same number."""
    for shard in index.shards:
        for place in shard.on_disk:
            apart = crc32(f"{shard.id}{place}".encode()) % 7
            shard.segments[place] = SimSegments(count=segments + apart, since=world.agenda.now)


def searched(world: SegmentWorld, index: SimIndex, shard: SimShard, place: NodeName) -> int:
    """Searchable segments of that node's copy."""
    kept = shard.segments.get(place)
    if kept is None:
        return _NOT_LOADED
    return kept.count + _grown(world, index, kept)


def left(world: SegmentWorld, index: SimIndex, shard: SimShard, place: NodeName) -> int:
    """Existing segments of that node's copy, whether or not searches already use them."""
    kept = shard.segments.get(place)
    if kept is None or kept.merged is None:
        return searched(world, index, shard, place)
    return kept.merged + _grown(world, index, kept)


def was_away(shard: SimShard, place: NodeName) -> bool:
    """Whether that copy was absent at the index's last merge: it existed only on a disk."""
    return place in shard.segments and shard.segments[place].away


def _grown(world: SegmentWorld, index: SimIndex, kept: SimSegments) -> int:
    if not index.written:
        return 0
    since = max(kept.since, index.turned_at)
    return int((world.agenda.now - since) / _NEW_SEGMENT_SECONDS) % _MERGED_AT


def merged(world: SegmentWorld, index: SimIndex, shard: SimShard, place: NodeName, wanted: int) -> None:
    """The copy there has been merged. Searches use the result after the next refresh."""
    kept = SimSegments(count=searched(world, index, shard, place), since=world.agenda.now)
    kept.merged = min(wanted, left(world, index, shard, place))
    shard.segments[place] = kept
    if index.refresh_interval != BY_HAND:
        _seen(kept)


def merged_without_commit(world: SegmentWorld, index: SimIndex, wanted: int) -> None:
    """The server has merged every copy by itself, and searches use the result."""
    for shard in index.shards:
        for place, kept in shard.segments.items():
            before = kept.committed or left(world, index, shard, place)
            merged(world, index, shard, place, wanted)
            _seen(shard.segments[place])
            shard.segments[place].committed = before


def committed(shard: SimShard, place: NodeName) -> int | None:
    """Segments of the last commit of that node's copy, if a merge followed it."""
    kept = shard.segments.get(place)
    return None if kept is None else kept.committed


def commit(shard: SimShard, place: NodeName) -> None:
    """A commit has all segments of that node's copy."""
    if place in shard.segments:
        shard.segments[place].committed = None


def flush(world: SegmentWorld) -> None:
    """Flush every copy. Where a flush loses a merge, only an index that is written gets a commit."""
    for index in world.indices.values():
        for shard in index.shards if world.ways.keeps_merges or index.written else ():
            for place in shard.segments:
                commit(shard, place)


def refresh(index: SimIndex) -> None:
    """Make the current segments searchable."""
    for shard in index.shards:
        for kept in shard.segments.values():
            _seen(kept)


def _seen(kept: SimSegments) -> None:
    if kept.merged is not None:
        kept.count, kept.merged = kept.merged, None


def recovered(
    world: SegmentWorld,
    shard: SimShard,
    place: NodeName,
    source: NodeName | None,
    *,
    copied: bool,
    operations: int,
) -> None:
    """A copy is back, from its own disk or its peer's files, and opens the files on disk."""
    now = world.agenda.now
    if copied and source is not None and source in shard.segments:
        there = shard.segments[source]
        before = None if world.ways.keeps_merges else there.committed  # else the recovery flushes its source
        count = before or there.merged or there.count
        shard.segments[place] = SimSegments(count=count, since=now, away=there.away)
    elif place in shard.segments:
        kept = shard.segments[place]
        _seen(kept)
        kept.count, kept.committed = (kept.committed or kept.count) + min(2, operations), None


def forget(shard: SimShard) -> None:
    """Every copy is started: other nodes delete their old files of it, like `IndicesStore`."""
    for place in shard.segments.keys() - {copy.node for copy in shard.copies}:
        del shard.segments[place]
        shard.leave(place)


def turn(world: SegmentWorld, index: SimIndex, *, written: bool) -> None:
    """Writing begins or ends."""
    if index.written == written:
        return
    for shard in index.shards:
        for kept in shard.segments.values():
            kept.count += _grown(world, index, kept)
            kept.since = world.agenda.now
    index.operations = _operations(world, index)
    index.written, index.turned_at = written, world.agenda.now
    world.story.append((world.agenda.now, f"{index.name} is written" + ("" if written else " no more")))


def _operations(world: SegmentWorld, index: SimIndex) -> int:
    since = world.agenda.now - index.turned_at if index.written else 0.0
    return index.operations + int(since * WRITTEN_A_SECOND) * len(index.shards)


def writes(world: SegmentWorld, index: SimIndex) -> Writes:
    """The counters of its started primaries. Operations count from the start of their node."""
    operations, share = 0, _operations(world, index) // max(1, len(index.shards))
    primaries = [shard.primary.node for shard in index.shards if shard.primary.serves]
    for place in primaries:
        if place is not None:
            began = world.nodes[place].began
            of_life = int(max(0.0, world.agenda.now - max(began, index.turned_at)) * WRITTEN_A_SECOND)
            operations += share if began <= index.turned_at else of_life * index.written
    return Writes(operations=operations, sequence=share * len(primaries))


def largest(size: int, count: int) -> int:
    """Bytes of the largest of this many segments: a few of them hold most of a copy."""
    return size if count <= 1 else size * 2 // (count + 1)
