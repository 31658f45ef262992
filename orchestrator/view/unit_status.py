"""The wait of a run as the status of its systemd unit: sd_notify with `STATUS=`, for `systemctl status`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Instant
from orchestrator.untrusted import one_line
from orchestrator.view.feed import Feed
from orchestrator.view.reporters import wait_in_words

SOCKET: Final = "NOTIFY_SOCKET"
"""The variable that systemd sets for a unit with `NotifyAccess=`."""
_LONGEST: Final = 400
"""Characters of a status, which `systemctl` shows on one line."""


class UnitStatus:
    """A `Reporter` that sends the current wait to systemd. It never waits for that.

    Args:
        address: of systemd's socket: a path, or a name after `@`.
        now: the run's clock.
    """

    def __init__(self, address: str, now: Callable[[], Instant]) -> None:
        self._now, self._feed = now, Feed()
        self._address: str | None = f"\0{address[1:]}" if address.startswith("@") else address

    def events(self, _records: Sequence[Record]) -> None:
        """They are no status."""

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        now = self._now()
        wait = self._feed.wait(state, decision, now)
        if wait is not None:
            self._send(wait_in_words(state, wait, now, of=len(state.begun.planned)))

    def finished(self, _state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        self._send(f"ended: {outcome.value}")

    def _send(self, text: str) -> None:
        """Send it. After an error nothing is sent any more: a run needs no status."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A line break would begin another assignment, such as READY=1.
                line = f"STATUS={one_line(text, _LONGEST)}".encode()
                sender.sendto(line, socket.MSG_DONTWAIT, self._address)
        except BlockingIOError:
            return  # systemd is behind; the next one shows more
        except OSError:
            self._address = None
