"""What needs nothing from the cluster is checked before the cluster is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

UNRESOLVED = "secret env:NOT_SET_ANYWHERE"
NO_FOLDER = "cannot be saved: No such file or directory"
FUTURE = "--started-before 2999-01-01T00:00Z: this time is in the future, so the flag leaves out no node; "


@pytest.fixture(autouse=True)
def state(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.mark.parametrize(
    ("line", "sudo", "says"),
    [
        ("plan --out {folder}/no/plan.json", False, f"the plan {NO_FOLDER}"),
        ("plan --out /proc/plan.json", False, "/proc/plan.json: the plan cannot be saved: "),
        ("rehearse --save {folder}/no/snapshot.json", False, f"the snapshot {NO_FOLDER}"),
        ("plan --started-before 2999-01-01T00:00Z", False, FUTURE),
        ("restart --yes --started-before 2999-01-01T00:00Z", False, FUTURE),
        ("plan", True, UNRESOLVED),
        ("restart --yes", True, UNRESOLVED),
        ("validate", True, UNRESOLVED),
        ("tune check", True, UNRESOLVED),
        ("tune apply --yes", True, UNRESOLVED),
    ],
)
def test_it_is_told_before_the_cluster_is_read(
    console: Console,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
    line: str,
    *,
    sudo: bool,
    says: str,
) -> None:
    hosts = {"sudo": {"password": "env:NOT_SET_ANYWHERE"}} if sudo else {}
    file = cluster.write_file(console.folder, hosts=hosts)
    command = line.format(folder=console.folder).split()
    group = 2 if command[0] == "tune" else 1
    assert run([*command[:group], "--cluster", file, *command[group:]]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
    assert cluster.asked == []


def test_the_sudo_password_of_a_saved_plan_too(
    console: Console,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = str(console.folder / "plan.json")
    file = cluster.write_file(console.folder, hosts={"sudo": {"password": "env:NOT_SET_ANYWHERE"}})
    monkeypatch.setenv("NOT_SET_ANYWHERE", "once")
    obliging = console.folder / "bin" / "sudo"  # takes any password, on every machine
    obliging.parent.mkdir()
    obliging.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" != -p ] || shift; shift; done\nexec "$@"\n'
    )
    obliging.chmod(0o755)
    monkeypatch.setenv("PATH", str(obliging.parent), prepend=":")
    assert run(["plan", "--cluster", file, "--out", saved]) == ExitCode.DONE
    monkeypatch.delenv("NOT_SET_ANYWHERE")
    cluster.asked.clear()
    assert run(["apply", saved, "--yes"]) == ExitCode.USAGE
    assert UNRESOLVED in capsys.readouterr().err
    assert cluster.asked == []
