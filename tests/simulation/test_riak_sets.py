"""`--strategy shard-safe` on Riak: what a plan says of it, and that it takes less time."""

from __future__ import annotations

import re

from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.riak import RiakWorld
from orchestrator.view.plan import plan_text
from tests.fakes.riak_rings import names
from tests.simulation.play import lives, plan_of, run
from tests.simulation.ringed import by_location, by_sets, located, riak_policy, unlocated

_OF_ELASTICSEARCH = re.compile(
    r"\b(?:cop(?:y|ies)|shards?(?!-safe)|tier|index|indices|master)\b", re.IGNORECASE
)
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = names(8)


def _waves(simulation: Simulation) -> list[tuple[NodeName, ...]]:
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _whole(world: RiakWorld, found: dict[NodeName, int], outcome: Outcome | None) -> None:
    assert outcome is Outcome.DONE
    assert world.violations == []
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert world.limits == found
    assert world.fallbacks == []


def test_what_is_planned_is_what_is_run() -> None:
    plan = plan_of(unlocated(), by_sets())
    assert plan.holds == ()
    simulation, _ = run(unlocated(), wanted=by_sets())
    assert [wave.nodes for wave in plan.waves] == _waves(simulation)
    assert len(plan.waves) == plan.lower_bound_waves == 4
    assert plan.waves[-1].why == "2 nodes that can be down together, with the claimant, so they go last"


def test_the_plan_says_why_there_cannot_be_fewer_waves() -> None:
    by_default = "the nodes, by the default of max_unavailable: at most 2 of 8 at once"
    assert plan_of(unlocated(), by_sets()).lower_bound_reason == by_default
    close = plan_of(unlocated(6), by_sets(max_unavailable=6))
    assert close.lower_bound_waves == len(close.waves) == 4
    assert close.lower_bound_reason.endswith("no two of them can be down together")
    assert plan_of(unlocated(), riak_policy()).lower_bound_waves is None


def test_the_plan_says_when_a_simpler_strategy_needs_as_few() -> None:
    assert "needs as few" not in plan_text(plan_of(unlocated(), by_sets()))
    assert "; `--strategy node` needs as few)" in plan_text(plan_of(unlocated(5), by_sets()))
    apart = located((ONE, FIVE), (TWO, SIX), (THREE, SEVEN), (FOUR, EIGHT))
    text = plan_text(plan_of(apart, by_sets(zone_attribute="location")))
    assert "; `--strategy zone` needs as few)" in text


def test_a_plan_has_no_words_of_another_kind() -> None:
    for world in (unlocated(), unlocated(6), located((ONE, FIVE))):
        for zones in (None, "location"):
            text = plan_text(plan_of(world, by_sets(zone_attribute=zones)))
            assert [line for line in text.splitlines() if _OF_ELASTICSEARCH.search(line)] == []


def test_several_n_vals_bound_a_wave() -> None:
    """With n_val 3 alone two nodes may be down; with n_val 2 in use no single one."""
    world = RiakWorld(unlocated().ring, n_vals=frozenset({2, 3}))
    assert {hold.predicate for hold in plan_of(world, by_sets()).holds} == {"preference_lists_keep_quorum"}


def test_hastened_waves_of_several_nodes_take_less_time() -> None:
    spent = []
    for hasten in (False, True):
        world = unlocated()
        world.rolling = hasten
        found = world.limits
        simulation, state = run(world, wanted=by_sets(hasten_handoff=hasten))
        _whole(world, found, state.outcome)
        assert len(_waves(simulation)) == 4
        spent.append(world.agenda.now)
    assert spent[1] < spent[0]


def test_fewer_waves_take_less_time() -> None:
    """What waits for each wave, handoff, is the same for one node and for two."""
    spent = []
    for world, wanted in ((unlocated(), riak_policy()), (unlocated(), by_sets())):
        world.across_zones = True
        _, state = run(world, wanted=wanted)
        assert state.outcome is Outcome.DONE
        spent.append(world.agenda.now - state.process.started)
    assert spent[1] < 0.6 * spent[0]


def test_zone_needs_as_few_waves_where_locations_are_apart() -> None:
    apart = ((ONE, FIVE), (TWO, SIX), (THREE, SEVEN), (FOUR, EIGHT))
    for wanted in (by_location(), by_sets(zone_attribute="location")):
        assert len(plan_of(located(*apart), wanted).waves) == 4
