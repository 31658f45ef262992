"""What a set of nodes that are down together must leave of every preference list, as bounds for the search.

A bound has a list's partitions by owner, and how many of them may be down. `preference_lists_keep_quorum` and
`budget_not_exceeded` decide in the end: a bound that is too loose makes a wave smaller, and never lets one
pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from orchestrator.engine.kinds.every_kind import budget_bounds
from orchestrator.engine.kinds.riak.quorum import quorum_of
from orchestrator.engine.largest_safe import Bound
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Ring


def bounds(policy: Policy, view: ClusterView) -> Iterator[Bound]:
    """Every bound of this cluster; without a reading of the ring only the budget, and the predicate holds."""
    yield from budget_bounds(policy, view)
    riak = view.riak
    if riak is None or isinstance(riak.ring, Unknown) or isinstance(riak.n_vals, Unknown):
        return
    yield from list_bounds(riak.ring, riak.n_vals)


def list_bounds(ring: Ring, n_vals: Collection[int]) -> Iterator[Bound]:
    """The preference lists of each `n_val`; lists with the same owners, as often, once."""
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
