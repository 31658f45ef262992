"""Which nodes are due: `--due` (an older version, a changed configuration) and `--started-before`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.lease import NodeInHand
from orchestrator.runtime.identity import current_process
from tests.cli.console import Console, Said
from tests.cli.runs import DEAD_PROCESS, leave, record_of
from tests.cli.small_cluster import LEASES, NODES, SmallCluster
from tests.fakes.scripted_http import reply

OLD, RECENT = 1_000, 1_700_000_000_000
"""Starts of the nodes, in milliseconds."""
BEFORE = ("--started-before", "2000-01-01T00:00Z")
NOTHING = "lab: nothing to restart: no selected node started before 2000-01-01T00:00:00Z"


@pytest.fixture
def files(console: Console, cluster: SmallCluster) -> Path:
    """A configuration file for each node, under its name; the nodes started an hour ago."""
    cluster.started = int(time.time() - 3600) * 1000
    folder = console.folder / "etc"
    folder.mkdir()
    for node in NODES:
        (folder / f"{node}.yml").write_text("")
    playbook = {"kind": "elasticsearch", "config_files": [str(folder / "{node}.yml")]}
    (console.folder / "book.yml").write_text(json.dumps(playbook))
    cluster.write_file(console.folder, playbook=str(console.folder / "book.yml"))
    return folder


def plan(console: Console, *words: str) -> Said:
    return console.run("plan", "--cluster", "lab.yml", "--output", "json", *words)


def _started_after_its_files(cluster: SmallCluster) -> None:
    cluster.started = int(time.time() + 3600) * 1000


@pytest.mark.usefixtures("files")
def test_due_version_is_an_older_version(console: Console, cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "9.1.0")
    said = plan(console, "--due", "version:9.1.0")
    assert said.nodes == ["es1", "es3"]
    assert "due: es3 runs 8.19.0; es1 runs 8.19.0" in said.err
    assert plan(console, "--due", "version:8.19").nodes == [], "9.1 is newer, and 8.19 is 8.19.0"
    assert plan(console, "--due", "version:8.19.1").nodes == ["es1", "es3"]


@pytest.mark.usefixtures("files")
def test_due_config_is_a_file_changed_after_the_start(console: Console, cluster: SmallCluster) -> None:
    assert plan(console, "--due", "config").nodes == list(NODES)
    _started_after_its_files(cluster)
    said = plan(console, "--due", "config")
    assert (said.code, said.nodes) == (ExitCode.DONE, [])
    assert said.err == "lab: nothing to restart: no selected node is due (config)\n"


def test_due_config_goes_by_the_file_of_each_node(
    console: Console, cluster: SmallCluster, files: Path
) -> None:
    """A file of the second of the start is older."""
    changed = int(max((files / f"{node}.yml").stat().st_ctime for node in NODES))
    cluster.started = changed * 1000
    assert plan(console, "--due", "config").nodes == []
    while time.time() < changed + 1.1:  # files are stamped by a coarser clock
        time.sleep(0.05)
    (files / "es2.yml").write_text("node.name: es2\n")
    said = plan(console, "--due", "config")
    assert said.nodes == ["es2"]
    assert f"due: es2 {files}/es2.yml changed after it started" in said.err


def test_due_must_be_known(console: Console, cluster: SmallCluster, files: Path) -> None:
    (files / "es2.yml").unlink()
    said = plan(console, "--due", "config")
    assert said.code == ExitCode.USAGE
    assert f"--due config: not known: host of es2: none of its files exists ({files}/es2.yml" in said.err
    assert {asked.method for asked in cluster.asked} == {"GET"}
    (files / "es2.yml").touch()
    cluster.started = None
    said = plan(console, "--due", "config")
    assert (said.code, "did not show when its process started" in said.err) == (ExitCode.USAGE, True)
    said = console.run("restart", "--cluster", "lab.yml", "--yes", *BEFORE)
    assert said.code == ExitCode.USAGE
    assert "es2, es3, es1 did not show when the process started" in said.err


@pytest.mark.usefixtures("files")
def test_several_due_are_a_union_which_the_age_narrows(console: Console, cluster: SmallCluster) -> None:
    _started_after_its_files(cluster)
    cluster.upgrade("es2", "9.1.0")
    assert plan(console, "--due", "config", "--due", "version:9.1.0").nodes == ["es1", "es3"]
    assert plan(console, "--due", "version:9.1.0", "--only", "es1").nodes == ["es1"]
    said = plan(console, "--due", "version:9.1.0", "--started-before", "1d")
    assert (said.code, said.nodes) == (ExitCode.DONE, [])
    assert "no selected node started before" in said.err


@pytest.mark.usefixtures("files")
def test_a_saved_plan_keeps_what_is_due(console: Console, cluster: SmallCluster) -> None:
    saved = ("plan", "--cluster", "lab.yml", "--out", "plan.json")
    assert console.run(*saved, "--due", "version:9.1.0").code in (ExitCode.DONE, ExitCode.HELD)
    for node in NODES:
        cluster.upgrade(node, "9.1.0")
    said = console.run("apply", "plan.json", "--yes")
    assert (said.code, "needs a restart any more" in said.err) == (ExitCode.PLAN_MISMATCH, True)
    cluster.started = OLD
    assert console.run(*saved, *BEFORE).code == ExitCode.DONE
    cluster.started = RECENT
    said = console.run("apply", "plan.json", "--yes")
    assert said.code == ExitCode.PLAN_MISMATCH
    assert "none of its nodes (es2, es3, es1) needs a restart any more" in said.err
    assert console.run(*saved, *BEFORE).code == ExitCode.DONE
    said = console.run("apply", "plan.json", "--yes")
    assert (said.code, said.err) == (ExitCode.DONE, f"✓ {NOTHING}\n")


def test_nothing_due_is_done_and_changes_nothing(console: Console, cluster: SmallCluster, file: str) -> None:
    cluster.started = RECENT
    for command in (("plan",), ("restart", "--dry-run")):
        said = console.run(*command, "--cluster", file, "--output", "json", *BEFORE)
        empty = [said.plan[name] for name in ("waves", "steps", "holds")]
        assert (said.code, empty, said.err) == (ExitCode.DONE, [[], [], []], f"{NOTHING}\n")
    assert list(console.home.iterdir()) == []
    restart = ("restart", "--cluster", file, "--yes", *BEFORE)
    said = console.run(*restart)
    assert (said.code, said.out, said.err) == (ExitCode.DONE, "", f"✓ {NOTHING}\n")
    said = console.run(*restart, "--output", "json")
    (only,) = said.lines
    assert (only["event"], only["outcome"], only["exit_code"], only["run"]) == ("summary", "done", 0, None)
    assert (only["nodes_restarted"], only["message"], said.err) == (0, NOTHING, f"✓ {NOTHING}\n")
    assert {asked.method for asked in cluster.asked} == {"GET"}
    said = console.run(*restart, "--exclude", "es*")
    assert said.code == ExitCode.USAGE, "any other empty selection is a mistake"
    assert "the selection leaves no node to restart" in said.err


def _left(cluster: SmallCluster, process: str, *, owes: bool = True) -> None:
    """The record of a run with es2 in hand, in a life that es2 has behind it; or of one that owes nothing."""
    node = NodeInHand(node=NodeName("es2"), incarnation=Incarnation(ephemeral_id="earlier"))
    leave(cluster, record_of("run-0", process, in_hand=(node,) if owes else ()))


def test_plan_and_rehearse_name_a_run_that_holds_or_left(
    console: Console, cluster: SmallCluster, file: str, subtests: pytest.Subtests
) -> None:
    cluster.started = OLD
    ended, holds = (
        "es2: left by run run-0 of ben@here; this restart",
        "another run holds the lease on lab: run run-0 of ben@here, since 2026-11-02 (its process ",
    )
    first = "\nTo restore it alone:\n    orchestrate restore run-0 --state "
    for command in ("plan", "rehearse"):
        for process, says in ((DEAD_PROCESS, (ended, first)), (str(current_process()), (holds,))):
            with subtests.test(command=command, process=process):
                _left(cluster, process)
                said = console.run(command, "--cluster", file)
                assert [each for each in (ended, holds, first) if each in said.err] == [
                    each for each in (ended, holds, first) if each in says
                ]
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_nothing_due_restores_what_a_dead_run_left(
    console: Console, cluster: SmallCluster, file: str
) -> None:
    cluster.started = RECENT
    _left(cluster, str(current_process()))
    restart = ("restart", "--cluster", file, "--yes", *BEFORE)
    said = console.run(*restart)
    assert (said.code, "run run-0 of ben@here" in said.err) == (ExitCode.LEASED, True)
    assert set(cluster.templates) == {"orchestrate-lease-1"}
    _left(cluster, DEAD_PROCESS)
    said = console.run(*restart, "--output", "json")
    assert said.code == ExitCode.DONE
    assert "es2: left by run run-0 of ben@here; this run restores it first" in said.err
    assert [line["outcome"] for line in said.lines if line["event"] == "summary"] == ["done", "done"]
    assert cluster.templates == {}


def test_nothing_due_removes_the_lease_of_a_dead_run(
    console: Console, cluster: SmallCluster, file: str
) -> None:
    cluster.started = RECENT
    restart = ("restart", "--cluster", file, "--yes", *BEFORE)
    _left(cluster, str(current_process()), owes=False)
    assert console.run(*restart).code == ExitCode.DONE
    assert set(cluster.templates) == {"orchestrate-lease-1"}, "its process lives"
    _left(cluster, DEAD_PROCESS, owes=False)
    said = console.run(*restart)
    assert (said.code, said.err) == (ExitCode.DONE, f"✓ {NOTHING}\n")
    assert cluster.templates == {}


def test_nothing_due_is_done_though_a_lease_cannot_be_removed(
    console: Console, cluster: SmallCluster, file: str, subtests: pytest.Subtests
) -> None:
    """Tidying up is no condition of being done, and not waited for either."""
    cluster.started = RECENT
    restart = ("restart", "--cluster", file, "--yes", *BEFORE)
    for status in (403, 500, 503):
        with subtests.test(status=status):
            _left(cluster, DEAD_PROCESS, owes=False)
            cluster.on(f"{LEASES}2", reply({"status": status, "error": "no"}, status=status))
            began = time.monotonic()
            said = console.run(*restart)
            assert (said.code, said.err.endswith(f"{NOTHING}\n")) == (ExitCode.DONE, True), said.err
            assert said.err.startswith("warning: ")
            assert time.monotonic() - began < 30.0
