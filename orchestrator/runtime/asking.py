"""Requests from other terminals, seen within a second, without a read of the database at each step."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from orchestrator.model.phase import Request
from orchestrator.model.reading import Seconds
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal

POLL_SECONDS: Final[Seconds] = 1.0
"""Between two reads: a database file has no event to wait for."""
_JOIN_SECONDS: Final[Seconds] = 5.0


class RequestWatch:
    """Reads requests in its own thread, and wakes the run when a stronger one arrives.

    Args:
        journal: the journal of the run.
        wake: ends the current wait (`SystemClock.wake`).
        seconds: between two reads.
    """

    def __init__(
        self,
        journal: SqlJournal | UnwrittenJournal,
        wake: Callable[[], None],
        *,
        seconds: Seconds = POLL_SECONDS,
    ) -> None:
        self._journal, self._wake, self._seconds = journal, wake, seconds
        self._asked: tuple[Request, str] = (Request.NONE, "")
        self._stopping = Event()
        self._thread = Thread(target=self._watch, name="requests", daemon=True)

    def start(self) -> None:
        """Begin to read requests."""
        self._thread.start()

    def asked(self) -> tuple[Request, str]:
        """The strongest request so far, and its sender; never waits."""
        return self._asked

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            found = self._journal.asked()
            if found[0] > self._asked[0]:
                self._asked = found
                self._wake()
            self._stopping.wait(self._seconds)
