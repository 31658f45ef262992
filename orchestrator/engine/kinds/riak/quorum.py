"""Which nodes of a ring may be down at once, so that every key still has a quorum of its own owners up.

The rule: of no preference list are more owners down than `n_val` less a quorum of it. A list is `n_val`
consecutive partitions, and a quorum is more than half of them (Riak's word `quorum` for `r` and `w`).
What counts is partitions, not nodes: where the ring gives a node two partitions of one list ("not all
replicas will be on distinct nodes"), its stop takes both. Fallbacks are not counted as owners: a sloppy
quorum of them takes writes and answers reads, but holds nothing that was written before.

Every `n_val` in use is asked for itself. A larger one is neither the stricter nor the easier one: 4 allows
one down in four partitions, where 3 allows one in three; 5 allows two in five.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """Preference lists that would lose their quorum to the same nodes.

    Attributes:
        nodes: the owners that would be down, each once, in order of name.
        down: how many partitions of the worst of these lists would be.
        first: partition that this list begins with.
        owners: of this list.
        lists: how many lists there are like it.
    """

    n_val: int
    nodes: tuple[NodeName, ...]
    down: int
    first: int
    owners: tuple[NodeName, ...]
    lists: int


def quorum_of(n_val: int) -> int:
    """So many of `n_val` are more than half."""
    return n_val // 2 + 1


def breaches(ring: Ring, n_vals: Collection[int], down: Collection[NodeName]) -> tuple[Breach, ...]:
    """Every way in which these nodes, down together, leave a preference list without its quorum.

    A ring with fewer partitions than `n_val` has lists of all its partitions; they need the quorum of `n_val`
    all the same.

    Raises:
        ValueError: an `n_val` below one, or none at all.
    """
    if not n_vals or min(n_vals) < 1:
        raise ValueError(f"n_val must be at least one: {sorted(n_vals)}")
    gone = frozenset(down)
    return tuple(each for n_val in sorted(set(n_vals)) for each in _of_n_val(ring, n_val, gone))


def _of_n_val(ring: Ring, n_val: int, gone: frozenset[NodeName]) -> Iterator[Breach]:
    length = min(n_val, ring.size)
    most = length - quorum_of(n_val)
    is_down = [owner in gone for owner in ring.owners]
    found: dict[tuple[NodeName, ...], list[tuple[int, int]]] = {}
    count = sum(is_down[:length])
    for first in range(ring.size):
        if count > most:
            owners = ring.preference_list(first, n_val)
            found.setdefault(tuple(sorted(gone.intersection(owners))), []).append((count, first))
        count += is_down[(first + length) % ring.size] - is_down[first]
    for nodes, lists in sorted(found.items()):
        worst, first = max(lists, key=lambda each: (each[0], -each[1]))
        yield Breach(
            n_val=n_val,
            nodes=nodes,
            down=worst,
            first=first,
            owners=ring.preference_list(first, n_val),
            lists=len(lists),
        )


def together(ring: Ring, n_vals: Collection[int], node: NodeName) -> frozenset[NodeName]:
    """The nodes that share a preference list with this one: the others can go down beside it."""
    longest = min(max(n_vals), ring.size)
    shared: set[NodeName] = set()
    for first in range(ring.size):
        owners = ring.preference_list(first, longest)
        if node in owners:
            shared.update(owners)
    return frozenset(shared - {node})
