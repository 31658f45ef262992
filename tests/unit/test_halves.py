"""`make test` runs its tests in two halves: none is left out, and a failure of either is one of the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.halves import halves, verdict

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_is_in_one_half() -> None:
    assert halves(["-m", "not exhaustive", "-x", "tests/cli"]) == (
        ["-x", "tests/cli", "-m", "(not exhaustive) and (real or docker)"],
        ["-x", "tests/cli", "-m", "(not exhaustive) and not (real or docker)"],
    )
    assert halves([]) == (["-m", "(real or docker)"], ["-m", "not (real or docker)"])


def test_a_failure_of_either_is_one_of_the_whole(subtests: pytest.Subtests) -> None:
    for codes, code in [
        ((0, 0), 0),
        ((0, 1), 1),
        ((2, 0), 2),
        ((5, 0), 0),
        ((5, 1), 1),
        ((-9, 0), -9),
        ((5, 5), 5),
    ]:
        with subtests.test(codes=codes, code=code):
            assert verdict(*codes) == code


@pytest.mark.parametrize("bad", ["real", "other", "neither"])
def test_both_are_run_and_the_last_words_are_of_a_failed_one(tmp_path: Path, bad: str) -> None:
    (tmp_path / "test_both.py").write_text(
        f"import pytest\n\n\n@pytest.mark.real\ndef test_real(): assert {bad != 'real'}\n\n\n"
        f"def test_other(): assert {bad != 'other'}\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  real: x\n  docker: x\n")
    done = subprocess.run(  # noqa: S603  (this Python)
        [sys.executable, "-m", "tests.halves", str(tmp_path), "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    on_servers, other = ("failed" if bad == half else "passed" for half in ("real", "other"))
    assert done.stdout.count(", 1 deselected in") == (3 if bad == "real" else 2), done
    assert f"1 {on_servers}, 1 deselected" in done.stdout
    assert f"1 {other}, 1 deselected" in done.stdout
    assert f"1 {'passed' if bad == 'neither' else 'failed'}" in done.stdout.splitlines()[-1]
    assert done.returncode == (bad != "neither")
