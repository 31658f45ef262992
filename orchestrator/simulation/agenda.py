"""Virtual time: what will happen when, and nothing happens unless time is let pass."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from orchestrator.model.reading import Instant, Seconds

Happening = Callable[[], object]


class Agenda:
    """What is due, in the order of time; what is due at the same moment, in the order of asking.

    Args:
        start: the virtual now, in seconds since the epoch.
    """

    def __init__(self, start: Instant = 1_000_000.0) -> None:
        self.now: Instant = start
        self._due: list[tuple[Instant, int, Happening]] = []
        self._asked = 0

    def after(self, seconds: Seconds, happening: Happening) -> None:
        """Let this happen so many seconds from now."""
        self._asked += 1
        heapq.heappush(self._due, (self.now + max(0.0, seconds), self._asked, happening))

    def advance(self, seconds: Seconds) -> None:
        """Let so much time pass, with all that is due in it."""
        self.until(_never, seconds)

    def until(self, holds: Callable[[], bool], seconds: Seconds) -> bool:
        """Let time pass until this holds (True), at most so long (False)."""
        end = self.now + max(0.0, seconds)
        while not holds():
            if not self._due or self._due[0][0] > end:
                self.now = max(self.now, end)  # what happened may have let time pass itself
                return holds()
            at, _, happening = heapq.heappop(self._due)
            self.now = max(self.now, at)
            happening()
        return True


def _never() -> bool:
    return False
