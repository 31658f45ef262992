"""The largest safe sets: each is safe, they are few, and their bounds are what the predicates ask."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count
from typing import Final

import pytest

from orchestrator.elasticsearch.rules.sets import bounds
from orchestrator.engine import largest_safe
from orchestrator.engine.largest_safe import Bound, Sets, Unit
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.policy import DisabledPredicate, Strategy, Wave
from orchestrator.simulation.world import World
from tests.simulation.play import cluster
from tests.unit.engine.asking import holding, question, view_of, wanting


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


RULES: Final = frozenset(
    {
        "every_shard_keeps_started_copies",
        "master_quorum_survives",
        "every_role_keeps_a_member",
        "capacity_remains",
        "budget_not_exceeded",
    }
)


def _eight() -> World:
    """Eight data nodes, of which three are voters, with indices of one to three copies of a shard."""
    world = World(allowed_down=8)
    names = [f"es{number}" for number in range(1, 9)]
    for number, name in enumerate(names):
        roles = {Role.DATA, Role.INGEST} | ({Role.MASTER} if number < 3 else set())
        world.add_node(name, roles=frozenset(roles))
    for number in range(6):
        places = [names[(2 * number + step) % 8] for step in range(1 + number % 3)]
        world.add_index(f"logs-{number}", replicas=len(places) - 1, places=places)
    return world


def _services() -> World:
    """Two nodes for each of three services: they elect, store or take documents in."""
    world = World(allowed_down=6)
    for number, role in enumerate((Role.MASTER, Role.DATA, Role.INGEST)):
        for name in (f"es{2 * number + 1}", f"es{2 * number + 2}"):
            world.add_node(name, roles=frozenset({role}))
    world.add_index("logs", places=["es3", "es4"])
    return world


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"max_unavailable": 2},
        {"max_unavailable": 8},
        {"max_unavailable": 8, "accept_master_outage": True},
        {"max_unavailable": 8, "min_capacity": 0.7},
        {"max_unavailable": 8, "min_capacity": 0.1},
        {"max_unavailable": 8, "min_started_copies": 2},
        {"max_unavailable": 8, "accept_red": frozenset({"logs-1", "logs-4"})},
    ],
    ids=lambda wanted: ",".join(wanted) or "default",
)
@pytest.mark.parametrize("make", [_eight, lambda: cluster(6), _services], ids=["eight", "six", "services"])
def test_a_set_within_the_bounds_is_what_predicates_pass(make: object, wanted: Mapping[str, object]) -> None:
    world: World = make()
    given = {"strategy": Strategy.SHARD_SAFE, "max_unavailable": None, "zone_attribute": None}
    asked = wanting(question(world), **{**given, **wanted})
    view = view_of(asked)
    found = tuple(bounds(asked.policy, view))
    names = sorted(node.name for node in view.nodes)
    passed = 0
    for size in (1, 2, 3, 4):
        for nodes in combinations(names, size):
            within = all(
                sum(bound.counts.get(name, 0) for name in nodes) <= bound.most
                for bound in found
                if any(name in bound.counts for name in nodes)
            )
            held = RULES & set(holding(replace(asked, wave=Wave(number=1, nodes=nodes))))
            assert within is not bool(held), (nodes, held)
            passed += within
    assert passed or "min_started_copies" in wanted, "there may be two copies of each shard"


@pytest.mark.parametrize(
    ("rule", "subject", "gone"),
    [
        ("budget_not_exceeded", "wave", {"max_unavailable"}),
        ("every_role_keeps_a_member", "role ingest", {"role ingest"}),
        ("every_role_keeps_a_member", None, {"role data", "role ingest", "role master"}),
        ("capacity_remains", "tier data", {"tier data"}),
        ("capacity_remains", "tier data_hot", set()),
        ("master_quorum_survives", None, {"voters"}),
        ("every_shard_keeps_started_copies", "index logs-1", {"shard [logs-1][0]"}),
        ("every_shard_keeps_started_copies", None, {f"shard [logs-{n}][0]" for n in (1, 2, 4, 5)}),
        ("disk_below_watermark", None, set()),
    ],
)
def test_what_the_playbook_switches_off_bounds_no_set(rule: str, subject: str | None, gone: set[str]) -> None:
    """Else the plan has more waves than needed, and says that there cannot be fewer."""
    asked = wanting(question(_eight()), strategy=Strategy.SHARD_SAFE, max_unavailable=2, zone_attribute=None)
    view = view_of(asked)
    off = replace(asked.policy, disabled_predicates=(DisabledPredicate(name=rule, subject=subject),))
    before, after = ({bound.name for bound in bounds(each, view)} for each in (asked.policy, off))
    assert before - after == gone


def test_a_search_ends_after_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five units in a ring of pairs need three sets, and no lower bound says so."""
    tried: list[int] = []
    fill = Sets._fill

    def counted(self: Sets, order: Iterable[int]) -> object:
        tried.append(1)
        return fill(self, order)

    monkeypatch.setattr(Sets, "_fill", counted)
    names = [NodeName(f"es{number}") for number in range(5)]
    ring = [
        Bound(name=f"{a} {b}", counts={a: 1, b: 1}, most=1)
        for a, b in zip(names, names[1:] + names[:1], strict=True)
    ]
    sets = Sets([(name,) for name in names], ring)
    assert sets.at_least()[0] == 2
    assert len(sets.fewest()) == 3
    assert len(tried) > 1000
    monkeypatch.setattr(largest_safe, "IMPROVING", 1)
    tried.clear()
    assert len(sets.fewest()) == 3
    assert len(tried) == 6, "two orders of the units and of all nodes, one that was changed, and the last one"
