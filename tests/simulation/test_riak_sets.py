"""`--strategy shard-safe` on Riak, run for run: few waves, every key keeps its quorum, also when killed."""

from __future__ import annotations

import re

import pytest

from orchestrator.engine.kinds.riak.quorum import breaches
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import DisabledPredicate, Together
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import Mishap, NodeDies
from orchestrator.simulation.riak import RiakWorld
from orchestrator.view.plan import plan_text
from tests.fakes.riak_rings import in_blocks, names
from tests.simulation.play import killed, lives, plan_of, play, run
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


@pytest.mark.parametrize(
    ("nodes", "size", "waves"), [(5, 64, 5), (6, 64, 4), (8, 64, 4), (9, 128, 4), (16, 64, 4)]
)
def test_a_ring_without_locations_needs_few_waves(nodes: int, size: int, waves: int) -> None:
    world = unlocated(nodes, size)
    found, claimant = world.limits, world.master
    simulation, state = run(world, wanted=by_sets())
    _whole(world, found, state.outcome)
    taken = _waves(simulation)
    assert len(taken) == waves, taken
    assert all(not breaches(world.ring, world.n_vals, wave) for wave in taken)
    assert claimant in taken[-1], "the claimant goes last"


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


def test_with_locations_a_wave_stays_in_one() -> None:
    """`zone` takes ONE and FOUR, and then the other two: THREE shares a list with each."""
    world = located((ONE, TWO, FIVE, SIX), (THREE, FOUR, SEVEN, EIGHT))
    world.allowed_down = 4
    found = world.limits
    simulation, state = run(world, wanted=by_sets(zone_attribute="location"))
    _whole(world, found, state.outcome)
    assert len(_waves(simulation)) == 4
    for wave in _waves(simulation):
        assert len({world.nodes[name].zone for name in wave}) == 1, wave


def test_several_n_vals_bound_a_wave() -> None:
    """With n_val 3 alone two nodes may be down; with n_val 2 in use no single one."""
    world = RiakWorld(unlocated().ring, n_vals=frozenset({2, 3}))
    assert {hold.predicate for hold in plan_of(world, by_sets()).holds} == {"preference_lists_keep_quorum"}


@pytest.mark.parametrize("rule", [None, "preference_lists_keep_quorum"])
def test_a_key_keeps_its_quorum_also_within_a_large_budget(rule: str | None) -> None:
    """The search alone keeps a wave safe, and so does the predicate alone: see `by_location` for that."""
    world = unlocated()
    world.allowed_down = 8
    off = (DisabledPredicate(name=rule),) if rule else ()
    simulation, state = run(world, wanted=by_sets(max_unavailable=8, disabled_predicates=off))
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert len(_waves(simulation)) == 4


def test_a_ring_in_blocks_is_held_as_with_node() -> None:
    """Every node has lists of its own there. No set is tried that would hide it."""
    world = RiakWorld(in_blocks(8, 64))
    plan = plan_of(world, by_sets())
    assert {hold.predicate for hold in plan.holds} == {"preference_lists_keep_quorum"}
    _, state = run(world, wanted=by_sets())
    assert state.outcome is Outcome.HELD
    assert lives(world) == dict.fromkeys(world.nodes, 1)


def test_a_node_that_is_accepted_goes_with_no_owner_of_its_lists() -> None:
    """`--disable-predicate` for each node of a ring in blocks: still no list loses the partitions of two."""
    world = RiakWorld(in_blocks(8, 64))
    world.across_zones, world.allowed_down = True, 2
    rules = tuple(DisabledPredicate(name="preference_lists_keep_quorum", subject=name) for name in names(8))
    simulation, state = run(world, wanted=by_sets(disabled_predicates=rules))
    assert state.outcome is Outcome.DONE, state.message
    assert [len(wave) for wave in _waves(simulation)] == [2, 2, 2, 2]
    for wave in _waves(simulation):
        assert all(len(each.nodes) == 1 for each in breaches(world.ring, {3}, wave)), wave


def test_nodes_of_one_machine_go_together_if_they_can() -> None:
    world = unlocated()
    for one, other in ((ONE, FIVE), (TWO, SIX)):
        world.nodes[other].machine = world.nodes[one].machine
    found = world.limits
    simulation, state = run(world, wanted=by_sets(together=Together.ALWAYS))
    _whole(world, found, state.outcome)
    assert {ONE, FIVE} in map(set, _waves(simulation))
    assert {TWO, SIX} in map(set, _waves(simulation))


def test_the_next_wave_waits_for_the_handoff_of_every_node() -> None:
    """A node that takes long to start leaves its fallbacks to others for longer."""
    world = unlocated()
    found = world.limits
    world.nodes[SIX].start_seconds = 60.0
    world.inactivity = 200.0
    simulation, state = run(world, wanted=by_sets())
    _whole(world, found, state.outcome)
    assert len(_waves(simulation)) == 4


def test_a_node_that_dies_beside_a_wave_stands_the_run_down() -> None:
    world = unlocated()
    found = world.limits
    dies = Mishap(what=NodeDies(node=FOUR, back_after=400.0), verb="start", target=SIX, after=3.0)
    simulation = Simulation(world, plan=[dies])
    state = play(simulation, simulation.begin(by_sets()))
    assert state.outcome is Outcome.FAILED
    assert f"a second failure: node {FOUR} left" in state.message
    assert world.violations == []
    assert all(node.process for node in world.nodes.values() if node.name != FOUR)
    world.agenda.advance(1500.0)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert {name: limit for name, limit in world.limits.items() if name != FOUR} == {
        name: limit for name, limit in found.items() if name != FOUR
    }


def test_a_canary_is_one_node() -> None:
    simulation, state = run(unlocated(), wanted=by_sets(pause_after=1))
    assert state.outcome is Outcome.PAUSED
    assert [len(wave) for wave in _waves(simulation)] == [1]


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


def test_killed_anywhere_it_restarts_every_node_once() -> None:
    at = 1
    while True:
        simulation = Simulation(unlocated())
        world = simulation.world
        assert isinstance(world, RiakWorld)
        found = world.limits
        state = simulation.begin(by_sets())
        simulation.seams.crash_at = len(simulation.seams.passed) + at
        if not killed(simulation, state):
            break
        world.agenda.advance(5.0)
        _whole(world, found, play(simulation, simulation.resume()).outcome)
        at += 5
    assert at > 50


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
