"""Commands over SSH: bounded in time and in output, on a connection that is kept for the run."""

from __future__ import annotations

import contextlib
import secrets
import select
import threading
from collections.abc import Callable
from typing import Final

import paramiko

from orchestrator.hosts.connection import Ended, Streams
from orchestrator.hosts.connections.frame import Frame, framed
from orchestrator.hosts.connections.sessions import CommandOrder
from orchestrator.hosts.connections.ssh.link import SshLink
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


class ChannelSession:
    """A channel on which a command will be run.

    Args:
        link: the connection to the host.
        order: the command.
        clock: monotonic seconds.

    Raises:
        LinkError: no channel could be opened; nothing was sent.
    """

    def __init__(self, link: SshLink, order: CommandOrder, clock: Callable[[], Seconds]) -> None:
        self._link, self._order, self._clock = link, order, clock
        self._channel = link.open_session()
        self._deadline = clock() + order.timeout
        self._nonce = secrets.token_hex(8)
        self.streams = Streams(order.keep)
        self._frame = Frame(self._nonce, self.streams)

    def abort(self) -> None:
        """Close the channel. One whose connection was lost a moment ago raises, and is closed with it."""
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            self._channel.close()
        self._link.release(self._channel)

    def attend(self) -> Ended:
        """Send the command, and read it to its end or its limit."""
        hop, timeout = self._link.hop, self._order.timeout
        try:
            if not self._send():
                return self.streams.lost(f"{hop} gave no answer within {timeout:g} s", timed_out=True)
            over = self._read()
            self._frame.end()
            if self._frame.exit is not None:
                return self.streams.result(self._frame.exit)
            if not over:
                return self.streams.lost(f"no end within {timeout:g} s on {hop}", timed_out=True)
            ready = self._channel.exit_status_ready()
            code = self._channel.recv_exit_status() if ready else _NO_EXIT_CODE
            # With all output read, a missing first mark shows that the script was not begun.
            if code > 0 and not self._frame.begun and self._channel.eof_received:
                return self._frame.not_begun(code)
        except (paramiko.SSHException, OSError, EOFError) as error:
            return self.streams.lost(f"the connection to {hop} was lost: {error}", timed_out=False)
        finally:
            self.abort()
        open_still = self._channel.get_transport().is_active()
        why = "was killed by a signal" if open_still else "lost its connection"
        return self.streams.lost(f"the command on {hop} {why}", timed_out=False)

    def _send(self) -> bool:
        """Send the command and its input; False when the limit ran out first."""
        # exec_command waits for the server's answer without a limit: closing the channel ends that wait.
        watchdog = threading.Timer(max(0.0, self._deadline - self._clock()), self._not_acknowledged)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._channel.exec_command(framed(self._order.command, self._nonce))
            self._channel.settimeout(self._order.timeout)
            if self._order.stdin is not None:
                # A command that does not read its input ends before: its exit code is the result.
                with contextlib.suppress(OSError):
                    self._channel.sendall(self._order.stdin.encode())
            self._channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError):
            if self._clock() < self._deadline:
                raise
            return False
        finally:
            watchdog.cancel()
        return True

    def _not_acknowledged(self) -> None:
        """The server may hang: the next command gets another connection, and those that run keep theirs."""
        self._link.retire(self._channel.get_transport())
        self.abort()

    def _read(self) -> bool:
        """Read until the command and its output have ended; False when the limit ran out first."""
        channel = self._channel
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        quiet_until: Seconds | None = None
        while True:
            # In this order: output between the flag and the reading is then read in the next turn.
            over = channel.eof_received or channel.closed
            if self._drain() and self._frame.exit is None:
                quiet_until = None
            if over:
                while self._drain():
                    pass  # no more output can arrive: the buffered output was the last
                break
            now = self._clock()
            if channel.exit_status_ready() or self._frame.exit is not None:
                quiet_until = now + _DRAIN_SECONDS if quiet_until is None else quiet_until
                if now >= quiet_until:
                    return True
            if now >= self._deadline:
                return False
            until = min(self._deadline, quiet_until if quiet_until is not None else now + _LOOK_SECONDS)
            poller.poll(max(1.0, (until - now) * 1000))
        # The output has ended; the exit code follows, or the channel closes without one.
        left = max(0.0, self._deadline - self._clock())
        return self._frame.exit is not None or channel.status_event.wait(left)

    def _drain(self) -> bool:
        """Read some of the available output, so that a flood cannot keep the limit from being checked."""
        found = False
        for _ in range(_READS_A_TURN):
            if self._channel.recv_ready():
                self._frame.stdout.add(self._channel.recv(_READ_BYTES))
            elif self._channel.recv_stderr_ready():
                self._frame.stderr.add(self._channel.recv_stderr(_READ_BYTES))
            else:
                break
            found = True
        return found
