"""`overlap_recovery: true`: the next wave beside the recoveries before it, and never in their way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.cluster import CopyState, NodeName, Role
from orchestrator.model.event import (
    NodeRecovered,
    PhaseEntered,
    SecondFailure,
    SettingChanged,
    SettingRestored,
    WaveFinished,
)
from orchestrator.model.overlap import Overlapping, WaveGaveWay
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, RecoveryLimits, Strategy
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Crash, Mishap
from orchestrator.simulation.recoveries import SimRecovery
from orchestrator.simulation.world import World
from orchestrator.view.plan import plan_text
from tests.simulation.overlapping import (
    SLOW,
    halves,
    on_disk,
    overlapped,
    slow,
    slowed,
    stops,
    threefold,
    under_way,
    waves,
)
from tests.simulation.play import lives, plan_of, play, run
from tests.simulation.zones import zoned

ES2, ES4 = NodeName("es2"), NodeName("es4")
ALLOCATION = "cluster.routing.allocation.enable"
POOL = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))


def _done(simulation: Simulation, outcome: Outcome | None) -> None:
    world = simulation.world
    assert outcome is Outcome.DONE
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert world.violations == []
    assert world.settings() == ({}, {})
    assert all(
        copy.state is CopyState.STARTED for i in world.indices.values() for s in i.shards for copy in s.copies
    )


def _overlaps(simulation: Simulation) -> int:
    return sum(bool(under_way(simulation, at)) for at, _ in stops(simulation))


def test_the_next_node_stops_while_the_last_one_recovers() -> None:
    beside, state = run(slow(), wanted=overlapped())
    _done(beside, state.outcome)
    assert _overlaps(beside) >= 3, "of six stops"
    apart, state = run(slow(), wanted=overlapped(overlap_recovery=False))
    _done(apart, state.outcome)
    assert _overlaps(apart) == 0
    ends = [simulation.journal.records[-1].at - stops(simulation)[0][0] for simulation in (beside, apart)]
    assert ends[0] < 0.8 * ends[1]


@pytest.mark.proves("overlap")
def test_no_node_stops_that_has_a_part_in_what_recovers(subtests: pytest.Subtests) -> None:
    for seed, nodes in enumerate((3, 4, 5, 6, 8, 9)):
        with subtests.test(seed=seed, nodes=nodes):
            simulation, state = run(slow(nodes, seed=seed), wanted=overlapped())
            _done(simulation, state.outcome)
            for at, node in stops(simulation):
                for shard, _ in under_way(simulation, at):
                    assert node not in on_disk(simulation.world, shard), f"{node} at {at}, {shard}"


@pytest.mark.parametrize("world", [slow(3), threefold()], ids=["two copies", "three copies"])
def test_three_nodes_that_all_share_do_not_overlap(world: World) -> None:
    simulation, state = run(world, wanted=overlapped())
    _done(simulation, state.outcome)
    assert _overlaps(simulation) == 0


def _began(simulation: Simulation, node: NodeName) -> list[SimRecovery]:
    return [one for one in simulation.world.recoveries if one.target == node]


def test_no_node_stops_while_a_copy_waits_to_recover() -> None:
    world = zoned()
    world.add_index("more", shards=3, places=["es4", "es1"])
    world = slowed(world)
    wanted = overlapped(recovery_limits=RecoveryLimits(node_concurrent_recoveries=None))
    simulation, state = run(world, wanted=wanted)
    _done(simulation, state.outcome)
    (first, _), (second, _) = [(at, node) for at, node in stops(simulation)][:2]
    waited = [one for one in _began(simulation, ES4) if one.began > first + 30.0]
    assert waited, "two at a time: the others of es4 were unassigned for a while"
    assert all(one.began < second for one in _began(simulation, ES4))


def test_without_overlap_nothing_of_it_is_in_the_journal() -> None:
    simulation, state = run(slow(), wanted=overlapped(overlap_recovery=False))
    assert state.outcome is Outcome.DONE
    assert not [r for r in simulation.journal.records if isinstance(r.event, WaveGaveWay | Overlapping)]


def test_nodes_go_zone_by_zone_and_the_master_last() -> None:
    simulation, state = run(slow(9), wanted=overlapped())
    _done(simulation, state.outcome)
    zones = [simulation.world.nodes[node].zone for _, node in stops(simulation)]
    assert "".join(str(zone) for zone in zones) == "aabbbccca"
    assert stops(simulation)[-1][1] == "es1"


def test_zones_overlap_whole_where_they_share_nothing() -> None:
    world = halves()
    wanted = overlapped(strategy=Strategy.ZONE, max_unavailable=None)
    simulation, state = run(world, wanted=wanted)
    _done(simulation, state.outcome)
    assert waves(simulation) == [("es2", "es6"), ("es3", "es7"), ("es4", "es8"), ("es5", "es1")]
    times = {node: at for at, node in stops(simulation)}
    assert under_way(simulation, times[NodeName("es3")]), "zone c beside zone b"
    assert not [
        shard for shard, _ in under_way(simulation, times[NodeName("es4")]) if shard.index == "right"
    ], "zone d waits for zone c"


def test_limits_are_raised_once_and_put_back_once_at_the_end() -> None:
    simulation, state = run(slow(), wanted=overlapped())
    _done(simulation, state.outcome)
    raised = [r.event.key for r in simulation.journal.records if isinstance(r.event, SettingChanged)]
    back = [r.event.key for r in simulation.journal.records if isinstance(r.event, SettingRestored)]
    for key in sorted(set(raised) - {ALLOCATION}):
        assert (raised.count(key), back.count(key)) == (1, 1), key
    assert raised.count(ALLOCATION) == back.count(ALLOCATION) == 6
    last = max(r.at for r in simulation.journal.records if isinstance(r.event, NodeRecovered))
    limits = [
        r.at
        for r in simulation.journal.records
        if isinstance(r.event, SettingRestored) and r.event.key != ALLOCATION
    ]
    assert min(limits) >= last


def test_hooks_run_when_the_nodes_own_copies_are_back() -> None:
    simulation, state = run(slow(), wanted=overlapped(hooks=POOL))
    _done(simulation, state.outcome)
    recovered = {r.event.node: r.at for r in simulation.journal.records if isinstance(r.event, NodeRecovered)}
    for node, at in recovered.items():
        ends = [one.ends for one in _began(simulation, node)]
        assert max(ends) <= at < max(ends) + 5.0, node
        mine = [moment for name, moment, _ in simulation.hosts.hooks if name == node]
        assert mine == ["before_stop", "after_recovery"], node
    assert [r.event.number for r in simulation.journal.records if isinstance(r.event, WaveFinished)] == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip


def test_a_copy_rebuilt_elsewhere_is_waited_for_at_the_end() -> None:
    """Its index has allocation of its own, so that it goes to another node while its own is down."""
    world = World()
    world.add_node("es1", roles=frozenset({Role.MASTER}))
    for name in ("es2", "es3", "es4"):
        world.add_node(name)
    index = world.add_index("stubborn", places=["es3", "es4"])
    index.allocation_enable, index.delay = "all", 1.0
    index.keeps, index.shards[0].size = 0.0, SLOW
    simulation, state = run(world, wanted=overlapped())
    assert waves(simulation)[-2:] == [("es4",), ("es1",)]
    assert under_way(simulation, stops(simulation)[-1][0]), "of what es4 had, on es3"
    _done(simulation, state.outcome)


def test_a_hook_that_fails_beside_the_next_wave_ends_the_run() -> None:
    world = slow()
    simulation = Simulation(
        world, trips=[mishaps.Trip(verb="hook_after_recovery", how=mishaps.How.REFUSED, times=9)]
    )
    state = play(simulation, simulation.begin(overlapped(hooks=POOL)))
    assert state.outcome is Outcome.FAILED
    assert "hook after_recovery" in state.message
    assert world.settings() == ({}, {})
    assert all(node.joined for node in world.nodes.values())


def test_a_canary_pauses_when_its_nodes_have_recovered() -> None:
    world = slow()
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(overlapped(pause_after=2)))
    assert state.outcome is Outcome.PAUSED
    assert len(stops(simulation)) == 2
    assert _overlaps(simulation) == 1
    gave_way = [r for r in simulation.journal.records if isinstance(r.event, WaveGaveWay)]
    assert len(gave_way) == 1, "the last one makes room for nobody: it is waited for in one go"
    assert state.recovered == 2
    _done(simulation, play(simulation, simulation.resume()).outcome)
    assert _overlaps(simulation) > 1, "the others overlap again"


def test_a_pause_waits_for_all_that_recovers() -> None:
    world = slow()
    asked = Mishap(what=mishaps.Asked(request=Request.PAUSE), verb="stop", nth=2, after=20.0)
    simulation, state = run(world, plan=[asked], wanted=overlapped())
    assert state.outcome is Outcome.PAUSED
    assert len(stops(simulation)) == 2
    assert {node.phase for node in state.nodes.values()} == {NodePhase.RECOVERED, NodePhase.PENDING}
    _done(simulation, play(simulation, simulation.resume()).outcome)


@pytest.mark.parametrize("after", [0.5, 8.0, 16.0], ids=["stopping", "starting", "rejoined"])
def test_a_node_that_recovers_and_dies_is_a_second_failure(after: float) -> None:
    world = slow()
    dies = Mishap(what=mishaps.NodeDies(node=ES4), verb="stop", nth=2, after=after)
    simulation, state = run(world, plan=[dies], wanted=overlapped())
    assert [r for r in simulation.journal.records if isinstance(r.event, SecondFailure)]
    assert state.outcome is Outcome.FAILED
    assert len(stops(simulation)) == 2, "no new wave"
    assert world.settings() == ({}, {})
    assert all(node.joined for node in world.nodes.values()), "ours are started, the dead one too"
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert world.violations == []


def test_a_node_that_recovers_and_dies_at_a_gate_is_a_failure() -> None:
    world = slow()
    snapshot = Mishap(what=mishaps.SnapshotBegun(name="repo/nightly"), verb="start", after=5.0)
    dies = Mishap(what=mishaps.NodeDies(node=ES4), verb="start", after=30.0)
    simulation, state = run(world, plan=[snapshot, dies], wanted=overlapped())
    assert "a second failure: es4 left the cluster" in state.message
    assert state.outcome is Outcome.FAILED
    assert len(stops(simulation)) == 1
    assert all(node.joined for node in world.nodes.values()), "es4 is started again"
    assert world.settings() == ({}, {})


def test_a_recovery_that_fails_beside_a_wave_awaits_allocation() -> None:
    world = slow()
    fails = Mishap(what=mishaps.AllocationsFail(index="logs", times=1), verb="stop", nth=2)
    wanted = overlapped(deadlines=replace(Deadlines(), recover=3600.0))
    for _, shard in [(i, s) for i in world.indices.values() for s in i.shards]:
        shard.size //= 6  # ten seconds: it ends, and fails, while the next node is down
    simulation, state = run(world, plan=[fails], wanted=wanted)
    _done(simulation, state.outcome)
    failed = [at for at, what in world.story if "failed on es4" in what]
    again = [at for at, what in world.story if "begins on es4" in what and at > failed[0]]
    (on,) = [
        (r.at)
        for r in simulation.journal.records
        if isinstance(r.event, SettingRestored) and r.event.key == ALLOCATION
    ][1:2]
    assert failed[0] < again[0]
    assert abs(again[0] - on) < 2.0, "assigned again with the allocation that came back, not before"


def test_a_recovery_that_never_ends_has_its_limit() -> None:
    world = slow()
    fails = Mishap(what=mishaps.AllocationsFail(index="logs", times=1000), verb="start")
    wanted = overlapped(deadlines=replace(Deadlines(), recover=1800.0))
    simulation, state = run(world, plan=[fails], wanted=wanted)
    assert state.outcome is Outcome.HELD
    assert "not recovered within 1800 s" in state.message
    assert world.settings() == ({}, {})
    assert simulation.world.violations == []


def test_a_recovery_that_begins_sends_the_run_back_to_waiting() -> None:
    """The gates are asked anew: a copy that is on its way again with the candidate holds it."""
    world = slow()
    snapshot = Mishap(what=mishaps.SnapshotBegun(name="repo/nightly"), verb="start", after=5.0)
    simulation = Simulation(world, plan=[snapshot])
    state = simulation.begin(overlapped())

    def meddle() -> None:
        shard = next(s for i in world.indices.values() for s in i.shards if s.primary.node == ES2)
        other = next(c for c in shard.copies if c.node != ES2)
        other.state = CopyState.INITIALIZING
        world.agenda.after(20.0, lambda: setattr(other, "state", CopyState.STARTED))
        world.snapshots = ()

    world.agenda.after(40.0, meddle)
    state = play(simulation, state)
    _done(simulation, state.outcome)
    entered = [r.event for r in simulation.journal.records if isinstance(r.event, PhaseEntered)]
    back = [step.why for step in entered if (step.from_, step.to) == ("gated", "reassigned")]
    assert back
    assert back[0].startswith("every_shard_keeps_started_copies: index logs"), "its other copy is not started"


def test_a_resumed_run_waits_for_its_waves_and_overlaps_again() -> None:
    world = slow()
    undisturbed, _ = run(slow(), wanted=overlapped())
    second = undisturbed.seams.passed.index("after stop of es2") + 1
    simulation = Simulation(world)
    simulation.seams.crash_at = second
    with pytest.raises(Crash):
        play(simulation, simulation.begin(overlapped()))
    state = simulation.resume()
    assert state.recovering == ()
    assert state.wave is not None
    assert set(state.wave.nodes) == {"es4", "es2"}
    _done(simulation, play(simulation, state).outcome)
    assert _overlaps(simulation) >= 2


def test_the_plan_says_that_waves_overlap_and_the_least_time() -> None:
    plans = {on: plan_of(slow(), overlapped(overlap_recovery=on)) for on in (False, True)}
    assert plans[True].waves[0].why == "one node at a time, zone by zone"
    assert ["overlap_recovery" in plan_text(plans[on]) for on in (False, True)] == [False, True]
    least = sum(wave.predicted.low for wave in plans[True].waves)
    assert plans[True].predicted.low == least, "nothing is on record: their nodes are away one after another"
    assert plans[True].predicted == plans[False].predicted


def test_without_zones_the_plan_names_none() -> None:
    plan = plan_of(slow(), overlapped(zone_attribute=None))
    assert plan.waves[0].why == "one node at a time, in order"
