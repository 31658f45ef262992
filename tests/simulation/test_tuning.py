"""Hosts are tuned between a node's stop and its start: written down first, told of, and never in its way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.model.action import StartNode, StopNode, TuneHost, action_name
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionConfirmed, ActionFailed, ActionSent, Event, Rescued, StandingDown
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Hook, Hooks
from orchestrator.model.tuning import OnFailure, ValueChange
from orchestrator.model.tuning_event import TuningApplied, TuningMissed
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.tuning import UNREADABLE
from tests.simulation.play import cluster, lives, plan_of, play, policy, run
from tests.simulation.tuned import WANTED, detune, profile

ES1, ES2 = NodeName("es1"), NodeName("es2")
CUT = 4.38
"""So long after the stop of a node, its tuning has been read and is not sent yet."""


def _events(simulation: Simulation) -> list[Event]:
    return [record.event for record in simulation.journal.records]


def _of(simulation: Simulation, node: str) -> list[str]:
    """What was sent to a host and told of its tuning, in the order of the journal."""
    told: list[str] = []
    for event in _events(simulation):
        match event:
            case ActionSent(action=(StopNode() | StartNode() | TuneHost()) as action) if action.node == node:
                told.append(action_name(action))
            case TuningApplied() | TuningMissed() if event.node == node:
                told.append(event.event)
    return told


def _missed(simulation: Simulation) -> list[tuple[str, str, OnFailure]]:
    missed = [event for event in _events(simulation) if isinstance(event, TuningMissed)]
    return [(event.node, event.tunable, event.on_failure) for event in missed]


def _kernels(simulation: Simulation) -> list[dict[str, str]]:
    return [node.kernel for node in simulation.world.nodes.values()]


@pytest.mark.proves("tuned-when-down")
def test_every_host_is_set_right_between_stop_and_start() -> None:
    simulation, state = run(detune(cluster(3)), wanted=policy(tune=profile()))
    assert state.outcome is Outcome.DONE, state.message
    assert simulation.world.violations == []
    assert _kernels(simulation) == [WANTED] * 3
    for node in ("es1", "es2", "es3"):
        assert _of(simulation, node) == ["stop", *["tune"] * 3, *["tuning_applied"] * 3, "start"]


@pytest.mark.proves("tuned-when-down")
def test_what_was_found_is_written_down_before_anything_is_set() -> None:
    simulation, _ = run(detune(cluster(3), value="60"), wanted=policy(tune=profile()))
    first = next(e.action for e in _events(simulation) if isinstance(e, ActionSent) and _tunes(e.action))
    assert isinstance(first, TuneHost)
    assert first.changes == (
        ValueChange(path="/proc/sys/vm.swappiness", found="60", wanted=WANTED["vm.swappiness"]),
    )
    assert [change.undone().wanted for change in first.changes if isinstance(change, ValueChange)] == ["60"]


def _tunes(action: object) -> bool:
    return isinstance(action, TuneHost)


def test_a_host_that_is_right_already_is_read_and_left_alone() -> None:
    simulation, state = run(cluster(3), wanted=policy(tune=profile()))
    assert state.outcome is Outcome.DONE
    assert not any(map(_tunes, simulation.hosts.sent))
    assert _of(simulation, "es1") == ["stop", "start"]


def test_without_a_profile_nothing_is_tuned() -> None:
    simulation, state = run(detune(cluster(3)), wanted=policy())
    assert state.outcome is Outcome.DONE
    assert not any(map(_tunes, simulation.hosts.sent))


def test_hooks_run_before_it() -> None:
    hooks = Hooks(while_stopped=(Hook(run="patch {node}"),))
    simulation, state = run(detune(cluster(3)), wanted=policy(tune=profile(), hooks=hooks))
    assert state.outcome is Outcome.DONE
    sent = [action_name(action) for action in simulation.hosts.sent if action.node == "es1"]
    assert sent == ["stop", "hook_while_stopped", "tune", "tune", "tune", "start"]


@pytest.mark.parametrize("how", [How.REFUSED, How.LOST, How.UNACKNOWLEDGED])
@pytest.mark.proves("tuning-spares")
def test_a_tunable_that_cannot_be_set_is_named_and_ends_no_run(how: How) -> None:
    simulation, state = run(
        detune(cluster(3)), trips=[Trip(verb="tune", how=how)], wanted=policy(tune=profile())
    )
    assert state.outcome is Outcome.DONE, state.message
    assert len(_missed(simulation)) == 1
    assert _missed(simulation)[0][2] is OnFailure.WARN
    assert lives(simulation.world) == {"es1": 2, "es2": 2, "es3": 2}


@pytest.mark.parametrize("stopping", [(), tuple(WANTED)], ids=["warn", "stop"])
def test_a_host_that_is_cut_off_for_a_moment_is_tuned_after_it(stopping: tuple[str, ...]) -> None:
    """Nothing was changed there: the command could not be sent."""
    cut = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=20.0), verb="stop", target=ES2, after=CUT)
    simulation = Simulation(detune(cluster(3)), plan=[cut])
    state = play(simulation, simulation.begin(policy(tune=profile(*stopping))))
    refused = [event for event in _events(simulation) if isinstance(event, ActionFailed)]
    assert {type(event.action) for event in refused} == {TuneHost}, "the scene takes place"
    assert state.outcome is Outcome.DONE, state.message
    assert (_missed(simulation), _kernels(simulation)) == ([], [WANTED] * 3)


def test_a_node_whose_host_is_cut_off_longer_is_started_first() -> None:
    """It is tuned in another turn, and is down no longer than its host is out of reach."""
    cut = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=300.0), verb="stop", target=ES2, after=CUT)
    simulation = Simulation(detune(cluster(3)), plan=[cut])
    state = play(simulation, simulation.begin(policy(tune=profile())))
    assert state.outcome is Outcome.DONE, state.message
    assert _kernels(simulation) == [WANTED] * 3
    verbs = _of(simulation, "es2")
    assert verbs[:5] == ["stop", *["tune"] * 3, "start"], "the first thing that is sent again is the start"
    assert lives(simulation.world) == {"es1": 2, "es2": 3, "es3": 2}
    assert simulation.world.violations == []


@pytest.mark.parametrize("how", [How.REFUSED, How.LOST])
@pytest.mark.proves("tuning-spares")
def test_one_that_must_not_fail_ends_the_run_with_its_node_up(how: How) -> None:
    simulation, state = run(
        detune(cluster(3)),
        trips=[Trip(verb="tune", how=how)],
        wanted=policy(tune=profile(*WANTED)),
    )
    assert state.outcome is Outcome.FAILED
    assert "vm.swappiness on es" in state.message
    touched = [node for node in simulation.world.nodes.values() if node.life > 1]
    assert len(touched) == 1
    assert touched[0].joined, "the node is up"
    assert simulation.world.settings() == ({}, {})
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    others = dict.fromkeys(simulation.world.nodes, 2)
    assert lives(simulation.world) == {**others, touched[0].name: 3}, "its tuning was still owed"
    assert all(WANTED.items() <= node.kernel.items() for node in simulation.world.nodes.values())


@pytest.mark.parametrize(
    ("stopping", "outcome"), [((), Outcome.DONE), (("vm.swappiness",), Outcome.FAILED)], ids=["warn", "stop"]
)
def test_one_that_cannot_be_read_is_never_taken_for_right(stopping: Sequence[str], outcome: Outcome) -> None:
    world = detune(cluster(3))
    world.nodes[ES1].kernel["vm.swappiness"] = UNREADABLE
    simulation, state = run(world, wanted=policy(tune=profile(*stopping)))
    assert state.outcome is outcome
    on_failure = OnFailure.STOP if stopping else OnFailure.WARN
    assert _missed(simulation) == [("es1", "vm.swappiness", on_failure)]
    assert all(node.joined for node in world.nodes.values())
    others = {tunable: value for tunable, value in WANTED.items() if tunable != "vm.swappiness"}
    as_wanted = others.items() <= world.nodes[ES1].kernel.items()
    assert as_wanted is not bool(stopping), "a run that stops for it sets nothing more"


def test_an_unread_host_keeps_its_node_down_for_no_longer() -> None:
    hooks = Hooks(while_stopped=(Hook(run="patch {node}"),))
    cut = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=8.0), verb="hook_while_stopped", target=ES2)
    simulation, state = run(detune(cluster(3)), plan=[cut], wanted=policy(tune=profile(), hooks=hooks))
    assert state.outcome is Outcome.DONE, state.message
    assert _missed(simulation) == []
    assert WANTED.items() <= simulation.world.nodes[ES2].kernel.items()
    assert simulation.world.violations == []
    assert lives(simulation.world) == {"es1": 2, "es2": 2, "es3": 2}


@pytest.mark.parametrize("stopping", [(), ("vm.swappiness",)], ids=["warn", "stop"])
def test_a_host_unread_for_long_is_tuned_in_another_turn(stopping: Sequence[str]) -> None:
    """Its node is started after half a minute, as it is; nothing is missed, since another turn tunes it."""
    hooks = Hooks(while_stopped=(Hook(run="patch {node}"),))
    cut = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=60.0), verb="hook_while_stopped", target=ES2)
    wanted = policy(tune=profile(*stopping), hooks=hooks)
    simulation, state = run(detune(cluster(3)), plan=[cut], wanted=wanted)
    assert state.outcome is Outcome.DONE, state.message
    assert _missed(simulation) == []
    assert WANTED.items() <= simulation.world.nodes[ES2].kernel.items()
    assert simulation.world.violations == []
    assert lives(simulation.world) == {"es1": 2, "es2": 3, "es3": 2}


@pytest.mark.proves("tuned-when-down")
def test_a_rescue_does_not_wait_for_it() -> None:
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="stop", target=ES2)
    simulation, state = run(detune(cluster(3)), plan=[made], wanted=policy(tune=profile()))
    assert state.outcome is Outcome.DONE, state.message
    assert any(isinstance(event, Rescued) for event in _events(simulation))
    assert simulation.world.violations == []
    done = _of(simulation, "es2")
    assert done[:2] == ["stop", "start"]
    assert "tuning_missed" not in done
    assert WANTED.items() <= simulation.world.nodes[ES2].kernel.items(), "its next turn tunes it"


def test_a_node_that_comes_up_by_itself_is_said_to_be_untuned() -> None:
    world = detune(cluster(3))
    world.nodes[ES1].rises_after = 0.01
    simulation, state = run(world, wanted=policy(tune=profile()))
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    tuned = ("es1", "vm.swappiness") in {
        (e.node, e.tunable) for e in _events(simulation) if isinstance(e, TuningApplied)
    }
    assert tuned or ("es1", "", OnFailure.WARN) in _missed(simulation)


@pytest.mark.proves("tuned-when-down")
def test_killed_between_two_tunables_the_rest_is_set_by_resume() -> None:
    """A point after each change: what was made stays, what was not is made, and each has its record."""
    points = _points()
    at = [number for number, point in enumerate(points, 1) if point.startswith("after tune of ")]
    assert len(at) == 9
    for point in at:
        simulation = Simulation(detune(cluster(3)))
        state = simulation.begin(policy(tune=profile()))
        simulation.seams.crash_at = point
        with pytest.raises(mishaps.Crash):
            play(simulation, state)
        simulation.seams.crash_at = None
        state = play(simulation, simulation.resume())
        assert state.outcome is Outcome.DONE, state.message
        assert _kernels(simulation) == [WANTED] * 3
        assert _found(simulation) == {
            (node, f"/proc/sys/{name}"): "found" for node in simulation.world.nodes for name in WANTED
        }


def _points() -> tuple[str, ...]:
    simulation = Simulation(detune(cluster(3)))
    play(simulation, simulation.begin(policy(tune=profile())))
    return tuple(simulation.seams.passed)


def _found(simulation: Simulation) -> dict[tuple[str, str], str]:
    """What the journal says was there before, the first word counting."""
    found: dict[tuple[str, str], str] = {}
    for event in _events(simulation):
        if isinstance(event, ActionSent) and isinstance(event.action, TuneHost):
            for change in event.action.changes:
                if isinstance(change, ValueChange):
                    found.setdefault((event.action.node, change.path), change.found)
    return found


def test_only_nodes_whose_turn_it_was_are_tuned() -> None:
    wanted = policy(tune=profile(), pause_after=1)
    simulation, state = run(detune(cluster(3)), wanted=wanted)
    assert state.outcome is Outcome.PAUSED
    assert sum(kernel == WANTED for kernel in _kernels(simulation)) == 1


def test_a_plan_shows_what_would_be_set() -> None:
    world = detune(cluster(3))
    world.nodes[ES2].kernel.clear()
    plan = plan_of(world, policy(tune=profile()))
    assert not plan.holds
    steps = [(step.target, step.action) for step in plan.steps if step.action in ("stop", "tune", "start")]
    per_node = {name: [action for target, action in steps if target == name] for name in world.nodes}
    assert per_node == {
        "es1": ["stop", "tune", "tune", "tune", "start"],
        "es2": ["stop", "start"],
        "es3": ["stop", "tune", "tune", "tune", "start"],
    }
    assert all(node.kernel.get("vm.swappiness") != "1" for node in world.nodes.values())


def test_what_a_stand_down_starts_is_not_tuned_first() -> None:
    """Asked to stop while the node goes down: the start comes at once."""
    stop = Mishap(what=mishaps.Asked(request=mishaps.Request.STOP), verb="stop", target=ES2, after=1.0)
    simulation, state = run(detune(cluster(3)), plan=[stop], wanted=policy(tune=profile()))
    assert state.outcome is Outcome.INTERRUPTED
    assert any(isinstance(event, StandingDown) for event in _events(simulation))
    assert "tune" not in _of(simulation, "es2")
    assert simulation.world.nodes[ES2].joined
    assert state.nodes[ES2].phase in (NodePhase.REJOINED, NodePhase.PENDING, NodePhase.RECOVERED)
    assert not [e for e in _events(simulation) if isinstance(e, ActionConfirmed) and _tunes(e.action)]
