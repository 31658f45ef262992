"""`restart` beside a run that stopped half-way says so: to begin anew takes nodes down once more."""

from __future__ import annotations

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import StateStore
from orchestrator.simulation.world import World
from tests.cli.console import Console
from tests.cli.runs import RUN, entry, leave, record_of
from tests.cli.small_cluster import SmallCluster
from tests.simulation import play
from tests.simulation.program import Simulation

KILLED = PAUSED = RUN


def journalled(store: StateStore, simulation: Simulation) -> None:
    """The simulated run in the state, of a process that is gone."""
    events = [record.event for record in simulation.journal.records]
    store.create_run(entry(RUN, "boot/1/2/3")).append(events, 1.0)


def lab() -> World:
    world = play.cluster(3)
    world.name = "lab"
    return world


@pytest.mark.parametrize("nodes", [1, None])
def test_a_restart_names_a_run_that_can_be_resumed(
    console: Console, cluster: SmallCluster, store: StateStore, file: str, nodes: int | None
) -> None:
    """Paused after a node there is one; done, there is none."""
    journalled(store, play.run(lab(), wanted=play.policy(cluster="lab", pause_after=nodes))[0])
    # Another run holds the lease, so that the new run ends before it begins.
    leave(cluster, record_of("theirs", str(current_process())))
    said = console.run("restart", "--cluster", file, "--yes")
    paused = (
        f"run {PAUSED} ended paused with 1 of 3 nodes restarted: "
        f"`orchestrate resume {PAUSED} --state {console.url}` continues with the others"
    )
    assert (said.code, paused in said.err) == (ExitCode.LEASED, nodes is not None), said.err


@pytest.mark.parametrize("point", [26, 40])
def test_without_a_master_the_run_that_left_a_node_down_is_named(
    console: Console, cluster: SmallCluster, store: StateStore, file: str, point: int
) -> None:
    """Killed while its first node was down, and once that node was back."""
    simulation = Simulation(lab())
    simulation.seams.crash_at = point
    assert play.killed(simulation, simulation.begin(play.policy(cluster="lab")))
    journalled(store, simulation)
    cluster.without_a_master()
    said = console.run("restart", "--cluster", file, "--yes")
    assert said.code == ExitCode.USAGE
    assert "cluster lab" in said.err
    assert "cannot be read" in said.err
    hint = (
        f"run {KILLED} stopped es2 and has not started it again: if that run was killed, "
        f"`orchestrate resume {KILLED} --state {console.url}` starts es2 first"
    )
    assert (hint in said.err) is (point == 26), said.err
