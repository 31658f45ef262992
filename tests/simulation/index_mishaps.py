"""What other people do to indices during a run.

As on real nodes (8.19): closing, opening and restoring over an index unassign all its copies at once. The
primary returns from its own disk even under `allocation.enable: none`, since allocation of an existing
primary is forced. A restore is not forced: under `none` it fails permanently. During a restore the index can
be neither closed nor restored over again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.reading import Seconds
from orchestrator.simulation import allocation, deciders, merges, segments
from orchestrator.simulation.mishaps import What
from orchestrator.simulation.parts import SimCopy, SimIndex
from orchestrator.simulation.world import World

if TYPE_CHECKING:
    from orchestrator.simulation.fate import Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollovers(What):
    """An index is rolled over again and again."""

    index: str  # the first one that is no longer written
    every: Seconds = 20.0  # seconds between two rollovers
    times: int = 6  # how many rollovers
    # the place in each group of three rollovers whose new index has more replicas than the cluster has data
    # nodes, so that one copy stays unassigned (0, 1 or 2). None for none.
    crowded: int | None = 2

    def befall(self, fate: Fate) -> None:
        if fate.world.master is not None:
            _roll_over(fate.world, self, self.index, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRestored(What):
    """A snapshot is restored into a new index, as a follower index (CCR) is bootstrapped."""

    name: str
    seconds: Seconds = 60.0  # duration of the primary's restore from the repository
    replicas: int = 1

    def befall(self, fate: Fate) -> None:
        if fate.world.master is not None:
            _restore(fate.world, self.name, self.seconds, self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRestoredOver(What):
    """An index is closed, and a snapshot is restored over it; it keeps its uuid."""

    index: str
    seconds: Seconds = 60.0

    def befall(self, fate: Fate) -> None:
        for index in _changeable(fate.world, self.index):
            _restore_over(fate.world, index, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReopened(What):
    """An index is closed, and opened again after this many seconds."""

    index: str
    seconds: Seconds = 5.0

    def befall(self, fate: Fate) -> None:
        for index in _changeable(fate.world, self.index):
            if not index.closed:
                _close_for(fate.world, index, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMounted(What):
    """A snapshot is mounted as a searchable index without replicas."""

    name: str
    seconds: Seconds = 10.0

    def befall(self, fate: Fate) -> None:
        if fate.world.master is not None:
            index = _restore(fate.world, self.name, self.seconds, 0)
            index.searchable_snapshot, index.written = True, False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasSet(What):
    """Another operator sets the number of replicas of an index."""

    index: str
    replicas: int

    def befall(self, fate: Fate) -> None:
        world = fate.world
        for index in _named(world, self.index) if world.master is not None else ():
            if index.auto_expand is None:
                index.wanted_by_others = self.replicas
                allocation.set_replicas(world, index, self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBegun(What):
    """Another person's force-merge or reindex keeps a node busy for a while."""

    node: NodeName
    seconds: Seconds = 600.0
    reindex: bool = False

    def befall(self, fate: Fate) -> None:
        _keep_busy(fate.world, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveriesStall(What):
    """No recovery makes progress for a while."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        allocation.stall(fate.world, self.seconds)


def _named(world: World, name: str) -> list[SimIndex]:
    return [index for index in world.indices.values() if index.name == name]


def _changeable(world: World, name: str) -> list[SimIndex]:
    """Indices of that name that can be closed now. Without a master none can."""
    named = _named(world, name) if world.master is not None else []
    return [index for index in named if not _is_being_restored(index)]


def _is_being_restored(index: SimIndex) -> bool:
    return any(shard.primary.from_snapshot is not None and not shard.never for shard in index.shards)


def _roll_over(world: World, what: Rollovers, name: str, done: int) -> None:
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


def _keep_busy(world: World, what: WorkBegun) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOver(What):
    """An index is rolled over: writes go to a new index, on any node, and no longer to the old one."""

    index: str
    to: str

    def befall(self, fate: Fate) -> None:
        fate.world.roll_over(self.index, self.to)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterBegins(What):
    """An index that was not being written gets documents, for this long; None = permanently."""

    index: str
    seconds: Seconds | None = None

    def befall(self, fate: Fate) -> None:
        world, index = fate.world, fate.changeable(self.index)
        if index is not None:
            segments.turn(world, index, written=True)
            if self.seconds is not None:
                world.agenda.after(self.seconds, lambda: segments.turn(world, index, written=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedByOthers(What):
    """Another operator force-merges an index."""

    index: str
    max_segments: int = 1

    def befall(self, fate: Fate) -> None:
        index = fate.changeable(self.index)
        if index is not None and not index.closed:
            merges.begin(fate.world, index, self.max_segments, ours=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDeleted(What):
    """A person deletes an index, and may create another one of that name."""

    index: str
    made_again: bool = False

    def befall(self, fate: Fate) -> None:
        world, index = fate.world, fate.changeable(self.index)
        if index is not None:
            world.delete_index(self.index)
            if self.made_again:
                world.create_index(self.index, replicas=index.replicas)
                made = next(each for each in world.indices.values() if each.name == self.index)
                segments.turn(world, made, written=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexClosed(What):
    """A person closes an index."""

    index: str

    def befall(self, fate: Fate) -> None:
        index = fate.changeable(self.index)
        if index is not None:
            segments.turn(fate.world, index, written=False)
            index.closed = True
            fate.world.changed(f"{index.name} is closed")
