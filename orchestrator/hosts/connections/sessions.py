"""The sessions on one SSH server: several over one connection, and further connections when it is full.

Nodes may share a host, and each has commands, a watch and a stop or start running at the same time. sshd
refuses too many sessions on one connection (`MaxSessions`), and a refused reading would hold the run. So the
number that a server accepts is learned from its refusals.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from orchestrator.hosts.connection import (
    KEPT_BYTES,
    Ended,
    HostError,
    Job,
    Outcome,
    Streams,
    ThreadedJob,
    Trouble,
    UnknownKey,
    Unreachable,
    end_of,
)
from orchestrator.model.host_settings import HostLimits, HostSettings
from orchestrator.model.reading import Seconds

_PAUSES: Final[tuple[Seconds, ...]] = (0.2, 0.4)
"""Between attempts to connect: a server that just starts refuses for a moment, and one with many log-ins
drops some (MaxStartups)."""
_TRANSIENT: Final = frozenset({Trouble.REFUSED, Trouble.CLOSED})
"""Worth another attempt at once. An unresponsive host has used up its limit, and keys do not change."""
SESSIONS_PER_CONNECTION: Final = 8
"""sshd allows 10 (`MaxSessions`). It still counts a session closed here until its command has ended."""
PATIENCE_SECONDS: Final = 1.0
"""How long a short command waits for room: most end within it, and a further connection costs a log-in."""
LOG_INS_AT_A_TIME: Final = 5
"""New connections to one server that are made at once: sshd drops some from the tenth on (`MaxStartups`)."""
SENT_AGAIN_SECONDS: Final = 60.0
"""Until then a refused command may be sent in another session; later it is in doubt. A stop that is sent long
after its decision could take down a second node."""


class LinkError(HostError):
    """A connection could not be made, or not be used; nothing was sent over it.

    Attributes:
        unreachable: the fault.
    """

    def __init__(self, trouble: Trouble, reason: str, key: UnknownKey | None = None) -> None:
        self.unreachable = Unreachable(trouble=trouble, reason=reason, key=key)
        super().__init__(self.unreachable)


class SessionRefusedError(LinkError):
    """The server refused one more session on a connection; nothing was sent over it."""

    def __init__(self, reason: str) -> None:
        super().__init__(Trouble.PROTOCOL, reason)


class Link(Protocol):
    """One connection to a server; made again when it is needed."""

    def drop(self) -> None:
        """Close it; the next session makes a new one."""
        ...

    def close(self) -> None:
        """Close it for good."""
        ...


L = TypeVar("L", bound=Link)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def with_attempts(
    connect: Callable[[], T], *, wait: Callable[[Seconds], object], closing: threading.Event
) -> T:
    """Connect, again after a transient fault, unless the connections are being closed.

    Raises:
        LinkError: no attempt worked.
    """
    for pause in _PAUSES:
        try:
            return connect()
        except LinkError as error:
            if error.unreachable.trouble not in _TRANSIENT or closing.is_set():
                raise
        wait(pause)
    return connect()


class Sessions(Generic[L]):
    """The sessions on one server. Thread-safe.

    Args:
        make: makes a connection to the server; nothing is sent until a session needs it.
        name: of the server, for messages.
    """

    def __init__(self, make: Callable[[], L], name: str) -> None:
        self._make, self._name = make, name
        self._room = threading.Condition()
        self._log_ins = threading.BoundedSemaphore(LOG_INS_AT_A_TIME)
        self._in_use: dict[L, int] = {}
        self._proven: set[L] = set()
        self._most = SESSIONS_PER_CONNECTION
        self._closed = False

    def open(
        self, attempt: Callable[[L], T], *, patience: Seconds = 0.0, without: Collection[L] = ()
    ) -> tuple[L, T]:
        """Open a session by `attempt`, on another connection if the server refuses; release it with `end`.

        Args:
            attempt: opens a session on this connection.
            patience: seconds to wait for room before a further connection is made.
            without: connections that have no room.

        Raises:
            LinkError: not possible; nothing was sent.
        """
        full = list(without)
        while True:
            link, fresh = self._take(patience, full)
            try:
                with self._log_ins if fresh else nullcontext():
                    opened = attempt(link)
            except SessionRefusedError:
                if not self.refused(link):
                    raise  # even the first session of a new connection is refused
                full.append(link)
            except BaseException:
                self.end(link)
                raise
            else:
                self._proven.add(link)
                return link, opened

    def end(self, link: L) -> None:
        """Release a session, once."""
        with self._room:
            self._in_use[link] -= 1
            self._room.notify()

    def drop(self) -> None:
        """Close the connections; the next session makes a new one."""
        for link in self._links():
            link.drop()

    def close(self) -> None:
        """Close the connections for good."""
        with self._room:
            self._closed = True
            self._room.notify_all()
        for link in self._links():
            link.close()

    def _take(self, patience: Seconds, full: Collection[L]) -> tuple[L, bool]:
        """A connection with room, and whether it is a new one."""
        until = time.monotonic() + patience
        with self._room:
            while True:
                if self._closed:
                    raise LinkError(Trouble.CLOSED, f"the connections to {self._name} are closed")
                free = (link for link, n in self._in_use.items() if n < self._most and link not in full)
                link = next(free, None)
                left = until - time.monotonic()
                if link is not None or not self._in_use or left <= 0:
                    break
                self._room.wait(left)
            fresh = link is None
            link = self._make() if link is None else link
            self._in_use[link] = self._in_use.get(link, 0) + 1
            return link, fresh

    def refused(self, link: L) -> bool:
        """Release a session that was refused: the server accepts no more than the others on this connection.

        Returns:
            Whether it has accepted any: of one that another thread opened it may still hold the place.
        """
        with self._room:
            self._in_use[link] -= 1
            others = self._in_use[link]
            self._most = max(1, min(self._most, others))
            return others > 0 or link in self._proven

    def _links(self) -> tuple[L, ...]:
        with self._room:
            return tuple(self._in_use)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """One command to run; its standard input may hold a secret and is never shown."""

    command: str  # the command line
    stdin: str | None = field(repr=False)  # its standard input
    timeout: Seconds  # its limit, from the moment when it is sent
    keep: int  # bytes of its standard output
    # False = it must not be sent any more. Asked once the connection is made, right before.
    is_wanted: Callable[[], bool] = lambda: True


class Session(Protocol):
    """An open session for one command."""

    @property
    def streams(self) -> Streams:
        """The output that was read."""
        ...

    def attend(self) -> Ended:
        """Run the command to its end or its limit, and close the session.

        Raises:
            LinkError: certainly nothing was sent.
        """
        ...

    def abort(self) -> None:
        """Make `attend` end soon; release everything if it has not begun."""
        ...


class _Sent(Generic[L]):
    """A command in a session; in another one if that was refused, also if this is heard late.

    It is sent again only within its limit and `SENT_AGAIN_SECONDS`, and not after `abort`: a caller that does
    not wait for it any more may have decided otherwise since.

    Raises:
        LinkError: no session was opened; nothing was sent.
    """

    def __init__(
        self,
        sessions: Sessions[L],
        begin: Callable[[L, CommandOrder], Session],
        order: CommandOrder,
        patience: Seconds,
    ) -> None:
        self._sessions, self._begin, self._order = sessions, begin, order
        now = time.monotonic()
        self._until, self._sent_until = now + order.timeout, now + min(order.timeout, SENT_AGAIN_SECONDS)
        self._lock, self._aborted = threading.Lock(), threading.Event()
        self.link, self._session = sessions.open(partial(self._opened, order), patience=patience)

    def streams(self) -> Streams:
        """The output of the session."""
        return self._session.streams

    def abort(self) -> None:
        """Make `attend` end soon."""
        with self._lock:
            self._aborted.set()
            self._session.abort()

    def attend(self) -> Ended:
        """Run the command to its end or its limit, and release its session."""
        full: list[L] = []
        while True:
            try:
                ended = self._session.attend()
            except SessionRefusedError as error:
                self._sessions.refused(self.link)
                full.append(self.link)
                why = str(error)
            except LinkError as error:
                self._sessions.end(self.link)
                why = str(error)
            except BaseException:
                self._sessions.end(self.link)
                raise
            else:
                self._sessions.end(self.link)
                return ended
            left = self._until - time.monotonic()
            if not self._is_wanted():
                return self.streams().lost(why, timed_out=left <= 0)
            order = replace(self._order, timeout=left, is_wanted=self._is_wanted)
            try:
                opened = self._sessions.open(partial(self._opened, order), without=full)
            except LinkError as error:
                return self.streams().lost(str(error), timed_out=False)
            with self._lock:
                self.link, self._session = opened
                if self._aborted.is_set():
                    self._session.abort()

    def _is_wanted(self) -> bool:
        return time.monotonic() < self._sent_until and not self._aborted.is_set()

    def _opened(self, order: CommandOrder, link: L) -> Session:
        return self._begin(link, order)


class SessionConnection(Generic[L]):
    """Runs commands on one host, a session each.

    Args:
        sessions: on the host; other nodes of the host may use its connections too.
        begin: opens a session for a command; raises `LinkError` if certainly nothing was sent.
    """

    def __init__(self, sessions: Sessions[L], begin: Callable[[L, CommandOrder], Session]) -> None:
        self._sessions, self._begin = sessions, begin

    def run(
        self, command: str, *, timeout: Seconds, stdin: str | None = None, keep: int = KEPT_BYTES
    ) -> Outcome:
        """Run a command line to its end; past the limit its session is closed and the result is `Lost`."""
        order = CommandOrder(command=command, stdin=stdin, timeout=timeout, keep=keep)
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
        return self._start(
            CommandOrder(command=command, stdin=stdin, timeout=timeout, keep=keep), ended=ended
        )

    def drop(self) -> None:
        self._sessions.drop()

    def close(self) -> None:
        self._sessions.close()

    def _start(
        self, order: CommandOrder, *, ended: Callable[[], None] | None = None, patience: Seconds = 0.0
    ) -> Job | Unreachable:
        try:
            sent = _Sent(self._sessions, self._begin, order, patience)
        except LinkError as error:
            return error.unreachable
        try:
            return ThreadedJob(sent.attend, sent.abort, ended, sent.streams)
        except BaseException:  # no thread could be started
            sent.abort()
            self._sessions.end(sent.link)
            raise


@dataclass(eq=False, kw_only=True)
class RemoteHosts(ABC, Generic[K, L]):
    """The hosts of an SSH client: connections are made when first needed, and kept. The caller locks."""

    clock: Callable[[], Seconds]  # monotonic seconds
    # waits between attempts to connect; None = a wait that `close` interrupts
    wait: Callable[[Seconds], object] | None = None
    _sessions: dict[K, Sessions[L]] = field(default_factory=dict, init=False)

    def to(self, settings: HostSettings) -> SessionConnection[L]:
        """The connection to a host; nothing is sent until it is used.

        Raises:
            LinkError: the settings, or the SSH configuration, cannot be followed.
        """
        target = self._target(settings)
        if target not in self._sessions:
            self._sessions[target] = Sessions(self._link_to(target, settings.limits), settings.address)
        return SessionConnection(self._sessions[target], self._begin)

    def close(self) -> None:
        """Close all connections, those behind a jump host first."""
        for sessions in self._sessions.values():
            sessions.close()

    @abstractmethod
    def _target(self, settings: HostSettings) -> K:
        """A server and the way to it: nodes with the same one share its connections; raises `LinkError`."""

    @abstractmethod
    def _link_to(self, target: K, limits: HostLimits) -> Callable[[], L]:
        """Makes one connection to a server; called again when its sessions need another."""

    @abstractmethod
    def _begin(self, link: L, order: CommandOrder) -> Session:
        """Open a session for a command; raises `LinkError` if certainly nothing was sent."""
