"""The automaton of a node in whole runs: its traces, and that no row of its table is idle.

Each scene says how the node concerned goes from phase to phase, and how the run ends. A row that is taken out
of the table must be noticed by a scene that meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import pytest

from orchestrator.engine import node as automaton
from orchestrator.engine.node import TABLE, Move
from orchestrator.engine.sight import Sight
from orchestrator.engine.state import RunState
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import RebootHost, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent, PhaseEntered
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks
from orchestrator.model.turn import Goal
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps, node_mishaps
from orchestrator.simulation.mishaps import Crash, How, Mishap, Trip
from tests.simulation.play import StuckError, cluster, killed, lives, play, policy
from tests.simulation.sharing import rebooting, sharing
from tests.simulation.zones import by_zone, zoned

ES1, ES2, ES3, ES5 = (NodeName(name) for name in ("es1", "es2", "es3", "es5"))
HOOKS = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    while_stopped=(Hook(run="patch {node}"),),
    after_recovery=(Hook(run="pool {node}"),),
)
SHORT: Final = Deadlines(stop=60.0, start=60.0, rejoin=120.0, recover=600.0, hold=600.0, reboot=60.0)
_TURN = ["stopping", "stopped", "starting", "rejoined"]
_MOST_TURNS = 3000


def _play(simulation: Simulation, state: RunState) -> RunState:
    return play(simulation, state, limit=9000.0, most_turns=_MOST_TURNS)


def _steps(simulation: Simulation, name: NodeName) -> list[str]:
    """The phases that a node entered, in order."""
    events = (record.event for record in simulation.journal.records)
    return [event.to for event in events if isinstance(event, PhaseEntered) and event.node == name]


def _sent(simulation: Simulation, name: NodeName) -> list[str]:
    """Verbs of a node, in order: stop, start, reboot, and hooks by their moment."""
    said = []
    for event in (record.event for record in simulation.journal.records):
        match event:
            case ActionSent(action=RunHook(node=node, moment=moment)) if node == name:
                said.append(moment.value)
            case ActionSent(action=StopNode(node=node)) if node == name:
                said.append("stop")
            case ActionSent(action=StartNode(node=node)) if node == name:
                said.append("start")
            case ActionSent(action=RebootHost(nodes=nodes)) if name in nodes:
                said.append("reboot")
            case _:
                pass
    return said


def _well(simulation: Simulation, state: RunState, outcome: Outcome = Outcome.DONE) -> None:
    assert state.outcome is outcome, f"{state.outcome}: {state.message}"
    assert simulation.world.violations == []
    assert simulation.world.settings() == ({}, {})
    if outcome is not Outcome.FAILED:
        assert all(node.joined for node in simulation.world.nodes.values()), "nothing is left down"


# Scenes ---------------------------------------------------------------------------------------------------


def interrupted_with_a_hook_owed() -> None:
    """SIGINT while a node is stopped: it is started at once; its hook runs in another turn."""
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="stop", target=ES2, after=1.0)
    simulation = Simulation(cluster(3), plan=[asked])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state, Outcome.INTERRUPTED)
    assert _steps(simulation, ES2) == ["stopping", "starting", "rejoined"]
    assert "while_stopped" not in _sent(simulation, ES2)
    took = simulation.world.agenda.now - state.process.started
    assert took < 60.0, "whoever interrupts a run waits for no limit"
    state = _play(simulation, simulation.resume())
    _well(simulation, state)
    assert _steps(simulation, ES2) == ["stopping", "starting", "rejoined", "pending", *_TURN, "recovered"]
    assert _sent(simulation, ES2).count("while_stopped") == 1
    assert _sent(simulation, ES2)[-1] == "after_recovery"


def rescued_in_a_zone() -> None:
    """Red by the wave: both nodes are started without hooks, and have another wave."""
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2), verb="stop", target="es5")
    simulation = Simulation(zoned(), plan=[made])
    state = _play(simulation, simulation.begin(by_zone(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state)
    for name in (ES2, ES5):
        assert _steps(simulation, name)[-6:] == ["pending", *_TURN, "recovered"]
        assert _sent(simulation, name).count("while_stopped") == 1
    assert lives(simulation.world) == {**dict.fromkeys(simulation.world.nodes, 2), "es2": 3, "es5": 3}


def comes_up_by_itself() -> None:
    """Something else starts the node: no start is sent, and its hook runs in another turn."""
    world = cluster(3)
    world.nodes[ES2].rises_after = 0.01
    simulation = Simulation(world)
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state)
    assert _steps(simulation, ES2) == ["stopping", "starting", "rejoined", "pending", *_TURN, "recovered"]
    assert _sent(simulation, ES2)[:4] == ["before_stop", "stop", "after_recovery", "before_stop"]
    assert _sent(simulation, ES2).count("while_stopped") == 1


def stop_done_late() -> None:
    """A lost stop that is done when it counts as not done: it is brought up, and its hook still runs."""
    simulation = Simulation(cluster(3), trips=[Trip(verb="stop", how=How.LATE, target=ES2, late=34.0)])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state)
    steps = _steps(simulation, ES2)
    assert steps[:2] == ["stopping", "pending"]
    assert steps[-1] == "recovered"
    assert _sent(simulation, ES2).count("while_stopped") == 1


def stop_done_late_in_a_moment() -> None:
    """The same, and no reading finds it under way: its host says that it is gone."""
    world = cluster(3)
    world.nodes[ES2].stop_seconds = 0.01
    simulation = Simulation(world, trips=[Trip(verb="stop", how=How.LATE, target=ES2, late=34.0)])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state)
    assert _steps(simulation, ES2)[-1] == "recovered"


def stop_done_late_hangs() -> None:
    """A start is queued behind it: whenever the stop ends, even after the run, the node comes up."""
    hangs = Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=2000.0))
    late = Trip(verb="stop", how=How.LATE, target=ES2, late=34.0)
    simulation = Simulation(cluster(3), plan=[hangs], trips=[late])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    assert state.outcome is Outcome.FAILED, state.message
    simulation.world.agenda.advance(4000.0)
    assert all(node.joined for node in simulation.world.nodes.values())


def killed_and_booted_by_itself() -> None:
    """Killed in STOPPED, and the host comes back by itself: the restart counts, the hook is still owed."""
    quiet = Simulation(cluster(3))
    _play(quiet, quiet.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    simulation = Simulation(cluster(3))
    simulation.seams.crash_at = 1 + quiet.seams.passed.index(f"after stop of {ES2}")
    assert killed(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    simulation.seams.crash_at = None
    simulation.world.agenda.advance(20.0)
    simulation.fate.befall(mishaps.RestartedByHand(node=ES2))
    simulation.world.agenda.advance(60.0)
    state = _play(simulation, simulation.resume())
    _well(simulation, state)
    assert _steps(simulation, ES2)[:3] == ["stopping", "starting", "rejoined"]
    assert _sent(simulation, ES2).count("while_stopped") == 1


def machine_reboots_once() -> None:
    """Two nodes of one machine: one reboot for both, once both are away."""
    simulation = Simulation(sharing())
    state = _play(simulation, simulation.begin(rebooting()))
    _well(simulation, state)
    for name in simulation.world.nodes:
        assert _sent(simulation, name).count("reboot") == 1, name
    assert {node.boot for node in simulation.world.nodes.values()} == {2}
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)


def reboot_that_is_lost() -> None:
    """It is waited for, and sent again when it was not done."""
    simulation = Simulation(cluster(3), trips=[Trip(verb="reboot", how=How.LOST)])
    state = _play(simulation, simulation.begin(policy(reboot=True, deadlines=SHORT)))
    _well(simulation, state)
    assert {node.boot for node in simulation.world.nodes.values()} == {2}


def three_crashes() -> None:
    """Three starts that fail: FAILED; `--retry-failed` goes on where it is."""
    fails = Mishap(what=mishaps.StartsFail(node=ES2, times=3))
    simulation = Simulation(cluster(3), plan=[fails])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state, Outcome.FAILED)
    assert _sent(simulation, ES2).count("start") == 3
    assert _steps(simulation, ES2)[-2:] == ["starting", "failed"]
    state = _play(simulation, simulation.resume(retry_failed=True))
    _well(simulation, state)
    assert _sent(simulation, ES2).count("stop") == 1
    assert _sent(simulation, ES2).count("while_stopped") == 1


def failed_and_repaired() -> None:
    """People start what failed: the run takes it as it is, and what was owed was done before."""
    fails = Mishap(what=mishaps.StartsFail(node=ES2, times=3))
    simulation = Simulation(cluster(3), plan=[fails])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state, Outcome.FAILED)
    simulation.fate.befall(mishaps.RestartedByHand(node=ES2))
    simulation.world.agenda.advance(60.0)
    state = _play(simulation, simulation.resume())
    _well(simulation, state)
    assert _steps(simulation, ES2)[-3:] == ["failed", "rejoined", "recovered"]
    assert _sent(simulation, ES2).count("stop") == 1


def restarted_before_its_turn() -> None:
    """Somebody restarts a node out of service: it is put in service, and needs no stop."""
    dies = Mishap(what=mishaps.NodeDies(node=ES2, back_after=1.0), verb="hook_before_stop", target=ES2)
    asked = Hooks(before_stop=HOOKS.before_stop, after_recovery=HOOKS.after_recovery)
    simulation = Simulation(cluster(3), plan=[dies])
    state = _play(simulation, simulation.begin(policy(hooks=asked, deadlines=SHORT)))
    _well(simulation, state)
    assert "stop" not in _sent(simulation, ES2)
    assert _sent(simulation, ES2)[-1] == "after_recovery"
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)


def stop_hangs() -> None:
    """A stop that never ends: the run stands down at its limit, and the node is started once it is gone."""
    hangs = Mishap(what=mishaps.StopHangs(node=ES2, repaired_after=80.0))
    simulation = Simulation(cluster(3), plan=[hangs])
    state = _play(simulation, simulation.begin(policy(deadlines=SHORT)))
    _well(simulation, state, Outcome.FAILED)
    assert "es2 did not stop within 60 s" in state.message
    assert all(node.joined for node in simulation.world.nodes.values())


def dies_after_it_is_back() -> None:
    """A node that dies while its copies return: a second failure, and it is started again."""
    world = zoned()
    world.nodes[ES2].join_seconds = 30.0
    dies = Mishap(what=mishaps.NodeDies(node=ES5), verb="restore_allocation", after=0.3)
    simulation = Simulation(world, plan=[dies])
    state = _play(simulation, simulation.begin(by_zone(deadlines=SHORT)))
    _well(simulation, state, Outcome.FAILED)
    assert "es5 left the cluster again" in state.message
    assert state.process.second_failure == "es5 left the cluster again after it had rejoined"
    assert all(node.joined for node in world.nodes.values()), "it is started again"


def host_silent_while_stopped() -> None:
    """Half a minute for its host, then it is started; the hook that failed for it is owed."""
    cut = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=45.0), verb="stop", target=ES2, after=2.0)
    simulation = Simulation(cluster(3), plan=[cut])
    state = _play(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    _well(simulation, state)
    assert _sent(simulation, ES2).count("while_stopped") == 1


def restarted_again_while_it_recovers() -> None:
    """Somebody restarts it once more: the new life is accounted for, and it is not taken for a failure."""
    world = cluster(3)
    by_hand = Mishap(what=mishaps.RestartedByHand(node=ES2), verb="restore_allocation", after=0.05)
    simulation = Simulation(world, plan=[by_hand])
    state = _play(simulation, simulation.begin(policy(deadlines=SHORT)))
    assert state.outcome in (Outcome.DONE, Outcome.FAILED)
    assert world.settings() == ({}, {})
    assert all(node.joined for node in world.nodes.values())


def joins_never() -> None:
    """Its service runs and it never joins: FAILED at its limit, and nothing else is stopped."""
    world = cluster(3)
    world.nodes[ES2].join_seconds = 100_000.0
    simulation = Simulation(world)
    state = _play(simulation, simulation.begin(policy(deadlines=SHORT)))
    assert state.outcome is Outcome.FAILED, state.message
    assert simulation.world.settings() == ({}, {})
    assert "es2" in state.message
    assert _sent(simulation, ES3) == []


def comes_back_under_another_name() -> None:
    """Its service runs, and another name is listed: FAILED, and the run says which name joined instead."""
    world = cluster(3)
    world.nodes[ES2].join_seconds = 100_000.0
    simulation = Simulation(world)
    state = simulation.begin(policy(deadlines=SHORT))
    world.agenda.after(60.0, lambda: world.add_node("es2-renamed"))
    state = _play(simulation, state)
    assert state.outcome is Outcome.FAILED, state.message
    assert "es2-renamed joined instead: compare `node.name`" in state.message
    assert simulation.world.settings() == ({}, {})
    assert _sent(simulation, ES3) == []


def returns_with_an_empty_disk() -> None:
    """Another node id and no copies: it is back, and its copies are rebuilt from their primaries."""
    world = cluster(3)
    simulation = Simulation(world)
    state = simulation.begin(policy(deadlines=SHORT))
    simulation.fate.befall(node_mishaps.DiskLost(node=ES2))
    state = _play(simulation, state)
    _well(simulation, state)
    assert world.nodes[ES2].node_id == "id-es2-anew"
    assert _steps(simulation, ES2) == [*_TURN, "recovered"]


def skipped_out_of_service() -> None:
    """`--skip` of a node whose before_stop hooks ran: they are undone."""
    quiet = Simulation(cluster(3))
    _play(quiet, quiet.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    simulation = Simulation(cluster(3))
    passed = quiet.seams.passed
    simulation.seams.crash_at = 1 + next(
        n for n, what in enumerate(passed) if "after hook_before_stop" in what
    )
    assert killed(simulation, simulation.begin(policy(hooks=HOOKS, deadlines=SHORT)))
    simulation.seams.crash_at = None
    state = _play(simulation, simulation.resume(skip=[ES2]))
    _well(simulation, state)
    assert _sent(simulation, ES2) == ["before_stop", "after_recovery"]


def stop_lost() -> None:
    """A stop that is never done: the same life for half a minute, then another stop."""
    simulation = Simulation(cluster(3), trips=[Trip(verb="stop", how=How.LOST, target=ES2)])
    state = _play(simulation, simulation.begin(policy(deadlines=SHORT)))
    _well(simulation, state)
    assert _steps(simulation, ES2) == ["stopping", "pending", *_TURN, "recovered"]
    assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2)


Scene = Callable[[], None]
SCENES: Final[tuple[Scene, ...]] = (
    interrupted_with_a_hook_owed,
    rescued_in_a_zone,
    comes_up_by_itself,
    stop_done_late,
    stop_done_late_in_a_moment,
    stop_done_late_hangs,
    killed_and_booted_by_itself,
    machine_reboots_once,
    reboot_that_is_lost,
    three_crashes,
    failed_and_repaired,
    restarted_before_its_turn,
    stop_hangs,
    dies_after_it_is_back,
    host_silent_while_stopped,
    restarted_again_while_it_recovers,
    joins_never,
    comes_back_under_another_name,
    returns_with_an_empty_disk,
    skipped_out_of_service,
    stop_lost,
)


def test_a_trace(subtests: pytest.Subtests) -> None:
    for scene in SCENES:
        with subtests.test(scene=scene.__name__):
            scene()


# Rows that are taken out ------------------------------------------------------------------------

Row = tuple[NodePhase, Sight]
_MEETS_NOTHING: Final = (Move.REST, Move.REST)
_LEFT_TO_THE_CELLS: Final = {
    NodePhase.PENDING: frozenset({Sight.LEFT}),
    NodePhase.STOPPING: frozenset({Sight.DOUBT, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}),
    NodePhase.STOPPED: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.STARTING: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.REJOINED: frozenset(
        {Sight.STOPPING, Sight.DOUBT, Sight.SAME, Sight.NEW, Sight.COMING, Sight.LEFT, Sight.UNKNOWN}
    ),
    NodePhase.RECOVERED: frozenset({Sight.STOPPING, Sight.AWAY, Sight.LEFT}),
    NodePhase.SKIPPED: frozenset({Sight.STOPPING, Sight.AWAY, Sight.SAME, Sight.NEW, Sight.LEFT}),
}
"""Rows that no scene here tells from REST: limits, and moves that the run makes itself.

The test of every cell, in the tests of the core, is what misses them.
"""


@contextmanager
def _table(table: object) -> Iterator[None]:
    before = automaton.TABLE
    setattr(automaton, "TABLE", table)  # noqa: B010  (a constant, but for this test)
    try:
        yield
    finally:
        setattr(automaton, "TABLE", before)  # noqa: B010


def _without(row: Row) -> object:
    phase, sight = row
    return {**TABLE, phase: {**TABLE[phase], sight: _MEETS_NOTHING}}


@cache
def _met_by() -> dict[Row, list[Scene]]:
    """By row, the scenes that meet it."""
    met: dict[Row, list[Scene]] = {}
    original = automaton.move_of

    for scene in SCENES:

        def noting(phase: NodePhase, sight: Sight, goal: Goal, of: Scene = scene) -> Move:
            scenes = met.setdefault((phase, sight), [])
            if of not in scenes:
                scenes.append(of)
            return original(phase, sight, goal)

        automaton.move_of = noting
        try:
            scene()
        finally:
            automaton.move_of = original
    return met


def _noticed(row: Row) -> bool:
    scenes = _met_by().get(row, [])
    with _table(_without(row)):
        for scene in scenes:
            try:
                scene()
            except (AssertionError, SafetyViolation, StuckError, Crash, IndexError, ValueError):
                return True
    return False


def test_a_row_that_is_taken_out_is_noticed_by_a_scene() -> None:
    rows = [(phase, sight) for phase in TABLE for sight in Sight if TABLE[phase][sight] != _MEETS_NOTHING]
    wanted = [row for row in rows if row[1] not in _LEFT_TO_THE_CELLS.get(row[0], ())]
    assert [f"{phase.value} x {sight.name}" for phase, sight in wanted if not _noticed((phase, sight))] == []
