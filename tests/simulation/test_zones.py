"""Waves of several nodes: cut by zone, smaller where they must be, and each node at its own pace."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import Moment, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    Rescued,
    SettingRestored,
    StandingDown,
    WaveStarted,
)
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Crash, How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.play import lives, play, run
from tests.simulation.zones import by_zone, lopsided, paired, zoned

ES1, ES2, ES3, ES5 = (NodeName(name) for name in ("es1", "es2", "es3", "es5"))
ALLOCATION = "cluster.routing.allocation.enable"
HOOKS = Hooks(
    before_stop=(Hook(run="drain {node}"), Hook(run="depool {node}")),
    while_stopped=(Hook(run="tune {node}"),),
    after_recovery=(Hook(run="pool {node}"),),
)


def _waves(simulation: Simulation) -> list[tuple[str, ...]]:
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _whys(simulation: Simulation) -> list[str]:
    return [r.event.wave.why for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _at(simulation: Simulation, kind: type[object]) -> list[float]:
    return [r.at for r in simulation.journal.records if isinstance(r.event, kind)]


def _starts(simulation: Simulation, node: str) -> list[float]:
    return [
        r.at
        for r in simulation.journal.records
        if isinstance(r.event, ActionSent)
        and isinstance(r.event.action, StartNode)
        and r.event.action.node == node
    ]


def _done(state: RunState, world: World, *, life: int = 2) -> None:
    assert state.outcome is Outcome.DONE, state.message
    assert lives(world) == dict.fromkeys(world.nodes, life)
    assert world.violations == []
    assert world.settings() == ({}, {})


@pytest.mark.parametrize(
    ("world", "wanted", "waves", "why"),
    [
        (zoned(), by_zone(), [("es2", "es5"), ("es3", "es6"), ("es4", "es1")], "all of zone b"),
        (
            zoned(9, most=3),
            by_zone(min_capacity=0.6),
            [("es2", "es5", "es8"), ("es3", "es6", "es9"), ("es4", "es7", "es1")],
            "all of zone b",
        ),
        (
            zoned(9, most=2),
            by_zone(max_unavailable=2),
            [("es2", "es5"), ("es8",), ("es3", "es6"), ("es9",), ("es4", "es7"), ("es1",)],
            (
                "zone b without es8 "
                "(budget_not_exceeded: wave: 3 nodes would be away (es2, es5, es8), 2 allowed)"
            ),
        ),
        (
            paired(),
            by_zone(),
            [("es2",), ("es5",), ("es3", "es6"), ("es4", "es1")],
            (
                "zone b without es5 (every_shard_keeps_started_copies: index pair: "
                "[pair][0]: 0 started in-sync copies elsewhere, 1 wanted)"
            ),
        ),
        (
            lopsided(),
            by_zone(),
            [("es3", "es4"), ("es2",), ("es5",), ("es1",)],
            "zone b without es2 (capacity_remains: tier data: 2 of 5 nodes would stay up, 50% wanted)",
        ),
    ],
    ids=["whole zones", "zones of three", "a budget", "both copies in one zone", "one large zone"],
)
@pytest.mark.proves("widest-wave")
def test_waves(world: World, wanted: Policy, waves: list[tuple[str, ...]], why: str) -> None:
    simulation, state = run(world, wanted=wanted)
    _done(state, world)
    assert _waves(simulation) == waves
    assert _whys(simulation)[0] == why


def test_a_node_without_a_zone_goes_alone_and_the_reason_is_said() -> None:
    world = zoned()
    world.nodes[ES5].zone = world.nodes[NodeName("es6")].zone = None
    simulation, state = run(world, wanted=by_zone())
    _done(state, world)
    assert _waves(simulation) == [("es5",), ("es6",), ("es2",), ("es3",), ("es4", "es1")]
    assert _whys(simulation)[0] == "goes alone: it has no node attribute zone, so it may be in any zone"


@pytest.mark.proves("widest-wave")
def test_no_wave_is_wider_than_it_was_planned() -> None:
    world = zoned()
    simulation = Simulation(world)
    planned = ((ES2,), (ES5,), (ES3, NodeName("es6")), (NodeName("es4"), ES1))
    state = play(simulation, simulation.begin(by_zone(), planned=planned))
    _done(state, world)
    assert _waves(simulation) == list(planned)
    assert _whys(simulation)[0] == "the remaining nodes of zone b; no larger than planned"


def test_a_canary_is_counted_in_nodes() -> None:
    world = zoned(9, most=3)
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(by_zone(pause_after=2, min_capacity=0.6)))
    assert state.outcome is Outcome.PAUSED
    assert _waves(simulation) == [("es2", "es5")]
    assert _whys(simulation) == ["2 nodes of zone b, then a pause (--pause-after)"]
    _done(play(simulation, simulation.resume()), world)
    assert _waves(simulation)[1:] == [("es8",), ("es3", "es6", "es9"), ("es4", "es7", "es1")]


def _cramped() -> World:
    """A new index's second copy goes to es5, which is in the zone of es2 and has the fewest."""
    world = zoned()
    for shard in [s for i in world.indices.values() for s in i.shards]:
        for copy in shard.copies:
            if copy.node == ES5:
                copy.node = next(n for n in ("es4", "es6") if n not in {c.node for c in shard.copies})  # type: ignore[assignment]  # a name
                shard.on_disk = {**shard.on_disk, copy.node: shard.on_disk[ES5]}
                shard.leave(ES5)
    return world


def test_a_wave_refused_at_the_last_reading_is_chosen_smaller() -> None:
    world = _cramped()
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="set_allocation", after=0.05)
    simulation, state = run(world, plan=[made], wanted=by_zone())
    _done(state, world)
    assert _waves(simulation)[:3] == [("es2", "es5"), ("es2",), ("es5",)]
    stops = [action.node for action in simulation.hosts.sent if isinstance(action, StopNode)]
    assert stops[:2] == ["es2", "es5"]
    assert len(stops) == 6


def test_a_wave_becomes_smaller_while_its_hooks_run() -> None:
    world = _cramped()
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="hook_before_stop")
    simulation, state = run(world, plan=[made], wanted=by_zone(hooks=HOOKS))
    _done(state, world)
    assert _waves(simulation)[:3] == [("es2", "es5"), ("es2",), ("es5",)]
    for name in world.nodes:
        mine = [moment for node, moment, _ in simulation.hosts.hooks if node == name]
        turn, passed_over = mine[-4:], mine[:-4]
        assert turn == ["before_stop", "before_stop", "while_stopped", "after_recovery"], name
        assert passed_over in ([], ["before_stop", "after_recovery"]), "it waits in service"
        assert not passed_over or name in ("es2", "es5")


def test_hooks_of_a_wave_run_at_once_on_hosts_and_in_turn_here() -> None:
    here = Hooks(before_stop=(Hook(run="depool {node}", local=True),))
    for hooks, together in ((HOOKS, 2), (here, 1)):
        simulation, state = run(zoned(), wanted=by_zone(hooks=hooks))
        assert state.outcome is Outcome.DONE, state.message
        sent: dict[float, int] = {}
        for record in simulation.journal.records:
            if isinstance(record.event, ActionSent) and type(record.event.action).__name__ == "RunHook":
                sent[record.at] = sent.get(record.at, 0) + 1
        assert max(sent.values()) == together


@pytest.mark.proves("slow-host")
def test_a_host_that_hangs_in_stop_delays_others_to_its_deadline() -> None:
    world = zoned()
    hangs = Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=5_000.0))
    wanted = by_zone(deadlines=replace(Deadlines(), stop=120.0, start=300.0))
    simulation = Simulation(world, plan=[hangs])
    began = world.agenda.now
    state = play(simulation, simulation.begin(wanted))
    assert state.outcome is Outcome.FAILED
    assert _starts(simulation, "es5")[0] - began < 10.0, "each node goes on at its own pace"
    (gave_up,) = _at(simulation, StandingDown)
    back = next(
        r.at
        for r in simulation.journal.records
        if isinstance(r.event, SettingRestored) and r.event.key == ALLOCATION
    )
    assert 120.0 < gave_up - began < 130.0
    assert back - gave_up < 5.0, "es5 is back and waits for no node that had its time"
    assert [n.phase for n in state.wave_nodes] == [NodePhase.FAILED, NodePhase.REJOINED]
    world.agenda.advance(5_000.0)
    _done(play(simulation, simulation.resume(retry_failed=True)), world)


def test_a_host_that_hangs_in_start_delays_others_to_its_limit() -> None:
    world = zoned()
    world.nodes[ES2].start_seconds = 4_000.0
    wanted = by_zone(deadlines=replace(Deadlines(), start=200.0))
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(wanted))
    assert state.outcome is Outcome.FAILED
    (gave_up,) = _at(simulation, StandingDown)
    restored = _at(simulation, SettingRestored)
    assert restored[0] - gave_up < 5.0
    world.nodes[ES2].start_seconds = 8.0
    world.agenda.advance(5_000.0)
    _done(play(simulation, simulation.resume(retry_failed=True)), world)


def test_a_node_on_its_way_in_good_time_is_waited_for() -> None:
    """Asked to stop while both start: the copies of the slower one are not rebuilt elsewhere."""
    world = zoned()
    world.nodes[ES2].start_seconds = 90.0
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="stop", after=30.0)
    simulation, state = run(world, plan=[asked], wanted=by_zone())
    assert state.outcome is Outcome.INTERRUPTED
    restored = _at(simulation, SettingRestored)
    assert all(node.joined for node in world.nodes.values())
    joined = next(at for at, what in world.story if what == "es2 joined")
    assert restored[0] > joined
    _done(play(simulation, simulation.resume()), world)


def _es5_failed() -> tuple[Simulation, World]:
    """es5 of the wave of es2 and es5 does not start; two hours later its copies are rebuilt elsewhere."""
    world = zoned()
    simulation, state = run(
        world, plan=[Mishap(what=mishaps.StartsFail(node=ES5, times=99))], wanted=by_zone()
    )
    assert state.outcome is Outcome.FAILED
    assert not world.nodes[ES5].joined
    world.agenda.advance(7200.0)
    return simulation, world


def test_a_resumed_run_waits_for_no_node_of_its_wave_that_failed() -> None:
    """The rest of the wave is back, and so are all copies: only a person brings the other node back."""
    simulation, world = _es5_failed()
    began = world.agenda.now
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.FAILED
    assert "--retry-failed" in state.message
    assert world.agenda.now - began < 60.0, "no waiting brings it back"
    assert state.nodes[ES2].phase is NodePhase.RECOVERED


def test_a_resumed_run_goes_on_without_a_skipped_node_of_a_wave() -> None:
    simulation, world = _es5_failed()
    began = world.agenda.now
    state = play(simulation, simulation.resume(skip=[ES5]))
    assert (state.outcome, state.message) == (Outcome.DONE, "skipped: es5")
    assert world.agenda.now - began < 600.0
    assert world.violations == []
    restarted = {node.name for node in world.nodes.values() if node.life == 2}
    assert restarted == {"es1", "es2", "es3", "es4", "es6"}


def test_nodes_of_a_wave_that_fail_to_start(subtests: pytest.Subtests) -> None:
    for failing, retry in product([("es2",), ("es5",), ("es2", "es5")], [True, False]):
        with subtests.test(failing=failing, retry=retry):
            world = zoned()
            plan = [Mishap(what=mishaps.StartsFail(node=NodeName(name), times=9)) for name in failing]
            simulation = Simulation(world, plan=plan)
            state = play(simulation, simulation.begin(by_zone()))
            assert state.outcome is Outcome.FAILED
            assert all(name in state.message for name in failing), state.message
            assert world.settings() == ({}, {})
            assert {n.name for n in state.nodes.values() if n.phase is NodePhase.FAILED} == set(failing)
            assert [n.name for n in world.nodes.values() if not n.joined] == list(failing)
            if not retry:
                began = world.agenda.now
                state = play(simulation, simulation.resume())
                assert state.outcome is Outcome.FAILED
                assert "--retry-failed" in state.message
                assert world.agenda.now - began < 60.0, "no waiting brings it back"
                assert len(_waves(simulation)) == 1
            for name in failing:
                world.nodes[NodeName(name)].starts_that_fail = 0
            _done(play(simulation, simulation.resume(retry_failed=True)), world)


def test_a_stop_of_one_node_that_goes_wrong(subtests: pytest.Subtests) -> None:
    for how, target in product([How.REFUSED, How.LOST, How.UNACKNOWLEDGED], ["es2", "es5"]):
        with subtests.test(how=how, target=target):
            world = zoned()
            simulation = Simulation(world, trips=[Trip(verb="stop", how=how, target=target)])
            state = play(simulation, simulation.begin(by_zone()))
            assert all(node.joined for node in world.nodes.values())
            if how is How.REFUSED:
                stopped = [action.node for action in simulation.hosts.sent if isinstance(action, StopNode)]
                assert sorted(stopped) == sorted([*world.nodes, target]), "what was refused is sent once more"
            _done(state, world)


@pytest.mark.proves("lost-stop")
def test_a_stop_done_after_it_was_taken_as_lost_is_repaired(subtests: pytest.Subtests) -> None:
    for late in [2.0, 11.0, 29.0, 31.0, 35.0, 40.0, 44.0, 50.0]:
        with subtests.test(late=late):
            world = zoned()
            world.nodes[ES2].start_seconds = 30.0
            simulation = Simulation(world, trips=[Trip(verb="stop", how=How.LATE, target="es5", late=late)])
            state = play(simulation, simulation.begin(by_zone()))
            assert all(node.joined for node in world.nodes.values()), state.message
            assert world.settings() == ({}, {})
            for _ in range(2):
                if state.outcome is not Outcome.DONE:
                    state = play(simulation, simulation.resume())
            assert state.outcome is Outcome.DONE, state.message
            assert world.violations == []


@pytest.mark.parametrize(("late", "asked"), [(31.0, 30.0), (31.0, 34.0), (33.0, 36.0), (38.0, 42.0)])
def test_a_stop_done_while_the_run_stands_down_is_repaired(late: float, asked: float) -> None:
    world = zoned()
    world.nodes[ES2].start_seconds = 30.0
    simulation = Simulation(
        world,
        trips=[Trip(verb="stop", how=How.LATE, target="es5", late=late)],
        plan=[Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="stop", target="es5", after=asked)],
    )
    state = play(simulation, simulation.begin(by_zone()))
    assert state.outcome is Outcome.INTERRUPTED
    assert [node.name for node in world.nodes.values() if not node.joined] == []
    assert world.settings() == ({}, {})
    assert world.violations == []


def test_a_node_of_another_zone_that_leaves_is_a_second_failure() -> None:
    world = zoned()
    world.nodes[ES2].start_seconds = 60.0
    dies = Mishap(what=mishaps.NodeDies(node=ES3, back_after=300.0), verb="stop", after=20.0)
    _, state = run(world, plan=[dies], wanted=by_zone())
    assert state.outcome is Outcome.FAILED
    assert state.process.second_failure is not None
    assert "es3" in state.process.second_failure
    assert all(world.nodes[name].joined for name in ("es2", "es5"))
    assert world.settings() == ({}, {})


def test_a_node_of_the_wave_that_dies_again_while_another_hangs() -> None:
    world = zoned()
    plan = [
        Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=2_000.0)),
        Mishap(what=mishaps.NodeDies(node=ES5), verb="start", target="es5", after=40.0),
    ]
    wanted = by_zone(deadlines=replace(Deadlines(), stop=300.0, start=100.0))
    _, state = run(world, plan=plan, wanted=wanted)
    assert state.outcome is Outcome.FAILED
    assert world.nodes[ES5].joined, "one more start of every node of ours that is down"
    assert world.settings() == ({}, {})


def test_a_node_that_dies_beside_a_starting_one_is_started_again() -> None:
    world = zoned()
    world.nodes[ES2].join_seconds = 90.0
    dies = Mishap(what=mishaps.NodeDies(node=ES5), verb="start", after=20.0)
    simulation, state = run(world, plan=[dies], wanted=by_zone())
    assert state.outcome is Outcome.DONE, state.message
    assert lives(world) == {**dict.fromkeys(world.nodes, 2), "es5": 3}
    assert len(_starts(simulation, "es5")) == 2
    assert world.violations == []
    assert world.settings() == ({}, {})


def test_a_node_of_a_wave_that_leaves_again_is_started_again() -> None:
    """With allocation back it is a second failure: the run stands down, and both are up."""
    world = zoned()
    world.nodes[ES2].join_seconds = 90.0
    dies = Mishap(what=mishaps.NodeDies(node=ES5), verb="restore_allocation", after=0.3)
    simulation, state = run(world, plan=[dies], wanted=by_zone())
    assert state.outcome is Outcome.FAILED, state.message
    assert all(node.joined for node in world.nodes.values())
    assert len(_starts(simulation, "es5")) == 2
    assert world.settings() == ({}, {})


def test_a_rescue_starts_a_whole_wave_and_hooks_run_in_the_next() -> None:
    world = zoned()
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="stop", target="es5")
    simulation, state = run(world, plan=[made], wanted=by_zone(hooks=HOOKS))
    assert state.outcome is Outcome.DONE, state.message
    (rescued,) = _at(simulation, Rescued)
    started = [min(at for at in _starts(simulation, name) if at >= rescued) for name in ("es2", "es5")]
    assert max(started) - rescued < 1.0, "both at once"
    ran = [
        (record.at, record.event.action.node)
        for record in simulation.journal.records
        if isinstance(record.event, ActionSent)
        and isinstance(record.event.action, RunHook)
        and record.event.action.moment is Moment.WHILE_STOPPED
    ]
    assert sorted(node for _, node in ran) == sorted(world.nodes), "each once: what was skipped is owed again"
    assert min(at for at, node in ran if node in ("es2", "es5")) > max(started)
    assert lives(world) == {**dict.fromkeys(world.nodes, 2), "es2": 3, "es5": 3}
    assert world.violations == []


def test_a_reboot_of_a_zone() -> None:
    world = zoned()
    _, state = run(world, wanted=by_zone(reboot=True))
    _done(state, world)
    assert {node.boot for node in world.nodes.values()} == {2}


def test_the_elected_master_hands_over_before_its_zone_goes() -> None:
    world = zoned()
    simulation, state = run(world, wanted=by_zone(master_step_down=True))
    _done(state, world)
    assert not [what for _, what in world.story if "was the master" in what]
    assert set(_waves(simulation)[-1]) == {"es4", "es1"}


def test_a_refused_zone_holds_as_one_node_does() -> None:
    world = zoned()
    world.add_index("bare", replicas=0, places=["es5"])
    simulation, state = run(world, wanted=by_zone())
    assert state.outcome is Outcome.HELD
    assert "index bare" in state.message
    assert not [action for action in simulation.hosts.sent if isinstance(action, StopNode)]


def test_another_machine_starts_the_whole_wave_by_the_record() -> None:
    world = zoned()
    simulation = Simulation(world)
    state = simulation.begin(by_zone())
    undisturbed, _ = run(zoned(), wanted=by_zone())
    simulation.seams.crash_at = undisturbed.seams.passed.index("after stop of es5") + 1
    with pytest.raises(Crash):
        play(simulation, state)
    world.agenda.advance(60.0)
    left = simulation.record
    assert [node.node for node in left.in_hand] == ["es2", "es5"]
    other = simulation.elsewhere("run-2")
    taken = other.take_over(by_zone())
    assert taken is not None
    restored = play(other, taken)
    assert restored.outcome is Outcome.RESTORED, restored.message
    assert all(node.joined for node in world.nodes.values())
    assert world.settings() == ({}, {})
