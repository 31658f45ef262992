"""Killed at every seam of a real run, many to a run: each process dies some seams after the one before it.

`test_killed_at_every_event.py` asks the same of one seam at a time, which takes hours. Here a run is killed
and taken up again a dozen times on its way, so all its seams are died at in a few runs. What is right at the
end of each is the same: every node restarted once, settings as found, nothing left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    Bastion,
    Truth,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)

if TYPE_CHECKING:
    from orchestrator.lab.nodes import LabCluster
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.exhaustive, pytest.mark.timeout(7200)]

APART = 7
"""Seams between two deaths of a run: a process that takes a run up passes some of its own first."""
OVER = 2
"""The exit code of a resume where no run is left to go on with."""


class Place(NamedTuple):
    """One seam of a run, by what is told there and how many waves had finished."""

    kind: str
    told: str
    waves: int


def places(passed: Iterable[tuple[str, list[str]]], waves: int = 0) -> Iterator[Place]:
    """The seams that a process passed, in their order; `waves` had finished before it."""
    for seam, detail in passed:
        yield Place(kind=seam.partition(":")[0], told="; ".join(detail), waves=waves)
        waves += finished(seam, detail)


def finished(seam: str, detail: list[str]) -> bool:
    """Whether the end of a wave is committed there."""
    return seam.startswith("after") and any(each.startswith("wave_finished") for each in detail)


class Chain:
    """Runs that are killed again and again, until every place of an undisturbed run has been died at."""

    def __init__(self, lab: LabCluster, bastion: Bastion, *, restored: bool) -> None:
        self._lab, self._bastion, self._restored = lab, bastion, restored
        prepare(lab)
        assert bastion.restart() == 0, bastion.story()
        found = dict.fromkeys(places(bastion.passed()))
        self.wanted = [
            place for place in found if "run_started" not in place.told
        ]  # else there is no run yet
        self.left = list(self.wanted)
        self.deaths = 0

    def run(self) -> None:
        """One run of three nodes, killed at as many of the places that are left as lie apart."""
        bastion, before = self._bastion, truth(self._lab)
        bastion.said.clear()
        began, waves, position = self.deaths, 0, 0
        while (aim := self._next(position, waves)) is not None:
            begin = (
                bastion.restart if self.deaths == began else partial(bastion.orchestrate, "resume", "--yes")
            )
            code = begin(at=aim.told, kind=aim.kind)
            died = list(places(bastion.passed(), waves))[-1]
            waves += sum(finished(*each) for each in bastion.passed())
            if code == 0:
                break
            assert code == KILLED, bastion.story()
            self.deaths += 1
            self.left = [place for place in self.left if place != died]
            position = self.wanted.index(aim) + APART
            if self._restored or died.told.startswith("run_finished") or "; run_finished" in died.told:
                self._restore(before)
        else:
            code = bastion.orchestrate("resume", "--yes")
            assert code in (0, OVER), bastion.story()
        assert self.deaths > began, f"never died at {aim}: {bastion.story()}"
        assert_restarted_once(self._lab, before, bastion.story())

    def _next(self, position: int, waves: int) -> Place | None:
        later = [p for p in self.left if self.wanted.index(p) >= position and p.waves >= waves]
        return later[0] if later else None

    def _restore(self, before: Truth) -> None:
        code = self._bastion.orchestrate("restore", "--cluster", str(self._bastion.file))
        assert code == 0, self._bastion.story()
        assert_put_back(self._lab, before, self._bastion.story())


@pytest.mark.parametrize("restored", [False, True], ids=["resume", "restore"])
def test_a_run_may_be_killed_anywhere(
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    capsys: pytest.CaptureFixture[str],
    *,
    restored: bool,
) -> None:
    lab = process_cluster(QUICKEST)
    chain = Chain(lab, bastion_of(lab), restored=restored)
    runs = 0
    while chain.left:
        chain.run()
        runs += 1
        done = len(chain.wanted) - len(chain.left)
        with capsys.disabled():
            sys.stdout.write(f"\nrun {runs}: {chain.deaths} deaths, {done} of {len(chain.wanted)} places ")
    assert chain.deaths >= len(chain.wanted), "a place counts only once it was died at"
