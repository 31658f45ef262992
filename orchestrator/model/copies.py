"""The copies of a cluster's shards, by node and by shard. A change costs what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import overload

from immutables import Map

from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId

_NONE: Mapping[ShardId, ShardCopy] = {}


class Copies(Sequence[ShardCopy]):
    """A routing table; what is computed of it is computed once.

    As a sequence it lists the copies, those of a shard together.

    Args:
        copies: in any order.
    """

    def __init__(self, copies: Iterable[ShardCopy]) -> None:
        self._copies: tuple[ShardCopy, ...] | None = tuple(copies)
        self._count = len(self._copies)

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
    def by_shard(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The copies of each shard."""
        shards: dict[ShardId, list[ShardCopy]] = {}
        for copy in self._copies or ():
            shards.setdefault(copy.shard, []).append(copy)
        return {shard: tuple(copies) for shard, copies in shards.items()}

    @cached_property
    def by_node(self) -> dict[NodeName, dict[ShardId, ShardCopy]]:
        """The assigned copies of each node, which has no two of a shard."""
        nodes: dict[NodeName, dict[ShardId, ShardCopy]] = {}
        for copy in self:
            if copy.node is not None:
                nodes.setdefault(copy.node, {})[copy.shard] = copy
        return nodes

    def on(self, node: NodeName) -> Mapping[ShardId, ShardCopy]:
        """The copies on a node."""
        return self.by_node.get(node, _NONE)

    @cached_property
    def away(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The copies that do not serve requests, by shard; a healthy cluster has none."""
        found: dict[ShardId, tuple[ShardCopy, ...]] = {}
        for copy in self:
            if not copy.started:
                found[copy.shard] = (*found.get(copy.shard, ()), copy)
        return found

    @cached_property
    def not_started(self) -> tuple[ShardCopy, ...]:
        """The copies that do not serve requests."""
        return tuple(chain.from_iterable(self.away.values()))

    @property
    def active(self) -> int:
        """How many copies serve requests."""
        return self._count - sum(map(len, self.away.values()))

    @cached_property
    def moving(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The shards with a copy that is moving or initializing, with all their copies."""
        found = dict.fromkeys(copy.shard for copy in self if _on_its_way(copy))
        return {shard: self.by_shard[shard] for shard in found}

    @property
    def arrived(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The shards that move, as they will be when every initializing copy has started."""
        return {shard: tuple(map(_arrived, copies)) for shard, copies in self.moving.items()}

    def changed(self, shards: Mapping[ShardId, tuple[ShardCopy, ...]]) -> Copies:
        """These copies with other ones of some shards."""
        before, after = self.by_shard, Copies(())
        gone = [copy for shard in shards for copy in before.get(shard, ())]
        new = list(chain.from_iterable(shards.values()))
        by_node = self.by_node.copy()
        for place in {copy.node for copy in chain(gone, new) if copy.node is not None}:
            by_node[place] = dict(self.on(place))
        for copy in gone:
            if copy.node is not None:
                by_node[copy.node].pop(copy.shard, None)
        for copy in new:
            if copy.node is not None:
                by_node[copy.node][copy.shard] = copy
        away, moving = dict(self.away), dict(self.moving)
        for shard, copies in shards.items():
            away.pop(shard, None)
            moving.pop(shard, None)
            if resting := tuple(copy for copy in copies if not copy.started):
                away[shard] = resting
            if any(map(_on_its_way, copies)):
                moving[shard] = copies
        after._copies, after._count = None, self._count - len(gone) + len(new)
        shared = before if isinstance(before, _Shards) else _Shards.of(before)
        vars(after).update(by_shard=shared.changed(shards), by_node=by_node, away=away, moving=moving)
        return after


class _Shards(Mapping[ShardId, tuple[ShardCopy, ...]]):
    """Copies by shard, in an order that no change alters. A changed one shares all else with its origin."""

    __slots__ = ("_copies", "_order")

    def __init__(self, copies: Map[ShardId, tuple[ShardCopy, ...]], order: Mapping[ShardId, object]) -> None:
        self._copies = copies
        self._order = order

    @classmethod
    def of(cls, shards: Mapping[ShardId, tuple[ShardCopy, ...]]) -> _Shards:
        return cls(Map(shards), shards)

    def changed(self, shards: Mapping[ShardId, tuple[ShardCopy, ...]]) -> _Shards:
        new = dict.fromkeys(shard for shard in shards if shard not in self._order)
        return _Shards(self._copies.update(shards), {**self._order, **new} if new else self._order)

    def __getitem__(self, shard: ShardId) -> tuple[ShardCopy, ...]:
        return self._copies[shard]

    def __iter__(self) -> Iterator[ShardId]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _arrived(copy: ShardCopy) -> ShardCopy:
    if copy.state is not CopyState.INITIALIZING:
        return copy
    return replace(copy, state=CopyState.STARTED, allocation_id=None)


def _on_its_way(copy: ShardCopy) -> bool:
    return copy.state in (CopyState.INITIALIZING, CopyState.RELOCATING)
