"""Whole runs on a simulated Riak cluster: undisturbed, disturbed, and killed at every point."""

from __future__ import annotations

import os
from functools import cache
from itertools import product

import pytest

from orchestrator.engine.kinds.riak.quorum import together
from orchestrator.engine.state import RunState
from orchestrator.model.action import StartNode, StopNode, WriteSettings
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import GoodReading, SettingRestored, StandingDown, WaveStarted
from orchestrator.model.observation import ClusterView, Look
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Deadlines, DisabledPredicate, Policy, Selection
from orchestrator.model.riak import PartitionCount, Transfers
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines, views
from orchestrator.simulation.mishaps import Asked, How, Mishap, NodeDies, Trip
from orchestrator.simulation.riak import RiakWorld
from tests.fakes.riak_rings import claimed
from tests.simulation.play import killed, lives, plan_of, play, run
from tests.simulation.ringed import (
    FIVE,
    FOUR,
    ONE,
    RAISED,
    THREE,
    TWO,
    by_location,
    located,
    riak_policy,
    ringed,
)

_EVERY = int(os.environ.get("ORCHESTRATE_KILLS", "10"))
"""As in `test_crashes.py`."""


def _waves(simulation: Simulation) -> list[tuple[NodeName, ...]]:
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def _transfers(world: RiakWorld) -> Transfers:
    read = views.readings(world, {Look.CLUSTER, Look.RECOVERIES}).cluster
    assert isinstance(read, ClusterView)
    assert read.riak is not None
    assert isinstance(read.riak.transfers, dict)
    said = read.riak.transfers[min(world.up)]
    assert isinstance(said, Transfers)
    return said


class Watched(RiakWorld):
    """Looks itself at each end of a process who serves what, and how often."""

    def __init__(self) -> None:
        super().__init__(claimed(5, 64))
        self.most_silent = 0
        self.ended: list[NodeName] = []

    def judge_down(self) -> None:
        super().judge_down()
        self.ended += [node.name for node in self.nodes.values() if node.ended == self.agenda.now]
        silent = self.silent()
        for first in range(self.ring.size):
            of_list = [(first + step) % self.ring.size in silent for step in range(3)]
            self.most_silent = max(self.most_silent, sum(of_list))


def test_each_node_restarts_once_and_every_limit_is_restored() -> None:
    world = Watched()
    world.configure(TWO, configured=2, limit=4)
    world.configure(THREE, configured=3, limit=16)
    found = world.limits
    simulation, state = run(world, wanted=riak_policy())
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert _waves(simulation) == [(TWO,), (THREE,), (FOUR,), (FIVE,), (ONE,)]
    assert world.limits == found
    assert found[TWO] == 4, "its files say 2"
    assert found[THREE] == 16, "its files say 3, and the run wants 8"
    assert world.ended == [TWO, THREE, FOUR, FIVE, ONE]
    assert world.most_silent == 1, "of no preference list more than one partition of three was away"
    assert world.fallbacks == []
    assert world.handed > 64, "each node's partitions were taken over, and its own fallbacks came beside"


def test_the_plan_is_what_the_run_does() -> None:
    plan = plan_of(ringed(), riak_policy())
    simulation, state = run(ringed(), wanted=riak_policy())
    assert state.outcome is Outcome.DONE
    assert [wave.nodes for wave in plan.waves] == _waves(simulation)


@pytest.mark.parametrize(("limit", "most"), [(RAISED, RAISED), (None, 2)])
def test_a_restarted_node_gets_its_partitions_by_the_runs_limit(limit: int | None, most: int) -> None:
    world = RiakWorld(claimed(5, 64))
    _, state = run(world, wanted=riak_policy(transfer_limit=limit))
    assert state.outcome is Outcome.DONE
    assert max(world.most_at_once.values()) == most
    assert world.limits == dict.fromkeys(world.nodes, 2)


def test_a_limit_that_was_higher_before_is_restored() -> None:
    simulation, state = run(ringed(), wanted=riak_policy())
    assert state.outcome is Outcome.DONE
    written = [
        (change.found, change.wanted)
        for action in simulation.cluster.sent
        if isinstance(action, WriteSettings)
        for change in action.changes
        if THREE in change.key
    ]
    assert written == [("16", "16"), ("16", "16"), ("16", "16")], "noted, raised again, put back"


# What the simulated cluster is like, as it was recorded -----------------------------------------------


def test_no_transfer_is_active_while_a_node_is_down() -> None:
    world = ringed()
    world.written = False
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(60.0)
    said = _transfers(world)
    assert (said.waiting, said.not_running, said.active) == ((), (), ())
    assert said.down == (FOUR,)
    assert not said.clean


def test_a_node_that_is_back_climbs_waits_and_takes_back() -> None:
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0)
    taken = sum(count.partitions for count in _transfers(world).waiting)
    assert taken == len(world.vnodes[FOUR].owned)
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(15.0)
    climbing = _transfers(world)
    assert [count.node for count in climbing.not_running] == [FOUR]
    assert PartitionCount(node=FOUR, partitions=3) in climbing.waiting, "fallbacks of its own"
    world.agenda.advance(30.0)
    waiting = _transfers(world)
    assert not waiting.not_running
    assert waiting.waiting
    assert not waiting.active, "idle for less than a minute"
    world.agenda.advance(40.0)
    assert 1 <= len(_transfers(world).active) <= 4
    world.agenda.advance(60.0)
    assert _transfers(world).clean
    assert world.most_at_once[FOUR] == 2, "the limit of its files"


def test_a_node_that_dies_in_a_hand_off_breaks_it_off() -> None:
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(10.0)
    machines.start(world, world.nodes[FOUR])
    assert world.agenda.until(lambda: bool(_transfers(world).active), 120.0)
    machines.die(world, world.nodes[FOUR])
    handed = world.handed
    world.agenda.advance(120.0)
    assert world.handed == handed
    assert world.fallbacks
    assert not any(each.active for each in world.fallbacks)


# Disturbed runs ------------------------------------------------------------------------------------


def test_a_second_node_that_dies_in_the_wave_stands_the_run_down() -> None:
    world = ringed()
    found = world.limits
    dies = Mishap(what=NodeDies(node=FOUR), verb="start", target=TWO, after=3.0)
    simulation, state = run(world, plan=[dies], wanted=riak_policy())
    assert state.outcome is Outcome.FAILED
    assert f"a second failure: node {FOUR} left" in state.message
    assert world.violations == []
    assert lives(world) == {**dict.fromkeys(world.nodes, 1), TWO: 2}
    assert world.limits == {name: limit for name, limit in found.items() if name != FOUR}
    assert world.limits[TWO] == 4, "put back when it was up again, not given up while it was on its way"
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(300.0)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    assert world.violations == []
    assert world.limits == found
    assert {node.phase for node in state.nodes.values()} == {NodePhase.RECOVERED}


def test_vnodes_that_never_run_are_not_counted_as_back() -> None:
    """`/ping` answers, its peers see it, and half of its vnodes run."""
    world = ringed()
    found = world.limits
    world.vnodes[TWO].most = 5
    wanted = riak_policy(deadlines=Deadlines(rejoin=300.0))
    simulation, state = run(world, wanted=wanted)
    owned = len(world.vnodes[TWO].owned)
    assert state.outcome is Outcome.FAILED
    assert f"{TWO} (5 of its {owned} vnodes run): not back in the cluster within 300 s" in state.message
    assert not any(isinstance(record.event, GoodReading) for record in simulation.journal.records)
    assert lives(world) == {**dict.fromkeys(world.nodes, 1), TWO: 2}
    assert world.limits == found
    assert world.violations == []


@pytest.mark.parametrize("limit", [RAISED, None])
def test_a_long_wait_without_an_active_transfer_is_no_alarm(limit: int | None) -> None:
    world = ringed()
    world.inactivity, world.handing_seconds = 600.0, 20.0
    simulation, state = run(world, wanted=riak_policy(transfer_limit=limit))
    assert state.outcome is Outcome.DONE, state.message
    assert not any(isinstance(record.event, StandingDown) for record in simulation.journal.records)
    assert state.waves_finished == 5
    assert world.agenda.now - state.process.started > 5 * 0.8 * 600.0
    assert world.violations == []


def test_what_is_never_handed_off_holds_the_run_at_its_limit() -> None:
    world = ringed()
    found = world.limits
    world.inactivity = float("inf")
    _, state = run(world, wanted=riak_policy(deadlines=Deadlines(recover=600.0)))
    assert state.outcome is Outcome.HELD
    assert "not recovered within 600 s: transfers by" in state.message
    assert "waiting to be handed off" in state.message
    assert lives(world) == {**dict.fromkeys(world.nodes, 1), TWO: 2}
    assert world.limits == found


@pytest.mark.parametrize(
    "without", [(), ("all_members_up", "ring_ready")], ids=["every rule", "transfers alone"]
)
def test_a_node_that_is_down_at_the_start_holds_the_run(without: tuple[str, ...]) -> None:
    """Nothing waits and nothing moves: `No transfers active` stands there."""
    world = ringed()
    world.written = False
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(60.0)
    limits = world.limits
    rules = tuple(DisabledPredicate(name=name) for name in without)
    simulation, state = run(world, wanted=riak_policy(disabled_predicates=rules))
    assert state.outcome is Outcome.HELD
    if without:
        assert "preference_lists_keep_quorum" in state.message, "all that is left to see of its absence"
    else:
        assert "by all_members_up: riak4" in state.message, "what to repair, not what follows from it"
    assert f"{FOUR}" in state.message
    assert simulation.hosts.sent == []
    assert not any(isinstance(action, WriteSettings) for action in simulation.cluster.sent)
    assert lives(world) == dict.fromkeys(world.nodes, 1)
    assert world.limits == limits


@pytest.mark.parametrize("rule", [None, "no_transfers"])
def test_fallbacks_that_wait_at_the_start_are_waited_for(rule: str | None) -> None:
    """Without the rule the judge sees what was lost."""
    world = ringed()
    machines.stop(world, world.nodes[FOUR])
    world.agenda.advance(30.0)
    machines.start(world, world.nodes[FOUR])
    world.agenda.advance(35.0)
    rules = (DisabledPredicate(name=rule),) if rule else ()
    _, state = run(world, wanted=riak_policy(disabled_predicates=rules))
    assert state.outcome is Outcome.DONE, state.message
    said = [line for line in world.violations if "wait to be handed off" in line]
    assert bool(said) is (rule is not None)
    assert world.violations == said


def test_a_verb_that_goes_wrong_leaves_the_cluster_as_found(subtests: pytest.Subtests) -> None:
    for how, verb in product(How, ["stop", "start", "raise_limits", "restore_settings"]):
        with subtests.test(verb=verb, how=how):
            world = ringed(4, 16)
            found = world.limits
            _, state = run(world, trips=[Trip(verb=verb, how=how)], wanted=riak_policy())
            assert state.outcome is Outcome.DONE, f"a verb that went wrong once ends no run: {state.message}"
            assert world.violations == []
            assert world.limits == found
            assert len(world.up) == 4
            assert set(lives(world).values()) == {2}


# By location ---------------------------------------------------------------------------------------


def test_nodes_that_share_no_preference_list_go_together() -> None:
    world = located((ONE, FIVE))
    assert FIVE not in together(world.ring, world.n_vals, ONE)
    found = world.limits
    simulation, state = run(world, wanted=by_location())
    assert state.outcome is Outcome.DONE, state.message
    assert {frozenset(wave) for wave in _waves(simulation)} >= {frozenset({ONE, FIVE})}
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert world.violations == []
    assert world.limits == found


@pytest.mark.parametrize("rule", [None, "preference_lists_keep_quorum"])
def test_a_location_that_would_take_a_quorum_goes_in_parts(rule: str | None) -> None:
    """Without the rule the judge sees the quorum go."""
    world = located((ONE, TWO))
    rules = (DisabledPredicate(name=rule),) if rule else ()
    simulation, state = run(world, wanted=by_location(disabled_predicates=rules))
    assert state.outcome is Outcome.DONE, state.message
    if rule is None:
        assert world.violations == []
        assert all(len(wave) == 1 for wave in _waves(simulation))
    else:
        assert len(world.violations) == 1
        assert "takes the quorum" in world.violations[0]


def _asked_to_stop_in_a_wave() -> tuple[Simulation, RunState]:
    """Of two nodes that are down together one takes long to start; then somebody asks the run to stop."""
    world = located((ONE, FIVE))
    world.nodes[FIVE].start_seconds = 100.0
    asked = Mishap(what=Asked(request=Request.STOP), verb="start", after=20.0)
    simulation = Simulation(world, plan=[asked])
    return simulation, simulation.begin(by_location(selection=Selection(only=(ONE, FIVE))))


def test_a_wave_half_of_which_counts_as_back_already_is_taken_up() -> None:
    """A peer is asked only after nodes that are down by the run: of the others nothing more is wanted."""
    simulation, state = _asked_to_stop_in_a_wave()
    play(simulation, state)
    passed = simulation.seams.passed
    asked = next(at for at, what in enumerate(passed) if "standing_down" in what)
    again = passed.index("after the commit of phase_entered", asked)
    simulation, state = _asked_to_stop_in_a_wave()
    simulation.seams.crash_at = 1 + again
    assert killed(simulation, state)
    simulation.seams.crash_at = None
    state = simulation.resume()
    phases = {node.name: node.phase for node in state.wave_nodes}
    assert phases == {ONE: NodePhase.REJOINED, FIVE: NodePhase.STARTING}
    state = play(simulation, state)
    assert state.outcome is Outcome.DONE, state.message
    _is_well(simulation, "in a wave of two")


# Killed at every point -------------------------------------------------------------------------------


def _begun(wanted: Policy | None = None) -> tuple[Simulation, RunState]:
    simulation = Simulation(ringed(4, 16))
    return simulation, simulation.begin(wanted or riak_policy())


@cache
def _points() -> tuple[str, ...]:
    simulation, state = _begun()
    play(simulation, state)
    assert simulation.journal.records[-1].event.event == "run_finished"
    return tuple(simulation.seams.passed)


def _killed_at(point: int, *, pause: float) -> Simulation:
    simulation, state = _begun()
    simulation.seams.crash_at = point
    assert killed(simulation, state), f"point {point} is not passed"
    simulation.seams.crash_at = None
    simulation.world.agenda.advance(pause)
    return simulation


def _is_well(simulation: Simulation, where: str) -> None:
    world = simulation.world
    assert isinstance(world, RiakWorld)
    assert len(world.up) == len(world.nodes), where
    assert world.limits == ringed(len(world.nodes), world.ring.size).limits, where
    assert world.violations == [], where


def test_a_run_passes_every_seam() -> None:
    points = _points()
    assert len(points) > 100
    for verb in (StopNode, StartNode):
        name = verb.__name__.removesuffix("Node").lower()
        assert sum(point.startswith(f"after {name} of") for point in points) == 4
    assert sum(point.startswith("after raise_limits of") for point in points) == 5
    assert sum(point.startswith("after restore_settings of") for point in points) == 1


def test_killed_and_resumed_it_ends_like_an_undisturbed_run(subtests: pytest.Subtests) -> None:
    for point in range(3, len(_points()) + 1, _EVERY):
        with subtests.test(point=point):
            simulation, where = _killed_at(point, pause=float(point % 3) * 10.0), _points()[point - 1]
            if simulation.journal.records[-1].event.event != "run_finished":
                state = play(simulation, simulation.resume())
                assert state.outcome is Outcome.DONE, f"{where}: {state.message}"
            _is_well(simulation, where)
            assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2), where


def test_killed_and_restored_all_nodes_and_limits_are_as_before(subtests: pytest.Subtests) -> None:
    for point in range(4, len(_points()) + 1, _EVERY):
        with subtests.test(point=point):
            simulation, where = _killed_at(point, pause=float(point % 4) * 5.0), _points()[point - 1]
            state = play(simulation, simulation.restore())
            assert state.outcome is Outcome.RESTORED, f"{where}: {state.message}"
            _is_well(simulation, where)
            assert max(lives(simulation.world).values()) <= 2, where


def test_killed_restored_and_resumed_it_ends_as_undisturbed(subtests: pytest.Subtests) -> None:
    for point in range(5, len(_points()) + 1, _EVERY * 4):
        with subtests.test(point=point):
            simulation, where = _killed_at(point, pause=0.0), _points()[point - 1]
            play(simulation, simulation.restore())
            state = play(simulation, simulation.resume())
            assert state.outcome is Outcome.DONE, f"{where}: {state.message}"
            _is_well(simulation, where)
            assert lives(simulation.world) == dict.fromkeys(simulation.world.nodes, 2), where


def test_a_node_that_does_not_come_up_takes_its_limit_with_it() -> None:
    """Of the others every limit is put back, and nobody waits for one that is gone with its process."""
    world = ringed(4, 16)
    found = world.limits
    world.nodes[TWO].starts_that_fail = 9
    simulation, state = run(world, wanted=riak_policy())
    assert state.outcome is Outcome.FAILED, state.message
    assert state.phase is Phase.ENDED
    assert state.unrestored.settings == {}
    assert world.limits == {name: limit for name, limit in found.items() if name != TWO}
    gone = [r.event for r in simulation.journal.records if isinstance(r.event, SettingRestored)]
    assert [event.key for event in gone if "its node is down" in event.note] == [f"transfer_limit.{TWO}"]
    world.nodes[TWO].starts_that_fail = 0
    state = play(simulation, simulation.resume(retry_failed=True))
    assert state.outcome is Outcome.DONE, state.message
    assert world.limits == {**found, TWO: 2}, "the limit of its files: the other one is gone with its life"


def test_the_limit_of_a_stopping_node_is_restored_once_it_is_up() -> None:
    """Put back while it goes down, it would be forgotten again: the files say 2."""
    world = ringed()
    world.queues_starts = False
    found = world.limits
    dies = Mishap(what=NodeDies(node=FOUR, back_after=30.0), verb="stop", target=TWO, after=0.05)
    _, state = run(world, plan=[dies], wanted=riak_policy())
    assert state.outcome is Outcome.FAILED
    assert "a second failure" in state.message
    assert lives(world)[TWO] == 2
    assert world.limits[TWO] == found[TWO] == 4
    assert world.violations == []


def test_another_machine_restores_limits_of_restarted_nodes() -> None:
    """One that came up with a limit of its files, which nobody set, is not taken for somebody's change."""
    world = ringed()
    world.configure(TWO, configured=16, limit=4)
    found = world.limits
    undisturbed, _ = run(ringed(), wanted=riak_policy())
    second = undisturbed.seams.passed.index(f"after stop of {THREE}")
    simulation = Simulation(world)
    simulation.seams.crash_at = 1 + second
    assert killed(simulation, simulation.begin(riak_policy()))
    assert world.limits[TWO] == 16, "as its files have it"
    elsewhere = simulation.elsewhere("run-2")
    taken = elsewhere.take_over(riak_policy())
    assert taken is not None
    state = play(elsewhere, taken)
    assert state.outcome is Outcome.RESTORED, state.message
    assert world.limits == found
    assert world.violations == []
