"""The simulated world: guests, what others do to indices and nodes, and what is drawn of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.action import (
    Purpose,
    Refused,
    RunInstall,
    SettingChange,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState
from orchestrator.model.observation import Level
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation import installs, machines
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.facts import Fact
from orchestrator.simulation.mishaps import How, Mishap, Trip
from orchestrator.simulation.world import World
from tests.simulation import index_mishaps, nights, node_mishaps, shrink
from tests.simulation.chance import Chance, by_chance, chance
from tests.simulation.play import cluster, policy
from tests.simulation.scene import ES1, ES2, ES3
from tests.simulation.upgrading import STEPS, TARGET, wanted

WITHHELD = SettingChange(level=Level.PERSISTENT, key=ALLOCATION, found=None, wanted="primaries")


def _withheld() -> Simulation:
    """A run has begun and disabled allocation."""
    simulation = Simulation(cluster(3))
    simulation.begin(policy())
    simulation.cluster.perform(WriteSettings(changes=(WITHHELD,), purpose=Purpose.WITHHOLD))
    return simulation


def test_a_guest_runs_while_the_host_waits_one_thread_at_a_time() -> None:
    agenda, told = Agenda(start=0.0), list[tuple[str, float]]()

    def guest() -> None:
        for _ in range(3):
            agenda.advance(4.0)
            told.append(("guest", agenda.now))

    invited = agenda.invite(guest)
    agenda.after(5.0, lambda: told.append(("world", agenda.now)))
    agenda.advance(6.0)
    told.append(("host", agenda.now))
    assert told == [("guest", 4.0), ("world", 5.0), ("host", 6.0)]
    assert agenda.until(lambda: invited.over, 100.0)
    assert told[3:] == [("guest", 8.0), ("guest", 12.0)]
    assert agenda.now == 12.0


def test_a_guest_is_sent_home_and_its_failure_is_kept() -> None:
    agenda = Agenda(start=0.0)

    def fails() -> None:
        agenda.advance(1.0)
        raise ValueError("wrong")

    failing, staying = agenda.invite(fails), agenda.invite(lambda: agenda.advance(1e9))
    agenda.advance(10.0)
    assert isinstance(failing.failure, ValueError)
    assert not staying.over
    agenda.dismiss()
    assert staying.over
    assert staying.failure is None


# The world -------------------------------------------------------------------------------------------


def _copies(world: World, index: str) -> list[tuple[bool, str]]:
    return [
        (copy.primary, copy.state.value if copy.state is not CopyState.UNASSIGNED else str(copy.reason))
        for made, shard in shards_of(world)
        if made.name == index
        for copy in sorted(shard.copies, key=lambda copy: not copy.primary)
    ]


def test_restores_under_primaries_and_none_as_on_real_nodes() -> None:
    """Seen on 8.19: the primary comes, its replica waits; one begun under `none` has failed for good."""
    simulation = _withheld()
    world, fate = simulation.world, simulation.fate
    fate.befall(index_mishaps.IndexRestored(name="first", seconds=10.0))
    world.agenda.advance(1.0)
    assert _copies(world, "first") == [(True, "INITIALIZING"), (False, "NEW_INDEX_RESTORED")]
    world.agenda.advance(60.0)
    assert _copies(world, "first") == [(True, "STARTED"), (False, "NEW_INDEX_RESTORED")]
    world.meddle(Level.PERSISTENT, ALLOCATION, "none")
    fate.befall(index_mishaps.IndexRestored(name="second", seconds=10.0))
    world.meddle(Level.PERSISTENT, ALLOCATION, None)
    world.agenda.advance(60.0)
    assert _copies(world, "first") == [(True, "STARTED"), (False, "STARTED")]
    assert _copies(world, "second") == [(True, "NEW_INDEX_RESTORED"), (False, "NEW_INDEX_RESTORED")]


def test_an_index_that_is_closed_and_opened_as_on_real_nodes() -> None:
    """Seen on 8.19: its primary comes back from its disk even under `none`, its replica does not."""
    simulation = _withheld()
    world = simulation.world
    world.meddle(Level.PERSISTENT, ALLOCATION, "none")
    simulation.fate.befall(index_mishaps.IndexReopened(index="archive", seconds=20.0))
    world.agenda.advance(10.0)
    assert _copies(world, "archive") == [(True, "STARTED"), (False, "INDEX_CLOSED")] * 2
    world.agenda.advance(20.0)
    assert _copies(world, "archive") == [(True, "STARTED"), (False, "INDEX_REOPENED")] * 2
    world.meddle(Level.PERSISTENT, ALLOCATION, None)
    world.agenda.advance(30.0)
    assert _copies(world, "archive") == [(True, "STARTED"), (False, "STARTED")] * 2


def test_an_index_is_not_closed_while_it_is_being_restored() -> None:
    """The cluster refuses it: "Cannot close indices that are being restored"."""
    simulation = _withheld()
    world = simulation.world
    simulation.fate.befall(index_mishaps.IndexRestoredOver(index="archive", seconds=30.0))
    world.agenda.advance(1.0)
    simulation.fate.befall(index_mishaps.IndexReopened(index="archive", seconds=5.0))
    simulation.fate.befall(index_mishaps.IndexRestoredOver(index="archive", seconds=600.0))
    assert _copies(world, "archive") == [(True, "INITIALIZING"), (False, "EXISTING_INDEX_RESTORED")] * 2
    world.agenda.advance(60.0)
    assert _copies(world, "archive") == [(True, "STARTED"), (False, "EXISTING_INDEX_RESTORED")] * 2
    simulation.fate.befall(index_mishaps.IndexReopened(index="archive", seconds=5.0))
    world.agenda.advance(2.0)
    assert world.indices["archive-uuid"].closed


def test_a_node_that_flaps_comes_back_without_a_restart() -> None:
    simulation = Simulation(cluster(3))
    node = simulation.world.nodes[ES3]
    simulation.fate.befall(node_mishaps.NodeFlaps(node=ES3, seconds=5.0))
    assert (node.joined, node.process) == (False, True)
    simulation.world.agenda.advance(6.0)
    assert (node.joined, node.life) == (True, 1)
    simulation.fate.befall(node_mishaps.NodeFlaps(node=ES1, seconds=5.0))
    simulation.world.agenda.advance(4.0)
    assert simulation.world.master not in (None, ES1)


def test_a_node_with_an_empty_disk_has_another_id_and_new_copies() -> None:
    simulation = Simulation(cluster(3))
    world = simulation.world
    simulation.fate.befall(node_mishaps.DiskLost(node=ES3))
    simulation.fate.befall(node_mishaps.ReturnsChanged(node=ES3, zone="d"))
    simulation.hosts.perform(StopNode(node=ES3))
    world.agenda.advance(10.0)
    simulation.hosts.perform(StartNode(node=ES3))
    world.agenda.advance(200.0)
    node = world.nodes[ES3]
    assert (node.joined, node.node_id, node.zone) == (True, "id-es3-anew", "d")
    assert all(copy.serves for _, shard in shards_of(world) for copy in shard.copies)
    assert any(one.target == ES3 and one.reused == 0 and one.total for one in world.recoveries)


def test_a_life_that_ends_by_itself_ends_as_often_as_was_drawn() -> None:
    simulation = Simulation(cluster(3))
    simulation.fate.befall(node_mishaps.DiesAgain(node=ES3, times=2, after=1.0, back_after=3.0))
    simulation.hosts.perform(StopNode(node=ES3))
    simulation.world.agenda.advance(10.0)
    simulation.hosts.perform(StartNode(node=ES3))
    simulation.world.agenda.advance(100.0)
    assert simulation.world.nodes[ES3].life == 4
    assert simulation.world.nodes[ES3].joined


# The draws -------------------------------------------------------------------------------------------


def test_a_third_of_the_seeds_each_is_plain_ordinary_and_worse() -> None:
    before = [chance(seed, ordinary=False) for seed in range(300)]
    drawn = [by_chance(one) for one in before]
    same = sum(one == other for one, other in zip(drawn, before, strict=True))
    ordinary = sum(one.ordinary for one in drawn)
    assert 70 < same < 130
    assert 70 < ordinary < 130
    for one in drawn:
        if one.ordinary:
            assert all(isinstance(mishap.what, nights.ORDINARY_KINDS) for mishap in one.plan)
            assert one.wanted.timeout is None
        else:
            assert one.wanted == before[one.seed].wanted


def test_a_failing_run_is_shrunk_to_what_it_fails_of() -> None:
    """By a rule of the test's own: what is left is needed, all of it."""
    kinds = ("NodeFlaps", "SnapshotBegun")
    seed = next(
        seed
        for seed in range(2000)
        if set(kinds) <= {type(mishap.what).__name__ for mishap in chance(seed).plan}
        and len(chance(seed).plan) > 5
    )

    def breaks(drawn: Chance) -> str | None:
        found = {type(mishap.what).__name__ for mishap in drawn.plan}
        return "both" if set(kinds) <= found else None

    shortest = shrink.shrunk(chance(seed), breaks=breaks)
    assert sorted(type(mishap.what).__name__ for mishap in shortest.plan) == sorted(kinds)
    assert (shortest.trips, shortest.crashes, shortest.jitter) == ((), (), 0.0)
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink.shrunk(replace(chance(seed), plan=()), breaks=breaks)


def test_a_shrunk_run_is_printed_as_a_test() -> None:
    mishap = Mishap(what=node_mishaps.NodeFlaps(node=ES3, seconds=5.0), verb="stop", target="es2")
    drawn = replace(chance(1), plan=(mishap,), trips=(Trip(verb="stop", how=How.LOST),), crashes=(3, 4))
    text = shrink.scene(drawn)
    assert "plan=(Mishap(what=NodeFlaps(node='es3', seconds=5.0), verb='stop', target='es2'),)," in text
    assert "trips=(Trip(verb='stop', how=How.LOST),)," in text
    assert "crashes=(3, 4,)," in text
    compile(text, "scene", "exec")


# Installs -----------------------------------------------------------------------------------------------


def test_run_install_that_arrives_beside_a_start_is_refused() -> None:
    """On a host it asks the service manager, for which a start under way counts as running."""
    world = cluster(3)
    node = world.nodes[ES1]
    machines.stop(world, node)
    world.agenda.advance(30.0)
    machines.start(world, node)
    step = RunInstall(node=ES1, number=0, step=STEPS[0], ticket="r/es1/0/1", target=TARGET)
    assert not node.process
    assert installs.begin(world, node, step) == Refused(reason="its service runs", passes=True)


def test_a_step_that_others_left_out_is_no_lack_of_this_run() -> None:
    """Their run ended after the first of two steps: the version is the target's, and this run says so."""
    node = cluster(3).nodes[ES2]
    node.version, node.began = TARGET, 2.0
    node.facts.append(Fact(at=1.0, what="installed 0", alive=False, by="run-of-another"))
    asked = policy(upgrade=wanted())
    assert len(STEPS) == 2
    assert installs.lacking(node, asked, 0.0) == ["install step 1 never ran on es2"]
    assert installs.lacking(node, asked, 0.0, by_others=True) == []
