"""One scenario for each piece of safety code that no other run would miss.

Each is judged by what the simulated cluster went through, never by what the program says of itself: delete
the piece and its scenario fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.action import Purpose, SetReplicas
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import PhaseEntered, SettingChanged
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Deadlines, Hook, Hooks, Policy, Selection, ZeroReplicas
from orchestrator.model.reading import Instant
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import machines, mishaps
from orchestrator.simulation.mishaps import How, Mishap, Seams, Trip
from orchestrator.simulation.node_mishaps import DiesAgain
from orchestrator.simulation.world import World
from tests.simulation.chance import ALLOCATION
from tests.simulation.play import cluster, lives, play, policy, run

REBALANCE = "cluster.routing.rebalance.enable"
ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
ONLY_ES2 = Selection(only=("es2",))


def _happened(world: World, what: str, *, since: Instant = 0.0) -> Instant:
    """When this first happened in the world."""
    return next(at for at, said in world.story if said == what and at >= since)


def _withheld(world: World) -> Iterator[tuple[Instant, Instant]]:
    """The spans in which allocation was off."""
    off: Instant | None = None
    for at, said in world.story:
        if said.startswith(f"{ALLOCATION} (persistent) = "):
            now = said.endswith("= primaries")
            if now and off is None:
                off = at
            elif not now and off is not None:
                yield off, at
                off = None
    if off is not None:
        yield off, world.agenda.now


@dataclass(slots=True)
class Glimpse(Seams):
    """Looks at the world right after every verb."""

    look: Callable[[str], None]
    crash_at: int | None = None
    passed: list[str] = field(default_factory=list)

    def point(self, what: str) -> None:
        self.look(what)


def _playing(simulation: Simulation, wanted: Policy, look: Callable[[str], None]) -> RunState:
    simulation.cluster.seams = simulation.hosts.seams = Glimpse(look)
    return play(simulation, simulation.begin(wanted))


def _big(world: World) -> World:
    """Enough data that the recovery of a node takes half a minute."""
    big = world.add_index("big", shards=1, replicas=1, places=["es1", "es2"], size=10 << 30)
    big.keeps = 0.0
    return world


# A second failure ---------------------------------------------------------------------------------------


@pytest.mark.proves("second-failure")
def test_a_rejoined_node_that_leaves_is_started_again() -> None:
    world = _big(cluster(3))
    dies = Mishap(what=mishaps.NodeDies(node=ES2), verb="restore_allocation", after=5.0)
    run(world, plan=[dies], wanted=policy(selection=ONLY_ES2))
    died = _happened(world, "es2 dies")
    assert _happened(world, "es2 joined", since=died) - died < 60.0


@pytest.mark.proves("second-failure")
def test_a_shard_that_stays_red_ends_the_run_in_minutes() -> None:
    # Made on es2 as it goes down, and gone from its disk: the rescue brings the node, not the shard.
    world = cluster(3)
    made = Mishap(what=mishaps.IndexMade(name="new", on=ES2, replicas=0), verb="stop", target="es2")
    simulation = Simulation(world, plan=[made])

    def look(what: str) -> None:
        new = next((index for index in world.indices.values() if index.name == "new"), None)
        if what == "after start of es2" and new is not None:
            new.shards[0].on_disk = {}

    _playing(simulation, policy(selection=ONLY_ES2), look)
    joined = _happened(world, "es2 joined")
    assert next(i for i in world.indices.values() if i.name == "new").shards[0].lost_at is not None
    assert world.agenda.now - joined < 300.0


# Allocation off has a limit -----------------------------------------------------------------------------


def _slow_start() -> World:
    world = cluster(3)
    world.nodes[ES2].start_seconds = 300.0
    return world


_ONE_MINUTE_OFF = policy(selection=ONLY_ES2, deadlines=Deadlines(withheld=60.0))


@pytest.mark.proves("withheld-limit")
def test_allocation_is_disabled_no_longer_than_its_limit() -> None:
    world = _slow_start()
    run(world, wanted=_ONE_MINUTE_OFF)
    assert [until - since for since, until in _withheld(world) if until - since > 90.0] == []


@pytest.mark.proves("withheld-limit")
def test_allocation_has_its_limit_in_a_stand_down_too() -> None:
    world = _slow_start()
    asked = Mishap(what=mishaps.Asked(request=Request.STOP), verb="start", after=1.0)
    run(world, plan=[asked], wanted=_ONE_MINUTE_OFF)
    assert [until - since for since, until in _withheld(world) if until - since > 90.0] == []


# A cluster that cannot be read any more -----------------------------------------------------------------


def test_a_cluster_lost_during_hooks_has_a_limit() -> None:
    world = cluster(3)
    hooks = Hooks(after_recovery=(Hook(run="first {node}"), Hook(run="second {node}")))
    lost = Mishap(what=mishaps.Unreadable(seconds=1e6), verb="hook_after_recovery", after=0.1)
    simulation, state = run(world, plan=[lost], wanted=policy(hooks=hooks), limit=7200.0)
    assert state.outcome is Outcome.NOT_RESTORED, state.message
    assert "es2: not seen in the cluster for 600 s" in state.message
    simulation.fate.unreadable_until = world.agenda.now
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert len(simulation.hosts.hooks) == 6, "two of each node"


def test_a_stand_down_without_a_master_runs_no_hook_unseen() -> None:
    """`resume` runs them, with whatever else is left, once the cluster is back."""
    world = cluster(3)
    hooks = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))
    lost = Mishap(what=mishaps.Unreadable(seconds=1e6), verb="set_allocation", after=0.1)
    stop = Mishap(what=mishaps.Asked(request=Request.STOP), verb="set_allocation", after=0.1)
    simulation, state = run(world, plan=[lost, stop], wanted=policy(hooks=hooks), limit=7200.0)
    assert state.outcome is Outcome.NOT_RESTORED, state.message
    assert [moment for _, moment, _ in simulation.hosts.hooks] == ["before_stop"]
    simulation.fate.unreadable_until = world.agenda.now
    assert play(simulation, simulation.resume()).outcome is Outcome.DONE
    assert not any(node.to_undo for node in world.nodes.values())


# Settings -----------------------------------------------------------------------------------------------


def test_what_somebody_else_set_meanwhile_stands_at_the_end() -> None:
    world = cluster(3)
    meddled = Mishap(what=mishaps.SettingMeddled(key=REBALANCE, value="primaries"), verb="start", after=1.0)
    _, state = run(world, plan=[meddled], wanted=policy(selection=ONLY_ES2))
    assert state.outcome is Outcome.DONE, state.message
    assert world.persistent[REBALANCE] == "primaries"


def test_an_update_in_doubt_after_somebody_elses_is_restored() -> None:
    """Their value is read, and ours comes after it: theirs counts only once ours is known to be done."""
    world = cluster(3)
    late = Trip(verb="set_allocation", how=How.LATE, late=14.0)
    meddled = Mishap(
        what=mishaps.SettingMeddled(key=ALLOCATION, value="new_primaries"), verb="set_allocation", after=5.0
    )
    stop = Mishap(what=mishaps.Asked(request=Request.STOP), verb="set_allocation", after=5.0)
    _, state = run(world, plan=[meddled, stop], trips=[late], wanted=policy(selection=ONLY_ES2))
    assert state.outcome is Outcome.INTERRUPTED, state.message
    world.agenda.advance(60.0)
    assert world.persistent.get(ALLOCATION) != "primaries"


def test_a_setting_that_reads_as_ours_again_is_put_back_again() -> None:
    # Confirmed, and undone before the next reading: the answer of the cluster alone is no proof.
    world = cluster(3)
    undone: list[str] = []

    def look(what: str) -> None:
        if what.startswith("after restore_allocation") and not undone:
            undone.append(what)
            world.set(Level.PERSISTENT, ALLOCATION, "primaries")

    _playing(Simulation(world), policy(selection=ONLY_ES2), look)
    assert undone, "the scenario takes place"
    assert world.settings() == cluster(3).settings()


def test_a_setting_written_twice_gets_its_first_value_back() -> None:
    world = cluster(3)
    simulation = Simulation(world)
    simulation.begin(policy())
    for found, wanted in ((None, "50mb"), ("50mb", "100mb")):
        world.set(Level.PERSISTENT, "indices.recovery.max_bytes_per_sec", wanted)
        simulation.journalled(
            SettingChanged(
                level=Level.PERSISTENT,
                key="indices.recovery.max_bytes_per_sec",
                found=found,
                wanted=wanted,
                purpose=Purpose.RAISE_LIMITS,
            )
        )
    play(simulation, simulation.restore())
    assert world.settings() == cluster(3).settings()


def test_a_value_set_by_others_between_waves_is_restored() -> None:
    # Raised by the first wave, lowered by an operator, raised again by the second.
    world = cluster(3)
    key = "indices.recovery.max_bytes_per_sec"
    meddled = Mishap(what=mishaps.SettingMeddled(key=key, value="20mb"), verb="start", after=1.0)
    _, state = run(world, plan=[meddled])
    assert state.outcome is Outcome.DONE, state.message
    assert world.persistent[key] == "20mb"


# Stops --------------------------------------------------------------------------------------------------


def test_a_stop_that_is_done_when_it_was_given_up_is_made_good() -> None:
    # Half a minute of silence, the same life: through the gates again, and then it is done after all.
    world = cluster(3)
    es2 = world.nodes[ES2]
    es2.stop_seconds = 0.0
    simulation = Simulation(world, trips=[Trip(verb="stop", target="es2", how=How.LOST)])
    flushes: list[str] = []

    def look(what: str) -> None:
        if not what.startswith("after flush"):
            return
        flushes.append(what)
        if len(flushes) == 2:
            machines.stop(world, es2)
            world.agenda.advance(0.1)

    _playing(simulation, policy(selection=ONLY_ES2, deadlines=Deadlines(hold=120.0)), look)
    assert len(flushes) >= 2, "the scenario takes place"
    assert es2.process
    assert es2.joined


@pytest.mark.proves("recorded-stop")
def test_no_stop_is_sent_that_the_record_does_not_name() -> None:
    # The master is lost in the moment between the last reading and the stop.
    for hundredth in range(10, 40, 2):
        world = cluster(3)
        after = hundredth / 100
        dies = Mishap(what=mishaps.NodeDies(node=ES1, back_after=60.0), verb="flush", after=after)
        simulation = Simulation(world, plan=[dies])

        def look(what: str, simulation: Simulation = simulation, after: float = after) -> None:
            if what.startswith("after stop of "):
                told = {entry.node for entry in simulation.record.in_hand}
                assert what.removeprefix("after stop of ") in told, f"{what}, master lost at {after} s"

        _playing(simulation, policy(deadlines=Deadlines(hold=120.0)), look)


def test_the_voting_exclusion_is_gone_before_the_master_stops() -> None:
    world = cluster(5)
    master = world.master
    run(world, wanted=policy(master_step_down=True))
    assert _happened(world, f"{master} is excluded from voting")
    assert _happened(world, "voting exclusions are cleared") < _happened(world, f"{master} left")


# The end of the run by request, time and defect of the disk ---------------------------------------------


def test_a_pause_ends_the_run_after_the_wave_in_hand() -> None:
    world = cluster(5)
    asked = Mishap(what=mishaps.Asked(request=Request.PAUSE), verb="start")
    run(world, plan=[asked])
    assert sorted(lives(world).values()) == [1, 1, 1, 1, 2]
    assert world.settings() == cluster(5).settings()


def test_a_run_that_has_used_up_its_time_restarts_no_more_nodes() -> None:
    world = cluster(5)
    began = world.agenda.now
    run(world, wanted=policy(timeout=30.0))
    stops = [at - began for at, what in world.story if what.endswith(" left")]
    assert stops
    assert max(stops) < 40.0
    assert all(node.joined for node in world.nodes.values())
    assert world.settings() == cluster(5).settings()


def test_a_full_disk_under_the_journal_leaves_no_node_down() -> None:
    world = cluster(3)
    full = Mishap(what=mishaps.DiskFull(seconds=7200.0), verb="stop", after=1.0)
    run(world, plan=[full])
    stopped = _happened(world, "es2 left")
    assert _happened(world, "es2 joined") - stopped < 60.0
    assert [until for _, until in _withheld(world) if until - stopped > 120.0] == []
    assert sorted(lives(world).values()) == [1, 1, 2], "and nothing more is stopped"


# Being back ---------------------------------------------------------------------------------------------


@pytest.mark.proves("rejoined")
def test_allocation_is_enabled_only_with_the_node() -> None:
    # The node joined, a reading of that moment is repeated for a while, and the node is gone again.
    world = cluster(3)
    joined = 8.0 + 2.0
    plan = [
        Mishap(what=mishaps.StaleReadings(seconds=20.0), verb="start", after=joined + 0.1),
        Mishap(what=mishaps.NodeDies(node=ES2), verb="start", after=joined + 0.2),
    ]
    run(world, plan=plan, wanted=policy(selection=ONLY_ES2))
    for _, until in _withheld(world):
        here = [what for at, what in world.story if at <= until and what in ("es2 left", "es2 joined")]
        assert here[-1] == "es2 joined"


@pytest.mark.parametrize("lives_on", [True, False], ids=["lives", "dies again"])
@pytest.mark.parametrize("reboot", [False, True], ids=["restart", "reboot"])
def test_a_node_that_ended_is_not_unstopped_by_an_old_list(*, lives_on: bool, reboot: bool) -> None:
    """The readings stand still at the stop: the cluster lists the node in its old life while it starts."""
    world = cluster(3)
    plan = [Mishap(what=mishaps.StaleReadings(seconds=90.0), verb="stop", target=ES2)]
    if not lives_on:
        plan.append(Mishap(what=DiesAgain(node=ES2, after=1.0), verb="stop", target=ES2))
    wanted = policy(selection=ONLY_ES2, reboot=reboot)
    simulation, state = run(world, plan=plan, wanted=wanted)
    steps = [record.event for record in simulation.journal.records if isinstance(record.event, PhaseEntered)]
    assert "pending" not in [step.to for step in steps if step.node == ES2]
    assert world.nodes[ES2].restarts_by_us == 1
    assert (state.outcome, world.nodes[ES2].joined) == (Outcome.DONE, True), state.message


@pytest.mark.proves("rebooted")
def test_a_reboot_is_proven_by_another_boot_and_no_restart() -> None:
    world = cluster(3)
    rises = Mishap(what=mishaps.RisesByItself(node=ES2, after=0.0))
    deadlines = Deadlines(stop=60.0, start=60.0, reboot=120.0, rejoin=60.0)
    _, state = run(world, plan=[rises], wanted=policy(reboot=True, deadlines=deadlines))
    counted = {name for name, node in state.nodes.items() if node.phase.value == "recovered"}
    assert [name for name in counted if world.nodes[name].boot == 1] == []
    undisturbed, _ = run(cluster(3), wanted=policy(reboot=True))
    assert [node.boot for node in undisturbed.world.nodes.values()] == [2, 2, 2]


# Replicas that were added -------------------------------------------------------------------------------


def test_a_replica_is_removed_only_while_every_primary_serves() -> None:
    # Another node has the primary while es2 is down, and dies: for a while nobody has one.
    world = cluster(5)
    bare = world.add_index("bare", replicas=0, places=["es2"])
    simulation = Simulation(world)
    deaths: list[NodeName] = []
    at_removal: list[CopyState] = []

    def look(what: str) -> None:
        primary, sent = bare.shards[0].primary, simulation.cluster.sent[-1]
        if what == "after start of es2" and primary.node is not None and not deaths:
            # Documents were written meanwhile, so that the copy on es2 is stale.
            deaths.append(primary.node)
            died = mishaps.NodeDies(node=primary.node, back_after=100.0)
            world.agenda.after(4.0, lambda: simulation.fate.befall(died))
        if what.startswith("after set_replicas") and isinstance(sent, SetReplicas) and sent.wanted == 0:
            at_removal.append(primary.state)

    wanted = policy(zero_replicas=ZeroReplicas.ADD_REPLICA, selection=ONLY_ES2)
    _playing(simulation, wanted, look)
    assert deaths, "the scenario takes place"
    assert at_removal
    assert set(at_removal) <= {CopyState.STARTED}
    assert bare.replicas == 0


# Hooks --------------------------------------------------------------------------------------------------

HOOKS = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))


def test_of_two_nodes_one_is_in_service_before_the_next_goes_out() -> None:
    world = cluster(5)
    plan = [
        Mishap(what=mishaps.Unreadable(seconds=30.0), verb="hook_before_stop"),
        Mishap(what=mishaps.NodeDies(node=ES2, back_after=1.0), verb="hook_before_stop"),
    ]
    simulation, state = run(world, plan=plan, wanted=policy(hooks=HOOKS), limit=600.0)
    assert state.outcome is Outcome.DONE, state.message
    out: set[NodeName] = set()
    for node, moment, _ in simulation.hosts.hooks:
        out = out | {node} if moment == "before_stop" else out - {node}
        assert len(out) <= 1, f"{sorted(out)} are out of service at once: {simulation.hosts.hooks}"
    assert out == set()


# Patience -----------------------------------------------------------------------------------------------


def test_copies_that_fail_for_good_are_retried_thrice_a_wave() -> None:
    world = cluster(3)
    gone = Mishap(what=mishaps.AllocationsFail(index="logs", times=10_000), verb="start")
    wanted = policy(selection=ONLY_ES2, deadlines=Deadlines(recover=900.0))
    run(world, plan=[gone], wanted=wanted)
    logs = next(index for index in world.indices.values() if index.name == "logs")
    # Five failures in a row after the start and after each new try, for each of the two copies on es2.
    failed = [10_000 - shard.failing for shard in logs.shards]
    assert max(failed) == 5 * (1 + 3)
