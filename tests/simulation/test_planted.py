"""Properties that notice nothing are worth nothing: each planted defect must break one."""

from __future__ import annotations

import pytest

from orchestrator.engine import node
from tests.simulation.planted import DEFECTS
from tests.simulation.planting import Defect, NotPlantedError, Swap, always, catch, planted, without
from tests.simulation.wide import live


def test_there_are_enough_of_them_and_none_twice() -> None:
    names = [defect.name for defect in DEFECTS]
    assert len(names) == len(set(names))
    assert len(names) >= 60


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_caught(defect: Defect) -> None:
    assert catch(defect) is not None, defect.says


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_without_it_the_same_run_holds(defect: Defect) -> None:
    if defect.scenario is not None:
        assert defect.scenario() is None
    else:
        assert live(defect.seed, ordinary=False).seed == defect.seed


def test_what_changes_nothing_is_not_planted() -> None:
    """A swap of what the program does not go by is a mistake of the list, not a defect that holds."""
    defect = Defect(name="none", says="nothing", swaps=(without("no_such_predicate"),))
    with pytest.raises(NotPlantedError, match="stays as it is"):
        catch(defect, most=1)


def test_what_the_program_never_calls_is_not_planted() -> None:
    """Such as a function that a table took when it was made."""
    swap = Swap(owner=node, name="rejoined", by=always(()))
    defect = Defect(name="rejoined", says="nothing", swaps=(swap,))
    with pytest.raises(NotPlantedError, match=r"never calls .*rejoined"):
        catch(defect, most=1)


def test_nothing_stays_planted() -> None:
    defect = DEFECTS[0]
    before = [getattr(swap.owner, swap.name) for swap in defect.swaps]
    with planted(defect):
        assert [getattr(swap.owner, swap.name) for swap in defect.swaps] != before
    assert [getattr(swap.owner, swap.name) for swap in defect.swaps] == before
