"""`--due`: nodes that run an older version, or whose configuration changed since they started."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.small_cluster import NODES, SmallCluster


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        server.started = int(time.time() - 3600) * 1000
        yield server


@pytest.fixture
def files(console: Console) -> Path:
    """A configuration file for each node, under its name."""
    folder = console.folder / "etc"
    folder.mkdir()
    for node in NODES:
        (folder / f"{node}.yml").write_text("")
    return folder


@pytest.fixture
def file(console: Console, cluster: SmallCluster, files: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    playbook = console.folder / "book.yml"
    playbook.write_text(json.dumps({"kind": "elasticsearch", "config_files": [str(files / "{node}.yml")]}))
    return cluster.write_file(console.folder, playbook=str(playbook))


class Plans:
    """`plan --due …` of this cluster file."""

    def __init__(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._file, self._capsys = file, capsys

    def __call__(self, *words: str) -> tuple[int, list[str], str]:
        """The exit code, the nodes of the plan in its order, and what was said beside it."""
        code = run(["plan", "--cluster", self._file, "--output", "json", *words])
        said = self._capsys.readouterr()
        lines: list[dict[str, Any]] = [json.loads(line) for line in said.out.splitlines()]
        waves = next((line["waves"] for line in lines if line["event"] == "plan"), [])
        return code, sorted(node for wave in waves for node in wave["nodes"]), said.err


@pytest.fixture
def plans(file: str, capsys: pytest.CaptureFixture[str]) -> Plans:
    return Plans(file, capsys)


def _started_after_its_files(cluster: SmallCluster) -> None:
    cluster.started = int(time.time() + 3600) * 1000


def test_nodes_that_run_an_older_version(plans: Plans, cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "9.1.0")
    _, nodes, said = plans("--due", "version:9.1.0")
    assert nodes == ["es1", "es3"]
    assert "due: es3 runs 8.19.0; es1 runs 8.19.0" in said
    assert plans("--due", "version:8.19")[1] == [], "9.1 is newer, and 8.19 is 8.19.0"
    assert plans("--due", "version:8.19.1")[1] == ["es1", "es3"]


def test_files_that_changed_after_the_start(plans: Plans, cluster: SmallCluster) -> None:
    assert plans("--due", "config")[1] == list(NODES)
    _started_after_its_files(cluster)
    code, nodes, said = plans("--due", "config")
    assert (code, nodes) == (ExitCode.DONE, [])
    assert said == "lab: nothing to restart: no selected node is due (config)\n"


def test_only_the_node_whose_file_changed(plans: Plans, cluster: SmallCluster, files: Path) -> None:
    second = int(time.time())
    cluster.started = second * 1000
    while time.time() < second + 1.1:  # files are stamped by a coarser clock
        time.sleep(0.05)
    (files / "es2.yml").write_text("node.name: es2\n")
    _, nodes, said = plans("--due", "config")
    assert nodes == ["es2"]
    assert f"due: es2 {files}/es2.yml changed after it started" in said


def test_a_host_that_does_not_show_it(plans: Plans, cluster: SmallCluster, files: Path) -> None:
    (files / "es2.yml").unlink()
    code, _, said = plans("--due", "config")
    assert code == ExitCode.USAGE
    assert f"--due config: not known: host of es2: none of its files exists ({files}/es2.yml" in said
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_several_are_a_union_which_the_age_narrows(plans: Plans, cluster: SmallCluster) -> None:
    _started_after_its_files(cluster)
    cluster.upgrade("es2", "9.1.0")
    assert plans("--due", "config", "--due", "version:9.1.0")[1] == ["es1", "es3"]
    assert plans("--due", "version:9.1.0", "--only", "es1")[1] == ["es1"]
    code, nodes, said = plans("--due", "version:9.1.0", "--started-before", "1d")
    assert (code, nodes) == (ExitCode.DONE, [])
    assert "no selected node started before" in said


def test_a_saved_plan_keeps_it(
    file: str, cluster: SmallCluster, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = console.folder / "plan.json"
    words = ["plan", "--cluster", file, "--out", str(saved), "--due", "version:9.1.0"]
    assert run(words) in (ExitCode.DONE, ExitCode.HELD)
    for node in NODES:
        cluster.upgrade(node, "9.1.0")
    capsys.readouterr()
    assert run(["apply", str(saved), "--yes"]) == ExitCode.PLAN_MISMATCH
    assert "needs a restart any more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("reboot-required", "needs --reboot, since a restart of the service leaves the host as it is"),
        ("version", "must name a version, such as `version:9.1.0`"),
        ("version:9", "must name a version"),
        ("version:latest", "must name a version"),
        ("confg", "unknown; did you mean `config`?"),
        ("config:es1.yml", "unknown"),
    ],
)
def test_what_is_wrong_is_said_before_the_cluster_is_read(
    written: str, message: str, plans: Plans, cluster: SmallCluster
) -> None:
    code, _, said = plans("--due", written)
    assert code == ExitCode.USAGE
    assert f"--due {written}: {message}" in said
    assert cluster.asked == []


def test_a_start_that_is_not_known_is_no_reason_to_leave_out(plans: Plans, cluster: SmallCluster) -> None:
    cluster.started = None
    code, _, said = plans("--due", "config")
    assert code == ExitCode.USAGE
    assert "did not show when its process started" in said


def test_a_file_of_the_second_of_the_start_is_older(plans: Plans, cluster: SmallCluster, files: Path) -> None:
    changed = max((files / f"{node}.yml").stat().st_ctime for node in NODES)
    cluster.started = int(changed) * 1000
    assert plans("--due", "config")[1] == []
