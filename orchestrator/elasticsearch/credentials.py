"""The login of one client: which secret is sent, and what follows when the cluster refuses it.

A directory locks an account after a few refused logins. So a refused secret is sent at most once a minute,
by all threads together, and every other request gets the refusal as its answer. A secret that can change (a
file, a key ring, a command) is read again at a refusal, at most once a minute, and sent at once if it is new:
to each endpoint once, until one of them accepts it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Final, Protocol

from orchestrator.bounded_http import basic
from orchestrator.elasticsearch.access import Access
from orchestrator.elasticsearch.faults import Fault
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import Clock
from orchestrator.redact import Redactor

AGAIN_SECONDS: Final[Seconds] = 60.0
"""Between two tries of a refused secret, and between two readings of its source."""


class Renewal(Protocol):
    """The source of a secret that may change while the program runs."""

    def touched(self) -> bool:
        """Whether the source shows, without being read, that it has changed since it was last read."""
        ...

    def read(self) -> str | None:
        """The present secret; None if the source cannot be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What one request sends."""

    header: str | None  # the value of `Authorization`; None for a request without credentials
    number: int = 0  # of the secret in this process; a later one replaces it


class Credentials:
    """The login that all connections of a client share. Safe to share between threads.

    Args:
        access: has the first secret, and the user that each later one is of.
        clock: the time.
        redact: learns every secret.
        renewal: its source; None if that cannot change.
    """

    def __init__(
        self, access: Access, *, clock: Clock, redact: Redactor, renewal: Renewal | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._clock, self._redact, self._renewal = clock, redact, renewal
        self._access = access
        self._login = Login(header=_header(access))
        self._refused: Fault | None = None
        self._sent_at: Instant = 0.0
        self._read_at: Instant | None = None
        self._renewed_at: Instant | None = None
        self._accepting: set[str] = set()
        self._late: dict[str, Fault] = {}
        self._learn(access)

    def login(self, url: str) -> Login | Fault:
        """What the next request to an endpoint sends; the last refusal if the secret may not be sent now."""
        with self._lock:
            if self._refused is None and not self._accepting:
                self._refused = self._late.get(url)  # a new secret that no node has accepted: it is wrong
            if self._refused is None:
                return self._login
            now = self._clock.now()
            if self._renewed(now):
                return self._login
            if now - self._sent_at < AGAIN_SECONDS:
                return replace(self._refused, held_back=True)
            self._sent_at = now  # before it is sent: no other thread sends it too
            return self._login

    def accepted(self, login: Login, url: str) -> None:
        """An endpoint accepted this login; it may still have refused the request."""
        with self._lock:
            self._accepted(login, url)

    def unsent(self, login: Login) -> None:
        """No connection was made: the secret may be sent to another endpoint at once."""
        with self._lock:
            if login.number == self._login.number and self._refused is not None:
                self._sent_at = self._clock.now() - AGAIN_SECONDS

    def _accepted(self, login: Login, url: str) -> None:
        if login.number == self._login.number:
            self._refused = None
            self._accepting.add(url)
            self._late.clear()

    def refused(self, login: Login, fault: Fault) -> Fault | None:
        """Take note of a refusal: 401 of the login, or 403 of one request.

        Returns:
            The fault for the caller; None if another secret is there now: send the request again.
        """
        with self._lock:
            now = self._clock.now()
            if login.header is None:
                return fault
            if login.number != self._login.number or self._renewed(now):
                return None
            if fault.refusal is None:
                return fault
            url = fault.refusal.endpoint
            if not fault.refusal.of_login:
                self._accepted(login, url)
                return fault
            new = self._renewed_at is not None and now - self._renewed_at < AGAIN_SECONDS
            if new and url not in self._accepting:
                # Nodes take over a new password one after the other: only this one refuses it.
                self._late[url], self._sent_at = fault, now
                return replace(fault, elsewhere=True, passes=True)
            if self._refused is None:
                self._sent_at = now
            self._refused = fault
            return fault

    def _renewed(self, now: Instant) -> bool:
        """Read the source again, if it is time; whether there is another secret now."""
        if self._renewal is None:
            return False
        lately = self._read_at is not None and now - self._read_at < AGAIN_SECONDS
        if lately and not self._renewal.touched():
            return False
        self._read_at = now
        secret = self._renewal.read()
        if secret is None:
            return False
        if self._access.api_key is None:
            access = replace(self._access, password=secret)
        else:
            access = replace(self._access, api_key=secret)
        header = _header(access)
        if header == self._login.header:
            return False
        self._learn(access)
        self._access, self._renewed_at, self._refused = access, now, None
        self._accepting, self._late = set(), {}
        self._login = Login(header=header, number=self._login.number + 1)
        return True

    def _learn(self, access: Access) -> None:
        for secret in access.secrets:
            self._redact.learn(secret)


def _header(access: Access) -> str | None:
    """The value of `Authorization`."""
    if access.api_key is not None:
        return f"ApiKey {access.api_key}"
    if access.username is None:
        return None
    return basic(f"{access.username}:{access.password or ''}")
