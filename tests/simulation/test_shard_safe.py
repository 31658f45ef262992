"""`--strategy shard-safe`: what a plan says of it, and that a run does what was planned."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from orchestrator.engine.beginning import COULD_NOT_FINISH
from orchestrator.engine.waves import next_wave
from orchestrator.model.cluster import Role
from orchestrator.model.event import Hold, WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import DisabledPredicate, Policy, Strategy, Wave
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import views
from orchestrator.simulation.world import World
from orchestrator.view.plan import plan_text
from tests.simulation.play import plan_of, policy, run
from tests.simulation.safe_sets import NODES, neighbours
from tests.simulation.upgrading import wanted
from tests.simulation.zones import zoned


def _wanted(**changes: object) -> Policy:
    return policy(**{"strategy": Strategy.SHARD_SAFE, "max_unavailable": None, **changes})


def _waves(simulation: Simulation) -> list[tuple[str, ...]]:
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def test_the_plan_says_why_there_cannot_be_fewer_waves() -> None:
    plan = plan_of(neighbours(), _wanted())
    assert plan.lower_bound_waves is not None
    assert 1 < plan.lower_bound_waves <= len(plan.waves)
    by_default = "the nodes, by the default of max_unavailable: at most 2 of 8 at once"
    assert plan.lower_bound_reason.startswith(by_default)
    assert plan_of(neighbours(), policy()).lower_bound_waves is None


def test_a_plan_that_cannot_begin_says_so_and_states_no_bound() -> None:
    """More copies than there are: no time brings them. `capacity_remains` bars every node alone."""
    for held, why in (
        (_wanted(min_started_copies=9), "every_shard_keeps_started_copies"),
        (_wanted(min_capacity=0.9), "capacity_remains"),
    ):
        plan = plan_of(neighbours(), held)
        assert plan.lasting == (why,)
        assert plan.lower_bound_waves is None
        assert f"Waiting cannot clear {why}: without --begin-anyway a run ends at once" in plan_text(plan)
        _, state = run(neighbours(), wanted=held)
        assert COULD_NOT_FINISH in state.message
    passing = neighbours()
    passing.snapshots = ("nightly",)
    plan = plan_of(passing, _wanted())
    assert plan.holds
    assert plan.lasting == ()
    assert plan.lower_bound_waves is not None
    assert "The run waits for these conditions to clear.\n" in plan_text(plan)


def test_the_plan_says_when_a_simpler_strategy_needs_as_few() -> None:
    assert "needs as few" not in plan_text(plan_of(neighbours(), _wanted()))
    zones = plan_text(plan_of(zoned(6), _wanted(zone_attribute="zone", max_unavailable=None)))
    assert "; `--strategy zone` needs as few)" in zones
    one = plan_text(plan_of(neighbours(), _wanted(max_unavailable=1)))
    assert "can be down with no other; it is the elected master, so it goes last" in one
    assert "; `--strategy node` needs as few)" in one


def test_zones_go_together_where_the_playbook_lets_them() -> None:
    world = zoned(6)
    world.across_zones, world.allowed_down = True, 6
    off = (DisabledPredicate(name="one_zone_at_a_time"),)
    plan = plan_of(
        world, _wanted(zone_attribute="zone", max_unavailable=6, disabled_predicates=off, min_capacity=0.1)
    )
    assert any(len({world.nodes[name].zone for name in wave.nodes}) > 1 for wave in plan.waves)


def test_of_sets_that_all_are_held_the_first_one_is_named() -> None:
    world = zoned(6)
    view = views.cluster(world)
    state = Simulation(world).begin(_wanted(zone_attribute="zone"))
    asked = list[Wave]()

    def no(wave: Wave) -> tuple[Hold, ...]:
        asked.append(wave)
        return (Hold(predicate="cluster_not_red", subject="index logs", evidence="red"),)

    wave = next_wave(state, view, no)
    assert wave is not None
    assert wave.nodes == asked[0].nodes[:1]
    assert wave.why == "held even alone"
    assert len({each.zone for each in asked}) == 3, "every zone was tried"


def test_each_wave_says_how_many_sets_follow() -> None:
    plan = plan_of(neighbours(), _wanted())
    more = [f"{left} more {'set' if left == 1 else 'sets'}" for left in range(len(plan.waves) - 1, 0, -1)]
    assert [said in wave.why for said, wave in zip(more, plan.waves, strict=False)] == [True] * len(more)
    assert "more set" not in plan.waves[-1].why


def _with_voters() -> World:
    """Four nodes of data, each two with a shard of their own, and three voters without; es5 is the master."""
    world = World(allowed_down=len(NODES))
    world.across_zones = True
    for name in NODES[:7]:
        votes = name > "es4"
        world.add_node(name, roles=frozenset({Role.MASTER} if votes else {Role.DATA}))
    for one, other in combinations(NODES[:4], 2):
        world.add_index(f"{one}-{other}", places=[one, other])
    return world


def _planned(world: World, **changes: object) -> list[set[str]]:
    plan = plan_of(world, _wanted(**{"max_unavailable": 8, "min_capacity": 0.1, **changes}))
    assert plan.holds == ()
    return [set(wave.nodes) for wave in plan.waves]


def test_the_set_with_the_elected_master_is_the_last() -> None:
    """It holds no data here, so it has room in each that has no other voter."""
    waves = _planned(_with_voters())
    assert ["es5" in wave for wave in waves] == [*([False] * (len(waves) - 1)), True]


def test_an_upgrade_mixes_no_ranks_in_a_set() -> None:
    """Data goes before voters: no node may join a master that is newer than it could be."""
    restarted, upgraded = _planned(_with_voters()), _planned(_with_voters(), upgrade=wanted())
    data = {"es1", "es2", "es3", "es4"}
    assert any(wave & data and wave - data for wave in restarted)
    assert [bool(wave & data) for wave in upgraded] == sorted(
        (bool(w & data) for w in upgraded), reverse=True
    )
    assert not any(wave & data and wave - data for wave in upgraded)


def test_the_sets_of_each_zone_are_counted_apart() -> None:
    world = zoned(6)
    world.allowed_down = 3
    plan = plan_of(world, _wanted(zone_attribute="zone"))
    assert plan.lower_bound_waves == len(plan.waves)
    assert "zones, one after the other" in plan.lower_bound_reason


def test_what_is_planned_is_what_is_run() -> None:
    planned = tuple(wave.nodes for wave in plan_of(neighbours(), _wanted()).waves)
    simulation, state = run(neighbours(), wanted=_wanted())
    assert state.outcome is Outcome.DONE
    assert tuple(_waves(simulation)) == planned
    bounded = replace(_wanted(), pause_after=1)
    simulation, state = run(neighbours(), wanted=bounded)
    assert state.outcome is Outcome.PAUSED
    assert [len(wave) for wave in _waves(simulation)] == [1], "the canary is one node"
