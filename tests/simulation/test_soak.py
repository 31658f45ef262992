"""The command that lives many seeds, in processes of its own whose values are thawed."""

from __future__ import annotations

import subprocess
import sys

from tests.parts import ROOT


def test_a_soak_lives_seeds_without_a_broken_property() -> None:
    command = [sys.executable, "-m", "tests.simulation.soak", "--first", "5500000", "--runs", "2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603
    assert ended.returncode == 0, ended.stderr
    assert "no property was broken" in ended.stdout
