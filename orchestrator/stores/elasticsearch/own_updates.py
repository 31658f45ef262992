"""Updates of the cluster's state by this program that change nothing of what it reads there: its lease's.

Each makes the state one version later, as does everything that changes it. So where the state is later by
just as many versions as updates were begun since it was read, and acknowledged, nothing else has changed.
"""

from __future__ import annotations

import threading


class OwnUpdates:
    """Counts the updates that were begun after a reading. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings = 0
        self._acknowledged: list[int] = []

    def was_read(self) -> int:
        """A state has just been read. Returns the number of the reading, for `since`."""
        with self._lock:
            self._readings += 1
            self._acknowledged.clear()  # only the last reading is asked for
            return self._readings

    def begin(self) -> int:
        """An update is to be sent: one that may already be part of a reading after this does not count."""
        with self._lock:
            return self._readings

    def acknowledge(self, begun: int) -> None:
        """The update has certainly been made, once. `begun` is what `begin` returned."""
        with self._lock:
            self._acknowledged.append(begun)

    def since(self, reading: int) -> int:
        """How many updates were begun after this reading, and have been made.

        To be asked before the state is: each of these is then part of its version.
        """
        with self._lock:
            return sum(begun >= reading for begun in self._acknowledged)
