"""The quorum rule against brute force, and the bounds of the largest safe sets of a ring against a solver."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.largest_safe import Bound, Sets
from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Kind, Strategy, Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Ring
from orchestrator.riak.rules.predicates import PREDICATES
from orchestrator.riak.rules.quorum import bounds, breaches, list_bounds, quorum_of
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed, in_blocks, names, ring, spaced, together
from tests.optimum import optimum
from tests.simulation.ringed import located
from tests.unit.engine.asking import question, view_of, wanting


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


RULES: Final = frozenset({"preference_lists_keep_quorum", "budget_not_exceeded"})
DRAWN: Final = 300

BY_DEFAULT = "the nodes, by the default of max_unavailable"


def _within(nodes: tuple[str, ...], limits: list[Bound]) -> bool:
    return all(sum(bound.counts.get(name, 0) for name in nodes) <= bound.most for bound in limits)


def _grown(dice: random.Random, nodes: int, size: int) -> Ring:
    """A ring as it may be after nodes joined and left: owners at random, and some of them side by side."""
    owners = [number % nodes for number in range(size)]
    for _ in range(dice.choice((0, 1, 3, size))):
        owners[dice.randrange(size)] = dice.randrange(nodes)
    return ring([*owners[:-1], nodes - 1])


@pytest.mark.parametrize("budget", [None, 2, 8])
@pytest.mark.parametrize("n_vals", [{3}, {3, 5}, {1, 3}, {4}], ids=str)
@pytest.mark.parametrize("make", [claimed, in_blocks])
def test_a_set_within_the_bounds_is_what_predicates_pass(
    make: object, n_vals: set[int], budget: int | None
) -> None:
    world = RiakWorld(make(8, 64), n_vals=frozenset(n_vals))
    given = {"kind": Kind.RIAK, "strategy": Strategy.SHARD_SAFE, "zone_attribute": None}
    asked = wanting(question(world), max_unavailable=budget, **given)
    limits = list(bounds(asked.policy, view_of(asked)))
    rules = [rule for rule in PREDICATES if rule.name in RULES]
    for size in (1, 2, 3):
        for nodes in combinations(names(8), size):
            question_of = replace(asked, wave=Wave(number=1, nodes=nodes))
            held = any(list(rule.check(question_of)) for rule in rules)
            assert _within(nodes, limits) is not held, nodes


def test_without_a_reading_of_the_ring_only_the_budget_is_known() -> None:
    """The predicate then holds every wave."""
    world = RiakWorld(claimed(8, 64))
    asked = wanting(question(world), kind=Kind.RIAK, strategy=Strategy.SHARD_SAFE, max_unavailable=None)
    view = view_of(asked)
    assert view.riak is not None
    for unread in ({"ring": Unknown(reason="?")}, {"n_vals": Unknown(reason="?")}):
        blind = replace(view, riak=replace(view.riak, **unread))
        assert [bound.name for bound in bounds(asked.policy, blind)] == [BY_DEFAULT]


def test_the_usual_budget_is_a_third_or_the_largest_location() -> None:
    for world, most in [
        (RiakWorld(claimed(8, 64)), 2),
        (RiakWorld(claimed(5, 64)), 1),
        (located(names(8)[:3]), 3),
    ]:
        asked = wanting(question(world), kind=Kind.RIAK, strategy=Strategy.SHARD_SAFE, max_unavailable=None)
        policy = replace(asked.policy, zone_attribute="location")
        first = next(iter(bounds(policy, view_of(asked))))
        assert (first.name, first.most) == (BY_DEFAULT, most)


def test_a_node_that_goes_alone_lets_no_others_go_together() -> None:
    """With n_val 4 one of four may be down. A node that has two of them is held; the others stay apart."""
    held, one, other, *_ = names(7)
    found = ring([1, 0, 0, 2, 3, 4, 5, 6])
    assert [each.owners for each in breaches(found, {4}, {one, other})] == [(one, held, held, other)]
    units = [(held,), (one,), (other,)]
    assert len(Sets(units, list_bounds(found, {4})).fewest()) == len(units)


@pytest.mark.part(name="long")
def test_drawn_rings_need_as_few_sets_as_the_solver_says(subtests: pytest.Subtests) -> None:
    needed = allowed = 0
    for seed in range(DRAWN):
        dice = random.Random(seed)  # noqa: S311  (repeatable)
        nodes, size = dice.randint(4, 16), dice.choice((16, 32, 64, 128))
        n_vals = dice.choice(({3}, {3}, {2}, {5}, {3, 5}, {4}))
        made = dice.choice((claimed, claimed, _grown))
        found = _grown(dice, nodes, size) if made is _grown else claimed(nodes, size)
        units = [(name,) for name in sorted(set(found.owners))]
        limits = list(list_bounds(found, n_vals))
        if dice.random() < 0.7:
            third = max(1, len(units) // 3)
            limits.append(
                Bound(name="the nodes", counts=dict.fromkeys(sorted(set(found.owners)), 1), most=third)
            )
        with subtests.test(seed=seed, nodes=nodes, size=size, n_vals=n_vals, made=made.__name__):
            sets, best = Sets(units, limits), optimum(units, limits)
            waves = sets.fewest()
            assert best.proven
            assert sets.at_least()[0] <= best.sets <= len(waves) <= best.sets + 1
            for wave in waves:
                down = {unit[0] for unit in wave}
                alone = {name for name in down if breaches(found, n_vals, {name})}
                assert alone == down or not breaches(found, n_vals, down - alone)
            needed, allowed = needed + len(waves), allowed + best.sets
    assert needed <= allowed + 2, "one more than the optimum is rare"
