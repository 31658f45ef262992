"""Runs that are killed at every event, many times each: a process dies a little after the one before it.

Each seam in a run of its own would take hours. In a chain a run is killed and taken up again dozens of times
on its way, so all its events are died at in a few runs. What is right at the end of each is the same as at
the end of an undisturbed one, and it is asked of the cluster itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from tests.integration.doomed import Place, finished, phase_after
from tests.integration.killing import KILLED, SEED, Bastion

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import Show

OVER = 2
"""The exit code of a resume where no run is left to go on with."""
Passed = Iterable[tuple[str, list[str]]]
Begin = Callable[..., int]
"""Runs the program to its end or its death, and gives the exit code; takes what `Bastion.restart` takes."""
Rescuer = Callable[[], Bastion]


class Judge(Protocol):
    """Tells, past the program, whether a cluster is as it should be; `story` is for the message."""

    def restarted_once(self, story: str) -> None:
        """As after an undisturbed run."""
        ...

    def put_back(self, story: str) -> None:
        """As after a restore of a run that was on its way."""
        ...


class Site(Protocol):
    """A cluster whose restart is killed again and again."""

    def names(self) -> Mapping[str, str]:
        """What to call the nodes in the run that is to come, where their order differs from run to run."""
        ...

    def judged(self) -> AbstractContextManager[Judge]:
        """Look at the cluster before a run, and while it lasts."""
        ...


def places(passed: Passed, waves: int = 0) -> Iterator[tuple[Place, ...]]:
    """The places of each seam that a process passed, in their order; `waves` had finished before it."""
    for seam, detail in passed:
        kind = seam.partition(":")[0]
        yield tuple(Place(kind=kind, told=told, waves=waves) for told in detail)
        waves += finished(kind, detail)


def _is(seam: tuple[Place, ...], kind: str, told: str) -> bool:
    return any(place.kind == kind and place.told.startswith(told) for place in seam)


class Chain:
    """Runs that are killed again and again, until every place of an undisturbed run has been died at.

    Args:
        site: the cluster, prepared.
        bastion: what restarts it.
        rescuer: gives a bastion that puts the cluster back after each death, before the run is taken up; or
            None.
        begin: what begins a run; a restart unless it is given.
        again: what goes on after a death; a resume unless it is given.
    """

    def __init__(
        self,
        site: Site,
        bastion: Bastion,
        rescuer: Rescuer | None = None,
        *,
        begin: Begin | None = None,
        again: Begin | None = None,
    ) -> None:
        self._site, self._bastion, self._rescuer = site, bastion, rescuer
        self._begin: Begin = begin or bastion.restart
        self._resume: Begin = partial(bastion.orchestrate, "resume", "--yes")
        self._again: Begin = again or self._resume
        with site.judged() as judge:
            assert self._begin(names=site.names()) == 0, bastion.story()
            judge.restarted_once(bastion.story())
        self.wanted = list(dict.fromkeys(place for seam in places(bastion.passed()) for place in seam))
        self.left = list(self.wanted)
        self.deaths = 0

    def run(self) -> bool:
        """One run, killed at as many places that are left as it passes; whether at any."""
        bastion, names, began = self._bastion, self._site.names(), self.deaths
        bastion.said.clear()
        with self._site.judged() as judge:
            waves, position, phase, over = 0, 0, "", False
            begin = self._begin
            while aims := self._ahead(position, waves):
                code = begin(among=aims, waves=waves, phase=phase, names=names)
                if code == 0:
                    break
                assert code == KILLED, bastion.story()
                passed = bastion.passed()
                died = list(places(passed, waves))[-1]
                self.deaths += 1
                self.left = [place for place in self.left if place not in died]
                position = max(self.wanted.index(place) for place in died if place in self.wanted) + 1
                waves = died[0].waves + finished(died[0].kind, [place.told for place in died])
                phase = phase_after(phase, passed)
                over = _is(died, "after", "run_finished")
                if self._after_death(died, judge, over=over):
                    begin = self._again
            else:
                code = self._again()
                nothing_left = over and self._again is self._resume
                # A restore may have been all that was left to do, and may be a run of its own.
                wanted = (0, OVER) if self._rescuer else (OVER,) if nothing_left else (0,)
                assert code in wanted, bastion.story()
            judge.restarted_once(bastion.story())
        return self.deaths > began

    def _ahead(self, position: int, waves: int) -> list[Place]:
        return [p for p in self.left if self.wanted.index(p) >= position and p.waves >= waves]

    def _after_death(self, died: tuple[Place, ...], judge: Judge, *, over: bool) -> bool:
        """Put the cluster back, if that is the way or the only one; whether there is a run to resume."""
        begun = not _is(died, "before", "run_started")
        if not begun and self._rescuer is None:
            assert self._resume() == OVER, self._bastion.story()
        elif over or self._rescuer is not None:
            rescuer = self._rescuer() if self._rescuer is not None else self._bastion
            assert rescuer.restore() == 0, rescuer.story()
            judge.put_back(rescuer.story())
        return begun


def kill_everywhere(chain: Chain, what: str, show: Show) -> None:
    """Go on until every place was died at; fail if a run passes none of those that are left."""
    for run in count(1):
        died = chain.run()
        done = f"{len(chain.wanted) - len(chain.left)} of {len(chain.wanted)} places"
        show(f"{what}, run {run}: {chain.deaths} deaths, {done}")
        if not died or not chain.left:
            break
    assert chain.left == [], "a place counts only once it was died at"


MOST_OVER = 2
"""A run may end before its last death: how many seams it has depends on how fast its nodes start."""


def kill_by_chance(
    site: Site, bastion: Bastion, apart: Sequence[int], *, kills: int, rescuers: Mapping[str, Rescuer | None]
) -> str:
    """One run that is killed so many times, and what befell it; the seed is one of `ORCHESTRATE_SEED`.

    Args:
        site: the cluster, prepared.
        bastion: what restarts it.
        apart: how many seams a process passes before it dies; one that takes a run up passes some of its own.
        kills: how often.
        rescuers: as in a chain, by name; chance chooses one after each death.
    """
    chance = random.Random(f"{SEED}/{bastion.strategy}/{kills}")  # noqa: S311  (a seed that can be given again)
    told, begin, deaths = [f"ORCHESTRATE_SEED={SEED}:"], bastion.restart, 0
    with site.judged() as judge:
        while deaths < kills:
            code = begin(seam=chance.choice(apart))
            if code == 0:
                break
            assert code == KILLED, bastion.story()
            deaths += 1
            died = list(places(bastion.passed()))[-1]
            name, rescuer = chance.choice(list(rescuers.items()))
            told += [bastion.passed()[-1][0], name]
            if _is(died, "after", "run_finished"):  # the lease of a dead process is all that is left
                assert bastion.restore() == 0, bastion.story()
                break
            if rescuer is not None:
                by = rescuer()
                assert by.restore() == 0, by.story()
                judge.put_back(f"{' '.join(told)}\n{by.story()}")
            begin = partial(bastion.orchestrate, "resume", "--yes")
        else:
            assert begin() == 0, bastion.story()
        judge.restarted_once(f"{' '.join(told)}\n{bastion.story()}")
    assert deaths >= kills - MOST_OVER, f"{' '.join(told)}: the run was over too early to show much"
    return " ".join(told)
