"""Waits for a service to change: a loop on each host, and one event for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from orchestrator.hosts import script, services
from orchestrator.hosts.connection import HostConnection, HostError, Job, Unreachable
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.reading import Seconds

RETRY_SECONDS: Final = 0.5
"""Between two attempts to reach a host that is away: its sshd does not announce its return."""
_MARGIN_SECONDS: Final = 30.0
_AT_THE_END_SECONDS: Final = 0.2
"""A loop that ends this close to the time-out has ended because of it."""

FindConnection = Callable[[NodeName], tuple[HostSettings, HostConnection]]
"""Raises `HostError`."""


class Round:
    """One watch: its event, and the loops on the hosts that end with it. Thread-safe."""

    def __init__(self, deadline: Seconds, clock: Callable[[], Seconds]) -> None:
        self.bell, self.over = threading.Event(), threading.Event()
        self._deadline, self._clock = deadline, clock
        self._lock = threading.Lock()
        self._jobs: list[Job] = []

    @property
    def left(self) -> Seconds:
        """Seconds until the time-out; 0 when the watch is over."""
        return 0.0 if self.over.is_set() else max(0.0, self._deadline - self._clock())

    def loop_ended(self) -> None:
        """A loop has seen a change, or its connection is lost: both are reasons to look again."""
        if self.left > _AT_THE_END_SECONDS:
            self.bell.set()

    def keep(self, job: Job) -> None:
        """End this loop with the watch; at once if the watch is over."""
        with self._lock:
            self._jobs.append(job)
            over = self.over.is_set()
        if over:
            job.close()

    def end(self) -> None:
        """The watch is over."""
        with self._lock:
            self.over.set()
            jobs = tuple(self._jobs)
        for job in jobs:
            job.close()


class ServiceWatcher:
    """Watches services from the hosts themselves; returns at the first change.

    Args:
        connection: gives the connection to a node's host.
        clock: monotonic seconds.
    """

    def __init__(self, connection: FindConnection, *, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._connection, self._clock = connection, clock
        self._rounds: set[Round] = set()
        self._lock = threading.Lock()

    def ring(self) -> None:
        """A change in this process: end every watch under way."""
        with self._lock:
            for going_on in self._rounds:
                going_on.bell.set()

    def watch(
        self,
        known: Mapping[NodeName, str | None],
        away: Collection[NodeName],
        timeout: Seconds,
        *,
        already: Callable[[], bool],
    ) -> bool:
        """Return True at the first change, False at the time-out.

        Args:
            known: the nodes to watch, each with the mark of its last reading; None = the first mark seen.
            away: nodes whose host was out of reach: for them, being reachable again is the change.
            timeout: at most this long, in seconds.
            already: whether something has already changed; called after `ring` can end the watch.
        """
        this = Round(self._clock() + timeout, self._clock)
        with self._lock:
            self._rounds.add(this)
        try:
            if already():
                return True
            for node, mark in known.items():
                threading.Thread(
                    target=self._await_return if node in away else self._follow,
                    args=(this, node, mark),
                    name=f"watch-{node}",
                    daemon=True,
                ).start()
            return this.bell.wait(timeout)
        finally:
            with self._lock:
                self._rounds.discard(this)
            this.end()

    def _follow(self, this: Round, node: NodeName, mark: str | None) -> None:
        """Let the host itself report when the state changes."""
        if not self._start(this, node, mark):
            this.bell.set()  # it was reachable at its last reading

    def _await_return(self, this: Round, node: NodeName, mark: str | None) -> None:
        """Try a host that is away until it is reachable again."""
        while this.left:
            if self._start(this, node, mark):
                this.bell.set()
                return
            this.over.wait(RETRY_SECONDS)

    def _start(self, this: Round, node: NodeName, mark: str | None) -> bool:
        """Start the loop on a host; False where it is out of reach."""
        try:
            settings, connection = self._connection(node)
        except HostError:
            return False
        watch = script.watch(services.mark_command(settings), mark, this.left)
        line = script.untranslated(watch)
        job = connection.start(line, timeout=this.left + _MARGIN_SECONDS, ended=this.loop_ended)
        if isinstance(job, Unreachable):
            return False
        this.keep(job)
        return True
