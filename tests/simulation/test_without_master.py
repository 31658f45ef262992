"""A run was killed while a node was down, and then the cluster lost its master: its starts bring one back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.state import RunState, with_node
from orchestrator.errors import LeaseError
from orchestrator.model.action import StartNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Deposed, Record, RestoreBegun, RunResumed
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines
from orchestrator.runs.recorded import past_run_of
from orchestrator.runs.simulated import Simulation
from orchestrator.runs.unfinished import restore_run, resume_run
from orchestrator.runs.without_master import nodes_to_start
from orchestrator.runtime.database import Access
from orchestrator.runtime.taking import LeaseUnreachable, WatchInterrupted
from orchestrator.simulation import machines, mishaps
from orchestrator.simulation.parts import SimNode
from tests.simulation.play import cluster, killed, play, policy

WANTED = policy(deadlines=Deadlines(start=120.0, rejoin=120.0, hold=240.0))
AFTER_STOP, STOP_CONFIRMED, START_NOT_SENT = 24, 26, 28
"""Points of a run of three nodes at which it is killed with its first node down."""


def _killed(point: int = STOP_CONFIRMED, *, others: int = 1) -> tuple[Simulation, SimNode, list[SimNode]]:
    """A run that was killed at this point, and whose cluster has lost its master since.

    Returns:
        The program, the node that it was to restart first, and those that died by themselves since.
    """
    simulation = Simulation(cluster(3))
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(WANTED))
    simulation.seams.crash_at = None
    world = simulation.world
    world.agenda.advance(20.0)
    ours = world.nodes[NodeName("es2")]
    died = [node for node in world.nodes.values() if node is not ours][:others]
    for node in died:
        simulation.fate.befall(mishaps.NodeDies(node=node.name))
    world.agenda.advance(20.0)
    assert world.master is None
    return simulation, ours, died


def _continued(
    simulation: Simulation, *, restores: bool = False, retry_failed: bool = False
) -> tuple[RunState | LeaseError, list[str]]:
    """What comes of `resume` or `restore` on the machine of the run, and what it says."""
    said: list[str] = []
    with simulation.connect(tell=said.append) as connection, connection.state(Access.GO_ON) as store:
        past = past_run_of(store, store.runs()[0])
        try:
            if restores:
                return restore_run(connection, store, past), said
            return resume_run(connection, store, past, retry_failed=retry_failed), said
        except LeaseError as refused:
            return refused, said


@pytest.mark.parametrize("point", [AFTER_STOP, STOP_CONFIRMED, START_NOT_SENT])
@pytest.mark.parametrize("restores", [False, True], ids=["resume", "restore"])
def test_the_run_that_stopped_a_voter_starts_it_before_the_lease(point: int, *, restores: bool) -> None:
    simulation, ours, died = _killed(point)
    world = simulation.world
    began = world.agenda.now
    world.agenda.after(600.0, lambda: machines.start(world, died[0]))
    state, said = _continued(simulation, restores=restores)
    assert isinstance(state, RunState), state
    assert ours.joined
    assert world.settings() == cluster(3).settings()
    elected = next(at for at, what in world.story if at > began and "is elected" in what)
    assert elected - began < 120.0, "the majority was back long before anybody else did something"
    starting = [line for line in said if "starting es2, which run run-1 stopped" in line]
    assert len(starting) == 1, said
    assert any(line.startswith("waiting for a master: 503") for line in said)
    assert not world.violations


def test_only_starts_are_sent_before_the_lease_is_held() -> None:
    """Another machine took the run over before the master was lost: this one cannot know of it."""
    simulation, ours, _ = _killed()
    world, settings = simulation.world, simulation.world.settings()
    theirs = replace(simulation.record, epoch=2, run="run-9", owner="ben@bastion2", process="bastion2/1/1/1")
    simulation.common.records[2] = theirs
    beats = 0

    def refresh() -> None:
        nonlocal beats
        beats += 1
        simulation.common.records[2] = replace(theirs, heartbeat=beats)
        world.agenda.after(1.0, refresh)

    refresh()
    sent = len(simulation.hosts.sent)
    refused, _ = _continued(simulation)
    assert isinstance(refused, LeaseError)
    assert "run run-9 of ben@bastion2" in str(refused)
    assert simulation.hosts.sent[sent:] == [StartNode(node=ours.name)]
    assert world.settings() == settings


def test_a_node_that_fails_to_start_once_is_started_again() -> None:
    simulation, ours, _ = _killed()
    ours.starts_that_fail = 1
    state, _ = _continued(simulation)
    assert isinstance(state, RunState), state
    assert ours.joined


def test_starts_that_bring_no_master_end_in_a_named_refusal() -> None:
    simulation, ours, died = _killed(others=2)
    world, settings = simulation.world, simulation.world.settings()
    began = world.agenda.now
    refused, said = _continued(simulation)
    assert isinstance(refused, LeaseUnreachable)
    assert "no master was elected within 240 s after the start of es2 (503 " in str(refused)
    assert "`orchestrate resume run-1` again. Nothing else was changed" in str(refused)
    assert 240.0 <= world.agenda.now - began < 360.0
    assert 240 / 15 - 3 <= sum(line.startswith("waiting for a master") for line in said) <= 240 / 15 + 3
    assert ours.process
    assert world.settings() == settings
    machines.start(world, died[0])
    world.agenda.advance(120.0)
    state, _ = _continued(simulation)
    assert isinstance(state, RunState)
    assert state.process.started > began


def test_a_signal_ends_the_wait_for_a_master() -> None:
    simulation, _, _ = _killed(others=2)
    world, began = simulation.world, simulation.world.agenda.now

    def ask() -> None:
        simulation.fate.request = Request.STOP

    world.agenda.after(100.0, ask)
    refused, _ = _continued(simulation)
    assert isinstance(refused, WatchInterrupted)
    assert world.agenda.now - began < 110.0


def test_a_takeover_in_the_state_ends_the_wait_and_the_starts() -> None:
    """Two machines share a state, and the first one was suspended meanwhile."""
    simulation, _, _ = _killed(others=2)
    here = simulation.own_lease

    def take_over() -> None:
        assert here.stands is not None
        another = replace(here.stands, epoch=here.stands.epoch + 1, run="run-2", owner="ben@bastion2")
        here.records[another.epoch] = another

    simulation.world.agenda.after(70.0, take_over)
    sent = len(simulation.hosts.sent)
    refused, _ = _continued(simulation)
    assert isinstance(refused, LeaseError)
    assert str(refused) == "run run-2 of ben@bastion2 took over"
    assert simulation.hosts.sent[sent:] == [StartNode(node=NodeName("es2"))]


def _restored_by_another(simulation: Simulation) -> None:
    with simulation.connect() as connection, connection.state(Access.GO_ON) as store:
        store.close_run("run-1", Outcome.RESTORED, connection.process.now)


def _at_work_here(simulation: Simulation) -> None:
    """A process that works on it lives on this machine."""
    record = simulation.own_lease.stands
    assert record is not None
    simulation.own_lease.records[record.epoch] = replace(record, process="bastion/1/99/1")
    simulation.common.alive.add("bastion/1/99/1")


def _another_run_since(simulation: Simulation) -> None:
    """Another run on this machine took over, and was killed with a node down."""
    record = simulation.own_lease.stands
    assert record is not None
    simulation.own_lease.records[record.epoch + 1] = replace(record, epoch=record.epoch + 1, run="run-2")


@pytest.mark.parametrize("why", [_restored_by_another, _at_work_here, _another_run_since])
def test_no_node_is_started_that_may_be_another_runs(why: Callable[[Simulation], None]) -> None:
    """Whoever took over may have stopped it again, on purpose."""
    simulation, ours, _ = _killed()
    why(simulation)
    sent = len(simulation.hosts.sent)
    refused, _ = _continued(simulation)
    assert isinstance(refused, LeaseError)
    assert simulation.hosts.sent[sent:] == []
    assert not ours.process


def test_a_run_that_stopped_no_node_starts_none() -> None:
    simulation = Simulation(cluster(3))
    simulation.seams.crash_at = AFTER_STOP - 2
    assert killed(simulation, simulation.begin(WANTED))
    simulation.seams.crash_at = None
    for name in ("es1", "es3"):
        simulation.fate.befall(mishaps.NodeDies(node=NodeName(name)))
    simulation.world.agenda.advance(30.0)
    refused, _ = _continued(simulation)
    assert isinstance(refused, LeaseUnreachable)
    assert "can be neither read nor taken" in str(refused)
    assert simulation.hosts.sent == []


def test_a_dead_run_elsewhere_is_restored_once_there_is_a_master() -> None:
    simulation, _, _ = _killed()
    left = replace(simulation.record, epoch=2, run="run-9", owner="ben@bastion2", process="bastion2/1/1/1")
    simulation.common.records[2] = left
    state, said = _continued(simulation, restores=True)
    assert isinstance(state, RunState), state
    assert any("run run-9 of ben@bastion2 ended without restoring its changes" in line for line in said)
    assert simulation.leases.stands is None
    assert simulation.world.settings() == cluster(3).settings()


@pytest.mark.parametrize("retry_failed", [False, True])
def test_a_node_that_failed_is_started_if_people_ask_for_it(*, retry_failed: bool) -> None:
    """A failed node may have been left down on purpose, for a repair."""
    simulation = Simulation(cluster(3))
    world = simulation.world
    ours = world.nodes[NodeName("es2")]
    ours.starts_that_fail = 10
    assert play(simulation, simulation.begin(WANTED)).outcome is Outcome.FAILED
    ours.starts_that_fail = 0
    simulation.fate.befall(mishaps.NodeDies(node=NodeName("es1")))
    world.agenda.advance(30.0)
    assert world.master is None
    state, _ = _continued(simulation, retry_failed=retry_failed)
    assert isinstance(state, RunState if retry_failed else LeaseUnreachable)
    assert ours.process is retry_failed


def test_a_run_that_knows_that_it_was_taken_over_starts_nothing() -> None:
    simulation, _, _ = _killed()
    state = simulation.attempt.state
    resumed, restored = RunResumed(operator="ann", host="b"), RestoreBegun(operator="ann", host="b")
    assert nodes_to_start(state, resumed, at=1.0) == ("es2",) == nodes_to_start(state, restored, at=1.0)
    taken_over = Deposed(successor="run-2", owner="ben@c", epoch=2, in_hand=())
    deposed = evolve(state, Record(run=state.run, sequence=99, at=1.0, event=taken_over))
    assert nodes_to_start(deposed, resumed, at=1.0) == () == nodes_to_start(deposed, restored, at=1.0)


def test_a_node_that_a_lost_stop_may_have_taken_down_is_started() -> None:
    simulation, _, _ = _killed()
    state, at = simulation.attempt.state, simulation.clock.now()
    up = with_node(state, NodeName("es2"), phase=NodePhase.PENDING, doubt=None)
    resumed = RunResumed(operator="ann", host="b")
    assert nodes_to_start(up, resumed, at=at) == ()
    lost = with_node(up, NodeName("es2"), lost_at=state.process.acted_at)
    assert nodes_to_start(lost, resumed, at=at) == ("es2",)
