"""Chooses the task priority that a reading of health waits for in the master's queue. Pure.

Health with `wait_for_events=P` is itself a task of priority P in the master's queue. All earlier tasks of
that priority or a higher one are done before the answer. The queue always takes higher priorities first. So
on a master that is always busy (mapping updates are HIGH) a `languid` wait never ends. After several waits
that timed out, the next reading waits for a higher priority only. It then includes all tasks of that
priority, and the reading names the priority. Joins and departures of nodes and started shards are URGENT or
above.
"""

from __future__ import annotations

from typing import Final

LANGUID: Final = "languid"
_PRIORITIES: Final = (LANGUID, "normal", "high", "urgent")
_MISSES: Final = 2
"""Waits in a row that timed out, before the next one waits for a higher priority only."""
_GOOD: Final = 10
"""Readings with a higher priority, before `languid` is tried again."""


class Patience:
    """Chooses the priority for the next reading of health from the results of the last ones."""

    def __init__(self) -> None:
        self._step = self._misses = self._good = 0

    @property
    def priority(self) -> str:
        """The value of `wait_for_events` for the next reading."""
        return _PRIORITIES[self._step]

    def answered(self, *, settled: bool) -> None:
        """Record an answer; `settled`: its wait did not time out."""
        if settled:
            self._misses = 0
            self._good += self._step > 0
            if self._good >= _GOOD:
                self._step = self._good = 0
            return
        self._good = 0
        self._misses += 1
        if self._misses >= _MISSES and self._step < len(_PRIORITIES) - 1:
            self._step += 1
            self._misses = 0
