"""Programs and commands on this machine: same protocol as over SSH, their own session, few variables."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from orchestrator import variables
from orchestrator.hosts.connection import (
    KEPT_BYTES,
    Ended,
    Job,
    Outcome,
    Streams,
    ThreadedJob,
    Trouble,
    Unreachable,
    end_of,
)
from orchestrator.model.reading import Seconds

_READ_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 0.2
"""Time to read output after the program has ended: a daemon that it started may keep the output open."""


class Sink(Protocol):
    """Takes output as it arrives."""

    def add(self, data: bytes) -> None:
        """Take bytes that were read."""
        ...


class LocalProcess:
    """A running program. Signals of this program's terminal do not reach it.

    Args:
        argv: the program and its arguments.
        environment: its variables.
        stdin: its input; None = an empty one.
        clock: monotonic seconds.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: str | None,
        clock: Callable[[], Seconds],
    ) -> None:
        self._left, self._clock = memoryview((stdin or "").encode()), clock
        self._process = subprocess.Popen(  # noqa: S603  (the command is the operator's own, from the cluster file)
            argv,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def read(
        self,
        stdout: Sink,
        stderr: Sink,
        deadline: Seconds,
        *,
        enough: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Give it its input and read until it and its output have ended, or there is enough.

        It may be called again: the input that is left is given then.

        Returns:
            False when the limit ran out first.
        """
        pidfd = os.pidfd_open(self.pid) if self._process.returncode is None else None
        try:
            with selectors.DefaultSelector() as selector:
                if pidfd is not None:
                    selector.register(pidfd, selectors.EVENT_READ)
                for pipe, sink in ((self._process.stdout, stdout), (self._process.stderr, stderr)):
                    if pipe is not None and not pipe.closed:
                        selector.register(pipe, selectors.EVENT_READ, sink)
                feed = self._process.stdin
                if feed is not None and not feed.closed:
                    selector.register(feed, selectors.EVENT_WRITE)
                return self._read(selector, pidfd, deadline, enough)
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def end(self) -> int:
        """Wait for a program that has ended, and close its pipes; its exit code."""
        with self._process:
            return self._process.wait()

    def kill(self) -> None:
        """Kill what was started; a process that left the session on purpose (detached verbs) survives."""
        if self._process.returncode is None:
            # The process may have ended in the meantime: that is the goal.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _read(
        self,
        selector: selectors.BaseSelector,
        pidfd: int | None,
        deadline: Seconds,
        enough: Callable[[], bool],
    ) -> bool:
        ended = pidfd is None
        while selector.get_map() and not enough():
            left = deadline - self._clock()
            if left <= 0 and not ended:
                return False
            ready = selector.select(_DRAIN_SECONDS if ended else left)
            if ended and not ready:
                return True
            for key, _ in ready:
                if key.fd == pidfd:
                    ended = True
                    selector.unregister(pidfd)
                elif not (self._feed() if key.fileobj is self._process.stdin else _take(key)):
                    selector.unregister(key.fileobj)
            if ended and self._clock() > deadline + _DRAIN_SECONDS:
                return True
        return True

    def _feed(self) -> bool:
        """Write as much input as its pipe takes at once; False when all is written, or it reads no more."""
        feed = self._process.stdin
        assert feed is not None  # noqa: S101  (it is registered)
        # A program that does not read its input closes the pipe: its exit code is the result.
        with contextlib.suppress(BrokenPipeError):
            self._left = self._left[os.write(feed.fileno(), self._left[: select.PIPE_BUF]) :]
            if self._left:
                return True
        feed.close()
        return False


def _take(key: selectors.SelectorKey) -> bool:
    """Read the available bytes; False at the end of the stream."""
    data = os.read(key.fd, _READ_BYTES)
    key.data.add(data)
    return bool(data)


class LocalConnection:
    """Runs commands on this machine.

    Args:
        environment: variables added to those that a command gets.
        clock: monotonic seconds.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self._environment = {**variables.for_commands(), **(environment or {})}
        self._clock = clock

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        return end_of(self.start(command, timeout=timeout, stdin=stdin, keep=keep), timeout)

    def start(
        self,
        command: str,
        *,
        timeout: Seconds,
        stdin: str | None = None,
        ended: Callable[[], None] | None = None,
        keep: int = KEPT_BYTES,
    ) -> Job | Unreachable:
        """Start a command line under `/bin/sh` in its own session: our signals do not reach it."""
        argv = ("/bin/sh", "-c", command)
        try:
            process = LocalProcess(argv, environment=self._environment, stdin=stdin, clock=self._clock)
        except OSError as error:
            return Unreachable(trouble=Trouble.SETTINGS, reason=f"cannot run a command here: {error}")
        deadline, streams = self._clock() + timeout, Streams(keep)

        def work() -> Ended:
            over = False
            try:
                over = process.read(streams.stdout, streams.stderr, deadline)
            finally:
                if not over:
                    process.kill()
                code = process.end()
            if not over:
                return streams.lost(f"no end within {timeout:g} s; its processes were killed", timed_out=True)
            if code < 0:
                return streams.lost("the command was killed by a signal", timed_out=False)
            return streams.result(code)

        return ThreadedJob(work, process.kill, ended, lambda: streams)

    def drop(self) -> None:
        """Do nothing: there is no connection to drop."""

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
