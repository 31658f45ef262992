"""The largest sets of units that may be down together: `--strategy shard-safe`. Pure.

A shard, a tier or the voters bound how many of the nodes that hold them may be away at once. So a set is safe
if it takes no more from each `Bound` than it allows. The units are spread over as few safe sets as possible:
each in turn goes into the first set that has room. This is done in two orders, and the better one is taken.
Where that may not be the fewest, a third order is searched: that of the sets, changed again and again.

No order depends on which units are left; the last one is an order of all nodes that are in a bound. So when
the first set is done, the same rule gives the rest of the same sets: a plan does not grow while it is carried
out.

Pairs that exclude each other (most, with one replica) are bits of a number: whether a unit fits into a set is
one operation. Only bounds of two and more are counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.model.cluster import NodeName

Unit = tuple[NodeName, ...]
"""What goes down as a whole: one node, or those of one machine."""

IMPROVING: Final = 30_000
"""Placements that may be tried for the order that is searched: no seconds, so that it is repeatable."""

_STARTS: Final = 12
"""Units from which a clique is looked for."""

_NAMED: Final = 3
"""Units that the reason of a lower bound names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How many of these may be taken at once."""

    name: str  # what it protects, for people: `shard [logs][0]`, `tier data_hot`
    counts: Mapping[NodeName, int]  # how much each node has of it; a node that is not listed has nothing
    most: int  # so much may be taken; 0 or less: none of it


@dataclass(slots=True)
class _Set:
    """One set while it is filled: its units as bits and in order, and what it has taken from each bound."""

    bits: int = 0
    units: list[int] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)


class Sets:
    """The safe sets of some units.

    Args:
        units: in the order of the run.
        bounds: what each set must leave.
    """

    def __init__(self, units: Sequence[Unit], bounds: Iterable[Bound]) -> None:
        self._units = tuple(units)
        self._bounds = tuple(bounds)
        place = {name: number for number, unit in enumerate(self._units) for name in unit}
        self._excludes = [0] * len(self._units)
        self._counted: list[list[tuple[int, int]]] = [[] for _ in self._units]
        self._most: list[int] = []
        self._named: list[tuple[str, int, int]] = []
        self._degree = [0] * len(self._units)
        for bound in self._bounds:
            self._bound(bound, place)

    def _bound(self, bound: Bound, place: Mapping[NodeName, int]) -> None:
        counts: dict[int, int] = {}
        for name, count in bound.counts.items():
            if name in place and count > 0:
                counts[place[name]] = counts.get(place[name], 0) + count
        for number in counts:
            self._degree[number] += len(bound.counts)
        total = sum(counts.values())
        if not counts or total <= bound.most:
            return
        # A unit that takes too much alone is held by the predicates in any set: it must not block the others.
        most = max(bound.most, *counts.values()) if max(counts.values()) > bound.most else bound.most
        self._named.append((bound.name, total, most))
        least = min(counts.values())
        if all(one + least > most for one in counts.values()):
            everybody = 0
            for number in counts:
                everybody |= 1 << number
            for number in counts:
                self._excludes[number] |= everybody & ~(1 << number)
            return
        self._most.append(most)
        for number, count in counts.items():
            self._counted[number].append((len(self._most) - 1, count))

    def fewest(self, *, seed: int = 0) -> tuple[tuple[Unit, ...], ...]:
        """All units in as few sets as were found, the first one first; deterministic for a seed."""
        best = self._best()
        if len(best) > self.at_least()[0]:
            best = min(best, self._fill(self._searched(seed))[0], key=len)
        return tuple(tuple(self._units[number] for number in sorted(one.units)) for one in best)

    def _best(self) -> list[_Set]:
        """The sets by the better of two orders: as given, and from the units that share most with others."""
        numbers = range(len(self._units))
        by_degree = sorted(numbers, key=self._degree.__getitem__, reverse=True)
        return min((self._fill(order)[0] for order in (numbers, by_degree)), key=len)

    def _searched(self, seed: int) -> list[int]:
        """The units in the order that is found for all nodes, whichever of them are left."""
        names = sorted({name for bound in self._bounds for name in bound.counts})
        order = Sets([(name,) for name in names], self._bounds).improved(seed)
        place = {names[number]: at for at, number in enumerate(order)}
        first = [min(place.get(name, len(place)) for name in unit) for unit in self._units]
        return sorted(range(len(first)), key=first.__getitem__)

    def improved(self, seed: int) -> list[int]:
        """The numbers of the units in an order that gives fewer sets, if one was found.

        The sets are turned round, shuffled or taken apart, and filled again, often. The units of one set
        follow one another and fit together, so the sets become more only where they are taken apart.
        """
        best = now = self._best()
        least, left, turn = self.at_least()[0], IMPROVING, 0
        while left > 0 and len(best) > least:
            turn += 1
            now, steps = self._fill(number for one in _turned(now, turn, seed) for number in one)
            left -= steps
            if len(now) < len(best):
                best = now
        return [number for one in best for number in one.units]

    def _fill(self, order: Iterable[int]) -> tuple[list[_Set], int]:
        """Each unit in the first set that has room, and how many placements were tried."""
        sets: list[_Set] = []
        steps = 0
        for number in order:
            for one in sets:
                steps += 1
                if self._fits(number, one):
                    break
            else:
                steps += 1
                one = _Set()
                sets.append(one)
            one.bits |= 1 << number
            one.units.append(number)
            for bound, count in self._counted[number]:
                one.taken[bound] = one.taken.get(bound, 0) + count
        return sets, steps

    def _fits(self, number: int, one: _Set) -> bool:
        if self._excludes[number] & one.bits:
            return False
        return all(
            one.taken.get(bound, 0) + count <= self._most[bound] for bound, count in self._counted[number]
        )

    def at_least(self) -> tuple[int, str]:
        """So many sets are needed whatever is chosen, and why."""
        needed = [(1 if self._units else 0, "nothing keeps them apart")]
        for name, total, most in self._named:
            needed.append((-(-total // most), f"{name}: at most {most} of {total} at once"))
        clique = self._clique()
        if len(clique) > 1:
            names = ", ".join("+".join(self._units[number]) for number in clique[:_NAMED])
            more = f" and {len(clique) - _NAMED} more" if len(clique) > _NAMED else ""
            needed.append((len(clique), f"{names}{more}: no two of them can be down together"))
        return max(needed, key=lambda one: one[0])

    def _clique(self) -> list[int]:
        """A set of units of which each two exclude each other; the largest that a greedy search finds."""
        best: list[int] = []
        by_degree = sorted(range(len(self._units)), key=lambda number: -self._excludes[number].bit_count())
        for start in by_degree[:_STARTS]:
            clique, common = [start], self._excludes[start]
            for number in by_degree:
                if common >> number & 1:
                    clique.append(number)
                    common &= self._excludes[number]
            best = max(best, clique, key=len)
        return best


def _turned(sets: Sequence[_Set], turn: int, seed: int) -> list[list[int]]:
    """The units of each set, shuffled; the sets by size, twice reversed, or shuffled too, turn by turn.

    In each second shuffle the sets are taken apart: pairs that each fill a set stay so in any order.
    """

    def drawn(number: int) -> int:
        return zlib.crc32(f"{seed} {turn} {number}".encode())

    units = [sorted(one.units, key=drawn) for one in sets]
    match turn % 8:
        case 0:
            return [sorted((number for one in units for number in one), key=drawn)]
        case 4:
            return sorted(units, key=lambda one: drawn(one[0]))
        case 1 | 5:
            return sorted(units, key=len, reverse=True)
        case _:
            return units[::-1]
