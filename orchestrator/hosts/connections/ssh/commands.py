"""Commands over SSH: bounded in time and in output, on a connection that is kept for the run."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import paramiko

from orchestrator.hosts.connection import (
    KEPT_BYTES,
    Ended,
    Job,
    Outcome,
    Streams,
    ThreadedJob,
    Unreachable,
    end_of,
)
from orchestrator.hosts.connections.sessions import PATIENCE_SECONDS, LinkError, Sessions
from orchestrator.hosts.connections.ssh.link import Link
from orchestrator.model.reading import Seconds

_READ_BYTES: Final = 64 * 1024
_READS_A_TURN: Final = 64
_LOOK_SECONDS: Final = 1.0
"""The longest sleep in `poll`; output, the end of the command or a lost connection wakes it earlier."""
_DRAIN_SECONDS: Final = 0.5
"""Time to read after the exit code: output in transit arrives within it, and a daemon that keeps the output
open costs no more than this."""
_NO_EXIT_CODE: Final = -1
"""paramiko's value for "the channel closed without one"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """One command to run; its standard input may hold a secret and is never shown."""

    command: str
    stdin: str | None = field(repr=False)
    timeout: Seconds
    deadline: Seconds


class SshConnection:
    """Runs commands on one host.

    Args:
        sessions: sessions on the host; other nodes of the host may use their connections too.
        clock: monotonic seconds.
    """

    def __init__(self, sessions: Sessions[Link], *, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._sessions, self._clock = sessions, clock

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        """Run a command line to its end; past the limit its channel is closed and the result is `Lost`."""
        job = self._start(command, timeout=timeout, stdin=stdin, keep=keep, patience=PATIENCE_SECONDS)
        return end_of(job, timeout)

    def start(
        self,
        command: str,
        *,
        timeout: Seconds,
        stdin: str | None = None,
        ended: Callable[[], None] | None = None,
        keep: int = KEPT_BYTES,
    ) -> Job | Unreachable:
        """Start a command line and read its output in a thread."""
        return self._start(command, timeout=timeout, stdin=stdin, ended=ended, keep=keep)

    def _start(
        self,
        command: str,
        *,
        timeout: Seconds,
        stdin: str | None,
        keep: int,
        ended: Callable[[], None] | None = None,
        patience: Seconds = 0.0,
    ) -> Job | Unreachable:
        try:
            link, channel = self._sessions.open(Link.open_session, patience=patience)
        except LinkError as error:
            return error.unreachable
        order = _Order(command=command, stdin=stdin, timeout=timeout, deadline=self._clock() + timeout)

        def work(streams: Streams) -> Ended:
            try:
                return self._attend(link, channel, order, streams)
            except (paramiko.SSHException, OSError, EOFError) as error:
                return streams.lost(f"the connection to {link.hop} was lost: {error}", timed_out=False)
            finally:
                _close(channel)
                self._sessions.end(link)

        return ThreadedJob(f"ssh-{link.hop.alias}", work, partial(_close, channel), ended, keep=keep)

    def drop(self) -> None:
        """Forget the connection; the next command makes a new one."""
        self._sessions.drop()

    def close(self) -> None:
        """Close the connection for good."""
        self._sessions.close()

    def _attend(
        self,
        link: Link,
        channel: paramiko.Channel,
        order: _Order,
        streams: Streams,
    ) -> Ended:
        timeout, deadline = order.timeout, order.deadline
        late = streams.lost(f"{link.hop} gave no answer within {timeout:g} s", timed_out=True)
        # exec_command waits for the server's answer without a limit: closing the link ends that wait.
        watchdog = threading.Timer(max(0.0, deadline - self._clock()), link.drop)
        watchdog.daemon = True
        watchdog.start()
        try:
            channel.exec_command(order.command)
            channel.settimeout(timeout)
            if order.stdin is not None:
                # A command that does not read its input ends before: its exit code is the result.
                with contextlib.suppress(OSError):
                    channel.sendall(order.stdin.encode())
            channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError):
            if self._clock() >= deadline:
                return late
            raise
        finally:
            watchdog.cancel()
        if not self._read(channel, streams, deadline):
            return streams.lost(f"no end within {timeout:g} s on {link.hop}", timed_out=True)
        code = channel.recv_exit_status() if channel.exit_status_ready() else _NO_EXIT_CODE
        if code == _NO_EXIT_CODE:
            why = "was killed by a signal" if link.alive() else "lost its connection"
            return streams.lost(f"the command on {link.hop} {why}", timed_out=False)
        return streams.result(code)

    def _read(self, channel: paramiko.Channel, streams: Streams, deadline: Seconds) -> bool:
        """Read until the command and its output have ended; False when the limit ran out first."""
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        quiet_until: Seconds | None = None
        while True:
            # In this order: output between the flag and the reading is then read in the next turn.
            over = channel.eof_received or channel.closed
            if _drain(channel, streams):
                quiet_until = None
            if over:
                while _drain(channel, streams):
                    quiet_until = None  # no more output can arrive: the buffered output was the last
                break
            now = self._clock()
            if channel.exit_status_ready():
                quiet_until = now + _DRAIN_SECONDS if quiet_until is None else quiet_until
                if now >= quiet_until:
                    return True
            if now >= deadline:
                return False
            until = min(deadline, quiet_until if quiet_until is not None else now + _LOOK_SECONDS)
            poller.poll(max(1.0, (until - now) * 1000))
        # The output has ended; the exit code follows, or the channel closes without one.
        return channel.status_event.wait(max(0.0, deadline - self._clock()))


def _close(channel: paramiko.Channel) -> None:
    """Close a channel. One whose connection was lost a moment ago raises, and is closed with it."""
    with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
        channel.close()


def _drain(channel: paramiko.Channel, streams: Streams) -> bool:
    """Read some of the available output, so that a flood cannot keep the limit from being checked."""
    found = False
    for _ in range(_READS_A_TURN):
        if channel.recv_ready():
            streams.stdout.add(channel.recv(_READ_BYTES))
        elif channel.recv_stderr_ready():
            streams.stderr.add(channel.recv_stderr(_READ_BYTES))
        else:
            break
        found = True
    return found
