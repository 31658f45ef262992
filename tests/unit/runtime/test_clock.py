from __future__ import annotations

import time

from orchestrator.ports import Clock
from orchestrator.runtime.waiting import SystemClock


def test_a_step_of_the_wall_clock_moves_nothing() -> None:
    wall, passed = [1000.0], [50.0]
    clock: Clock = SystemClock(wall=lambda: wall[0], passed=lambda: passed[0])
    assert clock.now() == 1000.0
    wall[0], passed[0] = 5.0, 60.0
    assert clock.now() == 1010.0


def test_a_wait_ends_by_itself() -> None:
    clock = SystemClock()
    began = time.monotonic()
    clock.wait(0.05)
    assert 0.04 < time.monotonic() - began < 10
    clock.wait(0)
    clock.wait(-1)
    clock.close()


def test_a_wake_before_the_wait_is_not_lost_and_counts_once() -> None:
    clock = SystemClock()
    for _ in range(100_000):
        clock.wake()  # more than a pipe holds: none of them blocks
    began = time.monotonic()
    clock.wait(60)
    assert time.monotonic() - began < 30
    for _ in range(100):
        clock.wait(0)
    clock.wait(0.05)
    assert time.monotonic() - began > 0.04
