"""The waves of `--strategy shard-safe` on drawn small clusters, against the exact optimum of a solver."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from orchestrator.elasticsearch.rules.sets import bounds
from orchestrator.engine.largest_safe import Bound, Sets, Unit
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Strategy
from orchestrator.simulation.glance import glance
from orchestrator.simulation.world import World
from tests import layouts
from tests.optimum import optimum, total
from tests.simulation.play import plan_of, policy
from tests.simulation.program import Simulation

pytestmark = pytest.mark.part(name="long")

DRAWN = 200


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What one wave is chosen from, in turn, and what bounds it."""

    what: str
    groups: Sequence[Sequence[Unit]]
    shards: Sequence[Bound]
    others: Sequence[Bound]

    @property
    def limits(self) -> list[Bound]:
        return [*self.shards, *self.others]


def _drawn(seed: int) -> _Cluster:
    """8 to 24 nodes, up to three replicas; budgets for all nodes and for a tier in some, machines in some."""
    dice = random.Random(seed)  # noqa: S311  (repeatable)
    nodes = layouts.names(dice.randint(8, 24))
    replicas, copies = seed % 4, dice.choice((3, 6, 10, 20, 50))
    zones, skewed, pairs = dice.random() < 0.3, dice.random() < 0.5, dice.random() < 0.3
    shards = tuple(layouts.shards(nodes, copies, replicas, zones=zones, skewed=skewed))
    others = []
    if (most := dice.choice((None, None, len(nodes) // 3, len(nodes) // 2, 2))) is not None:
        others.append(Bound(name="the nodes", counts=dict.fromkeys(nodes, 1), most=most))
    if dice.random() < 0.5:
        tier = nodes[: max(3, len(nodes) // 2)]
        others.append(Bound(name="tier", counts=dict.fromkeys(tier, 1), most=max(1, len(tier) // 3)))
    size = 2 if pairs and not zones else 1
    units: list[Unit] = [tuple(nodes[at : at + size]) for at in range(0, len(nodes), size)]
    what = f"{len(nodes)} nodes, {copies} copies, {replicas=}, {zones=}, {skewed=}, {size=}, {most=}"
    return _Cluster(what, layouts.groups(units, zones=zones), shards, others)


def test_the_waves_of_drawn_clusters_are_few(subtests: pytest.Subtests) -> None:
    needed = allowed = 0
    for seed in range(DRAWN):
        cluster = _drawn(seed)
        with subtests.test(seed=seed, what=cluster.what):
            found = [Sets(group, cluster.limits) for group in cluster.groups]
            waves = sum(len(each.fewest()) for each in found)
            best = total(optimum(group, cluster.limits) for group in cluster.groups)
            assert best.proven
            assert best.sets <= waves <= best.sets + 1
            assert sum(each.at_least()[0] for each in found) <= best.sets
            assert waves <= sum(
                layouts.no_common_shard(group, cluster.shards, cluster.others) for group in cluster.groups
            )
            needed, allowed = needed + waves, allowed + best.sets
    assert needed <= allowed + 2, "one more than the optimum is rare"


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_whole_plan_is_as_short(replicas: int, *, zones: bool) -> None:
    """With the bounds that are read from the cluster, and a plan that every predicate passed."""
    nodes = layouts.names(14)
    world = World(allowed_down=len(nodes))
    world.across_zones = not zones
    for place, name in enumerate(nodes):
        world.add_node(name, zone="abc"[place % layouts.ZONES] if zones else None)
    for shard in layouts.shards(nodes, 6, replicas, zones=zones, skewed=True):
        world.add_index(shard.name.replace(" ", "-"), replicas=replicas, places=list(shard.counts))
    wanted = policy(
        strategy=Strategy.SHARD_SAFE,
        max_unavailable=7,
        min_capacity=0.3,
        zone_attribute="zone" if zones else None,
    )
    view = glance(world, Simulation(world).start_of(wanted)).cluster
    assert isinstance(view, ClusterView)
    known = list(bounds(wanted, view))
    best = total(optimum(group, known) for group in layouts.groups([(n,) for n in nodes], zones=zones))
    plan = plan_of(world, wanted)
    assert best.proven
    assert best.sets <= len(plan.waves) <= best.sets + 1, plan.waves
    assert plan.lower_bound_waves is not None
    assert plan.lower_bound_waves <= best.sets
