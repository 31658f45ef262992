"""The copies of a cluster's shards, by node and by shard. A change costs what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, overload

from orchestrator.model.cluster import SERVING, CopyState, NodeName, ShardCopy, ShardId

_STARTED: Final = CopyState.STARTED
_node, _state = attrgetter("node"), attrgetter("state")
ByShard = Mapping[ShardId, tuple[ShardCopy, ...]]


class _Aside(NamedTuple):
    """The shards on which a healthy cluster at rest has nothing, each with these copies."""

    away: ByShard  # the copies that do not serve requests
    moving: ByShard  # all copies of a shard with one that is moving or initializing
    red: ByShard  # all copies of a shard of which none serves requests


class Copies(Sequence[ShardCopy]):
    """A routing table; what is computed of it is computed once.

    As a sequence it lists the copies, those of a shard together.

    Args:
        copies: in any order.
    """

    by_shard: ByShard  # the copies of each shard

    def __init__(self, copies: Iterable[ShardCopy]) -> None:
        shards: dict[ShardId, list[ShardCopy]] = {}
        for copy in copies:
            shards.setdefault(copy.shard, []).append(copy)
        self._set({shard: tuple(found) for shard, found in shards.items()})

    @classmethod
    def of(cls, shards: ByShard) -> Copies:
        """The copies of these shards, which are read already shard by shard."""
        made = object.__new__(cls)
        made._set(shards)
        return made

    def _set(self, shards: ByShard) -> None:
        self.by_shard = shards
        self._on: dict[NodeName, Mapping[ShardId, ShardCopy]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_shard.values()))

    def __iter__(self) -> Iterator[ShardCopy]:
        return chain.from_iterable(self.by_shard.values())

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
    def by_node(self) -> dict[NodeName, dict[ShardId, None]]:
        """The shards of which each node has a copy: the same while copies only change their state."""
        nodes: dict[NodeName, dict[ShardId, None]] = {}
        for shard, copies in self.by_shard.items():
            for copy in copies:
                node = copy.node
                if node in nodes:
                    nodes[node][shard] = None
                elif node is not None:
                    nodes[node] = {shard: None}
        return nodes

    def on(self, node: NodeName) -> Mapping[ShardId, ShardCopy]:
        """The copies on a node, which has no two of a shard."""
        if node not in self._on:
            here, shards = self.by_node.get(node, ()), self.by_shard
            self._on[node] = {
                copy.shard: copy for shard in here for copy in shards[shard] if copy.node == node
            }
        return self._on[node]

    @property
    def away(self) -> ByShard:
        """The copies that do not serve requests, by shard; a healthy cluster has none."""
        return self._aside.away

    @property
    def moving(self) -> ByShard:
        """The shards with a copy that is moving or initializing, with all their copies."""
        return self._aside.moving

    @property
    def red(self) -> ByShard:
        """The shards without a copy that serves requests, with all their copies."""
        return self._aside.red

    @cached_property
    def _aside(self) -> _Aside:
        return _aside(_Aside({}, {}, {}), self.by_shard)

    @cached_property
    def not_started(self) -> tuple[ShardCopy, ...]:
        """The copies that do not serve requests."""
        return tuple(chain.from_iterable(self.away.values()))

    @property
    def active(self) -> int:
        """How many copies serve requests."""
        return len(self) - len(self.not_started)

    @property
    def arrived(self) -> ByShard:
        """The shards that move, as they will be when every initializing copy has started."""
        return {shard: tuple(map(_arrived, copies)) for shard, copies in self.moving.items()}

    def changed(self, shards: ByShard) -> Copies:
        """These copies with other ones of some shards. What is known of the others is known of both."""
        moved: dict[NodeName, dict[ShardId, None]] = {}
        for shard, copies in shards.items():
            left, here = list(map(_node, self.by_shard.get(shard, ()))), list(map(_node, copies))
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
        after = Copies.of(_changed(self.by_shard, shards))
        vars(after)["by_node"] = {**self.by_node, **moved} if moved else self.by_node
        vars(after)["_aside"] = _aside(self._aside, shards)
        return after


def _aside(before: _Aside, shards: ByShard) -> _Aside:
    """What is aside in a table, from that of another one and the shards that differ."""
    away, moving, red = map(dict, before)
    for part in (away, moving, red):
        for shard in part.keys() & shards.keys() if part else ():
            del part[shard]
    for shard, copies in shards.items():
        states = [*map(_state, copies)]
        if states.count(_STARTED) == len(states):
            continue
        resting = tuple([copy for copy in copies if copy.state not in SERVING])
        if resting:
            away[shard] = resting
        if len(resting) == len(copies):
            red[shard] = copies
        if CopyState.INITIALIZING in states or CopyState.RELOCATING in states:
            moving[shard] = copies
    return _Aside(away, moving, red)


_MANY: Final = 16
"""If changes are of more than this part of all shards, to copy them all costs less than to look twice."""


def _changed(all_: ByShard, shards: ByShard) -> ByShard:
    """All shards with some of them changed; new ones are the last."""
    whole, since = (all_.whole, all_.since) if isinstance(all_, _Changed) else (all_, {})
    since = {**since, **shards}
    return {**whole, **since} if len(since) * _MANY >= len(whole) else _Changed(whole, since)


class _Changed(ByShard):
    """Copies by shard: a whole table, which others share, and what has changed since, in its order."""

    __slots__ = ("since", "whole")

    def __init__(self, whole: ByShard, since: ByShard) -> None:
        self.whole, self.since = whole, since

    def __getitem__(self, shard: ShardId) -> tuple[ShardCopy, ...]:
        found = self.since.get(shard)
        return self.whole[shard] if found is None else found

    def __iter__(self) -> Iterator[ShardId]:
        return chain(self.whole, (shard for shard in self.since if shard not in self.whole))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _arrived(copy: ShardCopy) -> ShardCopy:
    if copy.state is not CopyState.INITIALIZING:
        return copy
    return copy._replace(state=CopyState.STARTED, allocation_id=None)
