"""What is checked before the cluster is read, and its first reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runs import prepare
from orchestrator.runtime.waiting import SystemClock
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

UNRESOLVED = "secret env:NOT_SET_ANYWHERE"
SUDO = {"sudo": {"password": "env:NOT_SET_ANYWHERE"}}


def test_the_sudo_password_of_a_saved_plan_too(console: Console, cluster: SmallCluster) -> None:
    """A machine without sudo holds the plan, which is saved all the same."""
    file = cluster.write_file(console.folder, hosts=SUDO)
    once = replace(console, environment={"NOT_SET_ANYWHERE": "once"})
    said = once.run("plan", "--cluster", file, "--out", "plan.json")
    assert said.code in {ExitCode.DONE, ExitCode.HELD}
    cluster.asked.clear()
    said = console.run("apply", "plan.json", "--yes")
    assert (said.code, UNRESOLVED in said.err, cluster.asked) == (ExitCode.USAGE, True, [])


def test_an_override_for_no_node_is_warned_of(console: Console, cluster: SmallCluster) -> None:
    """By every command that looks at the cluster first."""
    overrides = {"es1": {"port": 23}, "es*": {"port": 22}, "se2": {"port": 24}}
    file = cluster.write_file(console.folder, hosts={"overrides": overrides})
    for line in ("validate", "plan", "restart --dry-run"):
        said = console.run(*line.split(), "--cluster", file)
        warnings = [each for each in said.err.splitlines() if each.startswith("warning: ")]
        assert warnings == [f"warning: {file}:1: hosts.overrides.se2: no node of the cluster is called so"]
        assert said.code == ExitCode.DONE


UNREPORTED = "cluster state: node es3 has not reported its roles and version yet"


def test_a_member_that_has_just_joined_is_waited_for(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a time. The version is one whose cluster state has no roles."""
    with SmallCluster(version="2.19.0") as server:
        file = server.write_file(console.folder)
        wait = SystemClock.wait
        monkeypatch.setattr(SystemClock, "wait", lambda self, seconds: wait(self, seconds / 10))
        server.silent = 2
        said = console.run("plan", "--cluster", file)
        assert (said.code, "es3" in said.out) == (ExitCode.DONE, True)
        waiting = f"waiting up to 30 s for the first reading: {UNREPORTED}"
        assert said.err.count(waiting) == 1, said.err
        monkeypatch.setattr(prepare, "_REPORT_SECONDS", 0.3)
        server.silent = 1_000_000
        said = console.run("plan", "--cluster", file)
        assert (said.code, f"cannot be read: {UNREPORTED}\n" in said.err) == (ExitCode.USAGE, True)
