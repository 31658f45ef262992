"""Seeded whole runs on Riak clusters with mishaps and kills: safe at every step, limits as found.

`make test-soak` lives a third as many of them as of the others (`whole_runs.py`); `make soak` has its own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.policy import Strategy
from orchestrator.runtime.lookout import ReadingOrder
from tests.simulation.chance import chance
from tests.simulation.chance_riak import FIRST, chance_riak, without_gates, world_of
from tests.simulation.play import plan_of
from tests.simulation.soak import ON_RINGS, report
from tests.simulation.whole_runs import ON_RINGS as RUNS
from tests.simulation.whole_runs import PARTS_ON_RINGS, part, together
from tests.simulation.wide_riak import RiakLife
from tests.workers import WHOLE_RUNS

pytestmark = pytest.mark.timeout(3600)

_ENOUGH_FOR_EVERY_MISHAP = 200


def test_seeds_that_once_broke_a_property_break_none(subtests: pytest.Subtests) -> None:
    for seed in [64, 207, 304, 958, 1015, 1060, 1151, 9_500_042, 20_001_950, 20_002_202]:
        with subtests.test(seed=seed):
            RiakLife(chance_riak(FIRST + seed)).live()


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.parametrize("first", PARTS_ON_RINGS)
def test_whole_runs_break_no_property(first: int) -> None:
    tally = part(first)
    assert not tally.broken, report(tally, ON_RINGS)


@pytest.mark.part(name="soak")
@pytest.mark.xdist_group(WHOLE_RUNS)
@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to meet every mishap")
def test_every_kind_of_mishap_befell_a_ring() -> None:
    lived_on_rings = together(PARTS_ON_RINGS)
    assert lived_on_rings.runs == RUNS
    assert sorted(ON_RINGS - set(lived_on_rings.happened)) == []


def test_what_is_drawn_is_of_every_kind() -> None:
    drawn = [chance_riak(FIRST + seed) for seed in range(100)]
    assert {one.reads for one in drawn} == set(ReadingOrder) & {
        ReadingOrder.CLUSTER_FIRST,
        ReadingOrder.HOSTS_FIRST,
    }
    assert {one.wanted.strategy for one in drawn} == set(Strategy)
    assert {bool(one.ring.locations) for one in drawn if one.wanted.strategy is Strategy.SHARD_SAFE} == {
        True,
        False,
    }
    assert {one.ring.queues for one in drawn} == {True, False}
    assert len({one.ring.nodes for one in drawn}) >= 6
    assert {max(one.ring.n_vals) for one in drawn} == {3, 5}


def test_sets_of_several_nodes_are_drawn_often_enough() -> None:
    drawn = [chance_riak(FIRST + seed) for seed in range(100)]
    in_sets = [one for one in drawn if one.wanted.strategy is Strategy.SHARD_SAFE]
    plans = [plan_of(world_of(one), replace(one.wanted, pause_after=None)) for one in in_sets]
    assert sum(any(len(wave.nodes) > 1 for wave in plan.waves) for plan in plans) >= 10


def test_a_seed_tells_the_same_story_twice() -> None:
    for seed in (FIRST + 3, FIRST + 9):
        traces = []
        for _ in range(2):
            life = RiakLife(chance_riak(seed))
            life.live()
            traces.append(life.trace())
        assert traces[0] == traces[1]


def test_seeds_of_other_clusters_mean_what_they_did() -> None:
    """Runs on rings are drawn by other dice, from seeds far above."""
    assert all(one.wanted.kind.value == "elasticsearch" for one in map(chance, range(50)))


def test_gates_apart_a_run_is_the_same() -> None:
    drawn = next(one for one in map(chance_riak, range(FIRST, FIRST + 100)) if one.wanted.gates)
    bare = without_gates(drawn)
    assert bare.ring == drawn.ring
    assert replace(bare, wanted=drawn.wanted) == drawn
    RiakLife(bare).live()
