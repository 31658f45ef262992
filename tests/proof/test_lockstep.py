"""Two trees, one of which decides otherwise, are told apart, and what is the first difference."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.proof.lockstep import Tree, compare, differences, parting
from tests.proof.planting import ROOT

WAVES = Path("orchestrator/engine/waves.py")


def test_a_tree_that_decides_otherwise_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("orchestrator", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    here, copy = Tree(ROOT, sys.executable), Tree(tmp_path, sys.executable)
    assert compare(copy, here, 0, 1) == 0
    text = (tmp_path / WAVES).read_text()
    order = "key=lambda unit: place[unit[-1]]"
    assert order in text
    (tmp_path / WAVES).write_text(text.replace(order, order.replace("place", "-place")))
    assert compare(copy, here, 0, 3) > 0
    assert "runs differ" in capsys.readouterr().out


def test_the_first_difference_is_shown_with_what_came_before() -> None:
    lines = [str(number) for number in range(9)]
    assert parting(lines, list(lines)) == []
    assert parting(lines, [*lines[:7], "other", "8"])[-6:] == [" 4", " 5", " 6", "-7", "+other", " 8"]
    assert parting(lines, lines[:8])[-1] == "-8"


def test_other_words_are_told_from_other_steps() -> None:
    begun, ended = (
        '{"at": 1, "event": {"event": "run_started"}}',
        '{"at": 2, "event": {"event": "run_finished", "message": "a"}}',
    )
    before = ["1.0 stop es1", begun, ended]
    assert differences(before, list(before)) == set()
    assert differences(before, [*before[:2], ended.replace('"a"', '"b"')]) == {"run_finished.message"}
    for other in (before[:2], ["1.0 stop es2", *before[1:]], [before[0], ended, begun]):
        assert differences(before, other) == {"steps"}
