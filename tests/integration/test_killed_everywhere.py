"""Killed at every event of a real run, many to a run: each process dies a little after the one before it.

`test_killed_at_every_event.py` asks the same of one seam at a time, which takes hours. Here a run is killed
and taken up again a dozen times on its way, so all its events are died at in a few runs. What is right at the
end of each is the same: every node restarted once, settings as found, nothing left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from orchestrator.lab.layout import THREE_ZONES
from tests.integration.doomed import Place, finished
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
from tests.integration.zoning import SIX_IN_THREE, elected_master, whole_zones, zones_of

if TYPE_CHECKING:
    from orchestrator.lab.nodes import LabCluster
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.exhaustive, pytest.mark.timeout(7200)]

OVER = 2
"""The exit code of a resume where no run is left to go on with."""
Passed = Iterable[tuple[str, list[str]]]


def places(passed: Passed, waves: int = 0) -> Iterator[tuple[Place, ...]]:
    """The places of each seam that a process passed, in their order; `waves` had finished before it."""
    for seam, detail in passed:
        kind = seam.partition(":")[0]
        yield tuple(Place(kind=kind, told=told, waves=waves) for told in detail)
        waves += finished(kind, detail)


class Chain:
    """Runs that are killed again and again, until every place of an undisturbed run has been died at.

    Args:
        rescuer: gives a bastion that puts the cluster back after each death, before the run is taken up; or
            None.
    """

    def __init__(self, lab: LabCluster, bastion: Bastion, rescuer: Callable[[], Bastion] | None) -> None:
        self._lab, self._bastion, self._rescuer = lab, bastion, rescuer
        prepare(lab)
        assert bastion.restart(names=self._names()) == 0, bastion.story()
        # Before the run's own beginning is committed there is no run yet.
        seams = [seam for seam in places(bastion.passed()) if not any("run_started" in p.told for p in seam)]
        self.wanted = list(dict.fromkeys(place for seam in seams for place in seam))
        self.left = list(self.wanted)
        self.deaths = 0

    def run(self) -> bool:
        """One run of all nodes, killed at as many places that are left as it passes; whether at any."""
        bastion, before, names = self._bastion, truth(self._lab), self._names()
        bastion.said.clear()
        began, waves, position = self.deaths, 0, 0
        begin = bastion.restart
        while aims := self._ahead(position, waves):
            code = begin(among=aims, waves=waves, names=names)
            if code == 0:
                break
            assert code == KILLED, bastion.story()
            died = list(places(bastion.passed(), waves))[-1]
            self.deaths += 1
            self.left = [place for place in self.left if place not in died]
            position = max(self.wanted.index(place) for place in died if place in self.wanted) + 1
            waves = died[0].waves + finished(died[0].kind, [place.told for place in died])
            self._after_death(died, before)
            begin = partial(bastion.orchestrate, "resume", "--yes")
        else:
            code = bastion.orchestrate("resume", "--yes")
            assert code in (0, OVER), bastion.story()
        assert_restarted_once(self._lab, before, bastion.story())
        return self.deaths > began

    def _names(self) -> dict[str, str]:
        """Nodes by their places in the run that is to come: the elected master goes last, and it changes."""
        waves = whole_zones(zones_of(self._lab.nodes), elected_master(self._lab.client))
        return {
            name: f"node{place}of{wave}"
            for wave, nodes in enumerate(waves)
            for place, name in enumerate(nodes)
        }

    def _ahead(self, position: int, waves: int) -> list[Place]:
        return [p for p in self.left if self.wanted.index(p) >= position and p.waves >= waves]

    def _after_death(self, died: tuple[Place, ...], before: Truth) -> None:
        over = any(place.told.startswith("run_finished") for place in died)
        rescuer = self._rescuer() if self._rescuer else self._bastion
        if self._rescuer is None and not over:
            return
        assert rescuer.restore() == 0, rescuer.story()
        assert_put_back(self._lab, before, rescuer.story())


@pytest.mark.parametrize("rescue", ["resume", "restore", "takeover"])
@pytest.mark.parametrize("strategy", ["node", "zone"])
def test_a_run_may_be_killed_anywhere(
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    capsys: pytest.CaptureFixture[str],
    strategy: str,
    rescue: str,
) -> None:
    """`takeover`: another bastion with an empty state puts back what the dead one left, after each death."""
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE if strategy == "zone" else THREE_ZONES)
    bastion, number = bastion_of(lab, strategy=strategy), count()
    rescuers: dict[str, Callable[[], Bastion] | None] = {
        "resume": None,
        "restore": lambda: bastion,
        "takeover": lambda: bastion_of(lab, f"other-{next(number)}"),
    }
    chain = Chain(lab, bastion, rescuers[rescue])
    for run in count(1):
        died = chain.run()
        done = f"{len(chain.wanted) - len(chain.left)} of {len(chain.wanted)} places"
        with capsys.disabled():
            sys.stdout.write(f"\n{strategy} {rescue}, run {run}: {chain.deaths} deaths, {done} ")
        if not died or not chain.left:
            break
    assert chain.left == [], "a place counts only once it was died at"
