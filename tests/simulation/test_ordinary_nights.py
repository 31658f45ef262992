"""What happens on ordinary nights must not end a run: each scene is one such night, and how it must end.

Judged by the world's ground truth and the run's outcome alone. The limits of time are the scenes' own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import AWARENESS
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, NotWaitedFor, PhaseEntered, WaveStarted
from orchestrator.model.observation import HealthView, Level, Look
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Awareness, Deadlines, Hook, Hooks, Selection
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.index_mishaps import (
    IndexMounted,
    IndexReopened,
    IndexRestored,
    IndexRestoredOver,
    ReplicasSet,
    Rollovers,
    WorkBegun,
)
from orchestrator.simulation.mishaps import (
    Asked,
    Crash,
    HostCutOff,
    How,
    IndexDeleted,
    IndexMade,
    LeaseUnrefreshed,
    Mishap,
    ProgramStandsStill,
    RestartedByHand,
    SnapshotBegun,
    Trip,
    What,
)
from orchestrator.simulation.node_mishaps import DiesAgain, HostRefuses, NodeFlaps, NodePauses, ReturnsChanged
from orchestrator.simulation.program_mishaps import (
    CredentialsRefused,
    EndpointsDisagree,
    JournalFails,
    TakenOver,
)
from orchestrator.simulation.world import World
from tests.simulation import tuned
from tests.simulation.chance import chance
from tests.simulation.ordinary import (
    COORDINATING,
    ES1,
    ES2,
    ES3,
    ES4,
    ES5,
    QUIET_SECONDS,
    a_candidate_works,
    a_copy_without_a_place,
    a_disk_is_full,
    a_node_flaps,
    a_node_is_rescued,
    a_snapshot_begins_late,
    at_stop,
    ends_well,
    lived,
    others_work_on_indices,
    rescues,
    resumed_to_its_end,
    six,
    stopped_early,
    unfinished,
    wanted,
)
from tests.simulation.play import play
from tests.simulation.wide import Life

# Indices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "after"),
    [("before_stop", 0.31), ("while_stopped", 0.31), ("after_recovery", 0.01)],  # the reading still finds it
)
def test_a_host_that_is_out_of_reach_at_its_hook_is_asked_again(moment: str, after: float) -> None:
    """Of two hooks of a moment the second finds no host: it never ran, and runs when the host answers."""
    two = tuple(Hook(run=f"{word} {{node}}") for word in ("first", "second"))
    hooks = Hooks(**{moment: two})
    cut = Mishap(what=HostCutOff(node=ES3, seconds=20.0), verb=f"hook_{moment}", target=ES3, after=after)
    simulation, state = lived(cut, hooks=hooks)
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    failed = [r.event for r in simulation.journal.records if isinstance(r.event, ActionFailed)]
    assert {(event.passes, event.in_doubt) for event in failed} == {(True, False)}
    assert unfinished(simulation, wanted(hooks=hooks)) == []


def test_a_host_that_stays_out_of_reach_at_its_hook_is_given_up() -> None:
    cut = Mishap(
        what=HostCutOff(node=ES3, seconds=7200.0), verb="hook_after_recovery", target=ES3, after=0.01
    )
    simulation, state = lived(cut, deadlines=Deadlines(rejoin=120.0))
    assert state.outcome is Outcome.FAILED
    assert "hook after_recovery on es3: ssh to es3: timed out" in state.message
    assert simulation.world.settings() == ({}, {})


@pytest.mark.parametrize(
    ("what", "after"),
    [
        (IndexMade(name="crowded", on=ES1, replicas=6), 2.0),
        (IndexMade(name="crowded", on=ES1, replicas=6), 8.0),
        (Rollovers(index="logs", every=20.0, times=6, crowded=1), 0.0),
        (ReplicasSet(index="archive", replicas=6), 2.0),
    ],
    ids=["index made while down", "index made while starting", "rollovers", "replicas set"],
)
@pytest.mark.proves("unplaceable-copies")
def test_a_copy_without_a_place_is_not_waited_for(what: What, after: float) -> None:
    """One replica too many for the cluster: it was not on the wave, and no waiting places it."""
    a_copy_without_a_place(what, after)


def test_a_copy_without_a_place_holds_no_wave_after_a_flap() -> None:
    """Which of the two copies is assigned when it is back is chance: the other one may have had a node."""
    crowded = at_stop(IndexMade(name="crowded", on=ES1, replicas=6))
    flap = at_stop(NodeFlaps(node=ES5, seconds=2.0), after=18.0)
    simulation, state = lived(crowded, flap)
    ends_well(simulation, state)


def test_a_copy_that_awareness_would_not_place_is_not_awaited() -> None:
    """Awareness was set after the index was made: what has a place keeps it until its node restarts."""
    world = World()
    for number in range(1, 6):
        world.add_node(f"es{number}", zone="aaabc"[number - 1])
    world.add_index("everywhere", replicas=4, places=[NodeName(f"es{number}") for number in range(1, 6)])
    world.set(Level.PERSISTENT, AWARENESS, "zone")
    asked = {"awareness": Awareness(attributes=("zone",)), "zone_attribute": "zone"}
    simulation, state = lived(world=world, hooks=Hooks(), tune=None, **asked)
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    assert world.violations == []
    assert world.agenda.now - simulation.began < QUIET_SECONDS


def test_a_copy_that_no_old_node_may_hold_is_not_awaited() -> None:
    """One node comes back newer: no older node may take a replica of a primary that moved there."""
    world = World()
    for name in (ES1, ES2, ES3):
        world.add_node(str(name))
    world.add_index("pair", replicas=1, places=[ES3, ES2])
    newer = at_stop(ReturnsChanged(node=ES2, version="9.1.1"), ES2, after=0.0)
    simulation, state = lived(newer, world=world, hooks=Hooks(), tune=None)
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    assert world.violations == []
    assert world.agenda.now - simulation.began < QUIET_SECONDS
    named = [r.event for r in simulation.journal.records if isinstance(r.event, NotWaitedFor)]
    assert [one.index for event in named for one in event.shards] == ["pair"]


def test_a_copy_without_a_place_is_awaited_once_it_has_one() -> None:
    """The wave of es3 took it down; es1, which has the newer version too, has it built when it is back."""
    world = World()
    for name in (ES1, ES2, ES3):
        world.add_node(str(name))
    slow = world.add_index("pair", replicas=1, places=[ES3, ES2], size=2 << 30)
    slow.delay, slow.keeps = 0.0, 0.0
    newer = [at_stop(ReturnsChanged(node=node, version="9.1.1"), node, after=0.0) for node in (ES2, ES1)]
    simulation, state = lived(*newer, world=world, hooks=Hooks(), tune=None)
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    assert world.violations == []
    named = [r.event for r in simulation.journal.records if isinstance(r.event, NotWaitedFor)]
    assert [one.index for event in named for one in event.shards] == ["pair"]
    assert all(copy.serves for copy in slow.shards[0].copies)


def test_a_copy_unplaced_by_awareness_holds_no_wave_after_a_flap() -> None:
    """Zone a may have four of its eight copies: a node there without one takes that of another."""
    world = World()
    for number in range(1, 8):
        world.add_node(f"es{number}", zone="b" if number in {1, 7} else "a")
    world.set(Level.PERSISTENT, AWARENESS, "zone")
    crowded = Mishap(what=IndexMade(name="crowded", on=ES1, replicas=7))
    flap = Mishap(what=NodeFlaps(node=ES5, seconds=2.0), after=0.5)
    asked = {"awareness": Awareness(attributes=("zone",)), "zone_attribute": "zone"}
    simulation, state = lived(crowded, flap, world=world, hooks=Hooks(), tune=None, **asked)
    assert any(what == "es5 left" for _, what in world.story)
    assert state.outcome is Outcome.DONE, f"{state.outcome}: {state.message}"
    assert world.violations == []
    assert world.agenda.now - simulation.began < QUIET_SECONDS + 60.0


@pytest.mark.proves("index-changes")
def test_what_others_do_to_indices_beside_a_node_ends_no_run(subtests: pytest.Subtests) -> None:
    """A primary that is restored, mounted or reopened is red for a while, and not by us."""
    for what in [
        IndexRestored(name="restored", seconds=120.0),
        IndexRestored(name="restored", seconds=5.0),
        IndexMounted(name="mounted", seconds=60.0),
        IndexRestoredOver(index="archive", seconds=60.0),
        IndexReopened(index="logs", seconds=0.5),
        IndexReopened(index="archive", seconds=20.0),
        IndexDeleted(index="archive"),
        IndexDeleted(index="archive", made_again=True),
        ReplicasSet(index="logs", replicas=2),
    ]:
        with subtests.test(what=str(what)):
            others_work_on_indices(what)


# Nodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.3, 5.0])
@pytest.mark.parametrize(
    "node", [COORDINATING, ES1, ES4, ES3], ids=["coordinating", "master", "data", "just restarted"]
)
def test_a_node_that_flaps_ends_no_run(node: NodeName, seconds: float) -> None:
    """It misses in a reading or two, and is back in the same life."""
    a_node_flaps(node, seconds)


@pytest.mark.parametrize(
    ("after", "stands_still"), [(90.0, 0.0), (65.0, 25.0)], ids=["as it is read", "as it was read"]
)
def test_a_shard_that_is_red_while_a_node_flaps_ends_no_run(after: float, stands_still: float) -> None:
    """The wave has been back for a minute; its copy is copied from the node that leaves for a moment."""
    world = six()
    logs = next(index for index in world.indices.values() if index.name == "logs")
    logs.keeps, logs.shards[1].size = 0.0, 50 << 30  # on es2 and es3
    plan = [at_stop(NodeFlaps(node=ES3, seconds=20.0), ES2, after=after)]
    if stands_still:
        plan.append(at_stop(ProgramStandsStill(seconds=stands_still), ES2, after=after + 5.0))
    simulation, state = lived(*plan, world=world)
    ends_well(simulation, state, within=1200.0)


def test_flaps_on_both_sides_of_a_standstill_end_no_run() -> None:
    """It was missing for seconds, twice; what came in between the program did not see."""
    world = six()
    logs = next(index for index in world.indices.values() if index.name == "logs")
    logs.keeps, logs.shards[1].size = 0.0, 50 << 30  # on es2 and es3
    flaps = [at_stop(NodeFlaps(node=ES4, seconds=6.0), ES2, after=after) for after in (40.0, 342.0)]
    still = at_stop(ProgramStandsStill(seconds=300.0), ES2, after=44.0)
    simulation, state = lived(*flaps, still, world=world)
    ends_well(simulation, state, within=1200.0)


def test_no_node_stops_beside_a_replica_that_a_flap_took() -> None:
    """It follows the number of nodes, and waits for allocation: the wave is called off and goes later."""
    world = World()
    for number in range(1, 7):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    world.add_index(".tasks", replicas=5).auto_expand = "0-all"
    tuned.detune(world)
    flap = Mishap(what=NodeFlaps(node=ES5, seconds=2.0), verb="set_allocation", nth=2, after=1.0)
    cut_off = Trip(verb="set_allocation", how=How.UNACKNOWLEDGED, first=2)
    simulation, state = lived(flap, trips=(cut_off,), world=world)
    ends_well(simulation, state, within=QUIET_SECONDS + 60.0)


@pytest.mark.parametrize("host", [False, True], ids=["process", "machine"])
def test_a_node_that_pauses_while_joined_ends_no_run(host: bool) -> None:  # noqa: FBT001
    for after in (0.0, 8.0, 14.0):
        pause = at_stop(NodePauses(node=ES5, seconds=30.0, host=host), ES2, after=after)
        simulation, state = lived(pause)
        ends_well(simulation, state, within=QUIET_SECONDS + 90.0)


@pytest.mark.parametrize("node", [COORDINATING, ES1], ids=["coordinating", "candidate"])
def test_a_node_that_pauses_at_the_start_lets_others_go_first(node: NodeName) -> None:
    """It tells neither its tasks nor its disks; that is no news about any other node."""
    paused = Mishap(what=NodePauses(node=node, seconds=25.0), after=0.0)
    simulation, state = lived(
        paused, world=six(coordinating=True), selection=Selection(only=("es*",)), tune=None, hooks=Hooks()
    )
    assert state.outcome is Outcome.DONE, state.message
    assert simulation.world.violations == []
    stops = {
        name: fact.at - simulation.began
        for name, each in simulation.world.nodes.items()
        for fact in each.facts
        if fact.what == "stopped"
    }
    assert min(stops.values()) < 25.0, "another one goes at once"
    assert stops.get(node, 25.0) >= 25.0


def test_a_host_that_is_out_of_reach_for_seconds_ends_no_run() -> None:
    for after in (0.0, 3.0, 8.0):
        simulation, state = lived(at_stop(HostCutOff(node=ES3, seconds=20.0), after=after))
        ends_well(simulation, state, within=QUIET_SECONDS + 60.0)


def test_a_host_unreachable_at_the_first_reading_is_waited_for() -> None:
    simulation, state = lived(Mishap(what=HostCutOff(node=ES3, seconds=20.0)))
    ends_well(simulation, state, within=QUIET_SECONDS + 60.0)


def test_a_host_unreachable_for_seconds_ends_no_run_held_long() -> None:
    """The minute counts from when the host was silent, not from when the run began to hold."""
    snapshot = Mishap(what=SnapshotBegun(name="nightly", seconds=400.0))
    cut = Mishap(what=HostCutOff(node=ES2, seconds=25.0), after=300.0)
    simulation, state = lived(snapshot, cut, deadlines=Deadlines(hold=7200.0))
    ends_well(simulation, state, within=QUIET_SECONDS + 500.0)


def test_a_host_that_stays_unreachable_ends_a_run_in_minutes() -> None:
    simulation, state = lived(Mishap(what=HostCutOff(node=ES3, seconds=2000.0)))
    assert state.outcome is Outcome.HELD
    assert "selected_hosts_ready: host of es3" in state.message
    assert simulation.world.agenda.now - simulation.began < 180.0
    assert not any(isinstance(r.event, PhaseEntered) and r.event.node for r in simulation.journal.records)


def test_a_start_that_crashes_once_is_sent_again() -> None:
    """The node dies before it joins; its service manager leaves it down."""
    simulation, state = lived(at_stop(DiesAgain(node=ES3, times=1, after=1.0)))
    ends_well(simulation, state, within=QUIET_SECONDS + 60.0)


# Candidates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reindex", [False, True], ids=["force-merge", "reindex"])
@pytest.mark.proves("busy-candidate")
def test_work_on_one_candidate_lets_the_others_go_first(reindex: bool) -> None:  # noqa: FBT001
    a_candidate_works(reindex=reindex)


def test_one_disk_over_its_watermark_lets_the_others_go_first() -> None:
    a_disk_is_full()


def test_a_host_that_refuses_us_lets_the_others_go_first() -> None:
    """Its key changed, or sudo did, when the run was under way; people put it right."""
    for key in (False, True):
        refuses = at_stop(HostRefuses(node=ES5, seconds=600.0, key=key), ES2)
        simulation, state = lived(refuses)
        ends_well(simulation, state, within=900.0)


def test_a_snapshot_after_before_stop_puts_the_node_into_service() -> None:
    """Hooks that took the candidate out of service are undone while it waits, and run again at its turn."""
    a_snapshot_begins_late()


def test_a_candidate_busy_after_before_stop_lets_others_go_first() -> None:
    """It is back in service at once; its hooks run again at its turn."""
    for nth in (1, 3):
        simulation, _ = lived()
        turns_taken = [r.event for r in simulation.journal.records if isinstance(r.event, WaveStarted)]
        (name,) = turns_taken[nth - 1].wave.nodes
        work = WorkBegun(node=name, seconds=3000.0)
        busy = Mishap(what=work, verb="hook_before_stop", target=name)
        simulation, state = lived(busy, deadlines=Deadlines(hold=7200.0))
        ends_well(simulation, state, within=3300.0)
        assert stopped_early(simulation) >= 4, "all but the busy one and the elected master went at once"
        facts = simulation.world.nodes[name].facts
        told = [fact.what for fact in facts if fact.what.startswith(("hook before", "hook after", "stopped"))]
        assert told[:3] == ["hook before_stop 0", "hook after_recovery 0", "hook after_recovery 1"]


# Calls that are refused ------------------------------------------------------------------------------


_REFUSED_ONCE = [
    Trip(verb="set_allocation", how=How.REFUSED),
    Trip(verb="set_allocation", how=How.REFUSED, first=3),
    Trip(verb="restore_allocation", how=How.REFUSED),
    Trip(verb="probe_settings", how=How.REFUSED),
    Trip(verb="restore_settings", how=How.REFUSED),
    Trip(verb="flush", how=How.REFUSED),
    Trip(verb="stop", how=How.REFUSED),
    Trip(verb="start", how=How.REFUSED),
    Trip(verb="set_allocation", how=How.PARTLY),
    Trip(verb="restore_settings", how=How.PARTLY),
    Trip(verb="set_allocation", how=How.UNACKNOWLEDGED),
    Trip(verb="stop", how=How.LOST),
]


@pytest.mark.proves("refused-calls")
def test_a_call_that_fails_once_ends_no_run(subtests: pytest.Subtests) -> None:
    """A 429, a refused SSH command or an answer that is cut off."""
    for trip in _REFUSED_ONCE:
        with subtests.test(trip=f"{trip.verb} {trip.how.name} {trip.first}"):
            simulation, state = lived(trips=(trip,))
            ends_well(simulation, state, within=QUIET_SECONDS + 90.0)


@pytest.mark.parametrize(
    "what",
    [
        LeaseUnrefreshed(seconds=50.0),
        CredentialsRefused(seconds=20.0),
        EndpointsDisagree(seconds=60.0),
    ],
    ids=str,
)
def test_a_cluster_that_fails_to_respond_for_a_while_ends_no_run(what: What) -> None:
    for verb, after in (("set_allocation", 0.05), ("stop", 0.0), ("start", 1.0)):
        simulation, state = lived(Mishap(what=what, verb=verb, nth=2, after=after))
        ends_well(simulation, state, within=QUIET_SECONDS + 120.0)


# What a turn owes ------------------------------------------------------------------------------------


@pytest.mark.proves("interrupted")
def test_an_interrupted_node_has_its_whole_turn_when_resumed(subtests: pytest.Subtests) -> None:
    """SIGINT while a node is down: it is started at once, and what it missed is owed to its next turn."""
    for after in [1.0, 5.0, 5.5, 9.0, 12.0]:
        with subtests.test(after=after):
            simulation, state = lived(at_stop(Asked(request=Request.INTERRUPT), after=after))
            assert state.outcome is Outcome.INTERRUPTED
            assert all(node.process for node in simulation.world.nodes.values()), "nothing is left down"
            state = resumed_to_its_end(simulation, state)
            assert state.outcome is Outcome.DONE, state.message
            assert simulation.world.violations == []
            assert unfinished(simulation, wanted()) == []


def test_a_node_restarted_by_others_gets_its_hooks_and_tuning() -> None:
    by_hand = Mishap(what=RestartedByHand(node=ES5), after=5.0)
    simulation, state = lived(by_hand)
    state = resumed_to_its_end(simulation, state)
    assert state.outcome is Outcome.DONE, state.message
    assert unfinished(simulation, wanted()) == []


def test_a_rescued_node_has_hooks_and_tuning_in_another_turn() -> None:
    """An index made between the last reading and the stop has its only copy there: the node is started."""
    a_node_is_rescued()


def test_an_index_restored_just_before_the_stop_is_rescued_too() -> None:
    """Its primary had started on the node, and its replica, which came from nowhere yet, is no excuse."""
    restored = at_stop(IndexRestored(name="restored", seconds=0.1), node=ES4, after=0.0)
    simulation, state = lived(restored)
    assert state.outcome is Outcome.DONE, state.message
    assert rescues(simulation) == 1
    assert simulation.world.violations == []


def test_a_rescued_node_goes_after_the_others() -> None:
    """What was made on it at its stop may be made there again: rollovers come at a beat of their own."""
    made = at_stop(IndexMade(name="raced", on=ES3), after=0.0)
    simulation, state = lived(made)
    assert state.outcome is Outcome.DONE, state.message
    assert rescues(simulation) == 1
    nodes = simulation.world.nodes
    stops = {name: [f.at for f in node.facts if f.what == "stopped"] for name, node in nodes.items()}
    last = {name: at[-1] for name, at in stops.items()}
    assert sorted(last, key=last.__getitem__)[-2:] == [ES3, ES1], "but before the elected master"


def test_an_undo_in_doubt_is_not_taken_for_a_node_out_of_service() -> None:
    """Killed right after an after_recovery hook: it ran, so before_stop runs again before the next stop."""
    snapshot = Mishap(what=SnapshotBegun(seconds=300.0), verb="hook_before_stop", after=0.0)
    interrupt = Mishap(what=Asked(request=Request.INTERRUPT), verb="hook_before_stop", after=100.0)
    lease = Mishap(what=LeaseUnrefreshed(seconds=50.0), verb="set_allocation", after=0.05)
    for plan in ((snapshot, interrupt), (lease,)):
        quiet, _ = lived(*plan)
        hooks = [place for place, what in enumerate(quiet.seams.passed) if "hook_after_recovery" in what]
        simulation = Simulation(six(), plan=plan)
        state = simulation.begin(wanted())
        simulation.seams.crash_at = hooks[1] + 1
        with contextlib.suppress(Crash):
            play(simulation, state, invariants=False, compare=False)
        simulation.seams.crash_at = None
        simulation.world.agenda.advance(900.0)
        state = resumed_to_its_end(simulation, state)
        assert state.outcome is Outcome.DONE, state.message
        assert simulation.world.violations == []


@pytest.mark.parametrize("late", [35.0, 70.0, 110.0])
def test_a_stop_that_is_done_late_leaves_no_node_down(late: float) -> None:
    """Later than anybody waits for it: the node goes down when others have their turn, or all is over."""
    simulation, state = lived(trips=(Trip(verb="stop", how=How.LATE, target=ES3, late=late),))
    simulation.world.agenda.advance(300.0)
    state = resumed_to_its_end(simulation, state)
    assert state.outcome is Outcome.DONE, state.message
    assert simulation.world.violations == []
    assert [name for name, node in simulation.world.nodes.items() if not node.joined] == []
    assert unfinished(simulation, wanted()) == []


# The program itself ----------------------------------------------------------------------------------


def test_a_process_that_was_taken_over_changes_nothing_any_more(subtests: pytest.Subtests) -> None:
    """Suspended with a node down, taken over, and woken while its successor is at work."""
    for after, restarts in product([0.5, 3.0, 9.0], [False, True]):
        with subtests.test(after=after, restarts=restarts):
            drawn = replace(
                chance(3, ordinary=False),
                plan=(at_stop(TakenOver(seconds=130.0, restarts=restarts), after=after),),
                trips=(),
                crashes=(),
                planned=False,
                wanted=replace(wanted(tune=None), zone_attribute="zone", timeout=None, pause_after=None),
            )
            Life(drawn).live()


def test_at_a_defect_a_node_is_started_and_allocation_enabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception in a reading, as long as the process lives."""
    simulation = Simulation(six())
    world, read = simulation.world, simulation.cluster.observe

    def breaks(look: Iterable[Look]) -> object:
        if any(not node.process for node in world.nodes.values()):
            raise KeyError("a defect of the program")
        return read(frozenset(look))

    monkeypatch.setattr(type(simulation.cluster), "observe", lambda _self, look: breaks(look))
    with pytest.raises(KeyError):
        play(simulation, simulation.begin(wanted()), invariants=False, compare=False)
    world.agenda.advance(60.0)
    assert all(node.process for node in world.nodes.values()), "every node was started"
    assert world.effective(ALLOCATION) == "all"


@pytest.mark.parametrize("seconds", [3.0, 60.0])
def test_a_journal_locked_for_a_while_leaves_nothing_behind(seconds: float) -> None:
    for verb in ("hook_before_stop", "stop", "start"):
        what = JournalFails(reason="database is locked", seconds=seconds)
        simulation, state = lived(Mishap(what=what, verb=verb, nth=2, after=0.0))
        assert all(node.process for node in simulation.world.nodes.values())
        assert simulation.world.settings() == ({}, {})
        simulation.world.agenda.advance(seconds)
        state = resumed_to_its_end(simulation, state)
        assert state.outcome is Outcome.DONE, state.message
        assert simulation.world.violations == []
        assert unfinished(simulation, wanted()) == []


def test_six_quiet_turns_are_whole() -> None:
    """The scenes' own measure: nothing happens, and every node has all that its turn owes."""
    simulation, state = lived()
    ends_well(simulation, state)
    health = simulation.cluster.observe({Look.HEALTH}).health
    assert isinstance(health, HealthView)
    assert health.unassigned_shards == 0
    assert sum(isinstance(r.event, PhaseEntered) for r in simulation.journal.records) > 0
    assert simulation.world.may_stand(Level.PERSISTENT, ALLOCATION, None) == (None,)
