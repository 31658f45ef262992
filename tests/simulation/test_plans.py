"""A plan is what the run then does: the same waves for the same reasons, or smaller ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import limit_changes, value_today
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Policy
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.world import World
from orchestrator.view.plan import plan_text
from tests.fakes.riak_rings import names
from tests.simulation.play import cluster, plan_of, play, policy
from tests.simulation.ringed import ONE, TWO, riak_policy, ringed
from tests.simulation.zones import by_zone, lopsided, paired, zoned


@pytest.mark.parametrize(
    ("world", "wanted"),
    [
        (cluster(3), policy()),
        (zoned(), by_zone()),
        (paired(), by_zone()),
        (lopsided(), by_zone()),
        (zoned(9), by_zone(max_unavailable=2)),
    ],
    ids=["node by node", "zones", "both copies in one zone", "one large zone", "a budget"],
)
def test_an_undisturbed_run_does_what_was_planned(world: World, wanted: Policy) -> None:
    plan = plan_of(world, wanted)
    assert plan.holds == ()
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(wanted, planned=tuple(wave.nodes for wave in plan.waves)))
    assert state.outcome is Outcome.DONE, state.message
    done = [r.event.wave for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    assert [(w.number, w.zone, w.nodes, w.why) for w in done] == [
        (w.number, w.zone, w.nodes, w.why) for w in plan.waves
    ]
    assert world.violations == []


def test_a_zone_is_predicted_to_take_as_long_as_its_slowest_node() -> None:
    plan = plan_of(zoned(), by_zone())
    alone = plan_of(zoned(), policy(zone_attribute="zone"))
    assert len(alone.waves) == 2 * len(plan.waves)
    each = {wave.nodes[0]: wave.predicted for wave in alone.waves}
    for wave in plan.waves:
        assert wave.predicted.likely == max(each[name].likely for name in wave.nodes)
    assert plan.predicted.likely == pytest.approx(sum(wave.predicted.likely for wave in plan.waves))


@pytest.mark.parametrize(
    ("world", "wanted", "nodes"),
    [(cluster(3), policy(pause_after=1), 1), (zoned(9), by_zone(pause_after=2), 2)],
)
def test_a_canary_is_planned_to_its_pause_and_is_no_hold(world: World, wanted: Policy, nodes: int) -> None:
    plan = plan_of(world, wanted)
    assert plan.holds == ()
    assert (len(plan.nodes), plan.nodes_selected, plan.pauses) == (nodes, len(world.nodes), True)
    assert not plan_of(world, replace(wanted, pause_after=len(world.nodes))).pauses
    assert plan.steps[-1].action == "restore_settings", "what a pause puts back is planned too"


BANDWIDTH = "indices.recovery.max_bytes_per_sec"
RECOVERIES = "cluster.routing.allocation.node_concurrent_recoveries"


def test_a_plan_says_by_how_much_limits_are_raised(subtests: pytest.Subtests) -> None:
    faster = "so that copies come back faster"
    for layer, key, value, said in [
        ("files", BANDWIDTH, "40mb", f"40mb (default) -> 100mb, 2.5 times, {faster}"),
        ("files", BANDWIDTH, "41943040b", f"40mb (default) -> 100mb, 2.5 times, {faster}"),
        ("files", BANDWIDTH, "80mb", f"80mb (from the nodes' configuration) -> 100mb, 1.25 times, {faster}"),
        ("persistent", BANDWIDTH, "50mb", f"50mb -> 100mb, 2 times, {faster}"),
        ("transient", BANDWIDTH, "25mb", f"25mb (transient) -> 100mb, 4 times, {faster}"),
        ("files", RECOVERIES, "2", f"2 (default) -> 15, 7.5 times, {faster}"),
        ("persistent", BANDWIDTH, "200mb", None),
        ("transient", BANDWIDTH, "0b", None),
        ("files", BANDWIDTH, "1gb", None),
        ("persistent", RECOVERIES, "20", None),
    ]:
        with subtests.test(layer=layer, value=value):
            world = cluster(3)
            getattr(world, layer)[key] = value
            plan = plan_of(world, policy())
            assert (key in plan.settings_changed) is (said is not None)
            assert (f"  {key}: {said}\n" in plan_text(plan)) is (said is not None), plan_text(plan)
            assert (key in plan.settings_today) is (said is not None)


def test_a_higher_value_behind_a_transient_one_is_kept(subtests: pytest.Subtests) -> None:
    for key, low, high, ours in [
        (BANDWIDTH, "60mb", "200mb", "100mb"),
        (BANDWIDTH, "60mb", "-1", "100mb"),
        (RECOVERIES, "3", "30", "15"),
    ]:
        with subtests.test(key=key, high=high):
            settings = SettingsView(persistent={key: high}, transient={key: low}, files={})
            changes = [one for one in limit_changes(settings, policy()) if one.key == key]
            assert [(one.level, one.found, one.wanted) for one in changes] == [(Level.TRANSIENT, low, ours)]


def test_the_default_bandwidth_is_that_of_the_version(subtests: pytest.Subtests) -> None:
    settings = SettingsView(persistent={}, transient={}, files={BANDWIDTH: "20971520b"})
    for slow, source in [(True, "default"), (False, "file")]:
        with subtests.test(slow=slow):
            today = value_today(settings, BANDWIDTH, "100mb", slow=slow)
            assert (today.value, today.source, today.times) == ("20mb", source, 5.0)


def test_a_zone_refused_even_in_part_is_a_hold_of_the_plan() -> None:
    world = zoned()
    world.add_index("bare", replicas=0, places=["es5"])
    assert [(hold.predicate, hold.subject) for hold in plan_of(world, by_zone()).holds] == [
        ("zero_replica_indices", "index bare")
    ]


@pytest.mark.parametrize("reboot", [False, True])
def test_unreachable_hosts_are_holds_in_a_plan_of_all_nodes(*, reboot: bool) -> None:
    sound = plan_of(cluster(3), policy(reboot=reboot))
    plan = plan_of(cluster(3), policy(reboot=reboot), out_of_reach={"es1", "es2"})
    (hold,) = plan.holds
    assert hold.predicate == "selected_hosts_ready", "one hold a predicate, with all its subjects"
    assert (hold.count, set(hold.subjects)) == (2, {"host of es1", "host of es2"})
    assert plan.waves == sound.waves
    assert [(step.target, step.action) for step in plan.steps] == [
        (step.target, step.action) for step in sound.steps
    ]
    assert plan.predicted == sound.predicted


@pytest.mark.parametrize("untold", [names(5), (ONE, TWO)], ids=["all", "two"])
def test_riak_nodes_without_a_process_id_are_one_hold_of_a_plan(
    untold: tuple[NodeName, ...],
) -> None:
    """With one command for all nodes of a machine the plan showed one node, which did not come back."""
    sound = plan_of(ringed(), riak_policy())
    plan = plan_of(ringed(), riak_policy(), untold=untold)
    assert [hold.predicate for hold in plan.holds] == ["lives_are_told"]
    waves = [set(wave.nodes) for wave in plan.waves]
    assert all(set(wave.nodes) in waves for wave in sound.waves)
    assert len(plan.waves) == len(sound.waves) == 5


def test_timeout_does_not_shorten_a_plan_and_is_named() -> None:
    """The seconds in which a plan is played through are not those of the run."""
    for timeout, short in ((1.0, True), (86400.0, False), (None, False)):
        plan = plan_of(cluster(3), policy(timeout=timeout))
        assert (len(plan.waves), plan.holds, plan.timeout) == (3, (), timeout)
        assert ("--timeout 1s is shorter than the run is likely to take" in plan_text(plan)) is short
