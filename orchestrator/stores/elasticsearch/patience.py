"""Up to which priority a reading of health waits for the master's queue. Pure.

Health with `wait_for_events=P` is itself a task of priority P in the master queue: everything that is queued
before it with that priority or a higher one is done before the answer. The queue takes higher priorities
first, whenever they came. So on a master that always has something else to do (mapping updates are HIGH) a
`languid` wait never ends. After some waits that ran out, the next reading waits for less: it is then as new
as everything of that priority, and the reading says which one it was. Joins and departures of nodes and
started shards are URGENT or above.
"""

from __future__ import annotations

from typing import Final

LANGUID: Final = "languid"
_PRIORITIES: Final = (LANGUID, "normal", "high", "urgent")
_MISSES: Final = 2
"""Waits in a row that ran out, before the next waits for less."""
_GOOD: Final = 10
"""Readings with a lesser wait, before `languid` is tried again."""


class Patience:
    """What the next reading of health waits for, by how the last ones went."""

    def __init__(self) -> None:
        self._step = self._misses = self._good = 0

    @property
    def priority(self) -> str:
        """The value of `wait_for_events` for the next reading."""
        return _PRIORITIES[self._step]

    def answered(self, *, settled: bool) -> None:
        """Take note of an answer; `settled` says that its wait did not run out."""
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
