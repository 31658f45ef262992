"""Commands over `ssh`: one session of it each, over a shared connection that is kept for the run."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator import variables
from orchestrator.hosts.connection import Ended, Streams, Trouble
from orchestrator.hosts.connections.frame import Frame, framed
from orchestrator.hosts.connections.openssh.master import Master
from orchestrator.hosts.connections.openssh.messages import was_not_sent, was_refused
from orchestrator.hosts.connections.process import LocalProcess
from orchestrator.hosts.connections.sessions import CommandOrder, LinkError, SessionRefusedError
from orchestrator.model.reading import Seconds
from orchestrator.redact import beginning_of

_DRAIN_SECONDS: Final = 0.5
"""Time to read standard error after the exit code, which comes on standard output."""
_OF_SSH_ITSELF: Final = 255
"""It exits with the code of the login shell, or this for faults of its own; below 0 a signal ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpensshSession:
    """A session whose command was begun, or may have been."""

    link: Master
    order: CommandOrder
    process: LocalProcess
    frame: Frame
    streams: Streams
    deadline: Seconds
    argv: tuple[str, ...]
    clock: Callable[[], Seconds]

    def abort(self) -> None:
        """End the program: `attend` reads its end."""
        self.process.kill()

    def await_begin(self, within: Seconds) -> None:
        """Give it its input, and wait for the first mark, at most this long.

        Raises:
            LinkError: it ended, and certainly nothing was sent.
        """
        process, frame = self.process, self.frame
        try:
            until = min(self.deadline, self.clock() + within)
            if process.read(frame.stdout, frame.stderr, until, enough=lambda: frame.begun):
                self._require_sent()
        except BaseException:
            process.kill()
            process.end()
            raise

    def _require_sent(self) -> None:
        """Of a program that has ended or whose command has begun; raises `LinkError`."""
        if self.frame.begun:
            return
        said = self.frame.before()
        if was_refused(said):
            raise SessionRefusedError(
                f"{self.link.name} refused a session: {beginning_of(said.strip(), 200)}"
            )
        if was_not_sent(said):
            self.link.forget(self.argv)
            why = f"the connection to {self.link.name} is gone each time it is used"
            raise LinkError(Trouble.CLOSED, why)

    def attend(self) -> Ended:
        """Read a command to its end or its limit.

        Raises:
            LinkError: certainly nothing was sent; on a busy machine this may be heard late.
        """
        process, frame, streams = self.process, self.frame, self.streams
        try:
            sinks = frame.stdout, frame.stderr
            over = process.read(*sinks, self.deadline, enough=lambda: frame.exit is not None)
            if over and frame.exit is not None:
                process.read(*sinks, self.clock() + _DRAIN_SECONDS)
            frame.end()
        finally:
            process.kill()
            code = process.end()
        if frame.exit is not None:
            return streams.result(frame.exit)
        if over and not frame.begun and 0 < code != _OF_SSH_ITSELF:
            return frame.not_begun(code)
        if over:
            self._require_sent()
        name = self.link.name
        if not over:
            if not frame.begun:
                self.link.retire(self.argv)
            return streams.lost(f"no end within {self.order.timeout:g} s on {name}", timed_out=True)
        return streams.lost(f"the command on {name} lost its connection, or was killed", timed_out=False)


def begin(
    link: Master, order: CommandOrder, *, within: Seconds, clock: Callable[[], Seconds]
) -> OpensshSession:
    """Begin a command; a connection that was gone is made again once, since nothing was sent over it.

    Args:
        link: the connection to the host.
        order: the command.
        within: seconds in which a command usually begins; its end is not waited for.
        clock: monotonic seconds.

    Raises:
        LinkError: certainly nothing was sent.
    """
    again = True
    while True:
        session = _open(link, order, clock)
        try:
            session.await_begin(within)
        except SessionRefusedError:
            raise
        except LinkError:
            if not again:
                raise
            again = False
        else:
            return session


def _open(link: Master, order: CommandOrder, clock: Callable[[], Seconds]) -> OpensshSession:
    nonce, streams = secrets.token_hex(8), Streams(order.keep)
    argv = link.session(framed(order.command, nonce))
    if not order.is_wanted():
        late = f"{link.name} was connected to after the command had been given up"
        raise LinkError(Trouble.NO_ANSWER, late)
    try:
        process = LocalProcess(argv, environment=variables.for_commands(), stdin=order.stdin, clock=clock)
    except OSError as error:
        raise LinkError(Trouble.SETTINGS, f"`ssh` cannot be run here: {error}") from error
    return OpensshSession(
        link=link,
        order=order,
        process=process,
        frame=Frame(nonce, streams),
        streams=streams,
        deadline=clock() + order.timeout,
        argv=argv,
        clock=clock,
    )
