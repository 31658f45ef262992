"""The bounds of the search for the largest safe sets are what the predicates about a wave ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest

from orchestrator.engine import largest_safe
from orchestrator.engine.kinds.elasticsearch.sets import bounds
from orchestrator.engine.largest_safe import Bound, Sets
from orchestrator.model.cluster import NodeName, Role
from orchestrator.model.policy import DisabledPredicate, Strategy, Wave
from orchestrator.simulation.world import World
from tests.simulation.play import cluster
from tests.unit.engine.asking import holding, question, view_of, wanting

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


def test_without_some_units_the_others_keep_their_order() -> None:
    """Else a plan would change while it is carried out."""
    names = [NodeName(f"es{number:02}") for number in range(30)]
    pairs = [Bound(name=f"shard {n}", counts={names[n]: 1, names[n + 1]: 1}, most=1) for n in range(0, 29, 3)]
    pairs.append(Bound(name="tier", counts=dict.fromkeys([*names[::2], names[5]], 1), most=8))
    whole, left = [(name,) for name in names], [(name,) for name in names[1::2]]

    def orders(units: list[tuple[NodeName, ...]]) -> list[list[tuple[NodeName, ...]]]:
        return [[units[number] for number in order] for order in Sets(units, pairs)._orders(seed=3)]

    for before, after in zip(orders(whole), orders(left), strict=True):
        assert [unit for unit in before if unit in left] == after
    assert len({tuple(order) for order in orders(whole)}) > largest_safe.ORDERS / 2


def test_a_search_ends_after_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    fill = Sets._fill

    def counted(self: Sets, order: list[int]) -> object:
        tried.append(len(order))
        return fill(self, order)

    monkeypatch.setattr(Sets, "_fill", counted)
    names = [NodeName(f"es{number}") for number in range(9)]
    bound = Bound(name="nodes", counts=dict.fromkeys(names, 1), most=2)
    sets = Sets([(name,) for name in names], [bound])
    sets.fewest()
    assert len(tried) == largest_safe.ORDERS
    monkeypatch.setattr(largest_safe, "STEPS", 1)
    tried.clear()
    assert len(sets.fewest()) == 5
    assert len(tried) == 1
