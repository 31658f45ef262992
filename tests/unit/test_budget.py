"""The CPU seconds of tests are added up by folder, and are red with `--budget` alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.budget import folder_of

BUSY = """
import time

def test_busy():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
"""


def session(folder: Path, *options: str) -> tuple[int, str]:
    """What pytest says of a test in a folder without a budget, without plugins that take long to load."""
    (folder / "test_busy.py").write_text(BUSY)
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = ("-m", "pytest", str(folder), "-p", "tests.budget", "-p", "xdist", "-p", "no:cacheprovider")
    done = subprocess.run(  # noqa: S603  (this Python)
        [sys.executable, *words, *options],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_too_many_cpu_seconds_are_red_with_budget_alone(tmp_path: Path) -> None:
    code, said = session(tmp_path, "--numprocesses=0")
    assert code == 0, said
    assert "CPU seconds: 0 (" in said
    code, said = session(tmp_path, "--budget", "--numprocesses=1")
    assert code == 1, said
    assert "OVER BUDGET" in said


def test_folder_of_a_test_is_the_one_with_a_budget() -> None:
    assert folder_of("tests/unit/engine/test_waves.py::test_x[a/b]") == "tests/unit"
    assert folder_of("docs/test_pages.py::test_x") == "docs"
