"""Commands on this machine: same protocol as over SSH, their own process group, few variables."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Final

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

KEPT_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "DOCKER_HOST")
"""The variables of this program that a command gets: secrets in other variables are not passed on."""
_READ_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 0.2
"""Time to read output after the command has ended: a daemon that it started may keep the output open."""


class LocalConnection:
    """Runs commands on this machine.

    Args:
        environment: variables added to `KEPT_VARIABLES`.
        clock: monotonic seconds.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        self._environment = {"PATH": os.defpath, **kept, "LC_ALL": "C", **(environment or {})}
        self._clock = clock

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        """Run a command line under `/bin/sh` to its end; past the limit its process group is killed."""
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
        try:
            process = subprocess.Popen(  # noqa: S603  (the command is the operator's own, from the cluster file)
                ["/bin/sh", "-c", command],
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            return Unreachable(trouble=Trouble.SETTINGS, reason=f"cannot run a command here: {error}")
        deadline = self._clock() + timeout

        def work(streams: Streams) -> Ended:
            with process:
                return self._attend(process, stdin, streams, deadline, timeout)

        return ThreadedJob(f"local-{process.pid}", work, lambda: _kill_group(process), ended, keep=keep)

    def drop(self) -> None:
        """Do nothing: there is no connection to drop."""

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def _attend(
        self,
        process: subprocess.Popen[bytes],
        stdin: str | None,
        streams: Streams,
        deadline: Seconds,
        timeout: Seconds,
    ) -> Ended:
        """Feed and read one process until it has ended or its limit has run out."""
        if process.stdin is not None:
            # A command that does not read its input closes the pipe: its exit code is the result.
            with contextlib.suppress(BrokenPipeError), process.stdin as feed:
                feed.write((stdin or "").encode())
        pidfd = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(pidfd, selectors.EVENT_READ)
                for pipe, captured in ((process.stdout, streams.stdout), (process.stderr, streams.stderr)):
                    if pipe is not None:
                        selector.register(pipe, selectors.EVENT_READ, captured)
                over = self._read(selector, pidfd, deadline)
        finally:
            os.close(pidfd)
        if not over:
            _kill_group(process)
            process.wait()
            return streams.lost(f"no end within {timeout:g} s; its processes were killed", timed_out=True)
        return streams.result(process.wait())

    def _read(self, selector: selectors.BaseSelector, pidfd: int, deadline: Seconds) -> bool:
        """Read until the process and its output have ended; False when the limit ran out first."""
        ended = False
        while selector.get_map():
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
                elif not _take(key):
                    selector.unregister(key.fileobj)
            if ended and self._clock() > deadline + _DRAIN_SECONDS:
                return True
        return True


def _take(key: selectors.SelectorKey) -> bool:
    """Read the available bytes; False at the end of the stream."""
    data = os.read(key.fd, _READ_BYTES)
    key.data.add(data)
    return bool(data)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what the command started; a process that left the group on purpose (detached verbs) survives."""
    if process.returncode is None:
        # The process may have ended in the meantime: that is the goal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
