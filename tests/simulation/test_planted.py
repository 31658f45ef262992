"""Properties that notice nothing are worth nothing: each planted defect must break one."""

from __future__ import annotations

import pytest

from tests.simulation.planted import DEFECTS, Defect, catch, planted
from tests.simulation.wide import live


def test_there_are_enough_of_them_and_none_twice() -> None:
    names = [defect.name for defect in DEFECTS]
    assert len(names) == len(set(names))
    assert len(names) >= 25


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_caught(defect: Defect) -> None:
    assert catch(defect) is not None, defect.says


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_without_it_the_same_run_holds(defect: Defect) -> None:
    if defect.scenario is not None:
        assert defect.scenario() is None
    else:
        assert live(defect.seed).seed == defect.seed


def test_nothing_stays_planted() -> None:
    defect = DEFECTS[0]
    before = [getattr(swap.owner, swap.name) for swap in defect.swaps]
    with planted(defect):
        assert [getattr(swap.owner, swap.name) for swap in defect.swaps] != before
    assert [getattr(swap.owner, swap.name) for swap in defect.swaps] == before
