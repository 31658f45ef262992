"""The whole simulated runs of a session of tests, in parts of a hundred.

Each part is a test of its own, so that progress is seen and a failure names its seeds. What all of them show
together is asked of the same parts, which are kept: their tests are in one group, for one process.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from tests.simulation.chance_riak import FIRST
from tests.simulation.soak import ALLOCATIONS, Tally, some

RUNS: Final = int(os.environ.get("ORCHESTRATE_RUNS", "600"))
ON_RINGS: Final = RUNS // 3
"""Runs on Riak clusters, beside the others."""
PART: Final = 100
PARTS: Final = tuple(range(0, RUNS, PART))
"""The first seed of each part."""
PARTS_ON_RINGS: Final = tuple(range(FIRST, FIRST + ON_RINGS, PART))


def part(first: int) -> Tally:
    """The part that begins with this seed, on indices or on rings."""
    return _lived(first, min(PART, (FIRST + ON_RINGS if first >= FIRST else RUNS) - first))


def together(parts: Iterable[int]) -> Tally:
    """All of these parts."""
    whole = Tally()
    for first in parts:
        whole.add(part(first))
    return whole


@cache
def _lived(first: int, runs: int) -> Tally:
    with _few_collections():
        return some(first, runs)


@contextmanager
def _few_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
