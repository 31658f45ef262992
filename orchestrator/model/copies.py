"""The copies of a cluster's shards, by node and by shard. A change costs what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final, overload

from immutables import Map

from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId

_STARTED: Final = CopyState.STARTED
_MOVES: Final = (CopyState.INITIALIZING, CopyState.RELOCATING)
ByShard = Mapping[ShardId, tuple[ShardCopy, ...]]


class Copies(Sequence[ShardCopy]):
    """A routing table; what is computed of it is computed once.

    As a sequence it lists the copies, those of a shard together.

    Args:
        copies: in any order.
    """

    def __init__(self, copies: Iterable[ShardCopy]) -> None:
        self._copies: tuple[ShardCopy, ...] | None = tuple(copies)
        self._count = len(self._copies)
        self._on: dict[NodeName, Mapping[ShardId, ShardCopy]] = {}
        self._origin: Copies | None = None
        self._changed: ByShard = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ShardCopy]:
        return chain.from_iterable(self.by_shard.values()) if self._copies is None else iter(self._copies)

    @overload
    def __getitem__(self, place: int) -> ShardCopy: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ShardCopy]: ...
    def __getitem__(self, place: int | slice) -> ShardCopy | Sequence[ShardCopy]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (self is other or tuple(self) == tuple(other))

    __hash__ = None  # type: ignore[assignment]  # nobody compares so much by its hash

    @cached_property
    def by_shard(self) -> ByShard:
        """The copies of each shard."""
        shards: dict[ShardId, list[ShardCopy]] = {}
        for copy in self._copies or ():
            shards.setdefault(copy.shard, []).append(copy)
        return {shard: tuple(copies) for shard, copies in shards.items()}

    @property
    def table(self) -> ByShard:
        """The same, to look shards up: its order is that of hashes."""
        shards = self.by_shard
        return shards.copies if isinstance(shards, _Shards) else shards

    @cached_property
    def by_node(self) -> dict[NodeName, dict[ShardId, None]]:
        """The shards of which each node has a copy: the same while copies only change their state."""
        nodes: dict[NodeName, dict[ShardId, None]] = {}
        for copy in self:
            if copy.node is not None:
                nodes.setdefault(copy.node, {})[copy.shard] = None
        return nodes

    def on(self, node: NodeName) -> Mapping[ShardId, ShardCopy]:
        """The copies on a node, which has no two of a shard."""
        if node not in self._on:
            here, shards = self.by_node.get(node, ()), self.table
            self._on[node] = {
                copy.shard: copy for shard in here for copy in shards[shard] if copy.node == node
            }
        return self._on[node]

    @property
    def away(self) -> ByShard:
        """The copies that do not serve requests, by shard; a healthy cluster has none."""
        return self._aside[0]

    @property
    def moving(self) -> ByShard:
        """The shards with a copy that is moving or initializing, with all their copies."""
        return self._aside[1]

    @property
    def red(self) -> ByShard:
        """The shards without a copy that serves requests, with all their copies."""
        return self._aside[2]

    @cached_property
    def _aside(self) -> tuple[ByShard, ByShard, ByShard]:
        """`away`, `moving`, `red`: those of the last table that was asked, and what changed since."""
        origin, later = self, list[ByShard]()
        while origin._origin is not None and "_aside" not in vars(origin):
            later.append(origin._changed)
            origin = origin._origin
        if origin is self:
            away, moving, red, table = {}, {}, {}, self.table
            shards = dict.fromkeys(copy.shard for copy in self if copy.state is not _STARTED)
        else:
            away, moving, red, table = *map(dict, (origin.away, origin.moving, origin.red)), self.table
            shards = {}
            for shard in chain.from_iterable(reversed(later)):
                shards.pop(shard, None)  # the latest change is the last
                shards[shard] = None
        for shard in shards:
            copies = table[shard]
            away.pop(shard, None)
            moving.pop(shard, None)
            red.pop(shard, None)
            if resting := tuple([copy for copy in copies if not copy.started]):
                away[shard] = resting
            if len(resting) == len(copies):
                red[shard] = copies
            if any(map(_on_its_way, copies)):
                moving[shard] = copies
        self._origin = None
        return away, moving, red

    @cached_property
    def not_started(self) -> tuple[ShardCopy, ...]:
        """The copies that do not serve requests."""
        return tuple(chain.from_iterable(self.away.values()))

    @property
    def active(self) -> int:
        """How many copies serve requests."""
        return self._count - len(self.not_started)

    @property
    def arrived(self) -> ByShard:
        """The shards that move, as they will be when every initializing copy has started."""
        return {shard: tuple(map(_arrived, copies)) for shard, copies in self.moving.items()}

    def changed(self, shards: ByShard) -> Copies:
        """These copies with other ones of some shards."""
        before, after, count = self.table, Copies(()), self._count
        moved: dict[NodeName, dict[ShardId, None]] = {}
        for shard, copies in shards.items():
            were = before.get(shard, ())
            count += len(copies) - len(were)
            left, here = [copy.node for copy in were], [copy.node for copy in copies]
            if left != here:
                for node in dict.fromkeys(chain(left, here)):
                    if node is None:
                        continue
                    if node not in moved:
                        moved[node] = dict(self.by_node.get(node, {}))
                    if node in here:
                        moved[node][shard] = None
                    else:
                        del moved[node][shard]
        after._copies, after._count, after._origin, after._changed = None, count, self, shards
        all_ = self.by_shard if isinstance(self.by_shard, _Shards) else _Shards.of(self.by_shard)
        by_node = {**self.by_node, **moved} if moved else self.by_node
        vars(after).update(by_shard=all_.changed(shards), by_node=by_node)
        return after


class _Shards(ByShard):
    """Copies by shard, in an order that no change alters. A changed one shares all else with its origin."""

    __slots__ = ("_order", "copies")

    def __init__(self, copies: Map[ShardId, tuple[ShardCopy, ...]], order: Mapping[ShardId, object]) -> None:
        self.copies = copies
        self._order = order

    @classmethod
    def of(cls, shards: ByShard) -> _Shards:
        return cls(Map(shards), shards)

    def changed(self, shards: ByShard) -> _Shards:
        new = dict.fromkeys(shard for shard in shards if shard not in self._order)
        return _Shards(self.copies.update(shards), {**self._order, **new} if new else self._order)

    def __getitem__(self, shard: ShardId) -> tuple[ShardCopy, ...]:
        return self.copies[shard]

    def __iter__(self) -> Iterator[ShardId]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _arrived(copy: ShardCopy) -> ShardCopy:
    if copy.state is not CopyState.INITIALIZING:
        return copy
    return replace(copy, state=CopyState.STARTED, allocation_id=None)


def _on_its_way(copy: ShardCopy) -> bool:
    return copy.state in _MOVES
