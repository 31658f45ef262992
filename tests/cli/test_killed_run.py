"""A run that was killed while a node was down: each command says whose it is, and what restores it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import SCRIPT, Console
from tests.cli.leaving_cluster import LeavingCluster
from tests.lab.terminal import Terminal


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LeavingCluster]:
    with LeavingCluster(tmp_path / "services") as server:
        yield server


def test_every_command_says_whose_it_is(console: Console, cluster: LeavingCluster, file: str) -> None:
    before = console.run("plan", "--cluster", file, "--output", "json").plan
    with cluster.run_at_work(console, file) as (run, _):
        lives = console.run("status").out
        assert "To restore  5 settings, at the end" in lives
        assert "es2   ✓ check" in lives
        assert "NOT RESTORED" not in lives + console.run("history").out
    changed = dict(cluster.settings["persistent"])
    assert changed["cluster.routing.allocation.enable"] == "primaries"
    left = "5 settings, es2"
    whose = f"{left}: left by run {run} of "

    planned = console.run("plan", "--cluster", file)
    assert planned.code == ExitCode.DONE
    assert planned.err.startswith(whose), planned.err
    assert " ago); this restart restores it first\n" in planned.err
    assert f"\nTo restore it alone:\n    orchestrate restore {run}" in planned.err
    plan = console.run("plan", "--cluster", file, "--output", "json").plan
    for name in ("waves", "holds", "settings_changed", "steps", "nodes_selected"):
        assert plan[name] == before[name], name
    assert console.run("restart", "--dry-run", "--only", "es2", "--cluster", file).code == ExitCode.DONE

    checked = console.run("validate", "--cluster", file)
    assert whose in checked.out
    assert " ago); a restart restores it first\n" in checked.out

    status = console.run("status").out
    assert " ago: its process is gone\n" in status
    assert f"NOT RESTORED: {left}; read from the cluster now; " in status
    assert f" by {whose_of(planned.err)}, " in status.splitlines()[1]
    assert "\na new restart of this cluster restores it first\n" in status
    assert status.splitlines()[-1].startswith(f"    orchestrate restore {run}")
    assert f"NOT RESTORED: {left}\n" in console.run("history").out
    said = console.run("report")
    assert said.code == ExitCode.DONE, said.err
    page = Path(said.out.splitlines()[-1].removeprefix("report: ")).read_text()
    assert "The run was killed: its process is gone. A new restart of this cluster restores first" in page
    assert "setting cluster.routing.allocation.enable (persistent)" in page
    assert cluster.settings["persistent"] == changed, "these commands only look"

    done = console.run("restart", "--cluster", file, typed="y\n")
    assert done.code == ExitCode.DONE, done.err
    assert f"warning: {whose}" in done.err
    assert " ago); this run restores it first\n" in done.err
    assert (cluster.settings["persistent"], cluster.templates) == ({}, {})
    assert console.run("restart", "--cluster", file, "--dry-run").err == ""
    assert "NOT RESTORED" not in console.run("status").out + console.run("history").out


def _upgrade(console: Console, file: str) -> list[str]:
    book = console.folder / "book.yml"
    book.write_text(f"""kind: elasticsearch
upgrade: {{install: [{{run: "printf {{version}} > {console.folder.parent}/services/es2.version"}}]}}
""")
    return ["upgrade", "--cluster", file, "--playbook", str(book), "--to", "9.1.0"]


def test_a_node_that_was_down_is_upgraded_after_the_restore(
    console: Console, cluster: LeavingCluster, file: str
) -> None:
    """All others run the target already: by these alone there would be nothing to upgrade."""
    with cluster.run_at_work(console, file):
        pass
    for name in ("es1", "es3"):
        cluster.upgrade(name, "9.1.0")
    upgrade = _upgrade(console, file)
    assert console.run(*upgrade, "--dry-run", "--output", "json").nodes == ["es2"]
    done = console.run(*upgrade, "--yes", "--output", "json")
    assert done.code == ExitCode.DONE, done.err
    restored, upgraded = (line for line in done.lines if line["event"] == "summary")
    assert (restored["restarted"], upgraded["restarted"]) == ([], ["es2"])
    assert cluster.versions["es2"] == "9.1.0"


def test_a_plan_is_refused_where_the_restore_shows_other_nodes(
    console: Console, cluster: LeavingCluster, file: str
) -> None:
    """Others have upgraded the node while it was down."""
    with cluster.run_at_work(console, file):
        pass
    cluster.versions["es2"] = "9.1.0"
    upgrade = [*_upgrade(console, file), "--only", "es2"]
    said = console.run(*upgrade, typed="y\n")
    assert said.code == ExitCode.PLAN_MISMATCH
    assert (
        "the plan does not fit lab since the changes of the dead run were restored: "
        "es2 would not be restarted; no node was stopped: make a new plan"
    ) in said.err
    assert cluster.settings["persistent"] == {}
    again = console.run(*upgrade, typed="y\n")
    assert (again.code, "nothing to upgrade" in again.err) == (ExitCode.DONE, True)


def whose_of(said: str) -> str:
    """`ann@bastion` of the first line about a killed run."""
    return said.partition(" of ")[2].partition(" ")[0]


def test_watching_shows_the_panel_until_the_kill(
    console: Console, cluster: LeavingCluster, file: str
) -> None:
    words = [str(SCRIPT), "status", "--watch"]
    with (
        cluster.run_at_work(console, file) as (run, process),
        Terminal(words, folder=console.folder, environment=console.variables()) as terminal,
    ):
        terminal.await_text(lambda text: "▶ work" in text and f" {run} ─╯" in text)
        assert "╰─ Ctrl-C: leave; the run continues ─" in terminal.text
        process.kill()
        assert terminal.end() == ExitCode.DONE
        text = terminal.text
    assert "0 of 3 nodes" in text
    assert text.index(" ago: its process is gone") < text.index("NOT RESTORED: 5 settings, es2")
    assert f"orchestrate restore {run}" in text[-300:]
