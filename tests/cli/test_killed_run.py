"""A run that was killed while a node was down: each command says whose it is, and what restores it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.leaving_cluster import LeavingCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LeavingCluster]:
    with LeavingCluster(tmp_path / "services") as server:
        yield server


def test_every_command_says_whose_it_is(console: Console, cluster: LeavingCluster, file: str) -> None:
    before = console.run("plan", "--cluster", file, "--output", "json").plan
    run = cluster.killed_run(console, file)
    changed = dict(cluster.settings["persistent"])
    assert changed["cluster.routing.allocation.enable"] == "primaries"
    whose = f"5 settings, es2: left by run {run} of "

    planned = console.run("plan", "--cluster", file)
    assert (planned.code, "HELD" in planned.out, "Ready: all 25 checks pass. 3 waves" in planned.out) == (
        0,
        False,
        True,
    )
    assert planned.err.startswith(whose), planned.err
    assert " ago); this restart restores it first\n" in planned.err
    assert f"to restore it alone: orchestrate restore {run}" in planned.err
    plan = console.run("plan", "--cluster", file, "--output", "json").plan
    for name in ("waves", "holds", "settings_changed", "steps", "nodes_selected"):
        assert plan[name] == before[name], name
    assert console.run("restart", "--dry-run", "--only", "es2", "--cluster", file).code == ExitCode.DONE

    checked = console.run("validate", "--cluster", file)
    assert whose in checked.out
    assert " ago); a restart restores it first\n" in checked.out
    assert cluster.settings["persistent"] == changed, "these commands only look"

    done = console.run("restart", "--cluster", file, typed="y\n")
    assert done.code == ExitCode.DONE, done.err
    assert f"warning: {whose}" in done.err
    assert " ago); this run restores it first\n" in done.err
    assert (cluster.settings["persistent"], cluster.templates) == ({}, {})
    assert [console.run("restart", "--cluster", file, "--dry-run").err, cluster._there()] == [
        "",
        cluster.nodes,
    ]
