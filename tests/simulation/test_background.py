"""Simulated runs beside other tests end with them, however those end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 240.0
_TESTS = """
from tests.simulation.background import SimulatedRuns
runs = SimulatedRuns()
print(runs.group, flush=True)
input()
runs.end()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_no_simulated_run_outlives_the_tests(killed: bool) -> None:  # noqa: FBT001  (a parameter of pytest)
    with subprocess.Popen(  # noqa: S603  (our own module)
        [sys.executable, "-c", _TESTS],
        cwd=ROOT,
        env={**os.environ, "ORCHESTRATE_RUNS": "1000000"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdin is not None
        assert tests.stdout is not None
        group = int(tests.stdout.readline())
        assert _lives(group)
        if killed:
            tests.send_signal(signal.SIGKILL)
        else:
            tests.stdin.write("\n")
            tests.stdin.flush()
        tests.wait(timeout=DEADLINE)
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
