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

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from orchestrator.engine.every_kind import budget_bounds
from orchestrator.engine.largest_safe import Bound
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """Preference lists that would lose their quorum to the same nodes."""

    n_val: int
    nodes: tuple[NodeName, ...]  # the owners that would be down, each once, in order of name
    down: int  # how many partitions of the worst of these lists would be
    first: int  # partition that this list begins with
    owners: tuple[NodeName, ...]  # of this list
    lists: int  # how many lists there are like it


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


# Bounds for `--strategy shard-safe` ------------------------------------


def bounds(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    """What a set of nodes that are down together must leave, for the search of the largest one.

    `preference_lists_keep_quorum` and `budget_not_exceeded` decide in the end: a bound that is too loose
    makes a wave smaller, and never lets one pass. Without a reading of the ring there is only the budget, and
    the predicate holds.
    """
    yield from budget_bounds(policy, view)
    riak = view.riak
    if riak is None or isinstance(riak.ring, Unknown) or isinstance(riak.n_vals, Unknown):
        return
    yield from list_bounds(riak.ring, riak.n_vals)


def list_bounds(ring: Ring, n_vals: Collection[int]) -> Iterator[Bound]:
    """The preference lists of each `n_val`, and how many partitions of each may be down.

    Lists with the same owners, as often, once.
    """
    for n_val in sorted(n_vals):
        most = min(n_val, ring.size) - quorum_of(n_val)
        known: set[frozenset[tuple[str, int]]] = set()
        for first in range(ring.size):
            counts = Counter(ring.preference_list(first, n_val))
            owners = frozenset(counts.items())
            if owners in known:
                continue
            known.add(owners)
            name = f"n_val {n_val}, partitions from {first} on"
            yield Bound(name=name, counts=counts, most=most)
            # The search lets a node that takes too much alone go without others of the list. It must not
            # let these go together for that.
            others = {node: count for node, count in counts.items() if count <= most}
            if len(others) < len(counts):
                yield Bound(name=name, counts=others, most=most)
