"""The world's own judge: what it must notice, with no program at work but the verbs themselves."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from orchestrator.engine.kinds.elasticsearch.settings import CONCURRENT_RECOVERIES
from orchestrator.model.action import (
    Done,
    Purpose,
    RebootHost,
    SettingChange,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.model.event import SettingChanged
from orchestrator.model.observation import EVERYTHING, Level
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import judge, mishaps
from orchestrator.simulation.beginning import note_unassigned, note_what_is
from orchestrator.simulation.mishaps import How, LeaseUnrefreshed, Trip
from tests.simulation.index_mishaps import IndexReopened, ReplicasSet
from tests.simulation.node_mishaps import NodeFlaps
from tests.simulation.overlapping import slow
from tests.simulation.play import cluster, policy

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
WITHHELD = SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found=None, wanted="primaries")


def _withheld(*trips: Trip, nodes: int = 3) -> Simulation:
    """Allocation is off, and everything was read a moment ago."""
    simulation = Simulation(cluster(nodes), trips=trips)
    simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
    simulation.cluster.observe(EVERYTHING)
    return simulation


def _bring_back(simulation: Simulation, node: NodeName) -> None:
    """Somebody else restarts the node."""
    simulation.fate.befall(mishaps.NodeDies(node=node, back_after=0.5))
    simulation.world.agenda.advance(12.0)
    simulation.cluster.observe(EVERYTHING)


def test_one_stop_after_the_other_is_right() -> None:
    simulation = _withheld()
    for node in (ES2, ES3):
        simulation.hosts.perform(StopNode(node=node))
        simulation.world.agenda.advance(5.0)
        simulation.hosts.perform(StartNode(node=node))
        simulation.cluster.perform(WriteSettings(changes=(WITHHELD.undone(),), purpose=Purpose.REASSIGN))
        simulation.world.agenda.advance(60.0)
        simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
        simulation.cluster.observe(EVERYTHING)
    assert simulation.world.violations == []


def test_a_node_that_dies_just_before_its_stop_is_ours_to_start() -> None:
    simulation = _withheld()
    simulation.fate.befall(mishaps.NodeDies(node=ES2))
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.world.agenda.advance(400.0)
    assert simulation.world.violations == [], "it died of itself"
    simulation.hosts.perform(StartNode(node=ES2))
    assert any("es2 was left down" in said for said in simulation.world.violations)


def test_a_reboot_of_a_machine_with_an_unstopped_node_is_noticed() -> None:
    simulation = _withheld()
    simulation.world.allowed_down = 2
    simulation.world.nodes[ES2].machine = simulation.world.nodes[ES3].machine
    for also in ((), (ES2,)):
        simulation.hosts.perform(StopNode(node=(ES3, *also)[-1]))
        simulation.world.agenda.advance(5.0)
        simulation.cluster.observe(EVERYTHING)
        simulation.hosts.perform(RebootHost(node=ES3, also=also))
        simulation.world.agenda.advance(100.0)
        told = [said for said in simulation.world.violations if "takes down" in said]
        assert [said.partition(": ")[2] for said in told] == [
            "the reboot for es3 takes down es2, which was not stopped"
        ]
        assert {simulation.world.nodes[name].boot for name in (ES2, ES3)} == {2 + len(also)}
        simulation.hosts.perform(StopNode(node=ES3))
        simulation.world.agenda.advance(5.0)


def test_two_machines_down_at_once_are_noticed() -> None:
    simulation = _withheld()
    simulation.world.allowed_down, simulation.world.one_machine = 3, True
    simulation.world.nodes[ES2].machine = simulation.world.nodes[ES3].machine
    for node, others in ((ES2, 0), (ES3, 0), (ES1, 1)):
        simulation.hosts.perform(StopNode(node=node))
        told = [said for said in simulation.world.violations if said.endswith("is down by us")]
        assert len(told) == others


def test_a_reboot_is_noticed_only_where_its_node_runs() -> None:
    simulation = _withheld()
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.world.agenda.advance(5.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(RebootHost(node=ES2))
    assert simulation.world.violations == []
    simulation.hosts.perform(RebootHost(node=ES3))
    assert [said.split(": ")[1] for said in simulation.world.violations] == [
        "the reboot for es3 takes down es3, which was not stopped"
    ]


def test_a_stop_beside_copies_that_nobody_works_on_is_noticed() -> None:
    simulation = _withheld()
    _bring_back(simulation, ES2)
    simulation.hosts.perform(StopNode(node=ES3))
    assert any(
        said.endswith("is stopped while a copy of [logs][0] is unassigned")
        for said in simulation.world.violations
    )


@pytest.mark.parametrize(("seconds", "noticed"), [(0.1, True), (5.0, False)])
def test_copies_that_a_closing_set_aside_are_no_loss(
    seconds: float,
    noticed: bool,  # noqa: FBT001
) -> None:
    """The stop leaves such a shard one started copy, as any stop of a node with a replica may."""
    simulation = _withheld()
    simulation.fate.befall(IndexReopened(index="archive", seconds=30.0))
    simulation.world.agenda.advance(seconds)
    simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=ES3))
    said = [one for one in simulation.world.violations if "is unassigned" in one]
    assert bool(said) is bool(simulation.world.violations) is noticed, simulation.world.violations


def test_a_stop_beside_a_replica_that_a_flap_took_is_noticed() -> None:
    simulation = _withheld()
    simulation.world.add_index(".tasks", replicas=2).auto_expand = "0-all"
    simulation.fate.befall(NodeFlaps(node=ES2, seconds=1.0))
    simulation.world.agenda.advance(5.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=ES3))
    assert any("a copy of [.tasks][0] is unassigned" in said for said in simulation.world.violations)


@pytest.mark.parametrize(
    ("name", "replicas", "accepted", "noticed"),
    [
        ("new-1", 0, ("new-*",), False),
        ("new-1", 0, ("old-*",), True),
        ("new-1", 1, ("new-*",), True),
    ],
)
def test_indices_without_replicas_are_excused_by_pattern(
    name: str, replicas: int, accepted: tuple[str, ...], *, noticed: bool
) -> None:
    """As the playbook has it: the index may have been made during the run."""
    simulation = _withheld()
    world = simulation.world
    world.exempt_without_replicas = accepted
    world.add_index(name, replicas=0, places=[ES3]).replicas = replicas  # one that has no copy yet
    world.agenda.advance(1.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=ES3))
    assert any("last in-sync copy of [new-1][0]" in said for said in world.violations) is noticed


@pytest.mark.parametrize("read", [False, True])
def test_a_last_copy_that_others_leave_in_time_is_noticed(
    read: bool,  # noqa: FBT001
) -> None:
    simulation = _withheld()
    logs = next(index for index in simulation.world.indices.values() if index.name == "logs")
    simulation.fate.befall(ReplicasSet(index="logs", replicas=0))
    simulation.world.agenda.advance(1.0)
    if read:
        simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=NodeName(str(logs.shards[0].primary.node))))
    said = [one for one in simulation.world.violations if "last in-sync copy" in one]
    assert bool(said) is read


def test_a_stop_is_noticed_only_with_a_part_in_a_recovery() -> None:
    for node, noticed in ((NodeName("es1"), True), (NodeName("es5"), False)):
        simulation = Simulation(slow())
        simulation.world.files[CONCURRENT_RECOVERIES] = "15"
        _bring_back(simulation, ES2)
        simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
        simulation.cluster.observe(EVERYTHING)
        simulation.hosts.perform(StopNode(node=node))
        said = [one for one in simulation.world.violations if "recovers on es2 with it" in one]
        assert bool(said) is bool(simulation.world.violations) is noticed, simulation.world.violations


def test_a_stop_not_done_for_half_a_minute_is_taken_as_lost() -> None:
    for seconds, noticed in ((20.0, True), (31.0, False)):
        simulation = _withheld(Trip(verb="stop", target="es2", how=How.LATE, late=400.0))
        simulation.hosts.perform(StopNode(node=ES2))
        simulation.world.agenda.advance(seconds)
        simulation.hosts.perform(StopNode(node=ES3))
        found = [said for said in simulation.world.violations if "es3 is stopped while es2 is down" in said]
        assert bool(found) is noticed, seconds


@pytest.mark.parametrize(
    ("late", "read", "noticed"), [(40.0, False, False), (40.0, True, True), (20.0, False, True)]
)
def test_a_late_stop_after_the_last_reading_is_no_fault(
    late: float,
    read: bool,  # noqa: FBT001
    noticed: bool,  # noqa: FBT001
) -> None:
    """After half a minute it could be taken as lost; with a reading after it, or before that, not."""
    simulation = _withheld(Trip(verb="stop", target="es2", how=How.LATE, late=late))
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.world.agenda.advance(late - 1.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.world.agenda.advance(1.0)
    if read:
        simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=ES3))
    found = [said for said in simulation.world.violations if "es3 is stopped while es2 is down" in said]
    assert bool(found) is bool(simulation.world.violations) is noticed, simulation.world.violations


@pytest.mark.parametrize(
    "what",
    [mishaps.NodeDies(node=ES2, back_after=600.0), mishaps.RestartedByHand(node=ES2)],
    ids=["dies", "is restarted"],
)
def test_what_leaves_after_its_lost_stop_is_not_down_by_us(what: mishaps.What) -> None:
    """It had run on for half a minute, and another was stopped; what is before that counts as the stop."""
    for seconds, noticed in ((20.0, True), (37.0, False)):
        simulation = _withheld(Trip(verb="stop", target="es2", how=How.LATE, late=110.0))
        simulation.hosts.perform(StopNode(node=ES2))
        simulation.world.agenda.advance(seconds)
        simulation.cluster.observe(EVERYTHING)
        simulation.hosts.perform(StopNode(node=ES3))
        simulation.fate.befall(what)
        simulation.world.agenda.advance(10.0)
        found = [said for said in simulation.world.violations if "es2, es3 are down by us at once" in said]
        assert bool(found) is bool(simulation.world.violations) is noticed, simulation.world.violations


def test_a_node_that_dies_again_at_its_start_stays_down_by_us() -> None:
    """Its stop was done long ago: a life that did not join yet is no sign that the stop is lost."""
    simulation = _withheld()
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.world.agenda.advance(60.0)
    simulation.hosts.perform(StartNode(node=ES2))
    simulation.world.agenda.advance(8.5)
    assert simulation.world.nodes[ES2].process
    assert not simulation.world.nodes[ES2].joined
    simulation.fate.befall(mishaps.NodeDies(node=ES2, back_after=600.0))
    assert simulation.world.nodes[ES2].stopped_late is None
    simulation.hosts.perform(StopNode(node=ES3))
    assert [said for said in simulation.world.violations if "es3 is stopped while es2 is down by us" in said]


def test_a_late_stop_that_takes_our_second_node_down_is_noticed() -> None:
    """It was sent when all was well; the node came up by itself, and only then is the stop done."""
    simulation = _withheld(Trip(verb="stop", target="es2", how=How.LATE, late=20.0))
    simulation.hosts.perform(StopNode(node=ES2))
    _bring_back(simulation, ES2)
    simulation.hosts.perform(StopNode(node=ES3))
    assert not [said for said in simulation.world.violations if "at once" in said]
    simulation.world.agenda.advance(15.0)
    assert [said for said in simulation.world.violations if "es2, es3 are down by us at once" in said]


def test_a_stop_beside_a_node_that_left_meanwhile_is_noticed() -> None:
    simulation = _withheld()
    simulation.fate.befall(mishaps.NodeDies(node=ES3, back_after=100.0))
    simulation.world.agenda.advance(60.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.hosts.perform(StopNode(node=ES2))
    assert f"{ES2} is stopped while {ES3} is away" in "".join(simulation.world.violations)
    without = Simulation(cluster(3))
    without.fate.befall(mishaps.NodeDies(node=ES3, back_after=100.0))
    without.world.agenda.advance(60.0)
    without.begin(policy())
    assert without.world.away_before == {ES3}
    without.world.agenda.advance(60.0)
    assert without.world.away_before == set(), "back: from now on it is missed like any other"


@pytest.mark.parametrize("starts", [False, True])
def test_work_beside_an_away_node_that_does_not_start_is_noticed(starts: bool) -> None:  # noqa: FBT001
    simulation = _withheld(nodes=5)
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.fate.befall(mishaps.NodeDies(node=ES3, back_after=600.0))
    simulation.world.agenda.advance(10.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.world.agenda.advance(1.0)
    if starts:
        simulation.hosts.perform(StartNode(node=ES3))
    judge.delay(simulation.world, simulation.world.nodes[ES2], "a hook")
    said = f"a hook on {ES2} while {ES3} is away" in "".join(simulation.world.violations)
    assert said is not starts


def test_a_late_stop_that_meets_allocation_on_is_noticed() -> None:
    simulation = _withheld(Trip(verb="stop", how=How.LATE, late=20.0))
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.cluster.perform(WriteSettings(changes=(WITHHELD.undone(),), purpose=Purpose.REASSIGN))
    assert simulation.world.violations == []
    simulation.world.agenda.advance(20.0)
    assert "a late stop of es2 meets allocation on" in simulation.world.violations[0]


@pytest.mark.parametrize(
    ("late", "read", "ours"), [(150.0, 60.0, True), (200.0, 60.0, False), (200.0, 20.0, True)]
)
def test_a_stop_done_after_it_could_be_taken_as_lost_is_nobodys(
    late: float,
    read: float,
    ours: bool,  # noqa: FBT001
) -> None:
    """A program that was killed before has the node in hand for the one that takes up its run."""
    simulation = _withheld(Trip(verb="stop", how=How.LATE, late=late))
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.world.agenda.advance(read)
    simulation.cluster.observe(EVERYTHING)
    simulation.world.agenda.advance(late - read + 30.0)
    node = simulation.world.nodes[ES2]
    assert (node.process, node.stopped_by_us) == (False, ours)


def test_what_others_take_down_is_no_fault_of_the_program() -> None:
    simulation = _withheld()
    simulation.hosts.perform(StopNode(node=ES2))
    simulation.fate.befall(mishaps.NodeDies(node=ES3))
    simulation.world.agenda.advance(20.0)
    assert simulation.world.violations == []


def test_what_another_operator_set_is_kept_if_it_could_be_known() -> None:
    simulation = _withheld()
    meddled = mishaps.SettingMeddled(key=ALLOCATION, value="none")
    simulation.fate.befall(meddled)
    may_stand = partial(simulation.world.may_stand, Level.PERSISTENT, ALLOCATION, "as found")
    assert may_stand() == ("none",)
    simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
    assert may_stand() == ("none", "as found"), "written on a reading from before it"
    simulation.fate.befall(meddled)
    simulation.world.agenda.advance(1.0)
    simulation.cluster.observe(EVERYTHING)
    simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
    assert may_stand() == ("none",), "it was there to be read"


def test_an_unrefreshed_lease_is_lost_in_a_minute_and_regained() -> None:
    simulation = Simulation(cluster(3))
    simulation.begin(policy())
    agenda, lease = simulation.world.agenda, simulation.attempt.lease
    ages = []
    for _ in range(8):
        agenda.advance(4.0)
        ages.append(lease.view().refreshed)
    assert max(ages) < 15.0
    assert min(ages) < 4.0
    simulation.fate.befall(LeaseUnrefreshed(seconds=70.0))
    agenda.advance(40.0)
    assert lease.view().held
    agenda.advance(29.0)
    assert not lease.view().held
    assert lease.view().refreshed > 60.0
    agenda.advance(6.0)
    assert lease.view().held
    assert lease.view().refreshed < 6.0


@pytest.mark.parametrize("what", [mishaps.LeaseTaken(), LeaseUnrefreshed(seconds=10.0)], ids=str)
def test_no_record_is_written_over_a_lease_that_is_not_ours(what: mishaps.What) -> None:
    simulation = Simulation(cluster(3))
    simulation.begin(policy())
    owing = simulation.journalled(
        SettingChanged(
            level=WITHHELD.level, key=ALLOCATION, found=None, wanted="primaries", purpose=Purpose.WITHHOLD
        )
    )
    simulation.fate.befall(what)
    published = simulation.attempt.lease.publish(owing)
    assert not isinstance(published, Done)
    stands = simulation.leases.stands
    assert stands is None or stands.debts == ()


def test_what_a_run_found_missing_is_none_of_its_doing() -> None:
    """What is lost between its beginning and its baseline counts too; a repair answers for what is built."""
    world = cluster(3)
    logs, archive = (next(iter(index.shards)) for index in world.indices.values())
    for shard in (logs, archive):
        world.missing[shard.id] = world.agenda.now
    built, lost = logs.copies[1], archive.copies[1]
    built.state = CopyState.INITIALIZING
    note_what_is(world, policy(), repairs=True)
    assert set(world.missing) == {logs.id}
    note_what_is(world, policy())
    assert world.missing == {}
    assert (world.missing_before, world.unassigned_before) == (Counter([logs.id]), Counter())
    lost.state = CopyState.UNASSIGNED
    note_unassigned(world)
    assert (world.missing_before, world.unassigned_before) == (Counter([logs.id]), Counter([archive.id]))
