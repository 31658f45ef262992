"""The copies of a cluster's shards, by node and by shard. A change costs what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final, overload

from immutables import Map

from orchestrator.model.cluster import SERVING, CopyState, NodeName, ShardCopy, ShardId

_STARTED: Final = CopyState.STARTED
_node, _state = attrgetter("node"), attrgetter("state")
ByShard = Mapping[ShardId, tuple[ShardCopy, ...]]
_Aside = tuple[ByShard, ByShard, ByShard]
Test = Callable[[ShardId, tuple[ShardCopy, ...]], bool]
"""What may be true of a shard with these copies."""


class Copies(Sequence[ShardCopy]):
    """A routing table; what is computed of it is computed once.

    As a sequence it lists the copies, those of a shard together.

    Args:
        copies: in any order.
    """

    by_shard: ByShard  # the copies of each shard
    aside: _Aside | None  # `away`, `moving` and `red`; None until one of them is asked for
    # the last test of `where`, its shards, and the shards that changed since
    asked: tuple[Test, frozenset[ShardId], ByShard] | None

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
        self._count = sum(map(len, shards.values()))
        self._on: dict[NodeName, Mapping[ShardId, ShardCopy]] = {}
        self._origin: Copies | None = None
        self._changed: ByShard = {}
        self.aside = self.asked = None

    def __len__(self) -> int:
        return self._count

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

    @property
    def table(self) -> ByShard:
        """The same, to look shards up: its order is that of hashes."""
        shards = self.by_shard
        return shards.copies if isinstance(shards, _Shards) else shards

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
            here, shards = self.by_node.get(node, ()), self.table
            self._on[node] = {
                copy.shard: copy for shard in here for copy in shards[shard] if copy.node == node
            }
        return self._on[node]

    @property
    def away(self) -> ByShard:
        """The copies that do not serve requests, by shard; a healthy cluster has none."""
        return self._set_aside[0]

    @property
    def moving(self) -> ByShard:
        """The shards with a copy that is moving or initializing, with all their copies."""
        return self._set_aside[1]

    @property
    def red(self) -> ByShard:
        """The shards without a copy that serves requests, with all their copies."""
        return self._set_aside[2]

    def where(self, test: Test) -> frozenset[ShardId]:
        """The shards of which this is true. The last test is remembered, and asked of changed shards only."""
        self._catch_up()
        known, shards = frozenset[ShardId](), self.by_shard
        if self.asked is not None and self.asked[0] is test:
            _, known, shards = self.asked
        if shards:
            true = [shard for shard, copies in shards.items() if test(shard, copies)]
            known = known.difference(shards).union(true) if known or true else known
            self.asked = test, known, {}
        return known

    @property
    def _set_aside(self) -> _Aside:
        """`away`, `moving`, `red`."""
        self._catch_up()
        if self.aside is None:
            self.aside = _aside(({}, {}, {}), self.by_shard)
        return self.aside

    def _catch_up(self) -> None:
        """Take over what was computed of the last table that was asked, but for what changed since."""
        origin, later = self, list[ByShard]()
        while origin._origin is not None:
            later.append(origin._changed)
            origin = origin._origin
        if not later:
            return
        shards = later[0] if len(later) == 1 else _latest(later)
        if origin.aside is not None:
            self.aside = _aside(origin.aside, shards)
        if origin.asked is not None:
            test, found, earlier = origin.asked
            self.asked = test, found, {**earlier, **shards} if earlier else shards
        self._origin, self._changed = None, {}

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
        before, count = self.table, self._count
        moved: dict[NodeName, dict[ShardId, None]] = {}
        for shard, copies in shards.items():
            were = before.get(shard, ())
            count += len(copies) - len(were)
            left, here = list(map(_node, were)), list(map(_node, copies))
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
        return self._with(shards, count, {**self.by_node, **moved} if moved else self.by_node)

    def in_other_states(self, shards: ByShard) -> Copies:
        """These copies with other ones of some shards, each on the node of the one before."""
        return self._with(shards, self._count, self.by_node)

    def _with(self, shards: ByShard, count: int, by_node: dict[NodeName, dict[ShardId, None]]) -> Copies:
        after = object.__new__(Copies)
        after.by_shard, after._count, after._on = _changed(self.by_shard, shards), count, {}
        after._origin, after._changed, after.aside, after.asked = self, shards, None, None
        vars(after)["by_node"] = by_node
        return after


def _aside(before: _Aside, shards: ByShard) -> _Aside:
    """`away`, `moving` and `red` of a table, from those of another one and the shards that differ."""
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
    return away, moving, red


_MANY: Final = 16
"""If a change is of more than this part of all shards, to copy them all costs less than to share them."""


def _changed(all_: ByShard, shards: ByShard) -> ByShard:
    """All shards with some of them changed; new ones are the last."""
    if len(shards) * _MANY >= len(all_):
        return {**all_, **shards} if isinstance(all_, dict) else {**dict(all_.items()), **shards}
    return (all_ if isinstance(all_, _Shards) else _Shards.of(all_)).changed(shards)


def _latest(changes: Iterable[ByShard]) -> dict[ShardId, tuple[ShardCopy, ...]]:
    """What each shard was changed to last, in the order of these changes; the latest ones are given first."""
    found: dict[ShardId, tuple[ShardCopy, ...]] = {}
    for shards in reversed(list(changes)):
        for shard, copies in shards.items():
            found.pop(shard, None)
            found[shard] = copies
    return found


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
    return copy._replace(state=CopyState.STARTED, allocation_id=None)
