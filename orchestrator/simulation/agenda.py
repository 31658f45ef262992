"""Virtual time: scheduled events, which happen only while a caller lets time pass.

Several processes of the program may share one world. The host is the process that runs in the main thread.
Every other process is a guest with its own thread. Only one thread runs at a time: a guest runs from the end
of its wait to its next wait, so the same seed always gives the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from threading import Semaphore, Thread, get_ident

from orchestrator.model.reading import Instant, Seconds

Happening = Callable[[], object]

_NEVER: Instant = float("inf")


class Dismissed(BaseException):
    """The world ends before the guest does."""


class Guest:
    """Another process, which runs while the host lets time pass.

    Attributes:
        over: its work is done, or has failed.
        failure: the exception that ended its work; the code that invited the guest raises it at a suitable
            place.
    """

    def __init__(self, agenda: Agenda, work: Happening) -> None:
        self._agenda, self._work = agenda, work
        self._may_run, self._has_run = Semaphore(0), Semaphore(0)
        self._holds: Callable[[], bool] = _always
        self._end: Instant = agenda.now
        self.failure: BaseException | None = None
        self._dismissed = self.over = False
        self._thread = Thread(target=self._live, daemon=True)
        self._thread.start()
        self.ident = self._thread.ident

    @property
    def wakes_at(self) -> Instant:
        """The latest end of its wait."""
        return self._end

    @property
    def due(self) -> bool:
        """Whether its wait is over."""
        return self._agenda.now >= self._end or self._holds()

    def run(self) -> None:
        """Run it until it waits again or is over."""
        self._may_run.release()
        self._has_run.acquire()

    def wait(self, holds: Callable[[], bool], end: Instant) -> bool:
        """Called from its own thread: return control to the host until this holds, or until this time."""
        if holds():
            return True
        self._holds, self._end = holds, end
        self._has_run.release()
        self._may_run.acquire()
        if self._dismissed:
            raise Dismissed
        return holds()

    def dismiss(self) -> None:
        """End its thread at its current wait."""
        self._dismissed = True
        while not self.over:
            self._may_run.release()
            self._has_run.acquire()

    def _live(self) -> None:
        self._may_run.acquire()
        try:
            if not self._dismissed:
                self._work()
        except Dismissed:
            pass  # asked for by `dismiss`
        except BaseException as failure:  # noqa: BLE001  (kept for the host's thread)
            self.failure = failure
        self.over = True
        self._has_run.release()


class Agenda:
    """Scheduled events in order of time; events of the same moment in order of scheduling.

    Args:
        start: the virtual now, in seconds since the epoch.

    Attributes:
        happened: number of events so far, and of times that a guest ran.
    """

    def __init__(self, start: Instant = 1_000_000.0) -> None:
        self.now: Instant = start
        self.happened = 0
        self._due: list[tuple[Instant, int, Happening]] = []
        self._asked = 0
        self._guests: list[Guest] = []

    def after(self, seconds: Seconds, happening: Happening) -> None:
        """Schedule this event after this many seconds."""
        self._asked += 1
        heapq.heappush(self._due, (self.now + max(0.0, seconds), self._asked, happening))

    def invite(self, work: Happening) -> Guest:
        """Run this work beside the host, from now on, as another process."""
        guest = Guest(self, work)
        self._guests.append(guest)
        return guest

    def dismiss(self) -> None:
        """End every guest."""
        guests, self._guests = self._guests, []
        for guest in guests:
            guest.dismiss()

    def advance(self, seconds: Seconds) -> None:
        """Let this much time pass, with all events that are due in it."""
        self.until(_never, seconds)

    def until(self, holds: Callable[[], bool], seconds: Seconds) -> bool:
        """Let time pass until this holds (True), at most this long (False)."""
        end = self.now + max(0.0, seconds)
        if self._guests:
            guest = next((guest for guest in self._guests if guest.ident == get_ident()), None)
            if guest is not None:
                return guest.wait(holds, end)
            return self._until_beside_guests(holds, end)
        while not holds():
            if not self._due or self._due[0][0] > end:
                self.now = max(self.now, end)  # an event may have let time pass itself
                return holds()
            self._happen()
            if self._guests:
                return self._until_beside_guests(holds, end)
        return True

    def _until_beside_guests(self, holds: Callable[[], bool], end: Instant) -> bool:
        while not holds():
            guest = next((guest for guest in self._guests if guest.due), None)
            if guest is not None:
                self.happened += 1
                guest.run()
                self._guests = [each for each in self._guests if not each.over]
                continue
            wakes = min((guest.wakes_at for guest in self._guests), default=_NEVER)
            happens = self._due[0][0] if self._due else _NEVER
            if min(wakes, happens) > end:
                self.now = end
                return holds()
            if happens <= wakes:
                self._happen()
            else:
                self.now = max(self.now, wakes)
        return True

    def _happen(self) -> None:
        """The next event."""
        at, _, happening = heapq.heappop(self._due)
        self.now = max(self.now, at)
        self.happened += 1
        happening()


def _never() -> bool:
    return False


def _always() -> bool:
    return True
