"""A run that is written beside viewers of `serve`: its commits and heartbeats, and viewers as processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

from orchestrator.model.action import ActionResult
from orchestrator.model.event import Event
from orchestrator.model.lease import LeaseRecord
from orchestrator.ports import LeasePort
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Claim, Lease, LeaseSite, Terms
from orchestrator.runtime.store import open_store
from orchestrator.runtime.waiting import SystemClock
from tests.cli.console import Console
from tests.cli.runs import RUN, entry

_UNREAD: Final = 200
"""So many answers are under way to a suspended viewer: more than any buffer holds."""


@dataclass(kw_only=True)
class Writing:
    """A run that is being written; seconds of each commit and heartbeat."""

    journal: SqlJournal
    held: Callable[[], bool]  # asks if it still has its lease
    results: list[ActionResult]  # of the refreshes of its lease
    heartbeats: list[float]
    commits: list[float] = field(default_factory=list)

    def commit(self, event: Event) -> None:
        """Write one event."""
        began = time.perf_counter()
        self.journal.append([event], time.time())
        self.commits.append(time.perf_counter() - began)


class _Timed:
    """A lease's port; its refreshes are timed."""

    def __init__(self, port: LeasePort) -> None:
        self._port = port
        self.results: list[ActionResult] = []
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def write(self, record: LeaseRecord) -> ActionResult:
        began = time.perf_counter()
        self.results.append(self._port.write(record))
        self.seconds.append(time.perf_counter() - began)
        return self.results[-1]


@contextmanager
def writing(console: Console, *, heartbeat: float) -> Iterator[Writing]:
    """A run is written as a real one is: an event a commit, and its lease from a thread.

    Args:
        console: whose state.
        heartbeat: seconds between two refreshes of the lease; a real run has 15.
    """
    process = str(current_process())
    with closing(open_store(console.url, {}, access=DatabaseUse.WRITE)) as store:
        timed = _Timed(store.lease("uuid"))
        journal = store.create_run(entry(RUN, process))
        claim = Claim(cluster="lab", run=RUN, owner="ann@bastion", process=process)
        place = LeaseSite(name="the state", port=cast("LeasePort", timed))
        lease = Lease([place], claim, SystemClock(), Terms(heartbeat=heartbeat))
        lease.acquire()
        lease.start()
        try:
            yield Writing(
                journal=journal,
                held=lambda: lease.view().held,
                results=timed.results,
                heartbeats=timed.seconds,
            )
        finally:
            lease.release()


@contextmanager
def viewers(at: str, count: int, *, suspended: int = 0) -> Iterator[None]:
    """Viewers of the run in a process of their own, each with all changes, and some that stand still.

    Args:
        at: address of the server.
        count: of viewers that read.
        suspended: viewers that are suspended in the middle of an answer.
    """
    kinds = ["reading"] * (count > 0) + ["suspended"] * suspended
    processes = [
        subprocess.Popen(  # noqa: S603  (this module)
            [sys.executable, "-m", "tests.cli.viewing", kind, at, str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]
    try:
        for kind, process in zip(kinds, processes, strict=True):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if kind == "suspended":
                process.send_signal(signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _follow(at: str, ready: threading.Semaphore) -> None:
    """As a page does: it is loaded again at each event."""
    with urllib.request.urlopen(f"{at}runs/{RUN}/events", timeout=600.0) as events:  # noqa: S310  (our own)
        for line in events:
            if line.startswith(b"data: ") and not json.loads(line[6:]).get("trouble"):
                with urllib.request.urlopen(f"{at}runs/{RUN}", timeout=600.0) as page:  # noqa: S310
                    page.read()
                ready.release()


def _stand_still(at: str) -> None:
    """Ask for many pages, and read the beginning of the first."""
    place = urlsplit(at)
    with socket.create_connection((str(place.hostname), int(place.port or 0))) as connection:
        connection.sendall(f"GET /runs/{RUN} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode() * _UNREAD)
        connection.recv(100)
        _say_ready()
        signal.pause()


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main(kind: str, at: str, count: str) -> None:
    """View until this process is killed."""
    if kind == "suspended":
        _stand_still(at)
    ready = threading.Semaphore(0)
    for _ in range(int(count)):
        threading.Thread(target=_follow, args=(at, ready), daemon=True).start()
    for _ in range(int(count)):
        ready.acquire()
    _say_ready()
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
