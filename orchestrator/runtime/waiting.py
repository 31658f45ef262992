"""What a run waits for: time, a change in the cluster or on a host, a request from another terminal."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import Final

from orchestrator.model.observation import Watch
from orchestrator.model.phase import Request
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import ClusterPort, HostPort

POLL_SECONDS: Final[Seconds] = 1.0
"""Between two reads of requests: a database file has no event to wait for."""
_JOIN_SECONDS: Final[Seconds] = 5.0
_MIN_SECONDS: Final = 0.05
"""A long poll shorter than this would only be a read."""
_LONGEST_WAIT: Final[Seconds] = 3600.0
"""One wait lasts no longer than this: every wait has a limit, and `poll` takes milliseconds in a C int."""

Asked = Callable[[], tuple[Request, str]]
"""The strongest request so far, and its sender."""


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


class ThreadedListener:
    """Watches the cluster and the hosts in parallel, and returns as soon as either reports a change.

    At most one long poll per source runs; one that still runs is used again.

    The main thread sleeps in the clock's wait, so that a signal wakes it too.
    """

    def __init__(self, cluster: ClusterPort, hosts: HostPort, clock: SystemClock) -> None:
        self._cluster, self._hosts, self._clock = cluster, hosts, clock
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="listen")
        self._running: dict[str, Future[None]] = {}

    def listen(self, watch: Watch) -> None:
        """Return when something seems to have changed, or at `watch.until`."""
        seconds = watch.until - self._clock.now()
        if seconds <= 0:
            return
        cluster = watch.cluster
        if cluster is not None and seconds > _MIN_SECONDS:
            self._begin("cluster", lambda: self._cluster.watch(cluster, seconds))
        if watch.services and seconds > _MIN_SECONDS:
            self._begin("hosts", lambda: self._hosts.watch(watch.services, seconds))
        self._clock.wait(seconds)

    def _begin(self, source: str, poll: Callable[[], bool]) -> None:
        running = self._running.get(source)
        if running is None or running.done():
            self._running[source] = self._pool.submit(self._poll, poll)

    def _poll(self, poll: Callable[[], bool]) -> None:
        if poll():
            self._clock.wake()

    def close(self, timeout: Seconds = 0.0) -> None:
        """Let the running polls end in the background."""
        self._pool.shutdown(wait=timeout > 0, cancel_futures=True)


class RequestWatch:
    """Reads requests in its own thread, without a read of the database at each step of the run.

    It wakes the run when a stronger one arrives.

    Args:
        read: reads the strongest request from the run's journal.
        wake: ends the current wait (`SystemClock.wake`).
        seconds: between two reads.
    """

    def __init__(self, read: Asked, wake: Callable[[], None], *, seconds: Seconds = POLL_SECONDS) -> None:
        self._read, self._wake, self._seconds = read, wake, seconds
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
            found = self._read()
            if found[0] > self._asked[0]:
                self._asked = found
                self._wake()
            self._stopping.wait(self._seconds)


def strongest(*sources: Asked) -> Asked:
    """The strongest request of several sources; on a tie the first source wins."""

    def asked() -> tuple[Request, str]:
        return max((source() for source in sources), key=lambda found: found[0])

    return asked
