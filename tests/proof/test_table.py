"""The table of what tests notice: its mutants, and what two tables say of each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.proof.__main__ import Table, compared
from tests.proof.mutants import drawn, mutants_of
from tests.proof.planting import ROOT

SIGHT = Path("orchestrator/engine/sight.py")


def test_each_mutant_is_another_program(tmp_path: Path) -> None:
    (tmp_path / SIGHT).parent.mkdir(parents=True)
    (tmp_path / SIGHT).write_text((ROOT / SIGHT).read_text())
    before = ast.dump(ast.parse((ROOT / SIGHT).read_text()))
    mutants = mutants_of(tmp_path)
    programs = {ast.dump(ast.parse(mutant.source)) for mutant in mutants.values()}
    assert len(programs - {before}) == len(mutants)
    assert {name.split(": ")[1] for name in mutants} >= {"and/or", "comparison", "constant", "not"}


def test_a_draw_stays_when_other_mutants_go() -> None:
    mutants = mutants_of(ROOT)
    some = drawn(mutants, 20)
    assert some[:5] == drawn(mutants, 5)
    del mutants[some[0]]
    assert some[1:] == drawn(mutants, 19)


def test_what_was_killed_and_is_not_any_more_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("survives", "-"), ("is gone", "gone"), ("by another", "cli"), ("never killed", "-")]
    before, after = Table(tmp_path / "before"), Table(tmp_path / "after")
    before.add("planted", "not listed", "its own run", 1.0, "")
    before.add("layer", "cli", "-", 1.0, "a test that fails here")
    for name, layer in rows:
        before.add("mutant", name, "-" if name == "never killed" else "units", 1.0, "FAILED\na test")
        after.add("mutant", name, layer, 1.0, "")
    capsys.readouterr()
    assert compared(Table(tmp_path / "before"), Table(tmp_path / "after")) == 3
    lost = [line for line in capsys.readouterr().out.splitlines() if line.startswith("LOST")]
    assert [line.split("; ")[0] for line in lost] == [
        "LOST (not in the second table): planted not listed",
        "LOST (survives): mutant survives",
        "LOST (gone): mutant is gone",
    ]
