"""Seeded whole runs with mishaps and kills: safe at every step, ended in time, everything as found.

`make test` lives 5,000 of them (`ORCHESTRATE_RUNS`) while other tests wait for real nodes (`background.py`),
`make soak` as many as you like.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.background import RUNS
from tests.simulation.soak import EVERY_MISHAP, Tally, report

ROOT = Path(__file__).resolve().parents[2]
_ENOUGH_FOR_EVERY_MISHAP = 300
_TRACES = (
    "from tests.simulation.chance import chance\n"
    "from tests.simulation.wide import Life\n"
    "for seed in range(1000, 1012):\n"
    "    life = Life(chance(seed))\n"
    "    print(seed, life.live(), life.trace())\n"
)


pytestmark = pytest.mark.timeout(3600)


def test_whole_runs_left_to_chance_break_no_property(lived: Tally) -> None:
    told = report(lived)
    sys.stdout.write(told + "\n")
    assert lived.runs == RUNS
    assert not lived.broken, told


@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to meet every mishap")
def test_every_kind_of_mishap_came_about(lived: Tally) -> None:
    assert sorted(EVERY_MISHAP - set(lived.happened)) == []
    assert set(lived.sizes) == {5, 9, 20, 60}


@pytest.mark.skipif(RUNS < _ENOUGH_FOR_EVERY_MISHAP, reason="too few runs to say how often")
def test_waves_went_beside_recoveries_in_enough_of_them(lived: Tally) -> None:
    assert lived.overlapped >= RUNS // 10
    assert lived.beside > lived.overlapped, "and often more than once"


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    told = [
        subprocess.run(  # noqa: S603  (our own module)
            [sys.executable, "-c", _TRACES],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(set(told[0].splitlines())) == 12
