"""Commands over `ssh`: one session of it each, over a shared connection that is kept for the run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from orchestrator.hosts.connections.local import kept_variables
from orchestrator.hosts.connections.openssh.frame import Frame, framed
from orchestrator.hosts.connections.openssh.master import Master
from orchestrator.hosts.connections.openssh.messages import was_not_sent, was_refused
from orchestrator.hosts.connections.process import Process
from orchestrator.hosts.connections.sessions import (
    PATIENCE_SECONDS,
    LinkError,
    SessionRefusedError,
    Sessions,
)
from orchestrator.model.reading import Seconds

_DRAIN_SECONDS: Final = 0.5
"""Time to read standard error after the exit code, which comes on standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """One command to run; its standard input may hold a secret and is never shown."""

    command: str
    stdin: str | None = field(repr=False)
    timeout: Seconds
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """A session whose command was begun, or may have been."""

    process: Process
    frame: Frame
    streams: Streams
    deadline: Seconds
    argv: tuple[str, ...]


class OpensshConnection:
    """Runs commands on one host.

    Args:
        sessions: sessions on the host; other nodes of the host may use their connections too.
        begins_within: seconds in which a command usually begins; its end is not waited for.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sessions: Sessions[Master],
        *,
        begins_within: Seconds,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._sessions, self._begins_within, self._clock = sessions, begins_within, clock

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        """Run a command line to its end; past the limit its session is ended and the result is `Lost`."""
        order = _Order(command=command, stdin=stdin, timeout=timeout, keep=keep)
        return end_of(self._start(order, patience=PATIENCE_SECONDS), timeout)

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
        return self._start(_Order(command=command, stdin=stdin, timeout=timeout, keep=keep), ended=ended)

    def drop(self) -> None:
        """Forget the connection; the next command makes a new one."""
        self._sessions.drop()

    def close(self) -> None:
        """Close the connection for good."""
        self._sessions.close()

    def _start(
        self, order: _Order, *, ended: Callable[[], None] | None = None, patience: Seconds = 0.0
    ) -> Job | Unreachable:
        try:
            link, session = self._sessions.open(lambda link: self._begin(link, order), patience=patience)
        except LinkError as error:
            return error.unreachable

        def work(_: Streams) -> Ended:
            try:
                return self._attend(link, session, order)
            finally:
                self._sessions.end(link)

        name, kill = f"openssh-{link.name}", session.process.kill
        return ThreadedJob(name, work, kill, ended, streams=session.streams)

    def _begin(self, link: Master, order: _Order) -> _Session:
        """Begin a command; a connection that was gone is made again once, since nothing was sent over it.

        Raises:
            LinkError: certainly nothing was sent.
        """
        session = self._try(link, order) or self._try(link, order)
        if session is None:
            raise LinkError(Trouble.CLOSED, f"the connection to {link.name} is gone each time it is used")
        return session

    def _try(self, link: Master, order: _Order) -> _Session | None:
        """Begin a command, and wait for the first mark or the end; None if certainly nothing was sent."""
        nonce, streams = secrets.token_hex(8), Streams(order.keep)
        argv = link.session(framed(order.command, nonce))
        try:
            process = Process(argv, environment=kept_variables(), stdin=order.stdin, clock=self._clock)
        except OSError as error:
            raise LinkError(Trouble.SETTINGS, f"`ssh` cannot be run here: {error}") from error
        frame, deadline = Frame(nonce, streams.stdout), self._clock() + order.timeout
        session = _Session(process=process, frame=frame, streams=streams, deadline=deadline, argv=argv)
        process.feed()
        until = min(deadline, self._clock() + self._begins_within)
        over = process.read(frame, streams.stderr, until, enough=lambda: frame.begun)
        said = streams.stderr.text()
        if frame.begun or not over or not (was_refused(said) or was_not_sent(said)):
            return session
        process.end()
        if was_refused(said):
            raise SessionRefusedError(f"{link.name} refused a session: {said.strip()[:200]}")
        link.forget(argv)
        return None

    def _attend(self, link: Master, session: _Session, order: _Order) -> Ended:
        """Read a command to its end or its limit."""
        process, frame, streams = session.process, session.frame, session.streams
        over = process.read(frame, streams.stderr, session.deadline, enough=lambda: frame.exit is not None)
        if over and frame.exit is not None:
            process.read(frame, streams.stderr, self._clock() + _DRAIN_SECONDS)
        frame.add(b"")
        process.kill()
        process.end()
        if frame.exit is not None:
            return streams.result(frame.exit)
        if not over:
            if not frame.begun:
                link.forget(session.argv)
            return streams.lost(f"no end within {order.timeout:g} s on {link.name}", timed_out=True)
        return streams.lost(f"the command on {link.name} lost its connection, or was killed", timed_out=False)
