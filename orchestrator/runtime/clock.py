"""Real time, and a wait that a signal or a listener ends at once."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Callable
from typing import Final

from orchestrator.model.reading import Instant, Seconds

_LONGEST_WAIT: Final[Seconds] = 3600.0
"""One wait lasts no longer than this: every wait has a limit, and `poll` takes milliseconds in a C int."""


def _boot_seconds() -> float:
    """Seconds since boot, including suspended time: a lease expires while a laptop sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The `Clock` of a real run. It reads the wall clock once, at the start, and then adds the elapsed time.

    So a step of the system clock (NTP, an operator) moves no deadline. The wait uses a pipe and not a
    `threading.Event`, whose lock a signal handler could find taken by the very thread that it interrupted.

    Args:
        wall: seconds since the epoch.
        passed: monotonic clock, in seconds.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.time, passed: Callable[[], float] = _boot_seconds
    ) -> None:
        self._passed = passed
        self._offset = wall() - passed()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # A command that ends early closes nothing; in a longer process its pipe ends with the clock.
        self._close = weakref.finalize(self, _closed, self._wake_read, self._wake_write)
        self._close.atexit = False  # a thread may still wake it then

    def now(self) -> Instant:
        """Seconds since the epoch; never goes back within a process, even if the system clock is set."""
        return self._offset + self._passed()

    def wait(self, seconds: Seconds) -> None:
        """Return after this time, or at once after a call of `wake` (also one since the last wait)."""
        poll = select.poll()  # one a call: a shared one refuses a second thread
        poll.register(self._wake_read, select.POLLIN)
        if poll.poll(max(0.0, min(seconds, _LONGEST_WAIT)) * 1000):
            with contextlib.suppress(BlockingIOError):  # another waiter has emptied it: wake as well
                os.read(self._wake_read, 4096)

    def wake(self) -> None:
        """End the current wait, or the next one; for any thread and for signal handlers."""
        with contextlib.suppress(BlockingIOError):  # full: it holds enough wakes
            os.write(self._wake_write, b"\0")

    def close(self) -> None:
        """Close the pipe; no wait may follow."""
        self._close()


def _closed(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
