"""People roll over, restore, close, open, mount and replicate indices, and keep nodes busy.

As on real nodes (8.19): closing, opening and restoring over an index unassign all its copies at once. The
primary returns from its own disk even under `allocation.enable: none`, since allocation of an existing
primary is forced. A restore is not forced: under `none` it fails permanently. During a restore the index can
be neither closed nor restored over again.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from orchestrator.model.cluster import CopyState
from orchestrator.model.reading import Seconds
from orchestrator.simulation import allocation, deciders, index_mishaps, segments
from orchestrator.simulation.index_mishaps import OfOthers
from orchestrator.simulation.parts import SimCopy, SimIndex
from orchestrator.simulation.world import World

_OfIndices: TypeAlias = (
    index_mishaps.Rollovers
    | index_mishaps.IndexRestored
    | index_mishaps.IndexRestoredOver
    | index_mishaps.IndexReopened
    | index_mishaps.IndexMounted
    | index_mishaps.ReplicasSet
)


def befall(world: World, what: OfOthers) -> None:
    """Trigger it now. No effect on an index that is gone, or without a master."""
    match what:
        case index_mishaps.WorkBegun():
            _keep_busy(world, what)
        case index_mishaps.RecoveriesStall(seconds=seconds):
            allocation.stall(world, seconds)
        case _ if world.master is not None:
            _befall_indices(world, what)
        case _:
            pass  # an index cannot be changed without a master


def _befall_indices(world: World, what: _OfIndices) -> None:
    match what:
        case index_mishaps.Rollovers():
            _roll_over(world, what, what.index, 0)
        case index_mishaps.IndexRestored(name=name, seconds=seconds, replicas=replicas):
            _restore(world, name, seconds, replicas)
        case index_mishaps.IndexMounted(name=name, seconds=seconds):
            index = _restore(world, name, seconds, 0)
            index.searchable_snapshot, index.written = True, False
        case index_mishaps.IndexRestoredOver(index=name, seconds=seconds):
            for index in _named(world, name):
                if not _is_being_restored(index):
                    _restore_over(world, index, seconds)
        case index_mishaps.IndexReopened(index=name, seconds=seconds):
            for index in _named(world, name):
                if not index.closed and not _is_being_restored(index):
                    _close_for(world, index, seconds)
        case index_mishaps.ReplicasSet(index=name, replicas=replicas):
            for index in _named(world, name):
                if index.auto_expand is None:
                    index.wanted_by_others = replicas
                    allocation.set_replicas(world, index, replicas)
        case _:
            assert_never(what)


def _named(world: World, name: str) -> list[SimIndex]:
    return [index for index in world.indices.values() if index.name == name]


def _is_being_restored(index: SimIndex) -> bool:
    return any(shard.primary.from_snapshot is not None and not shard.never for shard in index.shards)


def _roll_over(world: World, what: index_mishaps.Rollovers, name: str, done: int) -> None:
    if done == what.times:
        return
    to, crowded = f"{what.index}-r{done + 1}", what.crowded is not None and done % 3 == what.crowded
    for index in _named(world, name):
        segments.turn(world, index, written=False)
        data = len(deciders.data_nodes(world))
        if world.master is not None and not _named(world, to):
            world.create_index(to, replicas=data if crowded else min(1, data - 1))
            name = to
    world.agenda.after(what.every, lambda: _roll_over(world, what, name, done + 1))


def _restore(world: World, name: str, seconds: Seconds, replicas: int) -> SimIndex:
    index = world.make_index(name, replicas=replicas, reason="NEW_INDEX_RESTORED")
    for shard in index.shards:
        shard.primary.fresh, shard.primary.from_snapshot = True, seconds
    world.changed(f"a restore of index {name} begins")
    allocation.reroute(world)
    return index


def _restore_over(world: World, index: SimIndex, seconds: Seconds) -> None:
    _unassign_all(world, index, "EXISTING_INDEX_RESTORED")
    index.closed = False
    for shard in index.shards:
        shard.in_sync, shard.on_disk = frozenset(), {}
        shard.missed_since.clear()
        shard.primary.fresh, shard.primary.from_snapshot = True, seconds
    world.changed(f"a restore over index {index.name} begins")
    allocation.reroute(world)


def close(world: World, index: SimIndex) -> None:
    """Close an index. It serves nothing, and its copies are allocated again like those of any other."""
    for shard in index.shards:
        if shard.primary.serves:  # closing verifies every copy: absent copies are stale from now on
            shard.in_sync &= {str(copy.allocation_id) for copy in shard.started}
    segments.turn(world, index, written=False)
    _unassign_all(world, index, "INDEX_CLOSED")
    index.closed = True
    world.changed(f"index {index.name} is closed")
    allocation.reroute(world)


def reopen(world: World, index: SimIndex, *, written: bool) -> None:
    """Open an index that was closed."""
    _unassign_all(world, index, "INDEX_REOPENED")
    index.closed = False
    segments.turn(world, index, written=written)
    world.changed(f"index {index.name} is opened")
    allocation.reroute(world)


def _close_for(world: World, index: SimIndex, seconds: Seconds) -> None:
    written = index.written
    close(world, index)

    def opened() -> None:
        if index.uuid in world.indices and world.master is not None and index.closed:
            reopen(world, index, written=written)

    world.agenda.after(seconds, opened)


def _unassign_all(world: World, index: SimIndex, reason: str) -> None:
    index.changed_at = world.agenda.now
    for shard in index.shards:
        allocation.found_again(world, shard)
        shard.lost_at, first = world.agenda.now, shard.primary.node
        if first is not None and first in shard.on_disk:  # the primary's former node is tried first
            shard.on_disk = {first: shard.on_disk[first], **shard.on_disk}
        for copy in shard.copies:
            _unassign(copy, reason)
    world.recoveries.forget(index.uuid, ended=False)


def _unassign(copy: SimCopy, reason: str) -> None:
    copy.ticket += 1
    copy.state, copy.node, copy.reason, copy.relocating_to = CopyState.UNASSIGNED, None, reason, None
    copy.left_at, copy.failed_attempts = None, 0
    if not copy.primary:
        copy.allocation_id = None


def _keep_busy(world: World, what: index_mishaps.WorkBegun) -> None:
    node, life = world.nodes[what.node], world.nodes[what.node].life
    if not node.process:
        return
    busy = world.reindexes if what.reindex else world.merges
    kind = "reindex" if what.reindex else "force-merge"
    busy.add(node.name)
    world.busy_since[node.name] = world.agenda.now
    world.changed(f"a {kind} by other people begins on {node.name}")

    def done() -> None:
        if node.life == life:
            busy.discard(node.name)

    world.agenda.after(what.seconds, done)
