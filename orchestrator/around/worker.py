"""A thread beside a run. It begins when there is work, and only the end waits for it, within one deadline."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

_SHORTEST: Final = 0.1
"""Seconds of a request after the deadline: a connection needs a limit above zero."""


class Worker(ABC):
    """What is done by a thread of its own.

    Args:
        name: of the thread.
        clock: monotonic seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._changed = Condition()
        self._until: float | None = None
        self._thread: Thread | None = None

    def close(self, until: float) -> None:
        """No work follows: finish what there is, until this moment of the clock."""
        with self._changed:
            self._until = until
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for that."""
        if self._thread is not None and self._until is not None:
            self._thread.join(max(0.0, self._until - self._clock()))
            if self._thread.is_alive():
                self._late()

    @abstractmethod
    def _work(self) -> None:
        """What the thread does, until `_until` is set and nothing is left to do."""

    @abstractmethod
    def _late(self) -> None:
        """Record that something was not finished in time."""

    def _begin(self) -> None:
        """Begin the thread, unless it has begun."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def _left(self, most: float) -> float:
        """Seconds that one request may take."""
        return most if self._until is None else max(_SHORTEST, min(most, self._until - self._clock()))
