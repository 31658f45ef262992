"""Nodes that share a machine: in one wave where that is wanted, and rebooted once for all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import RebootHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import BaselineRecorded, Hold, WaveStarted
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import (
    Deadlines,
    DisabledPredicate,
    Policy,
    Selection,
    Together,
    Wave,
    ZeroReplicas,
)
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps, views
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.play import killed, lives, plan_of, play, policy, run
from tests.simulation.sharing import always, rebooting, sharing
from tests.simulation.zones import ZONED

ES2, ES3, ES5, ES6 = (NodeName(f"es{number}") for number in (2, 3, 5, 6))
PAIRS = [("es2", "es5"), ("es3", "es6"), ("es4", "es1")]
"""The waves machine by machine: that of the elected master last, and it last in it."""


def _waves(simulation: Simulation) -> list[Wave]:
    return [r.event.wave for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _nodes(simulation: Simulation) -> list[tuple[str, ...]]:
    return [tuple(wave.nodes) for wave in _waves(simulation)]


def _holds(simulation: Simulation) -> dict[str, str]:
    """What the first hold of each rule says."""
    holds = [r.event for r in simulation.journal.records if isinstance(r.event, Hold)]
    return {hold.predicate: f"{hold.subject}: {hold.evidence}" for hold in reversed(holds)}


def _reboots(simulation: Simulation) -> list[tuple[str, ...]]:
    return [action.nodes for action in simulation.hosts.sent if isinstance(action, RebootHost)]


def _boots(world: World) -> set[int]:
    return {node.boot for node in world.nodes.values()}


def _done(state: RunState, world: World) -> None:
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert all(node.phase is NodePhase.RECOVERED for node in state.nodes.values())
    assert world.settings() == ({}, {})


def test_what_the_run_itself_would_repair_is_no_hold() -> None:
    """An index without replicas gets one when all other rules pass; here the budget never does."""
    world = sharing()
    world.add_index("bare", replicas=0, places=["es2"])
    _, state = run(world, wanted=always(max_unavailable=1, zero_replicas=ZeroReplicas.ADD_REPLICA))
    assert state.outcome is Outcome.HELD
    assert "by budget_not_exceeded: wave: 2 nodes would be away" in state.message


# Waves ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "waves"),
    [
        (always(), PAIRS),
        (always(max_unavailable=2), PAIRS),
        (rebooting(), PAIRS),
        (always(reboot=True), PAIRS),
        (always(**{**ZONED, "together": Together.REBOOT}), PAIRS),
        (policy(), [("es2",), ("es3",), ("es4",), ("es5",), ("es6",), ("es1",)]),
        (policy(together=Together.NEVER), [("es2",), ("es3",), ("es4",), ("es5",), ("es6",), ("es1",)]),
    ],
    ids=["always", "a budget of two", "reboot", "always, reboot", "zones", "restart", "never"],
)
def test_waves(wanted: Policy, waves: list[tuple[str, ...]]) -> None:
    world = sharing()
    simulation, state = run(world, wanted=wanted)
    _done(state, world)
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert _nodes(simulation) == waves


def test_the_plan_says_which_machine() -> None:
    plan = plan_of(sharing(), always())
    assert plan.holds == ()
    assert [(wave.nodes, wave.why) for wave in plan.waves] == [
        (("es2", "es5"), "both nodes to restart on machine host-es2.example"),
        (("es3", "es6"), "both nodes to restart on machine host-es3.example"),
        (
            ("es4", "es1"),
            "both nodes to restart on machine host-es1.example; with the elected master, so it goes last",
        ),
    ]


def test_a_plan_with_reboots_has_one_for_each_machine() -> None:
    plan = plan_of(sharing(), rebooting())
    assert plan.holds == ()
    assert [step.target for step in plan.steps if step.action == "reboot"] == ["es2", "es3", "es4"]
    assert [step.target for step in plan.steps if step.action == "stop"] == [n for p in PAIRS for n in p]


def test_of_a_machine_only_what_is_selected_goes() -> None:
    world = sharing()
    simulation, state = run(world, wanted=always(selection=Selection(only=("es2", "es3", "es6"))))
    _done(state, world)
    assert _nodes(simulation) == [("es2",), ("es3", "es6")]


def test_a_canary_takes_a_whole_machine() -> None:
    world = sharing()
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(always(pause_after=1)))
    assert state.outcome is Outcome.PAUSED
    assert _nodes(simulation) == PAIRS[:1]
    state = play(simulation, simulation.resume())
    _done(state, world)
    assert _nodes(simulation) == PAIRS


def _twelve() -> World:
    """Two machines of two nodes in each zone."""
    world = sharing(12)
    world.allowed_down, world.one_machine = 4, False
    return world


BY_ZONE = always(**ZONED)


@pytest.mark.parametrize(("after", "first"), [(1, 2), (2, 2), (3, 2), (4, 4)])
def test_a_canary_of_a_zone_is_cut_between_machines(after: int, first: int) -> None:
    simulation = Simulation(_twelve())
    state = play(simulation, simulation.begin(always(**ZONED, pause_after=after)))
    assert state.outcome is Outcome.PAUSED
    assert _nodes(simulation)[0] == ("es2", "es5", "es11", "es8")[:first]
    if first < 4:
        assert (
            _waves(simulation)[0].why
            == "2 nodes of zone b, then a pause (--pause-after); together, each on one machine: es2+es5"
        )


def test_of_a_zone_whole_machines_are_left_for_later() -> None:
    world = _twelve()
    world.add_index("pair", places=["es2", "es8"])
    simulation, state = run(world, wanted=BY_ZONE)
    _done(state, world)
    assert _nodes(simulation)[:2] == [("es2", "es5"), ("es11", "es8")]
    why = _waves(simulation)[0].why
    assert why.startswith("zone b without es11, es8 (every_shard_keeps_started_copies: index pair: ")
    assert why.endswith("; together, each on one machine: es2+es5")


# Holds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [always(), BY_ZONE], ids=["node", "zone"])
def test_a_machine_that_may_not_stop_whole_holds_with_advice(wanted: Policy) -> None:
    world = sharing()
    world.add_index("pair", places=["es2", "es5"])
    simulation, state = run(world, wanted=wanted)
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert _holds(simulation)["every_shard_keeps_started_copies"].endswith(
        "0 started in-sync copies elsewhere, 1 wanted; es2, es5 go together, being on one machine: "
        "give the index more replicas, or set `hosts.together: never`"
    )
    whys = {wave.nodes: wave.why for wave in plan_of(world, wanted).waves}
    assert set(whys) == set(PAIRS), "never split"


def test_with_a_reboot_the_way_out_is_another() -> None:
    world = sharing()
    world.add_index("pair", places=["es2", "es5"])
    simulation, _ = run(world, wanted=rebooting())
    said = _holds(simulation)["every_shard_keeps_started_copies"]
    assert said.endswith("give the index more replicas, or restart without `--reboot`")


def test_the_machine_is_not_blamed_where_one_node_is_refused_too() -> None:
    world = sharing()
    world.add_index("pair", places=["es2", "es1"])
    simulation, state = run(world, wanted=always(min_started_copies=2))
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert "together" not in _holds(simulation)["every_shard_keeps_started_copies"]


def test_a_budget_smaller_than_the_machine_holds() -> None:
    simulation, state = run(sharing(), wanted=always(max_unavailable=1))
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert _holds(simulation)["budget_not_exceeded"] == (
        "wave: 2 nodes would be away (es2, es5), 1 allowed; es2, es5 go together, being on one machine: "
        "allow as many with `max_unavailable`, or set `hosts.together: never`"
    )


def test_without_a_budget_one_machine_is_away_at_once() -> None:
    """A node that has been away since the run began, though the operator has switched that rule off."""
    world = sharing()
    off = tuple(
        DisabledPredicate(name=n)
        for n in (
            "expected_nodes_present",
            "no_worse_than_baseline",
            "every_shard_keeps_started_copies",
            "capacity_remains",
            "selected_hosts_ready",
        )
    )
    dies = Mishap(what=mishaps.NodeDies(node=NodeName("es3")), verb="probe_settings")
    simulation, state = run(world, plan=[dies], wanted=always(disabled_predicates=off))
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    assert _holds(simulation)["budget_not_exceeded"] == (
        "wave: 3 nodes would be away (es2, es3, es5), one machine allowed"
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            rebooting(together=Together.NEVER, max_unavailable=1),
            "`hosts.together: reboot` in the cluster file, so that they go together, or no `--reboot`",
        ),
        (
            rebooting(selection=Selection(only=("es2", "es3", "es6"))),
            "all of them selected, so that they go together, or no `--reboot`",
        ),
    ],
    ids=["never", "not selected"],
)
def test_a_reboot_that_would_take_another_node_along_holds(wanted: Policy, said: str) -> None:
    simulation, state = run(sharing(), wanted=wanted)
    assert (state.outcome, simulation.hosts.sent) == (Outcome.HELD, [])
    along = "host of es2: es5 on the same machine would go down with it"
    assert _holds(simulation)["selected_hosts_ready"] == along
    (ways,) = {r.event.ways for r in simulation.journal.records if isinstance(r.event, Hold)}
    assert ways == (said,)


# One reboot a machine -------------------------------------------------------------------------------------


def test_one_reboot_a_machine_once_all_its_nodes_are_down() -> None:
    world = sharing()
    world.nodes[ES5].stop_seconds = 40.0
    simulation, state = run(world, wanted=rebooting())
    _done(state, world)
    assert _reboots(simulation) == PAIRS
    assert _boots(world) == {2}
    assert lives(world) == dict.fromkeys(world.nodes, 2)


@cache
def _points() -> tuple[str, ...]:
    simulation = Simulation(sharing())
    play(simulation, simulation.begin(rebooting()))
    return tuple(simulation.seams.passed)


def _killed_at(point: int) -> Simulation:
    simulation = Simulation(sharing())
    state = simulation.begin(rebooting())
    simulation.seams.crash_at = point
    assert killed(simulation, state)
    return simulation


@pytest.mark.proves("one-reboot")
def test_killed_at_any_instant_each_machine_is_rebooted_once(subtests: pytest.Subtests) -> None:
    for point in range(3, len(_points()) + 1, 2):
        with subtests.test(point=point):
            simulation, where = _killed_at(point), f"killed at {_points()[point - 1]}"
            world = simulation.world
            if simulation.journal.records[-1].event.event != "run_finished":
                _done(play(simulation, simulation.resume()), world)
            assert _boots(world) == {2}, where
            assert lives(world) == dict.fromkeys(world.nodes, 2), where
            assert world.violations == [], where


def test_killed_and_restored_none_is_left_down(subtests: pytest.Subtests) -> None:
    for point in range(4, len(_points()) + 1, 6):
        with subtests.test(point=point):
            simulation, where = _killed_at(point), f"killed at {_points()[point - 1]}"
            world = simulation.world
            state = play(simulation, simulation.restore())
            assert state.outcome is Outcome.RESTORED, f"{where}: {state.message}"
            assert all(node.joined for node in world.nodes.values()), where
            if simulation.journal.records[-1].event.event == "run_finished" and state.unfinished:
                _done(play(simulation, simulation.resume()), world)
            assert min(_boots(world)) == 2, where
            assert world.violations == [], where


@pytest.mark.parametrize(
    ("how", "sent"),
    [(How.LOST, 2), (How.UNACKNOWLEDGED, 1), (How.LATE, 1)],
)
def test_a_reboot_in_doubt_is_not_sent_again_blindly(how: How, sent: int) -> None:
    world = sharing()
    simulation, state = run(world, wanted=rebooting(), trips=[Trip(verb="reboot", target="es2", how=how)])
    _done(state, world)
    assert _reboots(simulation).count(("es2", "es5")) == sent
    assert _boots(world) == {2}
    assert lives(world) == dict.fromkeys(world.nodes, 2)


def test_a_reboot_that_is_refused_once_is_sent_again() -> None:
    world = sharing()
    _, state = run(world, wanted=rebooting(), trips=[Trip(verb="reboot", how=How.REFUSED)])
    _done(state, world)
    assert _boots(world) == {2}
    assert lives(world) == dict.fromkeys(world.nodes, 2)


def test_a_reboot_refused_three_times_starts_both_nodes_and_ends() -> None:
    """Both are up again and owe the reboot: it is done when the run is resumed."""
    world = sharing()
    simulation = Simulation(world, trips=[Trip(verb="reboot", how=How.REFUSED, times=3)])
    state = play(simulation, simulation.begin(rebooting()))
    assert state.outcome is Outcome.FAILED
    assert {name for name, node in state.nodes.items() if node.phase is NodePhase.REJOINED} == {"es2", "es5"}
    assert world.settings() == ({}, {})
    assert "the host of es2 was asked to reboot 3 times: sudo: a password is required" in state.message
    assert all(node.joined for node in world.nodes.values())
    _done(play(simulation, simulation.resume()), world)
    assert _boots(world) == {2}


def test_a_stop_that_hangs_keeps_the_machine_from_its_reboot() -> None:
    world = sharing()
    hangs = Mishap(what=mishaps.StopHangs(node=ES5, repaired_after=2000.0))
    simulation = Simulation(world, plan=[hangs])
    state = play(simulation, simulation.begin(rebooting(deadlines=Deadlines(stop=120.0))))
    assert state.outcome is Outcome.FAILED
    assert _reboots(simulation) == []
    assert world.nodes[ES2].joined
    world.agenda.advance(3000.0)
    _done(play(simulation, simulation.resume(retry_failed=True)), world)
    assert _boots(world) == {2}


def test_nodes_with_their_own_addresses_go_with_their_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers: only the machine id, which their hosts tell, says that they share one."""
    cluster_of = views.cluster

    def apart(world: World) -> ClusterView:
        view = cluster_of(world)
        return replace(
            view, nodes=tuple(replace(node, address=f"{node.name}.example") for node in view.nodes)
        )

    monkeypatch.setattr(views, "cluster", apart)
    silent = [Mishap(what=mishaps.HostCutOff(node=name, seconds=20.0)) for name in (ES3, ES6)]
    world = sharing()
    simulation, state = run(world, plan=silent, wanted=always())
    assert state.outcome is Outcome.DONE, state.message
    assert {frozenset(pair) for pair in _nodes(simulation)} == {frozenset(pair) for pair in PAIRS}


LATER = [PAIRS[1], PAIRS[0], PAIRS[2]]
"""The same, with the first machine after its like: it came back before its work was done."""


@pytest.mark.proves("one-reboot")
def test_a_node_that_comes_up_by_itself_puts_the_reboot_off() -> None:
    """Its process would die with the machine while nobody has stopped it."""
    world = sharing()
    world.nodes[ES5].stop_seconds = 40.0
    rises = Mishap(what=mishaps.RisesByItself(node=ES2, after=0.5))
    simulation, state = run(world, plan=[rises], wanted=rebooting())
    _done(state, world)
    assert _nodes(simulation) == [PAIRS[0], *LATER]
    assert _reboots(simulation) == LATER


def test_a_stop_that_was_never_done_puts_the_reboot_off() -> None:
    world = sharing()
    lost = Trip(verb="stop", target="es5", how=How.LOST)
    simulation, state = run(world, trips=[lost], wanted=rebooting())
    _done(state, world)
    assert _reboots(simulation) == [PAIRS[1], ("es5", "es2"), PAIRS[2]]
    assert _boots(world) == {2}


def test_a_rescue_has_no_time_for_the_reboot() -> None:
    """A shard waits for es2 while es5 still stops: both are started at once, and their reboot comes later."""
    world = sharing()
    world.nodes[ES5].stop_seconds = 40.0
    made = Mishap(what=mishaps.IndexMade(name="raced", on=ES2, replicas=1), verb="stop", target="es2")
    simulation, state = run(world, plan=[made], wanted=rebooting())
    _done(state, world)
    assert _nodes(simulation).count(PAIRS[0]) == 2
    assert sorted(_reboots(simulation)) == sorted(PAIRS)


# What is known of machines --------------------------------------------------------------------------------


def test_what_is_read_when_the_run_begins_is_written_down() -> None:
    simulation, _ = run(sharing(), wanted=always())
    (began,) = [r.event for r in simulation.journal.records if isinstance(r.event, BaselineRecorded)]
    assert began.machines == {name: f"{n.machine}-machine" for name, n in simulation.world.nodes.items()}
    assert set(began.machines) == set(began.boots)


def test_a_host_that_fails_to_respond_keeps_its_machine() -> None:
    world = sharing()
    silent = Mishap(what=mishaps.HostCutOff(node=NodeName("es3"), seconds=400.0), verb="start", target="es5")
    simulation, state = run(world, plan=[silent], wanted=always())
    _done(state, world)
    assert _nodes(simulation) == PAIRS
