"""Simulated runs beside other tests end with them, however those end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 900.0
_UNDER_WAY = """
from tests.simulation.background import SimulatedRuns
runs = SimulatedRuns()
print(runs.group, flush=True)
input()
runs.end()
"""
_DONE = _UNDER_WAY.replace("input()", "runs.lived(); input()")


@contextmanager
def _tests(script: str, *, runs: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has asked for so many runs, and the process group of these."""
    with subprocess.Popen(  # noqa: S603  (our own module)
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "ORCHESTRATE_RUNS": str(runs)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        group = int(tests.stdout.readline())
        try:
            yield tests, group
        finally:
            tests.kill()


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize("killed", [True, False])
def test_no_simulated_run_outlives_the_tests(killed: bool) -> None:  # noqa: FBT001  (a parameter of pytest)
    with _tests(_UNDER_WAY, runs=1_000_000) as (tests, group):
        assert _lives(group)
        if killed:
            tests.kill()
            tests.wait()
        else:
            tests.communicate("\n", timeout=DEADLINE)
            assert tests.returncode == 0
        _await_end(group)


@pytest.mark.timeout(2 * DEADLINE)
def test_runs_that_are_done_leave_no_process_behind() -> None:
    with _tests(_DONE, runs=1) as (tests, group):
        _await_end(group)
        assert tests.poll() is None


def _await_end(group: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while _lives(group):
        assert time.monotonic() < deadline, f"process group {group} lives on"
        time.sleep(0.1)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
