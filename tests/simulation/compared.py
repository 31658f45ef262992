"""Drawn runs whose world is compared with something at many moments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.lived import BrokenError
from tests.simulation.wide import Life


@dataclass(slots=True)
class _Comparing(Seams):
    """Compares at every point at which the program could be killed."""

    compare: Callable[[], None]
    crash_at: int | None = None
    passed: list[str] = field(default_factory=list)

    def point(self, what: str) -> None:
        del what
        self.compare()
        self.passed.append("compared")


def compared(seed: int, compare: Callable[[World], None]) -> None:
    """Live the run of that seed, and compare its world wherever the program could be killed."""
    life = Life(chance(seed))
    seams = _Comparing(lambda: compare(life.world))
    life.simulation.seams = life.simulation.cluster.seams = seams
    with contextlib.suppress(BrokenError):  # what the program does wrong is not what is asked here
        life.live()
    assert seams.passed
