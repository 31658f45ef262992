"""The bounds of the search for the largest safe sets of a ring, against its predicates and a solver."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest

from orchestrator.engine.kinds.riak.catalogue import PREDICATES
from orchestrator.engine.kinds.riak.quorum import breaches
from orchestrator.engine.kinds.riak.sets import bounds, list_bounds
from orchestrator.engine.largest_safe import Bound, Sets
from orchestrator.model.policy import Kind, Strategy, Wave
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Ring
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed, in_blocks, names, ring
from tests.optimum import optimum
from tests.simulation.ringed import located
from tests.unit.engine.asking import question, view_of, wanting

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
