"""Rings as Riak's claim makes them, and bad ones."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import Ring

TARGET_N_VAL = 4
"""Riak's default: so many partitions in a row are to have different owners."""


def names(nodes: int) -> tuple[NodeName, ...]:
    return tuple(NodeName(f"riak{number}@10.0.0.{number}") for number in range(1, nodes + 1))


def claimed(nodes: int, size: int) -> Ring:
    """Owners in turn, in rounds of which some are shorter, so that the end of the ring fits its beginning.

    As with Riak's own claim any `TARGET_N_VAL` partitions in a row have different owners where that can be,
    else any three; and with fewer nodes the ring wraps badly, of which Riak warns.
    """
    for least in (TARGET_N_VAL, TARGET_N_VAL - 1):
        rounds = -(-size // nodes)
        spare = size - rounds * least
        if spare >= nodes - least >= 0:  # at least one round is whole, so that every node owns something
            lengths = []
            for _ in range(rounds):
                more = min(spare, nodes - least)
                spare -= more
                lengths.append(least + more)
            return ring([node for length in lengths for node in range(length)])
    return ring([number % nodes for number in range(size)])


def in_blocks(nodes: int, size: int) -> Ring:
    """A ring that nobody should have: neighbouring partitions belong to the same node."""
    return ring([number * nodes // size for number in range(size)])


def ring(owners: list[int]) -> Ring:
    known = names(max(owners) + 1)
    return Ring(owners=tuple(known[owner] for owner in owners))


def spaced(found: Ring, n_val: int) -> bool:
    """Whether every list of this length has different owners."""
    return all(len(set(found.preference_list(first, n_val))) == n_val for first in range(found.size))


def together(ring: Ring, n_vals: Collection[int], node: NodeName) -> frozenset[NodeName]:
    """The nodes that share a preference list with this one: the others can go down beside it."""
    longest = min(max(n_vals), ring.size)
    shared: set[NodeName] = set()
    for first in range(ring.size):
        owners = ring.preference_list(first, longest)
        if node in owners:
            shared.update(owners)
    return frozenset(shared - {node})
