"""Commands on this machine: same protocol as over SSH, their own session, few variables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

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
from orchestrator.hosts.connections.process import LocalProcess
from orchestrator.model.reading import Seconds


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
