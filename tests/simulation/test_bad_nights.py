"""Nights on which several things go wrong at once, each found by somebody who tried to break the program."""

from __future__ import annotations

from itertools import product

import pytest

from orchestrator.errors import JournalError
from orchestrator.model.action import Moment, RebootHost, SettingChange
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import (
    NodeRecovered,
    PhaseEntered,
    SettingRestored,
    VotingExcluded,
    VotingRestored,
)
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.merge_event import MergeWarned
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, ZeroReplicas
from orchestrator.model.turn import REBOOT
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.lookout import Order
from orchestrator.simulation import machines, merges, mishaps
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation.loaded import RIGHT, loaded, merged_policy, merging
from tests.simulation.play import cluster, killed, lives, play, policy, run

ES2 = NodeName("es2")
ALLOCATION = "cluster.routing.allocation.enable"
HOOKS = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))


def boots(world: World) -> dict[str, int]:
    """How often each machine has booted; 1 = as at the start."""
    return {node.name: node.boot for node in world.nodes.values()}


def all_up(world: World) -> bool:
    """Whether every node is a member of the cluster."""
    return all(node.joined for node in world.nodes.values())


@pytest.mark.proves("lost-stop")
def test_a_late_stop_never_takes_a_restarted_node_down_unseen(subtests: pytest.Subtests) -> None:
    for late, dies in product([14.0, 20.0, 25.0, 29.0], [0.3, 1.0]):
        with subtests.test(late=late, dies=dies):
            world = cluster(3)
            died = Mishap(what=mishaps.NodeDies(node=ES2, back_after=0.5), verb="stop", after=dies)
            simulation, state = run(world, plan=[died], trips=[Trip(verb="stop", how=How.LATE, late=late)])
            assert world.violations == []
            assert state.outcome in (Outcome.DONE, Outcome.FAILED), state.message
            if state.outcome is Outcome.FAILED:
                assert play(simulation, simulation.resume(retry_failed=True)).outcome is Outcome.DONE
            assert all_up(world)
            assert min(lives(world).values()) > 1


@pytest.mark.parametrize("reads", [Order.CLUSTER_FIRST, Order.HOSTS_FIRST])
def test_a_reading_before_a_standstill_does_not_rule_out_a_stop(reads: Order) -> None:
    """The host carries it out after 20 s, while the program stands still with a reading of 5 s in hand."""
    world = cluster(3)
    still = Mishap(what=mishaps.ProgramStandsStill(seconds=500.0), verb="stop", after=5.0)
    simulation = Simulation(world, plan=[still], trips=[Trip(verb="stop", how=How.LATE, late=20.0)])
    state = play(simulation, simulation.begin(policy()), reads=reads)
    steps = [record.event for record in simulation.journal.records if isinstance(record.event, PhaseEntered)]
    assert [(step.from_, step.to) for step in steps if step.node == ES2][:2] == [
        ("pending", "stopping"),
        ("stopping", "stopped"),
    ]
    assert world.violations == []
    assert (state.outcome, all_up(world)) == (Outcome.DONE, True)


@pytest.mark.parametrize("reads", [Order.CLUSTER_FIRST, Order.HOSTS_FIRST])
@pytest.mark.parametrize("after", [1.0, 6.0, 7.9])
def test_a_suspended_program_tries_a_start_before_a_node_fails(reads: Order, after: float) -> None:
    """The first start failed, and nobody looked for longer than its limit: twenty minutes, or an hour."""
    for seconds, outcome in ((1200.0, Outcome.DONE), (3600.0, Outcome.FAILED)):
        world = cluster(3)
        plan = [
            Mishap(what=mishaps.StartsFail(node=ES2, times=1)),
            Mishap(what=mishaps.ProgramStandsStill(seconds=seconds), verb="start", target=ES2, after=after),
        ]
        simulation = Simulation(world, plan=plan)
        state = play(simulation, simulation.begin(policy()), reads=reads)
        assert (state.outcome, all_up(world)) == (outcome, True), f"{seconds}: {state.message}"
        assert not state.nodes_in(NodePhase.FAILED)
        if outcome is Outcome.FAILED:
            assert "allocation was disabled for" in state.message
            assert play(simulation, simulation.resume()).outcome is Outcome.DONE


def test_after_a_suspension_an_unread_host_is_not_unstopped() -> None:
    """It wakes up after an hour, and its connections are not back yet."""
    world = cluster(3)
    world.nodes[ES2].stop_seconds = 30.0
    plan = [
        Mishap(what=mishaps.ProgramStandsStill(seconds=1200.0), verb="stop", target=ES2, after=5.0),
        Mishap(what=mishaps.HostCutOff(node=ES2, seconds=1230.0), verb="stop", target=ES2, after=4.0),
    ]
    _, state = run(world, plan=plan)
    assert (state.outcome, all_up(world)) == (Outcome.DONE, True), state.message


def test_a_node_that_goes_down_again_is_started_again() -> None:
    """Three starts were needed; it dies once it is back, and the run stands down."""
    world = cluster(3)
    plan = [
        Mishap(what=mishaps.StartsFail(node=ES2, times=2)),
        Mishap(what=mishaps.NodeDies(node=ES2, back_after=None), verb="restore_allocation", after=1.0),
    ]
    simulation, state = run(world, plan=plan)
    assert state.outcome is Outcome.FAILED
    assert "left the cluster again" in state.message
    assert all_up(world)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE


@pytest.mark.proves("rebooted")
def test_a_reboot_after_a_signal_is_done_by_the_resume() -> None:
    world = cluster(3)
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="stop", after=1.0)
    simulation, state = run(world, plan=[asked], wanted=policy(reboot=True))
    assert state.outcome is Outcome.INTERRUPTED, state.message
    assert world.agenda.now - state.process.started < 60.0, "a node that was only started is not waited for"
    assert boots(world)["es2"] == 1
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert boots(world) == {"es1": 2, "es2": 2, "es3": 2}


def test_a_rescued_node_is_started_without_its_reboot() -> None:
    world = cluster(3)
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2, replicas=0), verb="stop")
    simulation, _ = run(world, plan=[made], wanted=policy(reboot=True))
    restored = next(r for r in simulation.journal.records if isinstance(r.event, SettingRestored))
    assert restored.at - 1_000_000 < 60.0, "allocation goes back as soon as it is back"
    assert boots(world)["es2"] == 1
    assert all_up(world)


def test_a_slow_boot_has_its_own_limit_in_a_stand_down() -> None:
    world = cluster(3)
    world.nodes[ES2].reboot_seconds = 900.0
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="reboot", after=5.0)
    _, state = run(world, plan=[asked], wanted=policy(reboot=True))
    assert state.outcome is Outcome.INTERRUPTED, state.message
    assert all_up(world)
    assert boots(world)["es2"] == 2


def test_a_service_that_no_boot_starts_is_started_by_the_run() -> None:
    world = cluster(3)
    for node in world.nodes.values():
        node.starts_at_boot = False
    _, state = run(world, wanted=policy(reboot=True))
    assert state.outcome is Outcome.DONE, state.message
    assert boots(world) == {"es1": 2, "es2": 2, "es3": 2}
    assert all_up(world)


@pytest.mark.parametrize("reboot", [False, True])
def test_nodes_of_a_dead_run_are_started_by_any_new_run(*, reboot: bool) -> None:
    world = cluster(3)
    before = Incarnation(ephemeral_id="es2-life-1", started_at_ms=1)
    world.set(Level.PERSISTENT, ALLOCATION, "primaries")
    machines.stop(world, world.nodes[ES2])
    world.agenda.advance(60.0)
    debt = SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found=None, wanted="primaries")
    record = LeaseRecord(
        epoch=1,
        run="dead",
        owner="ann@bastion",
        process="p",
        started="",
        debts=(debt,),
        in_hand=(NodeInHand(node=ES2, incarnation=before, address="es2"),),
    )
    simulation = Simulation(world, operator=("ben", "bastion2"))
    simulation.leases.records[1] = record
    state = simulation.take_over(policy(reboot=reboot))
    assert state is not None
    began = world.agenda.now
    state = play(simulation, state)
    assert state.outcome is Outcome.RESTORED, state.message
    assert world.settings() == cluster(3).settings()
    assert all_up(world)
    assert world.agenda.now - began < 60.0


@pytest.mark.proves("foreign-value")
def test_a_value_that_somebody_sets_during_the_run_is_kept() -> None:
    world, key = cluster(3), "indices.recovery.max_bytes_per_sec"
    meddled = Mishap(what=mishaps.SettingMeddled(key=key, value="20mb"), verb="start", nth=1)
    _, state = run(world, plan=[meddled])
    assert state.outcome is Outcome.DONE, state.message
    assert world.settings() == ({key: "20mb"}, {})


def test_a_canary_pauses_though_somebody_paused_the_run_before() -> None:
    world = cluster(6)
    asked = Mishap(what=mishaps.Asked(request=Request.PAUSE), verb="start", nth=1)
    simulation, state = run(world, plan=[asked], wanted=policy(pause_after=3))
    assert (state.outcome, state.recovered) == (Outcome.PAUSED, 1)
    state = play(simulation, simulation.resume())
    assert (state.outcome, state.recovered) == (Outcome.PAUSED, 3)
    state = play(simulation, simulation.resume())
    assert (state.outcome, state.recovered) == (Outcome.DONE, 6)


@pytest.mark.parametrize("verb", [None, "hook_before_stop"])
def test_a_pause_is_heard_while_the_run_holds(verb: str | None) -> None:
    world = cluster(3)
    plan = [
        Mishap(what=mishaps.Unreadable(seconds=100_000.0), verb=verb),
        Mishap(what=mishaps.Asked(request=Request.PAUSE), after=10.0),
    ]
    trip = [Trip(verb="hook_after_recovery", how=How.REFUSED, times=0)]
    _, state = run(world, plan=plan, trips=trip, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.PAUSED, state.message
    assert world.agenda.now - state.process.started < 1000.0


def test_an_exclusion_from_voting_does_not_outlast_the_gates() -> None:
    world = cluster(5)
    begun = Mishap(what=mishaps.SnapshotBegun(), verb="exclude_from_voting")
    simulation, state = run(world, plan=[begun], wanted=policy(master_step_down=True))
    assert state.outcome is Outcome.HELD, state.message
    at = {type(record.event): record.at for record in simulation.journal.records}
    assert at[VotingRestored] - at[VotingExcluded] < 60.0
    assert world.exclusions == []


def test_a_reading_that_fails_at_the_beginning_is_waited_out() -> None:
    for verb in (None, "probe_settings"):
        world = cluster(3)
        _, state = run(world, plan=[Mishap(what=mishaps.Unreadable(seconds=5.0), verb=verb)])
        assert state.outcome is Outcome.DONE, f"{verb}: {state.message}"


def test_without_a_pending_change_a_run_ends_without_a_master() -> None:
    world = cluster(3)
    plan = [
        Mishap(what=mishaps.Unreadable(seconds=1e6)),
        Mishap(what=mishaps.Asked(request=Request.STOP), after=10.0),
    ]
    _, state = run(world, plan=plan)
    assert state.outcome is Outcome.INTERRUPTED
    assert world.agenda.now - state.process.started < 60.0


def test_a_node_that_never_stopped_is_seen_to_run_at_the_retry() -> None:
    world = cluster(3)
    cut_off = Mishap(what=mishaps.HostCutOff(node=ES2, seconds=2000.0), verb="stop")
    simulation, state = run(world, plan=[cut_off], trips=[Trip(verb="stop", how=How.LOST)])
    assert state.outcome is Outcome.FAILED
    world.agenda.advance(2000.0)
    began = world.agenda.now
    assert play(simulation, simulation.resume(retry_failed=True)).outcome is Outcome.DONE
    assert world.agenda.now - began < 200.0
    assert lives(world) == {"es1": 2, "es2": 2, "es3": 2}


def test_a_hook_that_fails_in_a_stand_down_is_a_failure() -> None:
    asked = Mishap(what=mishaps.Asked(request=Request.STOP), verb="stop", after=1.0)
    trips = [Trip(verb="hook_after_recovery", how=How.REFUSED, times=99)]
    simulation, state = run(cluster(3), plan=[asked], trips=trips, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.FAILED
    assert "hook after_recovery on es2" in state.message
    assert play(simulation, simulation.restore()).outcome is Outcome.FAILED


def test_a_node_restarted_by_hand_is_in_service_before_the_next() -> None:
    plan = [
        Mishap(what=mishaps.Unreadable(seconds=30.0), verb="hook_before_stop"),
        Mishap(what=mishaps.NodeDies(node=ES2, back_after=1.0), verb="hook_before_stop"),
    ]
    simulation, state = run(cluster(6), plan=plan, wanted=policy(hooks=HOOKS))
    assert state.outcome is Outcome.DONE, state.message
    back = simulation.hosts.hooks.index((ES2, Moment.AFTER_RECOVERY.value, 0))
    others = [n for n, (node, moment, _) in enumerate(simulation.hosts.hooks) if node != ES2]
    assert back < min(others)


def test_an_added_replica_that_never_started_is_taken_away() -> None:
    world = cluster(3)
    world.add_index("big", replicas=0, places=["es2"], size=600 << 30)
    _, state = run(world, wanted=policy(zero_replicas=ZeroReplicas.ADD_REPLICA))
    assert state.outcome is Outcome.HELD, state.message
    assert next(index for index in world.indices.values() if index.name == "big").replicas == 0


def test_a_resumed_run_without_its_lease_enables_allocation() -> None:
    undisturbed, _ = run(cluster(3))
    point = next(n for n, p in enumerate(undisturbed.seams.passed, 1) if p.startswith("after set_allocation"))
    world = cluster(3)
    simulation = Simulation(world)
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(policy()))
    simulation.seams.crash_at = None
    assert world.settings()[0][ALLOCATION] == "primaries"
    state = simulation.resume()
    simulation.fate.befall(mishaps.LeaseTaken())
    play(simulation, state)
    restored = [
        record.at
        for record in simulation.journal.records
        if isinstance(record.event, SettingRestored) and record.event.key == ALLOCATION
    ]
    assert restored[0] - state.process.started < 60.0
    assert world.settings() == cluster(3).settings()


def test_a_record_removed_by_hand_is_gone_and_no_other_is() -> None:
    """Epochs begin anew then: the record of the other machine has the number that ours had."""
    first = Simulation(cluster(3))
    first.begin(policy())
    ours, other = first.record, first.successor("run-2")
    first.fate.befall(mishaps.LeaseTaken())
    assert first.leases.stands is None
    other.begin(policy())
    assert (other.record.run, other.record.epoch) == ("run-2", ours.epoch)
    assert first.leases.read() == other.record
    first.fate.befall(mishaps.LeaseTaken())
    assert first.leases.read() == other.record, "ours is not there to be removed"


def test_an_uncommitted_resume_leaves_a_record_to_restore_by() -> None:
    """The record was removed by hand, and then the disk under the journal is full for good."""
    undisturbed, _ = run(cluster(3))
    point = next(n for n, p in enumerate(undisturbed.seams.passed, 1) if p.startswith("after set_allocation"))
    world = cluster(3)
    simulation = Simulation(world)
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(policy()))
    simulation.common.records.clear()
    simulation.seams.crash_at, simulation.fate.disk_full_until = None, float("inf")
    with pytest.raises(JournalError):
        simulation.resume()
    world.agenda.advance(600.0)
    another = simulation.elsewhere("run-2")
    state = another.take_over(policy())
    assert state is not None, "the record lists nothing"
    assert play(another, state).outcome is Outcome.RESTORED
    assert world.settings() == cluster(3).settings()


def test_a_resume_killed_at_once_can_be_restored_elsewhere() -> None:
    undisturbed, _ = run(cluster(3))
    point = next(n for n, p in enumerate(undisturbed.seams.passed, 1) if p.startswith("after set_allocation"))
    world = cluster(3)
    simulation = Simulation(world)
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(policy()))
    simulation.common.records.clear()  # by hand
    simulation.seams.crash_at = None
    simulation.resume()
    world.agenda.advance(600.0)
    another = simulation.elsewhere("run-2")
    state = another.take_over(policy())
    assert state is not None, "the record lists nothing"
    assert play(another, state).outcome is Outcome.RESTORED
    assert world.settings() == cluster(3).settings()


def test_an_unjournalled_start_after_a_stop_in_doubt_is_counted() -> None:
    world = cluster(3)
    full = Mishap(what=mishaps.DiskFull(seconds=600.0), verb="stop")
    simulation, state = run(world, plan=[full])
    assert state.outcome is Outcome.FAILED, state.message
    world.agenda.advance(600.0)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    recovered = [r.event.node for r in simulation.journal.records if isinstance(r.event, NodeRecovered)]
    assert sorted(recovered) == ["es1", "es2", "es3"]
    assert lives(world) == {"es1": 2, "es2": 2, "es3": 2}


def test_a_node_with_a_searchable_snapshot_is_restarted() -> None:
    """Its index is away with it, which was known before: no rescue, so hooks and reboot take place."""
    world = cluster(3)
    mounted = world.add_index("mounted", replicas=0, places=["es2"], written=False)
    mounted.searchable_snapshot = True
    _, state = run(world, wanted=policy(reboot=True))
    assert state.outcome is Outcome.DONE, state.message
    assert boots(world) == {"es1": 2, "es2": 2, "es3": 2}
    assert lives(world) == {"es1": 2, "es2": 2, "es3": 2}


def test_no_reboot_is_begun_once_the_lease_is_lost() -> None:
    """That it is lost shows at the next heartbeat, while the node stops."""
    world = cluster(3)
    for node in world.nodes.values():
        node.stop_seconds = 20.0
    taken = Mishap(what=mishaps.LeaseTaken(), verb="stop", after=1.0)
    simulation, state = run(world, plan=[taken], wanted=policy(reboot=True, deadlines=Deadlines(hold=60.0)))
    assert state.outcome is Outcome.HELD, state.message
    assert boots(world) == {"es1": 1, "es2": 1, "es3": 1}
    assert all_up(world)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert boots(world) == {"es1": 2, "es2": 2, "es3": 2}


def test_a_run_whose_record_was_removed_does_not_wait_for_it() -> None:
    world = cluster(3)
    taken = Mishap(what=mishaps.LeaseTaken(), verb="stop", after=1.0)
    began = world.agenda.now
    simulation, state = run(world, plan=[taken])
    assert state.outcome is Outcome.HELD, state.message
    assert "its record is gone from the cluster (somebody removed it)" in state.message
    assert world.agenda.now - began < 300.0
    assert sum(lives(world).values()) == 4, "the node that was down is the only one that was restarted"
    assert all_up(world)
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert set(lives(world).values()) == {2}


@pytest.mark.parametrize("set_by", [-86400.0, 86400.0])
@pytest.mark.parametrize("how", [How.LOST, How.UNACKNOWLEDGED])
def test_a_stop_in_doubt_is_settled_though_the_clock_was_set(set_by: float, how: How) -> None:
    def in_doubt() -> Simulation:
        return Simulation(cluster(3), trips=[Trip(verb="stop", how=how)])

    undisturbed = in_doubt()
    play(undisturbed, undisturbed.begin(policy()))
    simulation = in_doubt()
    point = undisturbed.seams.passed.index("after the commit of action_failed") + 1
    simulation.seams.crash_at = point
    assert killed(simulation, simulation.begin(policy()))
    simulation.seams.crash_at = None
    simulation.fate.befall(mishaps.ClockSet(seconds=set_by))
    began = simulation.world.agenda.now
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert simulation.world.agenda.now - began < 200.0
    assert lives(simulation.world) == {"es1": 2, "es2": 2, "es3": 2}


def test_without_its_lease_a_run_repeats_no_lost_reboot() -> None:
    """Half a minute later somebody else may be at work on the cluster: the node is started instead."""
    world = cluster(3)
    taken = Mishap(what=mishaps.LeaseTaken(), verb="reboot", after=5.0)
    simulation, state = run(
        world, plan=[taken], trips=[Trip(verb="reboot", how=How.LOST)], wanted=policy(reboot=True)
    )
    assert len([action for action in simulation.hosts.sent if isinstance(action, RebootHost)]) == 1
    assert (world.violations, all_up(world)) == ([], True)
    assert "lease" in state.message


@pytest.mark.parametrize("how", [How.LOST, How.UNACKNOWLEDGED])
def test_a_reboot_in_doubt_is_asked_for_again_if_it_was_not_done(how: How) -> None:
    world = cluster(3)
    simulation, state = run(world, trips=[Trip(verb="reboot", how=how)], wanted=policy(reboot=True))
    assert state.outcome is Outcome.DONE, state.message
    assert boots(world) == {"es1": 2, "es2": 2, "es3": 2}
    asked = [action.node for action in simulation.hosts.sent if isinstance(action, RebootHost)]
    assert len(asked) == (4 if how is How.LOST else 3)
    assert world.agenda.now - state.process.started < 400.0


@pytest.mark.parametrize("how", [How.LOST, How.REFUSED])
def test_a_stand_down_does_not_wait_for_a_reboot_never_done(how: How) -> None:
    world = cluster(3)
    wanted = policy(reboot=True, deadlines=Deadlines(reboot=120.0))
    _, state = run(world, trips=[Trip(verb="reboot", how=how, times=99)], wanted=wanted)
    assert state.outcome is Outcome.FAILED, state.message
    assert all_up(world)
    assert world.agenda.now - state.process.started < 120.0 + 90.0
    (waits,) = [node for node in state.nodes.values() if node.phase is NodePhase.REJOINED]
    assert REBOOT in waits.owed, "it is up, and its turn is not over"
    assert {node.phase for node in state.nodes.values()} == {NodePhase.PENDING, NodePhase.REJOINED}


# Merges -------------------------------------------------------------------------------------------------


def test_an_index_red_at_the_beginning_is_merged_once_it_is_not() -> None:
    """Its only copies are on a node that is away: no segment of them is counted, which is not few enough."""
    world = loaded(5, replicas=0)
    simulation = Simulation(world)
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=100.0))
    world.agenda.advance(30.0)
    state = play(simulation, simulation.begin(merged_policy(merging(put_right=RIGHT))))
    assert (state.outcome, world.violations) == (Outcome.DONE, []), state.message
    loads = [shard for uuid in state.merging.indices for shard in world.indices[uuid].shards]
    assert {len(shard.started) for shard in loads} == {2}
    assert {kept.count for shard in loads for kept in shard.segments.values()} == {5}


@pytest.mark.parametrize("unreadable", [0.0, 30.0, 600.0])
def test_a_copy_that_comes_back_unmerged_is_named_at_the_end(unreadable: float) -> None:
    """Its node was away while its index was merged, so that no merge reached it."""
    world = loaded(5)
    for index in world.indices.values():
        index.delay = 3600.0  # no other node is given the copies meanwhile
    silent = Mishap(what=mishaps.SegmentsUnreadable(seconds=unreadable), verb="stop", nth=4)
    simulation = Simulation(world, plan=[silent])
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=150.0))
    world.agenda.advance(10.0)
    state = play(simulation, simulation.begin(merged_policy()))
    assert state.outcome is Outcome.DONE, state.message
    back = [copy for uuid in state.merging.indices for copy in merges.unmerged(world, uuid, 5, away=True)]
    assert back
    events = [record.event for record in simulation.journal.records]
    said = " ".join(event.what for event in events if isinstance(event, MergeWarned))
    assert unreadable > 300.0 or [copy for copy in back if copy.partition(":")[0] not in said] == []
    assert ("could not be counted" in said) == (unreadable > 300.0)


def test_a_run_whose_indices_are_all_gone_goes_on_to_the_restart() -> None:
    _, state = run(cluster(3), wanted=merged_policy())
    assert (state.outcome, dict(state.merging.indices)) == (Outcome.DONE, {}), state.message
