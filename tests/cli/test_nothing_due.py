"""`--started-before` on a schedule: on most days nothing is due, and that is no error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.runtime.identity import current_process
from orchestrator.stores.elasticsearch.lease import lease_body
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

OLD, RECENT = 1_000, 1_700_000_000_000
"""Starts of the nodes, in milliseconds."""
BEFORE = ("--started-before", "2000-01-01T00:00Z")
NOTHING = "lab: nothing to restart: no selected node started before 2000-01-01T00:00:00Z"


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        server.started = RECENT
        yield server


@pytest.fixture
def file(console: Console, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    return cluster.write_file(console.folder)


def _lines(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    said = capsys.readouterr()
    return [json.loads(line) for line in said.out.splitlines()], said.err


def test_a_restart_says_so_and_is_done(
    file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["restart", "--cluster", file, "--yes", *BEFORE]) == ExitCode.DONE
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{NOTHING}\n")
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_in_json_it_is_told_by_the_summary(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["restart", "--cluster", file, "--yes", "--output", "json", *BEFORE]) == ExitCode.DONE
    (only,), err = _lines(capsys)
    assert (only["event"], only["outcome"], only["exit_code"], only["run"]) == ("summary", "done", 0, None)
    assert (only["nodes_restarted"], only["message"], err) == (0, NOTHING, f"{NOTHING}\n")


@pytest.mark.parametrize("command", [("plan",), ("restart", "--dry-run")])
def test_a_plan_has_no_wave(command: tuple[str, ...], file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--cluster", file, "--output", "json", *BEFORE]) == ExitCode.DONE
    (plan, summary), err = _lines(capsys)
    assert (plan["event"], plan["waves"], plan["steps"], plan["holds"]) == ("plan", [], [], [])
    assert (summary["outcome"], err) == ("done", f"{NOTHING}\n")


def test_a_saved_plan_without_waves_is_applied(
    file: str, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = console.folder / "plan.json"
    assert run(["plan", "--cluster", file, "--out", str(saved), *BEFORE]) == ExitCode.DONE
    capsys.readouterr()
    assert run(["apply", str(saved), "--yes"]) == ExitCode.DONE
    assert capsys.readouterr().err == f"{NOTHING}\n"


def test_a_saved_plan_without_a_due_node_does_not_fit(
    file: str, cluster: SmallCluster, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = console.folder / "plan.json"
    cluster.started = OLD
    assert run(["plan", "--cluster", file, "--out", str(saved), *BEFORE]) == ExitCode.DONE
    cluster.started = RECENT
    assert run(["apply", str(saved), "--yes"]) == ExitCode.PLAN_MISMATCH
    assert "none of its nodes (es2, es3, es1) needs a restart any more" in capsys.readouterr().err


def test_whether_it_is_due_must_be_known(
    file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.started = None
    assert run(["restart", "--cluster", file, "--yes", *BEFORE]) == ExitCode.USAGE
    assert "es2, es3, es1 did not show when the process started" in capsys.readouterr().err


def test_any_other_empty_selection_is_a_mistake(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["restart", "--cluster", file, "--yes", *BEFORE, "--exclude", "es*"]) == ExitCode.USAGE
    assert "the selection leaves no node to restart" in capsys.readouterr().err


def _left(cluster: SmallCluster, process: str) -> None:
    """The record of a run that had es2 in hand, in a life that es2 has behind it."""
    node = NodeInHand(node=NodeName("es2"), incarnation=Incarnation(ephemeral_id="earlier"))
    record = LeaseRecord(
        epoch=1, run="run-0", owner="ben@here", process=process, started="2026-11-01", in_hand=(node,)
    )
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(record)))


def _gone() -> str:
    boot, namespace, *_ = str(current_process()).split("/")
    return f"{boot}/{namespace}/{2**22 + 1}/1"  # above the highest pid that Linux gives


@pytest.mark.parametrize("command", ["plan", "rehearse"])
def test_who_only_looks_is_told_of_a_run_that_was_killed(
    command: str, file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.started = OLD
    _left(cluster, _gone())
    run([command, "--cluster", file])
    assert "run run-0 ended without restoring its changes" in (said := capsys.readouterr().err)
    assert "a restart restores them first; `orchestrate resume run-0 --state " in said
    assert {asked.method for asked in cluster.asked} == {"GET"}


@pytest.mark.parametrize("command", ["plan", "rehearse"])
def test_who_only_looks_is_told_of_a_run_that_lives(
    command: str, file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.started = OLD
    _left(cluster, str(current_process()))
    run([command, "--cluster", file])
    said = capsys.readouterr().err
    assert "run run-0 of ben@here holds the cluster" in said
    assert "ended without" not in said


def test_what_a_dead_run_left_is_put_back_all_the_same(
    file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _left(cluster, _gone())
    assert run(["restart", "--cluster", file, "--yes", "--output", "json", *BEFORE]) == ExitCode.DONE
    lines, err = _lines(capsys)
    assert "run run-0 of ben@here ended without restoring its changes" in err
    assert [line["outcome"] for line in lines if line["event"] == "summary"] == ["done", "done"]
    assert cluster.templates == {}


def test_a_run_that_is_under_way_is_named(
    file: str, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _left(cluster, str(current_process()))
    assert run(["restart", "--cluster", file, "--yes", *BEFORE]) == ExitCode.LEASED
    assert "run run-0 of ben@here" in capsys.readouterr().err
    assert set(cluster.templates) == {"orchestrate-lease-1"}


def test_nothing_is_made_where_a_plan_is_only_looked_at(file: str, console: Console) -> None:
    assert run(["plan", "--cluster", file, *BEFORE]) == ExitCode.DONE
    assert list(console.home.iterdir()) == []
