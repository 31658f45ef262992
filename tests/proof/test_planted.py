"""Properties that notice nothing are worth nothing: each planted defect must break one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.proof.apart import all_runs, ran
from tests.proof.planting import ROOT, Defect, NotPlantedError, plant, planted_defects


def test_none_is_planted_twice() -> None:
    names = [defect.name for defect in planted_defects()]
    assert len(names) == len(set(names))


def test_a_planted_defect_is_caught(subtests: pytest.Subtests) -> None:
    says = {defect.name: defect.says for defect in planted_defects()}
    found = ran("planted")
    assert [each.name for each in found] == list(says)
    for each in found:
        with subtests.test(name=each.name):
            assert each.error is None, each.error
            assert each.said is not None, f"nothing breaks, though {says[each.name]}"


def test_without_it_the_same_run_holds(subtests: pytest.Subtests) -> None:
    found = [*ran("scenes"), *ran("runs")]
    assert [each.name for each in found] == [str(run) for run in (*all_runs(str), *all_runs(int))]
    for each in found:
        with subtests.test(name=each.name):
            assert (each.error, each.said) == (None, None)


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("orchestrator/engine/run.py", "-no such line\n", "run.py has this 0 times"),
        ("orchestrator/engine/run.py", "-    state = situation.state\n", r"run.py has this \d+ times"),
        ("orchestrator/gone.py", "-a\n+b\n", "there is no orchestrator/gone.py"),
    ],
)
def test_a_text_that_is_gone_is_named(path: str, text: str, says: str) -> None:
    with pytest.raises(NotPlantedError, match=f"a defect: .*{says}"):
        plant(Defect(name="a defect", says="nothing", run=0, changes={path: text}))


def test_a_predicate_that_is_gone_is_named() -> None:
    with pytest.raises(NotPlantedError, match="a defect: Riak has no lease_is_lost"):
        plant(Defect(name="a defect", says="nothing", run=0, without=("riak lease_is_lost",)))


_PLANTING = r"""
import sys
from orchestrator.engine import grid, node
from tests.proof.planting import Defect, NotPlantedError, plant

def planted(module, text):
    return plant(Defect(name="it", says="", run=0, changes={f"orchestrator/engine/{module}.py": text}))

held = grid.move_of
confirm = planted("grid", "-    return GRIDS[goal][phase][sight]\n+    return Move.UNDO\n")
try:
    confirm()
except NotPlantedError as error:
    print(error)
print(held(None, None, None))
confirm()
confirm = planted("node", "-RETURNS: Final = 3\n+RETURNS: Final = 5\n")
print(node.RETURNS, sys.modules["orchestrator.engine.node"].RETURNS)
confirm()
"""


def test_what_is_planted_runs() -> None:
    """Whoever holds a function has the new one; what is no function is in a program that is imported anew."""
    done = subprocess.run(  # noqa: S603  (the text above)
        [sys.executable, "-c", _PLANTING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "it: the program never runs what was planted",
        "Move.UNDO",
        "3 5",
    ]
