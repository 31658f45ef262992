"""A stop whose connection was lost, and that its host does long after: no node is left down by it."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import Purpose, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import NotWaitedFor, StoodStill
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.lookout import Order
from orchestrator.simulation import machines
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.index_mishaps import WorkBegun
from orchestrator.simulation.mishaps import (
    Asked,
    Crash,
    HostCutOff,
    How,
    Mishap,
    NodeDies,
    ProgramStandsStill,
    RestartedByHand,
    Trip,
)
from orchestrator.simulation.world import World
from tests.simulation.late_stops import (
    ES1,
    ES2,
    ES3,
    LONG_AFTER,
    SHORT,
    Deadly,
    away,
    begun_and_killed,
    killed_at,
    late_stop,
    late_while_it_prepares,
)
from tests.simulation.play import cluster, killed, lives, play, policy


@pytest.mark.parametrize("request_", [Request.PAUSE, Request.INTERRUPT])
@pytest.mark.proves("lost-stop")
def test_a_run_does_not_end_while_its_lost_stop_may_be_done(request_: Request) -> None:
    """Nobody would start the node: the program is gone, and its lease with it."""
    world = cluster(3)
    asked = Mishap(what=Asked(request=request_), verb="stop", after=50.0)
    simulation = Simulation(world, plan=[asked], trips=[late_stop(ES2, 110.0)])
    state = play(simulation, simulation.begin(policy(deadlines=SHORT)))
    assert state.outcome is not Outcome.DONE, state.message
    world.agenda.advance(LONG_AFTER)
    assert away(world) == []
    assert world.violations == []


def test_a_done_run_does_not_end_while_its_lost_stop_may_be_done() -> None:
    world = cluster(3)
    simulation = Simulation(world, trips=[late_stop(ES3, 110.0)])
    state = play(simulation, simulation.begin(policy(deadlines=SHORT)))
    assert state.outcome is Outcome.DONE, state.message
    world.agenda.advance(LONG_AFTER)
    assert away(world) == []


@pytest.mark.parametrize("reads", [Order.CLUSTER_FIRST, Order.HOSTS_FIRST])
@pytest.mark.parametrize("silent", [0.0, 640.0])
def test_a_program_that_stood_still_reads_again_before_it_ends(reads: Order, silent: float) -> None:
    """It waits for the lost stop, and is suspended for longer than it would wait; the host does it then."""
    world = cluster(3)
    plan = [
        Mishap(what=Asked(request=Request.INTERRUPT), verb="stop", after=33.0),
        Mishap(what=ProgramStandsStill(seconds=600.0), verb="stop", after=50.0),
        Mishap(what=HostCutOff(node=ES2, seconds=silent), verb="stop", after=60.0),
    ]
    simulation = Simulation(world, plan=plan, trips=[late_stop(ES2, 70.0)])
    state = play(simulation, simulation.begin(policy(deadlines=SHORT)), reads=reads)
    assert "es2 left" in [what for _, what in world.story]
    assert state.outcome is Outcome.INTERRUPTED, state.message
    assert away(world) == []
    assert world.violations == []


def test_a_late_stop_of_the_master_is_repaired_without_a_master() -> None:
    """One of three voters has died: with the second there is no majority, and so no list of members."""
    world = cluster(3)
    master = NodeName(str(world.master))
    other = next(name for name in (ES3, ES2, ES1) if name != master)
    dies = Mishap(what=NodeDies(node=other, back_after=600.0), verb="stop", target=master, after=15.0)
    simulation = Simulation(world, plan=[dies], trips=[late_stop(master, 70.0)])
    play(simulation, simulation.begin(policy(deadlines=SHORT)))
    world.agenda.advance(LONG_AFTER)
    assert away(world) == []


@pytest.mark.parametrize(
    "by_hand",
    [(), (Mishap(what=RestartedByHand(node=ES3), verb="stop", target=ES3, after=2.0),)],
    ids=["taken as not done", "restarted by somebody meanwhile"],
)
def test_copies_that_a_late_stop_took_down_are_waited_for(by_hand: tuple[Mishap, ...]) -> None:
    """Its wave is over by then. They are built anew elsewhere, which takes a minute."""
    world = cluster(3)
    for number in range(2):
        slow = world.add_index(f"slow-{number}", replicas=1, places=[ES3, ES1], size=2 << 30)
        slow.delay, slow.keeps = 0.0, 0.0
    simulation = Simulation(world, plan=by_hand, trips=[late_stop(ES3, 110.0)])
    state = play(simulation, simulation.begin(policy(deadlines=SHORT)))
    assert state.outcome is Outcome.DONE, state.message
    assert [what for _, what in world.story].count("es3 left") == 2
    assert [str(shard.id) for _, shard in shards_of(world) if len(shard.started) < len(shard.copies)] == []
    assert not [r.event for r in simulation.journal.records if isinstance(r.event, NotWaitedFor)]
    assert world.violations == []


def _killed_with_a_lost_stop(world: World, deadlines: Deadlines = SHORT) -> Simulation:
    """The program took a lost stop as not done and was killed; then the host does it."""
    simulation = Simulation(world, trips=[late_stop(ES2, 70.0)])
    state = simulation.begin(policy(deadlines=deadlines, settle_consecutive=9))
    point = next(
        place for place, what in enumerate(_passed(world)) if what.startswith("after restore_allocation")
    )
    simulation.seams.crash_at = point + 1
    with contextlib.suppress(Crash):
        play(simulation, state)
    simulation.seams.crash_at = None
    world.agenda.advance(LONG_AFTER)
    assert away(world) == [ES2]
    return simulation


def _passed(world: World) -> list[str]:
    """The points that such a run passes."""
    simulation = Simulation(cluster(len(world.nodes)), trips=[late_stop(ES2, 70.0)])
    play(simulation, simulation.begin(policy(deadlines=SHORT)))
    return simulation.seams.passed


@pytest.mark.parametrize("by", ["restore", "resume"])
def test_a_node_that_a_lost_stop_took_is_started_at_a_takeover(by: str) -> None:
    world = cluster(3)
    simulation = _killed_with_a_lost_stop(world)
    begun: RunState = getattr(simulation, by)()
    state = play(simulation, begun)
    assert state.outcome is (Outcome.RESTORED if by == "restore" else Outcome.DONE), state.message
    assert away(world) == []


def test_a_lost_stop_is_awaited_on_a_host_rebooted_before_it() -> None:
    """Its boot is not the one that the run read first: that says nothing of a stop that was sent after it."""
    world = cluster(3)
    es3, asleep = world.nodes[ES3], Mishap(what=ProgramStandsStill(seconds=100.0), verb="start", target=ES2)
    es3.reboot_seconds = 10.0
    simulation = Simulation(world, plan=[asleep], trips=[late_stop(ES3, 5.0)])

    def reboot() -> None:
        if simulation.fate.asleep_until > world.agenda.now:
            machines.reboot(world, es3)
        else:
            world.agenda.after(1.0, reboot)

    world.agenda.after(1.0, reboot)
    hooks = Hooks(while_stopped=(Hook(run="patch {node}"),))
    state = play(simulation, simulation.begin(policy(deadlines=SHORT, hooks=hooks)))
    assert es3.boot == 2, "the scenario takes place"
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    world.agenda.advance(LONG_AFTER)
    assert away(world) == []


def test_a_lost_stop_done_while_a_resume_prepares_is_repaired() -> None:
    simulation = late_while_it_prepares()
    state = play(simulation, simulation.resume())
    assert "es2 left" in [what for _, what in simulation.world.story]
    assert state.outcome is Outcome.DONE, state.message
    assert away(simulation.world) == []
    assert simulation.world.violations == []


def _stood_still_at_first(stop: float = 120.0) -> Simulation:
    """A killed run whose lost stop was done, and a program that is suspended in its first reading.

    The host does not answer at first, so that only the list of members shows that the node is away.
    """
    simulation = _killed_with_a_lost_stop(cluster(3), replace(SHORT, stop=stop))
    simulation.fate.befall(ProgramStandsStill(seconds=600.0))
    simulation.fate.befall(HostCutOff(node=ES2, seconds=700.0))
    return simulation


@pytest.mark.parametrize("stop", [20.0, 30.0, 120.0])
def test_a_resume_that_stood_still_at_first_starts_the_node(stop: float) -> None:
    """The stop was done while no process watched: how long this one stood still does not count."""
    simulation = _stood_still_at_first(stop)
    state = play(simulation, simulation.resume())
    assert any(isinstance(record.event, StoodStill) for record in simulation.journal.records)
    assert state.outcome is Outcome.DONE, state.message
    assert away(simulation.world) == []
    assert simulation.world.violations == []


@pytest.mark.parametrize("point", ["after the commit of members_missed", "before the commit of stood_still"])
def test_so_does_one_after_it_if_that_one_was_killed(point: str) -> None:
    """The reading that took so long is what counts, and not when it was written down."""
    simulation = _stood_still_at_first()
    killed_at(simulation, point, simulation.resume())
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert away(simulation.world) == []


def test_copies_that_a_late_stop_took_after_a_kill_are_awaited() -> None:
    """They are copied anew once the node is started; it is back in service only after that."""
    world = cluster(3)
    slow = world.add_index("slow", replicas=2, places=[ES1, ES2, ES3], size=8 << 30)
    slow.keeps = 0.0
    simulation = Simulation(world, trips=[late_stop(ES2, 70.0)])
    pool = Hooks(after_recovery=(Hook(run="pool {node}"),))
    begun_and_killed(simulation, "after restore_allocation", pool)
    world.agenda.advance(300.0)
    assert away(world) == [ES2]
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert [
        (node.name, fact.missing) for node in world.nodes.values() for fact in node.facts if fact.missing
    ] == []
    assert world.violations == []


@pytest.mark.parametrize("by", ["restore", "resume"])
def test_a_stop_in_doubt_is_awaited_after_a_kill_and_a_restart(by: str) -> None:
    """The node lives a new life, and the stop that was sent before the kill is still on its way."""
    world = cluster(3)
    simulation = Simulation(world, trips=[late_stop(ES2, 110.0)])
    begun_and_killed(simulation, "after stop of es2")
    machines.restart(world, world.nodes[ES2])
    world.agenda.advance(30.0)
    begun: RunState = getattr(simulation, by)()
    state = play(simulation, begun)
    assert state.outcome is (Outcome.RESTORED if by == "restore" else Outcome.DONE), state.message
    world.agenda.advance(LONG_AFTER)
    assert away(world) == []
    assert world.violations == []


def _killed_once_it_was_taken_as_not_done(trip: Trip, *plan: Mishap) -> Simulation:
    """The first wave is es2 alone; its stop is lost, and the program killed with es2 to be stopped again."""
    undisturbed = Simulation(cluster(3), plan=plan, trips=[trip])
    play(undisturbed, undisturbed.begin(policy()))
    passed = enumerate(undisturbed.seams.passed, start=1)
    simulation = Simulation(cluster(3), plan=plan, trips=[trip])
    simulation.seams.crash_at = next(n for n, what in passed if what.startswith("after restore_allocation"))
    assert killed(simulation, simulation.begin(policy()))
    simulation.seams.crash_at = None
    return simulation


def test_a_resumed_run_waits_for_a_lost_stop_with_allocation_on() -> None:
    """Its node is not fit to be stopped: allocation went off and on every six seconds."""
    simulation = _killed_once_it_was_taken_as_not_done(Trip(verb="stop", how=How.LOST, target=ES2))
    before = len(simulation.cluster.sent)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    writes = [action for action in simulation.cluster.sent[before:] if isinstance(action, WriteSettings)]
    assert sum(action.purpose is Purpose.WITHHOLD for action in writes) == 3, "one a node"


def test_a_resume_stops_no_node_while_a_lost_stop_may_be_done() -> None:
    """es2 is busy, so that es3 would go first; and then the stop of es2 is done."""
    busy = Mishap(what=WorkBegun(node=ES2, seconds=90.0), verb="restore_allocation")
    simulation = _killed_once_it_was_taken_as_not_done(late_stop(ES2, 42.0), busy)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert simulation.world.violations == []
    down = set[NodeName]()
    for _, what in simulation.world.story:
        name, _, how = what.partition(" ")
        down = (
            down | {NodeName(name)} if how == "left" else down - {NodeName(name)} if how == "joined" else down
        )
        assert len(down) < 2, f"{down} are down together"


def test_another_machine_knows_a_stop_in_doubt_of_a_started_node() -> None:
    """es2 dies by itself before the stop is done; the run starts it and is killed; then the stop is done."""
    world = cluster(3)
    dies = Mishap(what=NodeDies(node=ES2), verb="stop", target=ES2, after=20.0)
    simulation = Simulation(world, plan=[dies], trips=[late_stop(ES2, 70.0)])
    begun_and_killed(simulation, "after restore_allocation")
    world.agenda.advance(300.0)
    assert away(world) == [ES2]
    other = simulation.elsewhere("run-2")
    state = other.take_over(policy(deadlines=SHORT))
    assert state is not None
    state = play(other, state)
    assert state.outcome is Outcome.RESTORED, state.message
    assert away(world) == []


def _done_and_killed(world: World) -> Simulation:
    """A run that was done, killed before it gave its lease back, with a stop that it was not sure of."""
    simulation = Simulation(world)
    begun_and_killed(simulation, f"after stop of {ES3}")
    simulation.seams = simulation.cluster.seams = simulation.hosts.seams = Deadly(
        "after the commit of phase_entered, run_finished"
    )
    assert killed(simulation, simulation.resume())
    return simulation


def test_a_done_run_with_its_lease_left_has_nothing_to_restore() -> None:
    world = cluster(3)
    simulation = _done_and_killed(world)
    world.agenda.advance(100.0)
    assert simulation.take_over(policy(deadlines=SHORT)) is None
    again = simulation.successor("run-2")
    state = play(again, again.begin(policy(deadlines=SHORT)))
    assert state.outcome is Outcome.DONE, state.message
    assert lives(world) == {ES1: 3, ES2: 3, ES3: 3}
    assert world.violations == []


@pytest.mark.proves("stop-in-doubt")
def test_a_node_that_a_stop_in_doubt_left_up_is_not_restarted() -> None:
    """Another machine cannot know that it was done."""
    world = cluster(3)
    simulation = _done_and_killed(world)
    before = lives(world)
    world.agenda.advance(100.0)
    other = simulation.elsewhere("run-2")
    state = other.take_over(policy(deadlines=SHORT))
    assert state is not None, "its record names the node that the stop may still take down"
    assert play(other, state).outcome is Outcome.RESTORED
    assert play(other, other.resume()).outcome is Outcome.DONE
    assert lives(world) == before == {ES1: 2, ES2: 2, ES3: 2}
    assert world.violations == []
