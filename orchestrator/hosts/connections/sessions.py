"""The sessions on one SSH server: several over one connection, and further connections when it is full.

Nodes may share a host, and each has commands, a watch and a stop or start running at the same time. sshd
refuses too many sessions on one connection, and a refused reading would hold the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import paramiko

from orchestrator.hosts.connection import Trouble
from orchestrator.hosts.connections.ssh.link import Link, LinkError

SESSIONS_PER_CONNECTION: Final = 8
"""sshd allows 10 (`MaxSessions`). It still counts a session closed here until its command has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A channel for one command, and its connection."""

    channel: paramiko.Channel
    link: Link


class Sessions:
    """The sessions on one server. Thread-safe.

    Args:
        first: the connection used while it has room.
        further: makes another connection to the same server.
    """

    def __init__(self, first: Link, further: Callable[[], Link]) -> None:
        self._further = further
        self._lock = threading.Lock()
        self._in_use: dict[Link, int] = {first: 0}
        self._closed = False
        self.hop = first.hop

    def open(self) -> Session:
        """Open a session; release it with `end`.

        Raises:
            LinkError: not possible; nothing was sent.
        """
        link = self._take()
        try:
            return Session(channel=link.open_session(), link=link)
        except BaseException:
            self._give_back(link)
            raise

    def end(self, session: Session) -> None:
        """Close a session, once."""
        session.channel.close()
        self._give_back(session.link)

    def drop(self) -> None:
        """Close the connections; the next session makes a new one."""
        for link in self._links():
            link.drop()

    def close(self) -> None:
        """Close the connections for good."""
        with self._lock:
            self._closed = True
        for link in self._links():
            link.close()

    def _take(self) -> Link:
        with self._lock:
            if self._closed:
                raise LinkError(Trouble.CLOSED, f"the connections to {self.hop} are closed")
            room = (link for link, sessions in self._in_use.items() if sessions < SESSIONS_PER_CONNECTION)
            link = next(room, None) or self._further()
            self._in_use[link] = self._in_use.get(link, 0) + 1
            return link

    def _give_back(self, link: Link) -> None:
        with self._lock:
            self._in_use[link] -= 1

    def _links(self) -> tuple[Link, ...]:
        with self._lock:
            return tuple(self._in_use)
