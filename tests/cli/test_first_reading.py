"""A run begun in the moment in which a member joins: it waits for what that one says, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.runs import planning
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

UNREPORTED = "cluster state: node es3 has not reported its roles and version yet"


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    """Of a version whose cluster state has no roles."""
    with SmallCluster(version="2.19.0") as server:
        yield server


def test_a_member_that_has_just_joined_is_waited_for(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.silent = 2
    file = cluster.write_file(console.folder)
    assert run(["plan", "--cluster", file, "--state", f"sqlite:///{console.state}"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert said.err.count(f"waiting up to 30 s for the first reading: {UNREPORTED}") == 1, said.err
    assert "es3" in said.out


def test_one_that_never_says_what_it_is_ends_the_wait(
    console: Console,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_REPORT_SECONDS", 1.0)
    cluster.silent = 1_000_000
    file = cluster.write_file(console.folder)
    assert run(["plan", "--cluster", file, "--state", f"sqlite:///{console.state}"]) == ExitCode.USAGE
    assert f"cannot be read: {UNREPORTED}\n" in capsys.readouterr().err
