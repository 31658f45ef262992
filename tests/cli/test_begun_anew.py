"""`restart` beside a run that stopped half-way says so: to begin anew takes nodes down once more."""

from __future__ import annotations

import json

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.model.lease import LeaseRecord
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from orchestrator.stores.elasticsearch.lease import lease_body
from tests.cli.console import Console
from tests.cli.runs import entry
from tests.cli.small_cluster import SmallCluster
from tests.simulation import play

PAUSED = KILLED = "20261101-0300-abcd"


@pytest.mark.parametrize("nodes", [1, None])
def test_a_restart_tells_of_a_run_that_can_be_resumed(
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    nodes: int | None,
) -> None:
    """Paused after a node there is something to tell; done, there is nothing."""
    world = play.cluster(3)
    world.name = "lab"
    simulation, _ = play.run(world, wanted=play.policy(cluster="lab", pause_after=nodes))
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    events = [record.event for record in simulation.journal.records]
    store.create_run(entry(PAUSED, "boot/1/2/3")).append(events, 1.0)
    store.close()
    with SmallCluster() as cluster:
        # Somebody holds the lease, so that the new run ends before it begins.
        theirs = LeaseRecord(
            epoch=1, run="theirs", owner="ben@here", process=str(current_process()), started="2026-11-02"
        )
        cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(theirs)))
        code = run(["restart", "--cluster", cluster.write_file(console.folder), "--yes"])
    said = capsys.readouterr().err
    assert code == ExitCode.LEASED
    told = (
        f"run {PAUSED} ended paused with 1 of 3 nodes restarted: "
        f"`orchestrate resume {PAUSED} --state sqlite:///{console.state}` continues with the others"
    )
    assert (told in said) is (nodes is not None), said


@pytest.mark.parametrize("point", [26, 40])
def test_without_a_master_the_run_that_left_a_node_down_is_named(
    console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], point: int
) -> None:
    """Killed while its first node was down, and once that node was back."""
    world = play.cluster(3)
    world.name = "lab"
    simulation = Simulation(world)
    simulation.seams.crash_at = point
    assert play.killed(simulation, simulation.begin(play.policy(cluster="lab")))
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    store = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    events = [record.event for record in simulation.journal.records]
    store.create_run(entry(KILLED, "boot/1/2/3")).append(events, 1.0)
    store.close()
    with SmallCluster() as cluster:
        cluster.without_a_master()
        code = run(["restart", "--cluster", cluster.write_file(console.folder), "--yes"])
    said = capsys.readouterr().err
    assert code == ExitCode.USAGE
    assert "cluster lab" in said
    assert "cannot be read" in said
    hint = (
        f"run {KILLED} stopped es2 and has not started it again: if that run was killed, "
        f"`orchestrate resume {KILLED} --state sqlite:///{console.state}` starts es2 first"
    )
    assert (hint in said) is (point == 26), said
