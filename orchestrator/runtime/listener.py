"""Watches the cluster and the hosts in parallel, and returns as soon as either reports a change."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from orchestrator.model.observation import Watch
from orchestrator.model.reading import Seconds
from orchestrator.ports import ClusterPort, HostPort
from orchestrator.runtime.clock import SystemClock

_MIN_SECONDS: Final = 0.05
"""A long poll shorter than this would only be a read."""


class ThreadedListener:
    """At most one long poll per source runs; one that still runs is used again.

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
