"""The search of the largest safe sets: every set is safe, they are few, and no fewer than is possible."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from orchestrator.engine.largest_safe import Bound, Sets, Unit
from orchestrator.model.cluster import NodeName


def _case(seed: int, nodes: int) -> tuple[list[Unit], list[Bound]]:
    """Shards of one to four copies, tiers, and in every other case two nodes on each machine."""
    dice = random.Random(seed)  # noqa: S311  (repeatable)
    names = [NodeName(f"es{number:02}") for number in range(nodes)]
    bounds = []
    for shard in range(dice.randint(1, 2 * nodes)):
        places = dice.sample(names, dice.randint(1, min(4, nodes)))
        bounds.append(Bound(name=f"shard {shard}", counts=dict.fromkeys(places, 1), most=len(places) - 1))
    tier = dice.sample(names, dice.randint(1, nodes))
    bounds.append(Bound(name="tier", counts=dict.fromkeys(tier, 1), most=max(1, len(tier) // 2)))
    most = dice.choice((nodes, max(2, nodes // 3)))
    bounds.append(Bound(name="nodes", counts=dict.fromkeys(names, 1), most=most))
    size = 2 if seed % 2 == 0 else 1
    return [tuple(names[at : at + size]) for at in range(0, nodes, size)], bounds


def _is_safe(units: Iterable[Unit], bounds: Sequence[Bound], *, of: Sequence[Unit]) -> bool:
    """Whether these units `of` all may be down together.

    What one unit takes alone is never too much: the predicates decide about that, and it bars no other unit.
    """
    chosen = list(units)
    for bound in bounds:
        taken = [sum(bound.counts.get(name, 0) for name in unit) for unit in chosen]
        alone = max(sum(bound.counts.get(name, 0) for name in unit) for unit in of)
        if sum(taken) > max(bound.most, alone):
            return False
    return True


def _optimum(units: Sequence[Unit], bounds: Sequence[Bound]) -> int:
    """The fewest sets, by trying all partitions."""

    def fits(left: Sequence[Unit], sets: list[list[Unit]], most: int) -> bool:
        if not left:
            return True
        first, *rest = left
        for one in sets:
            if _is_safe([*one, first], bounds, of=units):
                one.append(first)
                if fits(rest, sets, most):
                    return True
                one.pop()
        if len(sets) < most:
            sets.append([first])
            if fits(rest, sets, most):
                return True
            sets.pop()
        return False

    return next(most for most in count(1) if fits(units, [], most))


def test_every_set_is_safe_and_they_hold_each_unit_once(subtests: pytest.Subtests) -> None:
    for seed in range(60):
        with subtests.test(seed=seed):
            units, bounds = _case(seed, nodes=4 + seed % 30)
            sets = Sets(units, bounds).fewest(seed=seed)
            assert sorted(unit for one in sets for unit in one) == sorted(units)
            for one in sets:
                assert _is_safe(one, bounds, of=units), one
            assert sets == Sets(units, bounds).fewest(seed=seed), "the same search finds the same"


def test_without_any_one_of_the_sets_the_rest_needs_no_more(subtests: pytest.Subtests) -> None:
    for seed in range(60):
        with subtests.test(seed=seed):
            units, bounds = _case(seed, nodes=4 + seed % 30)
            sets = Sets(units, bounds).fewest()
            for done in sets:
                left = [unit for unit in units if unit not in done]
                assert len(Sets(left, bounds).fewest()) <= len(sets) - 1


def test_they_are_as_few_as_possible_or_one_more(subtests: pytest.Subtests) -> None:
    for seed in range(60):
        with subtests.test(seed=seed):
            units, bounds = _case(seed, nodes=3 + seed % 7)
            sets, (least, why) = Sets(units, bounds).fewest(), Sets(units, bounds).at_least()
            best = _optimum(units, bounds)
            assert least <= best <= len(sets) <= best + 1, (least, best, len(sets))
            assert why


def test_a_shard_with_one_replica_keeps_its_nodes_apart() -> None:
    es1, es2, es3 = units = [(NodeName(f"es{number}"),) for number in (1, 2, 3)]
    shard = Bound(name="shard [logs][0]", counts={"es1": 1, "es2": 1}, most=1)
    assert Sets(units, [shard]).fewest() == ((es1, es3), (es2,))
    assert Sets(units, [shard]).at_least() == (2, "shard [logs][0]: at most 1 of 2 at once")


def test_a_shard_without_a_safe_copy_bars_nobody() -> None:
    units = [(NodeName(f"es{number}"),) for number in (1, 2)]
    red = Bound(name="shard [red][0]", counts={}, most=-1)
    assert Sets(units, [red]).fewest() == (tuple(units),)


def test_each_two_of_a_clique_exclude_each_other() -> None:
    names = [NodeName(f"es{number}") for number in range(4)]
    pairs = [(a, b) for a in names[:3] for b in names[:3] if a < b]
    bounds = [Bound(name=f"shard {pair}", counts=dict.fromkeys(pair, 1), most=1) for pair in pairs]
    assert Sets([(name,) for name in names], bounds).at_least() == (
        3,
        "es0, es1, es2: no two of them can be down together",
    )
