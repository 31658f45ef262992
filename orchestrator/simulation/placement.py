"""Where the copies are: indexes that follow the changes of the parts, so that an event costs what it moves.

The parts report their changes (`watched.py`), and the next question counts them. The answers are always those
of a pass over all shards (`tests/simulation/test_placement.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Final, TypeAlias

from orchestrator.model.cluster import CopyState, NodeName, ShardId
from orchestrator.simulation.parts import SimIndex, SimNode, SimShard
from orchestrator.simulation.watched import TruthPart

_MOST_SHARDS: Final = 1 << 20
"""More than any index has: the place of a shard is that of its index and its number."""

_OF_NODE: Final = attrgetter("member_life", "roles", "version", "zone", "node_id")
"""What allocation and the views need of a node."""

_Facts: TypeAlias = tuple[tuple[NodeName | None, NodeName | None, CopyState, bool], ...]
"""Node, target, state of each copy of a shard, and whether it is the primary."""


class Until(Enum):
    """What a copy without a node waits for, except free slots of nodes."""

    CHANGED = "its shard, its index or a node changes"
    ENABLED = "its shard, its index or a setting changes"
    ALWAYS = "anything happens, or time passes"


@dataclass(frozen=True, slots=True)
class Slots:
    """Until one of these nodes recovers fewer than `limit` replicas, or primaries, which count apart."""

    nodes: Collection[NodeName]
    limit: int
    primary: bool = False


Wait: TypeAlias = Until | Slots


@dataclass(slots=True)
class News:
    """The parts that changed since the last view. `whole`: an index was removed, so that all may differ."""

    shards: Sequence[tuple[SimIndex, SimShard]]
    indices: Collection[SimIndex]
    nodes: Collection[SimNode]
    whole: bool

    def __bool__(self) -> bool:
        return bool(self.whole or self.shards or self.indices or self.nodes)


@dataclass(frozen=True, slots=True)
class ListedMembers:
    """The nodes that the master lists, in the order of the cluster."""

    nodes: tuple[SimNode, ...]
    data: tuple[NodeName, ...]  # those that hold data; `zones`: the zones of these
    zones: frozenset[str | None]

    @classmethod
    def of(cls, nodes: Sequence[SimNode]) -> ListedMembers:
        """These nodes."""
        data = [node for node in nodes if node.holds_data]
        return cls(tuple(nodes), tuple(node.name for node in data), frozenset(node.zone for node in data))


@dataclass(slots=True)
class _Counts:
    """Sums over all copies."""

    states: Counter[CopyState] = field(default_factory=Counter)  # copies by state
    red: int = 0  # primaries that do not serve
    # copies by node; `arriving`: those that are being recovered, primaries apart
    held: Counter[NodeName] = field(default_factory=Counter)
    arriving: Counter[tuple[NodeName, bool]] = field(default_factory=Counter)

    def add(self, facts: _Facts, number: int) -> None:
        """Count these copies so many times."""
        for node, _, state, primary in facts:
            self.states[state] += number
            serves = state is CopyState.STARTED or state is CopyState.RELOCATING
            if primary and not serves:
                self.red += number
            if node is not None:
                self.held[node] += number
                if state is CopyState.INITIALIZING:
                    self.arriving[node, primary] += number


@dataclass(slots=True)
class _Known:
    """What was counted of a shard, and its place in the order of the cluster."""

    index: SimIndex
    place: int
    facts: _Facts = ()


class Placement:
    """The indexes of one world."""

    def __init__(self) -> None:
        self._changed: set[TruthPart] = set()
        self._known: dict[SimShard, _Known] = {}
        self._by_id: dict[ShardId, SimShard] = {}
        self._indices: dict[str, tuple[SimIndex, int]] = {}
        self._put = 0
        self._counts = _Counts()
        self._on: defaultdict[NodeName, set[SimShard]] = defaultdict(set)
        self._waiting: set[SimShard] = set()
        self._missed: set[SimShard] = set()
        self._lost: set[SimShard] = set()
        self._nodes: dict[SimNode, tuple[object, ...]] = {}
        self._places: dict[NodeName, int] = {}
        self._members: ListedMembers | None = None
        self._queue = _Queue()
        self._unseen: set[TruthPart] = set()
        self._whole = True

    # Changes ----------------------------------------------------------------------------------------------

    def put(self, index: SimIndex) -> None:
        """Follow an index with its shards. It replaces one of the same uuid."""
        if index.uuid in self._indices:
            place = self._indices[index.uuid][1]
            self.drop(self._indices[index.uuid][0])
        else:
            self._put += 1
            place = self._put
        self._indices[index.uuid] = (index, place)
        for number, shard in enumerate(index.shards):
            shard.watch = (self._changed, shard)
            self._known[shard] = _Known(index, place * _MOST_SHARDS + number)
            self._by_id[shard.id] = shard
        index.watch = (self._changed, index)
        self._changed |= {index, *index.shards}

    def drop(self, index: SimIndex) -> None:
        """Forget an index that is deleted."""
        self._follow()
        for shard in index.shards:
            self._count(shard, self._known[shard], ())
            shard.watch = None
            for copy in shard.copies:
                copy.watch = None
            for shards in (self._waiting, self._missed, self._lost, self._unseen):
                shards.discard(shard)
            del self._known[shard], self._by_id[shard.id]
        self._unseen.discard(index)
        index.watch = None
        del self._indices[index.uuid]
        self._whole = True

    def settle(self, node: SimNode) -> None:
        """Follow a node."""
        node.watch = (self._changed, node)
        self._places.setdefault(node.name, len(self._places))
        self._changed.add(node)

    def _follow(self) -> None:
        """Count what has changed since the last question."""
        while self._changed:
            part = self._changed.pop()
            if isinstance(part, SimShard):
                self._follow_shard(part)
            elif isinstance(part, SimIndex):
                self._unseen.add(part)
                for shard in self._waiting.intersection(part.shards):
                    self._queue.changed(shard, waits=True)
            elif isinstance(part, SimNode) and self._nodes.get(part) != (facts := _OF_NODE(part)):
                self._nodes[part] = facts
                self._members = None
                self._unseen.add(part)
                self._queue.of_node(self._waiting)

    def _follow_shard(self, shard: SimShard) -> None:
        known = self._known.get(shard)
        if known is None:
            return  # its index was deleted
        for copy in shard.copies:
            if copy.watch is None:
                copy.watch = shard.watch
        facts = tuple([(copy.node, copy.relocating_to, copy.state, copy.primary) for copy in shard.copies])
        if facts != known.facts:
            self._count(shard, known, facts)
        _keep(shard, self._waiting, here=any(state is CopyState.UNASSIGNED for _, _, state, _ in facts))
        _keep(shard, self._missed, here=shard.had > 0)
        _keep(shard, self._lost, here=shard.lost_at is not None)
        self._queue.changed(shard, waits=shard in self._waiting)
        self._unseen.add(shard)

    def _count(self, shard: SimShard, known: _Known, facts: _Facts) -> None:
        before, known.facts = known.facts, facts
        self._counts.add(before, -1)
        self._counts.add(facts, 1)
        for node, target, state, _ in before:
            for name in (node, target):
                if name is not None:
                    self._on[name].discard(shard)
            if state is CopyState.INITIALIZING and node is not None:
                self._queue.freed(node)
        for node, target, _, _ in facts:
            for name in (node, target):
                if name is not None:
                    self._on[name].add(shard)

    # Questions --------------------------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[CopyState, int]:
        """Number of copies by state."""
        self._follow()
        return self._counts.states

    @property
    def red(self) -> int:
        """Number of primaries that do not serve."""
        self._follow()
        return self._counts.red

    @property
    def held(self) -> Mapping[NodeName, int]:
        """Number of copies of each node."""
        self._follow()
        return self._counts.held

    @property
    def arriving(self) -> Mapping[tuple[NodeName, bool], int]:
        """Number of copies that are being recovered on each node, of primaries (True) and of replicas."""
        self._follow()
        return self._counts.arriving

    @property
    def members(self) -> ListedMembers:
        """The nodes that the master lists."""
        self._follow()
        if self._members is None:
            nodes = sorted(self._nodes, key=lambda node: self._places[node.name])
            self._members = ListedMembers.of([node for node in nodes if node.joined])
        return self._members

    @property
    def waiting(self) -> list[tuple[SimIndex, SimShard]]:
        """The shards with an unassigned copy."""
        self._follow()
        return self._in_order(self._waiting)

    def missed(self, *, besides: Container[ShardId] = ()) -> list[tuple[SimIndex, SimShard]]:
        """The shards of which a stop by the program took a started copy, besides these."""
        self._follow()
        return self._in_order([shard for shard in self._missed if shard.id not in besides])

    @property
    def lost(self) -> list[tuple[SimIndex, SimShard]]:
        """The shards without a started copy."""
        self._follow()
        return self._in_order(self._lost)

    def on(self, node: NodeName, *, or_waiting: bool = False) -> list[tuple[SimIndex, SimShard]]:
        """The shards with a copy on this node, or with one that is moving there, or that is unassigned."""
        self._follow()
        here = self._on.get(node, set())
        return self._in_order(here | self._waiting if or_waiting else here)

    def shard(self, shard: ShardId) -> tuple[SimIndex, SimShard] | None:
        """The shard of that id, with its index; None if its index was deleted."""
        found = self._by_id.get(shard)
        return None if found is None else (self._known[found].index, found)

    def in_order(self, names: Iterable[NodeName]) -> list[NodeName]:
        """Those of the names that are nodes, in the order of the cluster."""
        return sorted([name for name in names if name in self._places], key=self._places.__getitem__)

    def emptiest(self, shard: SimShard, among: Iterable[NodeName]) -> NodeName | None:
        """The node with the fewest copies that has none of this shard."""
        held, taken = self.held, shard.taken
        free = [name for name in among if name not in taken]
        return min(free, key=lambda name: (held[name], name)) if free else None

    def _in_order(self, shards: Iterable[SimShard]) -> list[tuple[SimIndex, SimShard]]:
        known = self._known
        return [(known[one].index, one) for one in sorted(shards, key=lambda one: known[one].place)]

    # Allocation -------------------------------------------------------------------------------------------

    def due(self, rules: object) -> Iterator[tuple[SimIndex, SimShard]]:
        """The shards with a copy that may have a place now; any other still waits as it said.

        Args:
            rules: the settings of allocation. With others than before, every waiting shard is due.
        """
        self._follow()
        for pair in self._in_order(self._queue.taken(rules, self._waiting)):
            if not self._queue.is_full(pair[1], self.arriving):
                yield pair

    def wait(self, shard: SimShard, waits: Sequence[Wait]) -> None:
        """Each unassigned copy of this shard waits for that."""
        self._queue.wait(shard, waits)

    # Views ------------------------------------------------------------------------------------------------

    def news(self) -> News:
        """The parts that changed since the last call."""
        self._follow()
        unseen, self._unseen = self._unseen, set()
        whole, self._whole = self._whole, False
        shards = self._in_order([part for part in unseen if isinstance(part, SimShard)])
        indices = {part for part in unseen if isinstance(part, SimIndex)} | {index for index, _ in shards}
        return News(shards, indices, [part for part in unseen if isinstance(part, SimNode)], whole)


class _Queue:
    """The shards with unassigned copies, by what they wait for."""

    def __init__(self) -> None:
        self._due: set[SimShard] = set()
        self._disabled: set[SimShard] = set()
        self._full: dict[SimShard, list[Slots]] = {}
        self._slots: defaultdict[NodeName, set[SimShard]] = defaultdict(set)
        self._rules: object = None

    def changed(self, shard: SimShard, *, waits: bool) -> None:
        """A shard has changed. It is due if it still waits for a node."""
        self._disabled.discard(shard)
        self._full.pop(shard, None)
        _keep(shard, self._due, here=waits)

    def of_node(self, waiting: set[SimShard]) -> None:
        """A node has changed: all are due except those for which allocation is disabled."""
        self._full.clear()
        self._due |= waiting - self._disabled

    def freed(self, node: NodeName) -> None:
        """A recovery of this node has ended."""
        if node in self._slots:
            self._due |= self._slots.pop(node)

    def taken(self, rules: object, waiting: set[SimShard]) -> set[SimShard]:
        """The due shards, each of which has to `wait` again."""
        if rules != self._rules:
            self._rules = rules
            self._disabled.clear()
            self._full.clear()
            self._slots.clear()
            self._due |= waiting
        due, self._due = self._due & waiting, set()
        return due

    def is_full(self, shard: SimShard, arriving: Mapping[tuple[NodeName, bool], int]) -> bool:
        """Whether a shard that waits for slots alone still has none. Then it goes on waiting."""
        waits = self._full.get(shard)
        if waits is None or any(arriving[at, one.primary] < one.limit for one in waits for at in one.nodes):
            return False
        self._wait_for_slots(shard, waits)
        return True

    def wait(self, shard: SimShard, waits: Sequence[Wait]) -> None:
        """Each unassigned copy of this shard waits for that."""
        slots = [wait for wait in waits if isinstance(wait, Slots)]
        self._full.pop(shard, None)
        if all(wait is Until.ENABLED for wait in waits):
            self._disabled.add(shard)
        elif Until.ALWAYS in waits:
            self._due.add(shard)
        elif len(slots) == len(waits):
            self._full[shard] = slots
        self._wait_for_slots(shard, slots)

    def _wait_for_slots(self, shard: SimShard, waits: Sequence[Slots]) -> None:
        for slots in waits:
            for node in slots.nodes:
                self._slots[node].add(shard)


def _keep(shard: SimShard, among: set[SimShard], *, here: bool) -> None:
    if here:
        among.add(shard)
    else:
        among.discard(shard)
