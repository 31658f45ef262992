"""A clock that moves only when it is waited on, or told to."""

from __future__ import annotations

from collections.abc import Callable


class ManualClock:
    """A `Clock` for tests. `during_wait` is called with the seconds of each wait, before time moves."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.time = now
        self.waits: list[float] = []
        self.during_wait: Callable[[float], None] = lambda _seconds: None

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.during_wait(seconds)
        self.time += seconds
