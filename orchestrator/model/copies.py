"""The copies of a cluster's shards, by node and by shard. A change costs what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, ShardId


@dataclass(frozen=True)  # not slotted, so that derived values can be cached
class Copies:
    """A routing table; what is computed of it is computed once.

    Attributes:
        all: the copies, shard by shard.
    """

    all: tuple[ShardCopy, ...]

    @cached_property
    def by_shard(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The copies of each shard."""
        shards: dict[ShardId, list[ShardCopy]] = {}
        for copy in self.all:
            shards.setdefault(copy.shard, []).append(copy)
        return {shard: tuple(copies) for shard, copies in shards.items()}

    @cached_property
    def by_node(self) -> dict[NodeName, dict[ShardId, ShardCopy]]:
        """The assigned copies of each node, which has no two of a shard."""
        nodes: dict[NodeName, dict[ShardId, ShardCopy]] = {}
        for copy in self.all:
            if copy.node is not None:
                nodes.setdefault(copy.node, {})[copy.shard] = copy
        return nodes

    @cached_property
    def not_started(self) -> tuple[ShardCopy, ...]:
        """Copies that do not serve requests; a healthy cluster has none."""
        return tuple(copy for copy in self.all if not copy.started)

    @cached_property
    def moving(self) -> Mapping[ShardId, tuple[ShardCopy, ...]]:
        """The shards with a copy that is moving or initializing, with all their copies."""
        found = dict.fromkeys(copy.shard for copy in self.all if _on_its_way(copy))
        return {shard: self.by_shard[shard] for shard in found}

    def changed(self, shards: Mapping[ShardId, tuple[ShardCopy, ...]]) -> Copies:
        """These copies with other ones of some shards."""
        by_shard = {**self.by_shard, **shards}
        touched = tuple(chain.from_iterable(shards.values()))
        by_node, fresh = dict(self.by_node), set[NodeName]()

        def at(place: NodeName) -> dict[ShardId, ShardCopy]:
            if place not in fresh:
                fresh.add(place)
                by_node[place] = dict(by_node.get(place, {}))
            return by_node[place]

        for copy in chain.from_iterable(self.by_shard.get(shard, ()) for shard in shards):
            if copy.node is not None:
                at(copy.node).pop(copy.shard, None)
        for copy in touched:
            if copy.node is not None:
                at(copy.node)[copy.shard] = copy
        away = (copy for copy in self.not_started if copy.shard not in shards)
        still = {shard: copies for shard, copies in self.moving.items() if shard not in shards}
        new = {shard: copies for shard, copies in shards.items() if any(map(_on_its_way, copies))}
        after = Copies(tuple(chain.from_iterable(by_shard.values())))
        vars(after).update(
            by_shard=by_shard,
            by_node=by_node,
            not_started=(*away, *(copy for copy in touched if not copy.started)),
            moving={**still, **new},
        )
        return after


def _on_its_way(copy: ShardCopy) -> bool:
    return copy.state in (CopyState.INITIALIZING, CopyState.RELOCATING)
