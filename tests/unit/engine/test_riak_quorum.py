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
from tests.fakes.riak_rings import claimed, in_blocks, names, ring, spaced

SIZES = {3: (16, 64), 5: (16, 64), 8: (16, 64, 256), 16: (64, 256), 64: (256, 1024)}
PAIRS_UP_TO = 128
"""Partitions of the rings whose pairs are all judged: on larger ones that takes seconds."""
RINGS = {
    f"{make.__name__}-{nodes}-nodes-{size}-partitions": make(nodes, size)
    for make in (claimed, in_blocks)
    for nodes, sizes in SIZES.items()
    for size in sizes
}


def lists_of(found: Ring, n_val: int) -> list[list[NodeName]]:
    """The lists, told without the model's own method: a piece of the ring written down twice."""
    twice = [*found.owners, *found.owners]
    return [twice[first : first + n_val] for first in range(len(found.owners))]


def lost(lists: list[list[NodeName]], n_val: int, down: Collection[NodeName]) -> int:
    """How many lists do not have more than half of their owners up."""
    return sum(2 * sum(owner not in down for owner in owners) <= n_val for owners in lists)


def test_every_single_node_is_judged_as_by_hand(subtests: pytest.Subtests) -> None:
    for n_val in [1, 2, 3, 4, 5]:
        for name, found in RINGS.items():
            with subtests.test(name, n_val=n_val):
                lists = lists_of(found, n_val)
                for node in set(found.owners):
                    assert sum(each.lists for each in breaches(found, [n_val], {node})) == lost(
                        lists, n_val, {node}
                    )


def test_every_pair_of_nodes_is_judged_as_by_hand(subtests: pytest.Subtests) -> None:
    """By hand each list says which nodes and pairs of nodes it cannot lose."""
    for n_val in [3, 5]:
        for name, found in RINGS.items():
            if found.size > PAIRS_UP_TO:
                continue
            with subtests.test(name, n_val=n_val):
                nodes = sorted(set(found.owners))
                bad: set[frozenset[NodeName]] = set()
                for owners in lists_of(found, n_val):
                    inside = sorted(set(owners))
                    bad.update(
                        frozenset(pair)
                        for pair in [*combinations(inside, 2), *((node,) for node in inside)]
                        if lost([owners], n_val, pair)
                    )
                allowed = 0
                for pair in combinations(nodes, 2):
                    safe = not any(each <= frozenset(pair) for each in bad)
                    assert (not breaches(found, [n_val], pair)) is safe, pair
                    allowed += safe
                if len(nodes) >= 16 and spaced(found, 4):
                    assert allowed, "nodes that are far apart can go down together"


@pytest.mark.parametrize(("nodes", "sizes"), [each for each in SIZES.items() if each[0] >= 5])
def test_a_ring_that_is_spaced_can_lose_any_one_node(nodes: int, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        found = claimed(nodes, size)
        assert set(found.owners) == set(names(nodes))
        assert spaced(found, 3)
        assert all(not breaches(found, [3], {node}) for node in names(nodes))


def test_on_a_spaced_ring_two_nodes_that_share_no_list_may_go() -> None:
    found = claimed(16, 64)
    assert spaced(found, 4)
    for one, other in combinations(names(16), 2):
        shared = any({one, other} <= set(owners) for owners in lists_of(found, 3))
        assert bool(breaches(found, [3], {one, other})) is shared
        assert (other in together(found, [3], one)) is shared
    assert names(1)[0] not in together(found, [3], names(1)[0])
    assert together(found, [2, 3], names(1)[0]) == together(found, [3], names(1)[0])


def test_three_nodes_on_sixteen_partitions_wrap_badly() -> None:
    """16 is no multiple of three: as on the recorded cluster, a node has two partitions of some list."""
    found = claimed(3, 16)
    broken = {node: breaches(found, [3], {node}) for node in names(3)}
    assert any(broken.values())
    for node, found_here in broken.items():
        for breach in found_here:
            assert breach.nodes == (node,)
            assert breach.down == list(breach.owners).count(node) == 2


def test_a_node_with_two_partitions_of_a_list_takes_both() -> None:
    found = ring([0, 1, 2, 3, 0, 0, 1, 2])
    (breach,) = breaches(found, [3], {names(1)[0]})
    assert (breach.n_val, breach.down, breach.lists) == (3, 2, 2)
    assert breach.owners == found.preference_list(breach.first, 3)


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


def test_each_set_of_nodes_that_breaks_a_list_is_told_for_itself() -> None:
    found = ring([0, 1, 2, 3, 0, 0, 4, 5])
    told = {each.nodes for each in breaches(found, [3], {names(6)[0], names(6)[1]})}
    assert told == {names(1), names(2)}


def test_the_worst_list_is_told_and_of_equal_ones_the_first() -> None:
    """An operator looks at it: two partitions of a list are another matter than all three."""
    first, second = names(2)
    (breach,) = breaches(ring([2, 0, 0, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6, 7]), [3], {first})
    assert (breach.down, breach.first, breach.lists) == (3, 5, 9)
    assert breach.owners == (first, first, first)
    (pair,) = breaches(ring([2, 3, 0, 1, 4, 5, 0, 1, 6, 7]), [3], {first, second})
    assert (pair.down, pair.first, pair.lists) == (2, 1, 4)


def test_a_list_is_no_longer_than_the_ring() -> None:
    found = ring([0, 1, 2, 3])
    assert breaches(found, [5], {names(1)[0]}) == ()
    assert breaches(found, [5], set(names(2)))
    assert breaches(found, [7], {names(1)[0]}), "the quorum of 7 is 4, and that is all there are"


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
