"""Upgrades in simulated runs: every node ends on the target, by a process that began after its last step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.engine.beginning import COULD_NOT_FINISH
from orchestrator.engine.state import RunState
from orchestrator.model.action import Refused, RunInstall, StartNode, StopNode, action_name
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import WaveStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Strategy, Together
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.model.upgrade_event import InstallEnded, Upgraded, UpgradeMissed
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import installs, machines, mishaps
from orchestrator.simulation.facts import FIT, Fact
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.node_mishaps import ReturnsChanged
from orchestrator.simulation.world import World
from orchestrator.view.progress import half_done
from orchestrator.view.summary import summary, summary_lines
from tests.simulation.play import cluster, killed, lives, plan_of, play, policy, run
from tests.simulation.tuned import profile
from tests.simulation.upgrading import STEPS, TARGET, upgrading, wanted

ES1, ES2, ES3 = (NodeName(f"es{number}") for number in (1, 2, 3))


def _versions(world: World) -> set[str]:
    return {node.version for node in world.nodes.values()}


def _sent(simulation: Simulation, node: str) -> list[str]:
    return [action_name(action) for action in simulation.hosts.sent if action.node == node]


def _steps(world: World) -> Counter[str]:
    facts = (fact for node in world.nodes.values() for fact in node.facts)
    return Counter(fact.what for fact in facts if fact.what.startswith("installed"))


def _upgraded(simulation: Simulation, state: RunState) -> None:
    assert state.outcome is Outcome.DONE, state.message
    assert simulation.world.violations == []
    assert _versions(simulation.world) == {TARGET}
    count = len(simulation.world.nodes)
    assert _steps(simulation.world) == {"installed 0": count, "installed 1": count}


def test_every_node_is_upgraded_while_it_is_down() -> None:
    simulation, state = run(cluster(3), wanted=upgrading())
    _upgraded(simulation, state)
    assert _sent(simulation, "es1") == ["stop", "install", "install", "start"]
    upgraded = [r.event for r in simulation.journal.records if isinstance(r.event, Upgraded)]
    assert {(event.node, event.version, event.by_others) for event in upgraded} == {
        (name, TARGET, False) for name in simulation.world.nodes
    }


def test_steps_come_after_hooks_and_before_tuning() -> None:
    hooks = Hooks(while_stopped=(Hook(run="patch {node}"),))
    world = cluster(3)
    for node in world.nodes.values():
        node.kernel["vm.swappiness"] = "60"
    simulation, state = run(world, wanted=upgrading(hooks=hooks, tune=profile("vm.swappiness")))
    _upgraded(simulation, state)
    assert _sent(simulation, "es1") == ["stop", "hook_while_stopped", "install", "install", "tune", "start"]


def test_a_step_that_arrives_beside_a_start_is_refused() -> None:
    """On a host it asks the service manager, for which a start under way counts as running."""
    world = cluster(3)
    node = world.nodes[ES1]
    machines.stop(world, node)
    world.agenda.advance(30.0)
    machines.start(world, node)
    step = RunInstall(node=ES1, number=0, step=STEPS[0], ticket="r/es1/0/1", target=TARGET)
    assert not node.process
    assert installs.begin(world, node, step) == Refused(reason="its service runs", passes=True)


def _told_late(unread: Unknown, *, part: str | None, after: Seconds) -> RunState:
    """An upgrade to the next major version; what it has to know beforehand can be read only after a while."""
    world = cluster(3)
    for node in world.nodes.values():
        node.version = "8.19.0"
    fit = replace(FIT, snapshot_ended=world.agenda.now)
    world.fitness = unread if part is None else replace(fit, **{part: unread})
    world.agenda.after(after, lambda: setattr(world, "fitness", fit))
    upgrade = wanted(snapshot_younger_than=86_400.0)
    _, state = run(world, wanted=upgrading(upgrade=upgrade, deadlines=Deadlines(hold=100.0)))
    return state


_BUSY = Unknown(reason="GET _nodes was answered with 503", passes=True)


@pytest.mark.parametrize("part", [None, "deprecations", "snapshot_ended"])
def test_what_cannot_be_read_for_now_is_waited_for(part: str | None) -> None:
    assert _told_late(_BUSY, part=part, after=40.0).outcome is Outcome.DONE
    late = _told_late(_BUSY, part=part, after=400.0)
    assert late.outcome is Outcome.HELD
    assert _BUSY.reason in late.message
    never = _told_late(replace(_BUSY, passes=False), part=part, after=40.0)
    assert never.outcome is Outcome.HELD
    assert COULD_NOT_FINISH in never.message


def test_a_zone_is_upgraded_together() -> None:
    world = cluster(6)
    world.allowed_down = 2
    by_zone = upgrading(strategy=Strategy.ZONE, zone_attribute="zone", max_unavailable=None)
    simulation, state = run(world, wanted=by_zone)
    _upgraded(simulation, state)


def test_nodes_of_one_machine_install_one_after_the_other() -> None:
    """Its packages are those of all its nodes, and their lock too: the nodes go in one wave."""
    world = cluster(6)
    world.allowed_down = 2
    for name, other in (("es1", "es4"), ("es2", "es5"), ("es3", "es6")):
        world.nodes[NodeName(other)].machine = world.nodes[NodeName(name)].machine
    simulation, state = run(world, wanted=upgrading(max_unavailable=None))
    _upgraded(simulation, state)
    waves = [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
    assert [len(wave) for wave in waves] == [2, 2, 2]


def test_what_is_on_the_disk_already_is_not_installed_again() -> None:
    world = cluster(3)
    world.nodes[ES1].disk.holds = world.nodes[ES1].next_version = TARGET
    simulation, state = run(world, wanted=upgrading())
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert _versions(world) == {TARGET}
    assert _sent(simulation, "es1") == ["stop", "install", "start"]
    assert _steps(world) == {"installed 0": 2, "installed 1": 2}


def _last_lines(simulation: Simulation, state: RunState) -> str:
    events = [record.event for record in simulation.journal.records]
    outcome = state.outcome or Outcome.NOT_RESTORED
    return "\n".join(summary_lines(summary(state, outcome, events, simulation.journal.records[-1].at)))


def test_the_last_lines_name_the_version_and_who_still_needs_it() -> None:
    world = cluster(3)
    for node in world.nodes.values():
        node.disk.fails = 1
    simulation, state = run(world, wanted=upgrading())
    said = _last_lines(simulation, state)
    assert half_done(state) == "0 of 3 nodes restarted and an unfinished install on es2"
    assert f"0 of 3 nodes upgraded to {TARGET}" in said
    assert f"  not upgraded to {TARGET}: es" in said
    assert "repair the cause, then continue: orchestrate resume" in said
    said = _last_lines(*run(cluster(3), wanted=upgrading()))
    assert f"3 of 3 nodes upgraded to {TARGET}" in said
    assert "not upgraded" not in said


def test_a_run_that_no_repair_helps_is_not_to_be_resumed() -> None:
    """The target of a run stays what it is: only a new run can have another one."""
    world = cluster(3)
    world.nodes[ES2].version = "99.0.0"
    simulation, state = run(world, wanted=upgrading())
    assert state.outcome is Outcome.HELD
    said = _last_lines(simulation, state)
    assert "held by no_node_is_newer" in said
    assert "another run passes it with another `--to`" in said
    assert "begin another run, with what the hold names" in said
    assert "orchestrate resume" not in said


def test_a_step_that_fails_ends_the_run_with_its_node_up() -> None:
    world = cluster(3)
    for node in world.nodes.values():
        node.disk.fails = 1
    simulation, state = run(world, wanted=upgrading())
    assert state.outcome is Outcome.FAILED
    assert "install step 1 on es" in state.message
    assert all(node.joined for node in world.nodes.values())
    assert world.settings() == ({}, {})
    for _ in world.nodes:
        state = play(simulation, simulation.resume())
    _upgraded(simulation, state)


def test_a_half_installed_node_is_the_next_one() -> None:
    """While the cause is still there, no second node is stopped for it."""
    world = cluster(3)
    for node in world.nodes.values():
        node.disk.fails = 3
    simulation, state = run(world, wanted=upgrading())
    first = next(node.name for node in state.nodes.values() if node.installs)
    for _ in range(2):
        state = play(simulation, simulation.resume())
        assert f"install step 1 on {first}" in state.message
    assert {node.name for node in state.nodes.values() if node.installs} == {first}
    for node in world.nodes.values():
        node.disk.fails = 0
    _upgraded(simulation, play(simulation, simulation.resume()))


@pytest.mark.parametrize("how", [How.LOST, How.UNACKNOWLEDGED, How.LATE])
def test_a_step_in_doubt_runs_once(how: How) -> None:
    simulation, state = run(
        cluster(3), trips=[Trip(verb="install", how=how, times=2, late=20.0)], wanted=upgrading()
    )
    _upgraded(simulation, state)


def test_a_refused_step_ends_the_run_with_its_node_up() -> None:
    simulation, state = run(cluster(3), trips=[Trip(verb="install", how=How.REFUSED)], wanted=upgrading())
    assert state.outcome is Outcome.FAILED
    assert "sudo: a password is required" in state.message
    assert all(node.joined for node in simulation.world.nodes.values())
    _upgraded(simulation, play(simulation, simulation.resume()))


@pytest.mark.proves("installs-apart")
def test_killed_at_every_point_it_installs_once() -> None:
    """Killed at every point in turn, and resumed: every step ran once on every node."""
    at = 1
    while True:
        simulation = Simulation(cluster(3))
        state = simulation.begin(upgrading())
        simulation.seams.crash_at = len(simulation.seams.passed) + at
        if not killed(simulation, state):
            break
        simulation.world.agenda.advance(5.0)
        _upgraded(simulation, play(simulation, simulation.resume()))
        at += 1
    assert at > 50


@pytest.mark.proves("installs-apart")
def test_interrupted_in_a_step_it_starts_no_node_beside_it() -> None:
    """A stand-down waits for the end of the step; then the node is started, and resumed later."""
    world = cluster(3)
    for node in world.nodes.values():
        node.disk.seconds = 200.0
    interrupted = mishaps.Asked(request=Request.INTERRUPT)
    simulation, state = run(
        world, plan=[Mishap(what=interrupted, verb="install", after=5.0)], wanted=upgrading()
    )
    assert state.outcome is Outcome.INTERRUPTED, state.message
    assert world.violations == []
    assert all(node.joined for node in world.nodes.values())
    assert _steps(world) == {"installed 0": 1}
    _upgraded(simulation, play(simulation, simulation.resume()))


def test_a_step_past_its_limit_is_left_alone_with_its_node() -> None:
    world = cluster(3)
    world.nodes[ES1].disk.seconds = 5000.0
    simulation, state = run(world, wanted=upgrading(deadlines=Deadlines(install=600.0)))
    assert state.outcome is Outcome.FAILED, state.message
    assert "install step 1" in state.message
    assert not any(isinstance(one, StartNode) and one.node == ES1 for one in simulation.hosts.sent)
    assert world.violations == []
    world.agenda.advance(5000.0)
    world.nodes[ES1].disk.seconds = 20.0
    state = play(simulation, simulation.resume(retry_failed=True))
    _upgraded(simulation, state)


@pytest.mark.proves("upgraded")
def test_a_node_started_too_early_gets_another_turn() -> None:
    """Something starts the process while a step runs: that upgrades nothing: it is stopped again."""
    world = cluster(3)
    world.nodes[ES1].rises_after = 5.0
    simulation, state = run(world, wanted=upgrading())
    _upgraded(simulation, state)
    assert lives(world)["es1"] == 3
    stops = [one for one in simulation.hosts.sent if isinstance(one, StopNode) and one.node == ES1]
    assert len(stops) == 2


def test_a_step_is_waited_for_beside_a_node_started_too_early() -> None:
    """The next wave is on its machine: the step of the first node is read until it has ended."""
    world = cluster(3)
    for node in world.nodes.values():
        node.machine = world.nodes[ES1].machine
    world.nodes[ES2].rises_after = 5.0
    simulation, state = run(world, wanted=upgrading(together=Together.NEVER))
    _upgraded(simulation, state)
    assert lives(world)["es2"] == 3


def test_a_node_that_others_upgrade_is_not_stopped() -> None:
    world = cluster(3)
    world.nodes[ES3].next_version = TARGET
    world.nodes[ES3].disk.holds = TARGET
    by_hand = mishaps.RestartedByHand(node=ES3)
    simulation, state = run(
        world, plan=[Mishap(what=by_hand, verb="stop", target=ES2, after=1.0)], wanted=upgrading()
    )
    assert state.outcome is Outcome.DONE, state.message
    assert _versions(world) == {TARGET}
    assert not any(isinstance(one, RunInstall) and one.node == "es3" for one in simulation.hosts.sent)
    others = [
        r.event for r in simulation.journal.records if isinstance(r.event, Upgraded) and r.event.by_others
    ]
    assert [event.node for event in others] == ["es3"]


@pytest.mark.proves("upgraded")
def test_a_node_that_returns_with_another_version_ends_the_run() -> None:
    """The steps ended well and the node runs the old version: a wrong link, another package."""
    world = cluster(3)
    changed = mishaps_returning(ES1, "9.1.0")
    simulation, state = run(world, plan=[changed], wanted=upgrading())
    assert state.outcome is Outcome.FAILED
    assert (
        "came back with 9.1.0, though its install steps ended well: 9.2.0 was to be installed"
        in state.message
    )
    missed = [r.event for r in simulation.journal.records if isinstance(r.event, UpgradeMissed)]
    assert [(event.node, event.version) for event in missed] == [(ES1, "9.1.0")]
    assert state.nodes[ES1].phase is NodePhase.REJOINED
    assert all(node.joined for node in world.nodes.values())


def mishaps_returning(node: NodeName, version: str) -> Mishap:
    """The disk of the node holds another version, whatever was installed."""
    return Mishap(what=ReturnsChanged(node=node, version=version), verb="start", target=node, after=0.0)


def test_the_end_of_every_step_is_journalled() -> None:
    simulation, _ = run(cluster(3), wanted=upgrading())
    ends = [r.event for r in simulation.journal.records if isinstance(r.event, InstallEnded)]
    assert Counter((end.node, end.number) for end in ends) == {
        (name, number): 1 for name in simulation.world.nodes for number in (0, 1)
    }


def test_plugins_are_planned_and_loaded_with_the_target() -> None:
    wanted = upgrading()
    assert wanted.upgrade is not None
    wanted = replace(wanted, upgrade=replace(wanted.upgrade, plugins=("analysis-icu",)))
    plan = plan_of(cluster(3), wanted)
    assert (plan.holds, [wave.nodes for wave in plan.waves]) == ((), [("es2",), ("es3",), ("es1",)])
    simulation, state = run(cluster(3), wanted=wanted)
    assert state.outcome is Outcome.DONE, state.message
    assert {node.version for node in simulation.world.nodes.values()} == {TARGET}


def _with_machine_learning(mode: str = "false") -> World:
    world = cluster(3)
    world.persistent[ML_UPGRADE_MODE] = mode
    return world


def _modes(world: World) -> list[str]:
    """The values that it was given, in order."""
    said = f"{ML_UPGRADE_MODE} (persistent) = "
    return [what.removeprefix(said) for _, what in world.story if what.startswith(said)]


def test_machine_learning_pauses_for_the_upgrade() -> None:
    simulation, state = run(_with_machine_learning(), wanted=upgrading())
    _upgraded(simulation, state)
    assert _modes(simulation.world) == ["true", "false"]


def test_a_pause_of_others_stays() -> None:
    simulation, state = run(_with_machine_learning("true"), wanted=upgrading())
    _upgraded(simulation, state)
    assert (_modes(simulation.world), simulation.world.persistent[ML_UPGRADE_MODE]) == ([], "true")


def test_a_restart_does_not_pause_it() -> None:
    simulation, state = run(_with_machine_learning(), wanted=policy())
    assert state.outcome is Outcome.DONE
    assert _modes(simulation.world) == []


def test_killed_at_every_point_machine_learning_is_restored() -> None:
    at = 1
    while True:
        simulation = Simulation(_with_machine_learning())
        state = simulation.begin(upgrading())
        simulation.seams.crash_at = len(simulation.seams.passed) + at
        if not killed(simulation, state):
            break
        simulation.world.agenda.advance(5.0)
        state = play(simulation, simulation.restore())
        assert simulation.world.persistent[ML_UPGRADE_MODE] == "false", (at, state.message)
        at += 3
    assert at > 50


def test_settings_that_the_target_archived_are_named_at_the_end() -> None:
    archived = mishaps.SettingMeddled(level=Level.PERSISTENT, key="archived.tribe.name", value="x")
    simulation, state = run(
        cluster(3), plan=[Mishap(what=archived, verb="start", after=1.0)], wanted=upgrading()
    )
    _upgraded(simulation, state)
    assert "archived.tribe.name" in state.message
    assert '"persistent": {"archived.*": null}' in state.message


def test_a_step_that_others_left_out_is_no_lack_of_this_run() -> None:
    """Their run ended after the first of two steps: the version is the target's, and this run says so."""
    node = cluster(3).nodes[ES2]
    node.version, node.began = TARGET, 2.0
    node.facts.append(Fact(at=1.0, what="installed 0", alive=False, by="run-of-another"))
    asked = policy(upgrade=wanted())
    assert len(STEPS) == 2
    assert installs.lacking(node, asked, 0.0) == ["install step 1 never ran on es2"]
    assert installs.lacking(node, asked, 0.0, by_others=True) == []
