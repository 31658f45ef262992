"""The quorum rule against brute force: every preference list, every node, every pair of nodes."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.kinds.riak.quorum import breaches, quorum_of, together
from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import Ring
from tests.fakes.riak_rings import claimed, names, ring, spaced


def lists_of(found: Ring, n_val: int) -> list[list[NodeName]]:
    """The lists, told without the model's own method: a piece of the ring written down twice."""
    twice = [*found.owners, *found.owners]
    return [twice[first : first + n_val] for first in range(len(found.owners))]


def lost(lists: list[list[NodeName]], n_val: int, down: Collection[NodeName]) -> int:
    """How many lists do not have more than half of their owners up."""
    return sum(2 * sum(owner not in down for owner in owners) <= n_val for owners in lists)


def test_on_a_spaced_ring_two_nodes_that_share_no_list_may_go() -> None:
    found = claimed(16, 64)
    assert spaced(found, 4)
    for one, other in combinations(names(16), 2):
        shared = any({one, other} <= set(owners) for owners in lists_of(found, 3))
        assert bool(breaches(found, [3], {one, other})) is shared
        assert (other in together(found, [3], one)) is shared
    assert names(1)[0] not in together(found, [3], names(1)[0])
    assert together(found, [2, 3], names(1)[0]) == together(found, [3], names(1)[0])


def test_the_largest_n_val_is_not_the_strictest_so_all_are_asked() -> None:
    found = ring([0, 1, 2, 3, 4, 5, 6, 7])
    first, second, third, fourth, *_ = names(8)
    assert breaches(found, [5], {first, second}) == ()
    assert breaches(found, [3], {first, second})
    assert breaches(found, [3, 5], {first, second})
    assert breaches(found, [3], {first, fourth}) == ()
    assert breaches(found, [4], {first, fourth}), "4 allows as few as 3, in more partitions"
    assert breaches(found, [3, 4], {first, fourth})
    assert breaches(found, [1], {third}), "a key with one owner is away with it"


def test_the_worst_list_is_told_and_of_equal_ones_the_first() -> None:
    """An operator looks at it: two partitions of a list are another matter than all three."""
    first, second = names(2)
    (breach,) = breaches(ring([2, 0, 0, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6, 7]), [3], {first})
    assert (breach.down, breach.first, breach.lists) == (3, 5, 9)
    assert breach.owners == (first, first, first)
    (pair,) = breaches(ring([2, 3, 0, 1, 4, 5, 0, 1, 6, 7]), [3], {first, second})
    assert (pair.down, pair.first, pair.lists) == (2, 1, 4)


def test_quorums() -> None:
    assert [quorum_of(n_val) for n_val in (1, 2, 3, 4, 5, 7)] == [1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("n_vals", [[], [0], [3, -1]])
def test_no_n_val_is_no_leave(n_vals: list[int]) -> None:
    with pytest.raises(ValueError, match="n_val"):
        breaches(claimed(5, 16), n_vals, set())


@given(
    owners=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    n_vals=st.sets(st.integers(1, 7), min_size=1, max_size=3),
    down=st.sets(st.integers(0, 6)),
)
def test_any_ring_any_nodes_any_n_vals(owners: list[int], n_vals: set[int], down: set[int]) -> None:
    found, gone = ring(owners), {names(7)[node] for node in down}
    fitting = {n_val for n_val in n_vals if n_val <= found.size}
    told = breaches(found, n_vals, gone)
    for n_val in fitting:
        by_hand = lost(lists_of(found, n_val), n_val, gone)
        assert sum(each.lists for each in told if each.n_val == n_val) == by_hand
    assert all(each.down > len(each.owners) - quorum_of(each.n_val) for each in told)
