"""Single steps that go wrong: each ends in its limit, and nothing turns without waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import (
    ClearVotingExclusions,
    ExcludeFromVoting,
    RetryFailed,
    RunHook,
    SetReplicas,
    StopNode,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Event, HookUnproven, LeaseLost, StandingDown, StoodDown
from orchestrator.model.observation import Look
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy, RecoveryLimits, ZeroReplicas
from orchestrator.ports import ClusterReadings
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import mishaps, turns
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.view.summary import summary, summary_lines
from orchestrator.view.words import sentence
from tests.simulation.play import cluster, killed, lives, play, policy, run
from tests.simulation.zones import by_zone, zoned

pytestmark = pytest.mark.proves("stand-down")


def test_a_master_that_will_not_step_down_goes_as_it_is() -> None:
    for how in (How.REFUSED, How.LOST, How.UNACKNOWLEDGED):
        world = cluster(5)
        simulation, state = run(
            world,
            trips=[Trip(verb="exclude_from_voting", how=how, times=9)],
            wanted=policy(master_step_down=True),
        )
        assert state.outcome is Outcome.DONE, f"{how}: {state.message}"
        assert world.exclusions == []
        assert sum(isinstance(a, ClearVotingExclusions) for a in simulation.cluster.sent) < 4


def test_a_master_steps_down_before_its_own_stop() -> None:
    world = cluster(5)
    master = world.master
    _, state = run(world, wanted=policy(master_step_down=True))
    assert state.outcome is Outcome.DONE, state.message
    took_over = next(at for at, what in world.story if f"takes over from {master}" in what)
    gone = next(at for at, what in world.story if what == f"{master} left")
    assert took_over < gone
    assert not [what for _, what in world.story if "was the master" in what]


@pytest.mark.parametrize("nodes", [3, 4])
def test_of_fewer_than_five_voters_none_is_excluded(nodes: int) -> None:
    """One exclusion would leave a single voter of three: if that one dies, so does the cluster."""
    simulation, state = run(cluster(nodes), wanted=policy(master_step_down=True))
    assert state.outcome is Outcome.DONE, state.message
    assert not any(isinstance(action, ExcludeFromVoting) for action in simulation.cluster.sent)


def test_exclusions_not_cleared_are_asked_for_now_and_then() -> None:
    world = cluster(5)
    simulation, state = run(
        world,
        trips=[Trip(verb="clear_voting_exclusions", how=How.REFUSED, times=10_000)],
        wanted=policy(master_step_down=True),
    )
    assert state.outcome is Outcome.NOT_RESTORED
    assert world.exclusions
    clears = sum(isinstance(a, ClearVotingExclusions) for a in simulation.cluster.sent)
    assert clears < 1500, "one try in five seconds, for its limits"


def test_exclusions_refused_once_are_cleared_after_a_long_hold() -> None:
    world = cluster(5)
    snapshot = mishaps.SnapshotBegun(name="repo/nightly", seconds=700.0)
    _, state = run(
        world,
        plan=[Mishap(what=snapshot, verb="restore_allocation", nth=4)],
        trips=[Trip(verb="clear_voting_exclusions", how=How.REFUSED)],
        wanted=policy(master_step_down=True),
    )
    assert state.outcome is Outcome.DONE, state.message
    assert world.exclusions == []


def test_restored_settings_not_seen_yet_are_read_with_a_pause() -> None:
    world = cluster(3)
    stale = Mishap(what=mishaps.StaleReadings(seconds=20.0), verb="restore_allocation", after=0.0)
    simulation, state = run(world, plan=[stale])
    assert state.outcome is Outcome.DONE, state.message
    assert world.settings() == cluster(3).settings()
    writes = [a for a in simulation.cluster.sent if isinstance(a, WriteSettings)]
    assert len(writes) < 14, "not a write a reading"


def test_a_replica_added_in_doubt_is_taken_away_again() -> None:
    for how in (How.LOST, How.UNACKNOWLEDGED, How.REFUSED):
        world = cluster(3)
        world.add_index("bare", replicas=0, places=["es2"])
        trips = [Trip(verb="set_replicas", how=how)]
        simulation, state = run(world, trips=trips, wanted=policy(zero_replicas=ZeroReplicas.ADD_REPLICA))
        bare = next(index for index in world.indices.values() if index.name == "bare")
        assert bare.replicas == 0
        assert state.unrestored.replicas == {}
        last = [a for a in simulation.cluster.sent if isinstance(a, SetReplicas)][-1]
        assert last.wanted == 0
        if how is not How.REFUSED:
            assert state.outcome is Outcome.DONE, f"{how}: {state.message}"


def test_a_replica_in_doubt_is_removed_though_unseen() -> None:
    """It may still wait in the queue of the master, until an update that came after it is confirmed."""
    world = cluster(3)
    world.add_index("bare", replicas=0, places=["es2"])
    simulation, state = run(
        world,
        plan=[Mishap(what=mishaps.Asked(request=Request.STOP), verb="set_replicas")],
        trips=[Trip(verb="set_replicas", how=How.LOST)],
        wanted=policy(zero_replicas=ZeroReplicas.ADD_REPLICA),
    )
    assert state.outcome is Outcome.INTERRUPTED, state.message
    sent = [action.wanted for action in simulation.cluster.sent if isinstance(action, SetReplicas)]
    assert sent == [1, 0]
    assert state.unrestored.replicas == {}


def _point_after(what: str, wanted: Policy) -> int:
    """The point after that action in an undisturbed run with an index without replicas on es2."""
    world = cluster(3)
    world.add_index("bare", replicas=0, places=["es2"])
    simulation, _ = run(world, wanted=wanted)
    return next(n for n, passed in enumerate(simulation.seams.passed, 1) if passed == f"after {what}")


def test_replicas_that_somebody_else_has_set_meanwhile_are_left() -> None:
    world = cluster(3)
    world.add_index("bare", replicas=0, places=["es2"])
    simulation = Simulation(world)
    wanted = policy(zero_replicas=ZeroReplicas.ADD_REPLICA)
    simulation.seams.crash_at = _point_after("stop of es2", wanted)
    with contextlib.suppress(mishaps.Crash):
        play(simulation, simulation.begin(wanted))
    bare = next(index for index in world.indices.values() if index.name == "bare")
    assert bare.replicas == 1
    simulation.cluster.perform(SetReplicas(index="bare", index_uuid=bare.uuid, found=1, wanted=2))
    world.agenda.advance(100.0)
    state = play(simulation, simulation.restore())
    assert state.outcome is Outcome.RESTORED
    assert bare.replicas == 2


def test_a_wave_that_is_always_called_off_ends_in_a_hold() -> None:
    world = cluster(3)
    lost = [Trip(verb="set_allocation", how=How.LOST, times=100_000)]
    simulation, state = run(world, trips=lost, wanted=policy(deadlines=Deadlines(hold=600.0)))
    assert state.outcome is Outcome.HELD, state.message
    assert "every wave was called off before its stop for 600 s" in state.message
    assert world.settings() == cluster(3).settings()
    assert set(lives(world).values()) == {1}
    assert sum(isinstance(a, WriteSettings) for a in simulation.cluster.sent) < 150


def test_waves_called_off_have_their_limit_beside_a_predicate() -> None:
    world = cluster(3)
    began = world.agenda.now
    lost = [Trip(verb="set_allocation", how=How.LOST, times=100_000)]
    snapshot = Mishap(what=mishaps.SnapshotBegun(seconds=None), after=400.0)
    _, state = run(world, plan=[snapshot], trips=lost, wanted=policy(deadlines=Deadlines(hold=600.0)))
    assert state.outcome is Outcome.HELD, state.message
    assert "every wave was called off before its stop for 600 s" in state.message
    assert "now held by no_running_snapshot" in state.message
    assert world.agenda.now - began < 700.0


HOOKS = Hooks(
    before_stop=(Hook(run="depool {node}"),),
    after_recovery=(Hook(run="pool {node}"), Hook(run="check {node}")),
)


def test_hooks_run_once_a_node_and_in_pairs() -> None:
    simulation, state = run(cluster(3), wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.DONE
    for name in simulation.world.nodes:
        mine = [(moment, number) for node, moment, number in simulation.hosts.hooks if node == name]
        assert mine == [("before_stop", 0), ("after_recovery", 0), ("after_recovery", 1)]


def test_a_node_taken_out_of_service_twice_is_put_back_twice() -> None:
    # Called off at the last reading, stood down (put back into service), resumed: out of service again.
    world = cluster(3)
    stop = Mishap(what=mishaps.Asked(request=Request.STOP), verb="set_allocation")
    simulation = Simulation(world, plan=[stop])
    assert play(simulation, simulation.begin(policy(hooks=HOOKS))).outcome is Outcome.INTERRUPTED
    out = [node for node, moment, _ in simulation.hosts.hooks if moment == "before_stop"]
    assert simulation.hosts.hooks[-1] == (out[0], "after_recovery", 1)
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == out[0]]
    assert mine == ["before_stop", "after_recovery", "after_recovery"] * 2


def test_a_node_stopped_twice_is_taken_out_of_service_twice() -> None:
    """It rises before its `while_stopped` hook, so its turn comes again; no hook of the run puts it back."""
    hooks = Hooks(before_stop=(Hook(run="depool {node}"),), while_stopped=(Hook(run="install {node}"),))
    world = cluster(3)
    rises = Mishap(what=mishaps.RisesByItself(node=NodeName("es2"), after=0.0))
    simulation, state = run(world, plan=[rises], wanted=policy(hooks=hooks))
    assert state.outcome is Outcome.DONE, state.message
    assert lives(world)["es2"] == 3
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == "es2"]
    assert mine == ["before_stop", "before_stop", "while_stopped"]
    assert world.violations == []


def test_an_out_of_service_node_restarted_by_hand_is_put_into_it() -> None:
    world = cluster(3)
    died = [
        Mishap(what=mishaps.Unreadable(seconds=30.0), verb="hook_before_stop"),
        Mishap(what=mishaps.NodeDies(node=NodeName("es2"), back_after=1.0), verb="hook_before_stop"),
    ]
    simulation, state = run(world, plan=died, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.DONE, state.message
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == "es2"]
    assert mine == ["before_stop", "after_recovery", "after_recovery"]
    assert set(lives(world).values()) == {2}


def test_a_hook_that_was_lost_sight_of_is_undone_as_one_that_ran() -> None:
    for how in (How.UNACKNOWLEDGED, How.LOST):
        lost = Trip(verb="hook_before_stop", target="es2", how=how)
        simulation, state = run(cluster(3), trips=[lost], wanted=policy(hooks=HOOKS))
        assert state.outcome is Outcome.FAILED, state.message
        mine = [moment for node, moment, _ in simulation.hosts.hooks if node == "es2"]
        assert mine[-2:] == ["after_recovery", "after_recovery"], how


def test_a_hook_on_an_unreachable_host_is_repeated_after_a_hold() -> None:
    """A snapshot holds the run for longer than a hook is sent again, and another one the candidate."""
    es2 = NodeName("es2")
    plan = [
        Mishap(what=mishaps.SnapshotBegun(name="repo/first", seconds=700.0)),
        Mishap(what=mishaps.SnapshotBegun(name="repo/next", seconds=300.0), verb="hook_before_stop"),
        Mishap(what=mishaps.HostCutOff(node=es2, seconds=40.0), verb="hook_before_stop", after=20.0),
    ]
    simulation, state = run(cluster(3), plan=plan, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.DONE, state.message
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == es2]
    assert mine == ["before_stop", "after_recovery", "after_recovery"] * 2
    failed = [
        record.at
        for record in simulation.journal.records
        if isinstance(record.event, ActionFailed) and isinstance(record.event.action, RunHook)
    ]
    assert failed, "its host was out of reach"


def test_a_hook_on_an_unreachable_host_is_repeated_to_its_limit() -> None:
    """Each hook has the limit for itself, from its own first failure."""
    es2 = NodeName("es2")
    plan = [
        Mishap(what=mishaps.SnapshotBegun(name="repo/first", seconds=700.0)),
        Mishap(what=mishaps.SnapshotBegun(name="repo/next", seconds=3000.0), verb="hook_before_stop"),
        Mishap(what=mishaps.HostCutOff(node=es2, seconds=9000.0), verb="hook_before_stop", after=20.0),
    ]
    wanted = policy(hooks=HOOKS, deadlines=Deadlines(rejoin=120.0))
    simulation, state = run(cluster(3), plan=plan, wanted=wanted)
    assert state.outcome is Outcome.FAILED
    assert "hook after_recovery on es2" in state.message
    down = next(r.at for r in simulation.journal.records if isinstance(r.event, StandingDown))
    for number in (0, 1):
        failed = [
            record.at
            for record in simulation.journal.records
            if isinstance(record.event, ActionFailed)
            and isinstance(record.event.action, RunHook)
            and record.event.action.number == number
            and record.at < down
        ]
        assert 120.0 < failed[-1] - failed[0] < 120.0 + 30.0, number


def test_a_hook_that_a_kill_came_upon_is_undone_as_one_that_ran() -> None:
    quiet, _ = run(cluster(3), wanted=policy(hooks=HOOKS))
    simulation = Simulation(cluster(3))
    passed = enumerate(quiet.seams.passed, 1)
    simulation.seams.crash_at = next(n for n, what in passed if what.startswith("after hook_before_stop "))
    with contextlib.suppress(mishaps.Crash):
        play(simulation, simulation.begin(policy(hooks=HOOKS)))
    (out,) = {node for node, _, _ in simulation.hosts.hooks}
    state = play(simulation, simulation.restore())
    assert state.outcome is Outcome.RESTORED, state.message
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == out]
    assert mine == ["before_stop", "after_recovery", "after_recovery"]


def test_each_process_takes_a_node_out_of_service_before_a_stop() -> None:
    """Killed after the hook and before the stop: a load balancer may have put it back since."""
    quiet, _ = run(cluster(3), wanted=policy(hooks=HOOKS))
    simulation = Simulation(cluster(3))
    passed = enumerate(quiet.seams.passed, 1)
    simulation.seams.crash_at = next(n for n, what in passed if what.startswith("after flush "))
    assert killed(simulation, simulation.begin(policy(hooks=HOOKS)))
    ((out, _, _),) = simulation.hosts.hooks
    simulation.world.agenda.advance(3600.0)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    mine = [moment for node, moment, _ in simulation.hosts.hooks if node == out]
    assert mine == ["before_stop"] * 2 + ["after_recovery"] * 2


def test_a_hook_beside_a_process_that_rose_runs_in_another_turn() -> None:
    """The node was seen down, and rose while the hook before it in the same step was waited for."""
    world, es5 = zoned(), NodeName("es5")
    world.nodes[es5].stop_seconds, world.nodes[es5].start_seconds = 4.2, 1.0
    simulation, state = run(
        world,
        plan=[Mishap(what=mishaps.RisesByItself(node=es5, after=2.0))],
        trips=[Trip(verb="reboot", how=How.UNACKNOWLEDGED, target=NodeName("es2"))],
        wanted=by_zone(reboot=True, hooks=Hooks(while_stopped=(Hook(run="install {node}"),))),
    )
    ran = [fact.alive for fact in world.nodes[es5].facts if fact.what == "hook while_stopped 0"]
    assert ran == [True, False]
    assert HookUnproven(node=es5, number=0) in [record.event for record in simulation.journal.records]
    assert state.outcome is Outcome.DONE, state.message
    began = simulation.began
    for node in world.nodes.values():
        assert turns.lacking(node, simulation.policy, began, began) == []
    assert world.violations == []


def test_a_stop_in_doubt_that_is_done_late_is_ours_to_bring_up() -> None:
    for late in (1.0, 11.0, 29.0, 31.0, 31.3):
        world = cluster(3)
        simulation, state = run(world, trips=[Trip(verb="stop", how=How.LATE, late=late)])
        assert state.outcome is Outcome.DONE, f"{late}: {state.message}"
        assert set(lives(world).values()) == {2}, late
        assert world.settings() == cluster(3).settings()
        assert not any(isinstance(record.event, LeaseLost) for record in simulation.journal.records)


def test_a_rescue_of_a_node_whose_stop_never_happened_goes_on() -> None:
    world = cluster(3)
    made = Mishap(what=mishaps.IndexMade(name="new", on=NodeName("es3"), replicas=0), verb="stop")
    died = Mishap(what=mishaps.NodeDies(node=NodeName("es3"), back_after=2.0), verb="stop", after=1.0)
    lost = [Trip(verb="stop", how=How.LOST)]
    _, state = run(world, plan=[made, died], trips=lost, wanted=policy(deadlines=Deadlines(hold=600.0)))
    assert state.outcome is Outcome.DONE, state.message
    assert lives(world) == dict.fromkeys(world.nodes, 2)
    assert all(node.joined for node in world.nodes.values())
    assert world.settings() == cluster(3).settings()


def test_a_stop_in_doubt_done_during_a_stand_down_is_repaired() -> None:
    asked = Mishap(what=mishaps.Asked(request=Request.STOP), verb="stop", after=1.0)
    for late in (2.0, 10.0, 29.0):
        world = cluster(3)
        _, state = run(world, plan=[asked], trips=[Trip(verb="stop", how=How.LATE, late=late)])
        assert state.outcome is Outcome.INTERRUPTED, state.message
        assert all(node.joined for node in world.nodes.values()), late
        assert world.settings() == cluster(3).settings()


def test_copies_that_the_cluster_gave_up_on_are_retried() -> None:
    for fails, outcome, tries in ((5, Outcome.DONE, 2), (10_000, Outcome.HELD, 3)):
        world = cluster(3)
        gone = Mishap(what=mishaps.AllocationsFail(index="logs", times=fails), verb="start")
        wanted = policy(deadlines=Deadlines(recover=900.0))
        simulation, state = run(world, plan=[gone], wanted=wanted)
        assert state.outcome is outcome, state.message
        assert 1 <= sum(isinstance(a, RetryFailed) for a in simulation.cluster.sent) <= tries


def test_copies_given_up_later_are_retried_before_the_next_wave() -> None:
    """es2 dies during the last wave, and the cluster gives up on its copies, which that wave did not take."""
    world, es1, es2 = cluster(5), NodeName("es1"), NodeName("es2")
    world.add_index("slow", replicas=1, places=[es1, NodeName("es4")], size=8 << 30).keeps = 0.0
    world.add_index("apart", replicas=1, places=[NodeName("es3"), es2])
    last = {"verb": "restore_allocation", "nth": 5}
    dies = Mishap(what=mishaps.NodeDies(node=es2, back_after=5.0), **last)  # type: ignore[arg-type]  # by keyword
    gone = Mishap(what=mishaps.AllocationsFail(index="apart", times=5), **last)  # type: ignore[arg-type]  # by keyword
    simulation, state = run(world, plan=[dies, gone])
    assert state.outcome is Outcome.DONE, state.message
    world.agenda.advance(60.0)
    assert [str(shard.id) for _, shard in shards_of(world) if len(shard.started) < len(shard.copies)] == []
    assert any(isinstance(action, RetryFailed) for action in simulation.cluster.sent)


def test_copies_given_up_are_tried_again_at_the_gates_too() -> None:
    # Interrupted while they were to recover, restored, resumed: no wave is in hand any more.
    world = cluster(3)
    gone = Mishap(what=mishaps.AllocationsFail(index="logs", times=5), verb="start")
    stop = Mishap(what=mishaps.Asked(request=Request.STOP), verb="restore_allocation", after=3.0)
    simulation = Simulation(world, plan=[gone, stop])
    assert play(simulation, simulation.begin(policy())).outcome is Outcome.INTERRUPTED
    play(simulation, simulation.restore())
    state = play(simulation, simulation.resume())
    assert state.outcome is Outcome.DONE, state.message


def test_a_stop_that_is_sent_again_has_its_own_time() -> None:
    world = cluster(3)
    trips = [Trip(verb="stop", how=How.LOST), Trip(verb="stop", how=How.LATE, first=2, late=28.0)]
    simulation, state = run(world, trips=trips)
    assert state.outcome is Outcome.DONE, state.message
    assert set(lives(world).values()) == {2}
    assert sum(isinstance(a, StopNode) for a in simulation.hosts.sent) == 4


@pytest.mark.parametrize("expected", [None, 5])
@pytest.mark.parametrize("budget", [None, 1])
def test_a_run_goes_on_without_a_node_that_is_down_and_skipped(
    expected: int | None, budget: int | None
) -> None:
    world, es2 = cluster(5), NodeName("es2")
    wanted = policy(max_unavailable=budget, expect_nodes=expected)
    simulation, state = run(world, plan=[Mishap(what=mishaps.StartsFail(node=es2, times=99))], wanted=wanted)
    assert state.outcome is Outcome.FAILED
    world.agenda.advance(7200.0)
    began = world.agenda.now
    state = play(simulation, simulation.resume(skip=[es2]))
    assert (state.outcome, state.message) == (Outcome.DONE, "skipped: es2")
    assert world.agenda.now - began < 600.0
    assert world.violations == []
    assert {name for name, life in lives(world).items() if life == 1} == {es2}


@pytest.mark.parametrize("how", [How.UNACKNOWLEDGED, How.LATE])
def test_a_skipped_node_with_a_stop_in_doubt_is_not_started(how: How) -> None:
    """It failed after three starts; whatever became of its stop, people do without it now."""
    world, es2 = cluster(5), NodeName("es2")
    fails = Mishap(what=mishaps.StartsFail(node=es2, times=99))
    unheard = Trip(verb="stop", target=es2, how=how, late=10.0)
    simulation, state = run(world, plan=[fails], trips=[unheard])
    assert state.outcome is Outcome.FAILED
    world.agenda.advance(30.0)
    state = play(simulation, simulation.resume(skip=[es2]))
    assert (state.outcome, state.message) == (Outcome.DONE, "skipped: es2")


@pytest.mark.parametrize(
    "verb", ["stop", "start", "restore_allocation", "hook_after_recovery", "restore_settings"]
)
def test_readings_that_fail_after_half_a_minute_end_a_run(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets to the cluster are dropped: each call waits for its limit, and time goes on for the run too."""
    observe = SimulatedCluster.observe

    def slow(self: SimulatedCluster, look: Collection[Look]) -> ClusterReadings:
        self.world.agenda.advance(31.0)
        return observe(self, look)

    monkeypatch.setattr(SimulatedCluster, "observe", slow)
    dropped = Mishap(what=mishaps.Unreadable(seconds=1e7), verb=verb, nth=1)
    wanted = policy(hooks=HOOKS, deadlines=Deadlines(hold=600.0, recover=600.0, withheld=600.0))
    _, state = run(cluster(3), plan=[dropped], wanted=wanted, limit=20_000.0)
    assert state.outcome in (Outcome.HELD, Outcome.FAILED, Outcome.NOT_RESTORED), state.message


def test_another_down_node_holds_a_run_with_a_skipped_node() -> None:
    world, es2, es3 = cluster(5), NodeName("es2"), NodeName("es3")
    plan = [Mishap(what=mishaps.StartsFail(node=es2, times=99))]
    simulation, _ = run(world, plan=plan, wanted=policy(deadlines=Deadlines(hold=600.0)))
    world.agenda.advance(7200.0)
    simulation.fate.befall(mishaps.NodeDies(node=es3, back_after=None))
    state = play(simulation, simulation.resume(skip=[es2]))
    assert state.outcome is Outcome.HELD
    assert "node es3" in state.message
    assert state.recovered == 0


def test_a_resume_past_a_failed_node_ends_at_once_and_says_why() -> None:
    world = cluster(3)
    es2 = NodeName("es2")
    simulation, state = run(world, plan=[Mishap(what=mishaps.StartsFail(node=es2, times=9))])
    assert state.outcome is Outcome.FAILED
    assert state.message.count("it was started 3 times") == 1, state.message
    began = world.agenda.now
    again = play(simulation, simulation.resume())
    assert again.outcome is Outcome.FAILED
    assert again.message.count("it was started 3 times") == 1, again.message
    assert "--retry-failed" in again.message
    assert world.agenda.now - began < 60.0, "no waiting brings it back"
    assert world.settings() == cluster(3).settings()


def test_a_failed_node_is_named_with_the_hooks_it_still_needs() -> None:
    """It is out of service, and no other run can know of that: whoever repairs it has to read it."""
    es2 = NodeName("es2")
    hooks = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
    plan = [Mishap(what=mishaps.StartsFail(node=es2, times=3))]
    simulation, state = run(cluster(3), plan=plan, wanted=policy(hooks=hooks))
    assert state.outcome is Outcome.FAILED
    assert "after_recovery hooks did not run on es2" in state.message
    again = play(simulation, simulation.resume(retry_failed=True))
    assert (again.outcome, again.message) == (Outcome.DONE, "")
    assert not simulation.world.nodes[es2].to_undo
    _, without = run(cluster(3), plan=plan)
    assert without.outcome is Outcome.FAILED
    assert "hooks" not in without.message


def test_a_hook_that_fails_after_a_wave_is_reported_once() -> None:
    """In the wave and in the stand-down: the copies are back, the settings too, and the hook is not done."""
    lost = Trip(verb="hook_after_recovery", how=How.UNACKNOWLEDGED, times=99)
    simulation, told = Simulation(cluster(3), trips=[lost]), list[Event]()
    state = play(simulation, simulation.begin(policy(hooks=HOOKS)), told=told)
    assert state.outcome is Outcome.FAILED
    assert state.message == "hook after_recovery on es2: ssh to es2: connection lost"
    (stood_down,) = (event for event in told if isinstance(event, StoodDown))
    assert sentence(stood_down) == "stood down (failed): all settings are restored"
    lines = summary_lines(summary(state, state.outcome, told, simulation.world.agenda.now))
    assert "  restarted, and their after_recovery hooks are not done: es2" in lines
    assert not [line for line in lines if "copies" in line]


def test_a_node_awaiting_copies_when_its_hook_fails_is_named_so() -> None:
    lost = Trip(verb="hook_after_recovery", how=How.UNACKNOWLEDGED, times=99)
    stop = Mishap(what=mishaps.Asked(request=Request.STOP), verb="restore_allocation")
    simulation, told = Simulation(cluster(3), trips=[lost], plan=[stop]), list[Event]()
    state = play(simulation, simulation.begin(policy(hooks=HOOKS)), told=told)
    assert state.outcome is Outcome.FAILED, state.message
    lines = summary_lines(summary(state, state.outcome, told, simulation.world.agenda.now))
    assert "  restarted, their copies not seen to be back yet: es2" in lines


_UNCHANGED = {
    "recovery_limits": RecoveryLimits(
        node_initial_primaries_recoveries=None, node_concurrent_recoveries=None, max_bytes_per_sec=None
    ),
    "rebalance_while_running": None,
}
"""Allocation is the only setting that such a run changes."""


def _refused_from(verb: str, *, until: float | None = None, **changes: object) -> tuple[Simulation, RunState]:
    """Every settings update is refused from a while after this verb, for good or for so many seconds."""
    plan = [Mishap(what=mishaps.SettingsRefused(reason="403 not allowed any more"), verb=verb, after=0.5)]
    if until is not None:
        plan.append(Mishap(what=mishaps.SettingsRefused(reason=""), verb=verb, after=until))
    wanted = policy(**{"deadlines": Deadlines(hold=600.0), **changes})
    return run(cluster(3), plan=plan, wanted=wanted)


def test_a_refused_update_leaves_nothing_to_restore() -> None:
    """Between two waves: the run holds for it, and says which update is refused and why."""
    simulation, state = _refused_from("restore_allocation", **_UNCHANGED)
    assert state.outcome is Outcome.HELD, f"{state.outcome}: {state.message}"
    assert "settings_are_writable" in state.message
    assert "403 not allowed any more" in state.message
    assert not state.unrestored.anything
    assert simulation.world.settings() == ({}, {})
    assert list(lives(simulation.world).values()).count(2) == 1
    writes = sum(isinstance(action, WriteSettings) for action in simulation.cluster.sent)
    assert writes == 3, "one wave, and the update that was refused"
    _, state = _refused_from("restore_allocation", until=300.0, **_UNCHANGED)
    assert state.outcome is Outcome.DONE, state.message


def test_of_a_refused_update_only_earlier_writes_are_left() -> None:
    """The limits that the first wave raised; and nothing where the first update itself is refused."""
    _, state = _refused_from("restore_allocation")
    assert state.outcome is Outcome.NOT_RESTORED
    left = {key for _, key in state.unrestored.settings}
    assert left
    assert ALLOCATION not in left
    simulation, state = run(
        cluster(3),
        trips=[Trip(verb="set_allocation", how=How.REFUSED, times=10_000)],
        wanted=policy(deadlines=Deadlines(hold=600.0)),
    )
    assert state.outcome is Outcome.HELD, f"{state.outcome}: {state.message}"
    assert "called off" in state.message
    assert not state.unrestored.anything
    assert simulation.world.settings() == ({}, {})
