"""Which passwords sudo has taken and refused in a run. A refused password is not sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeAlias

from orchestrator.errors import ConfigError
from orchestrator.hosts import sudo
from orchestrator.hosts.survey import LOCK, Right
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Seconds

AGAIN_SECONDS: Final[Seconds] = 480.0
"""How long a host that has refused a password after it took it does not get it again.

So there are at most two attempts in fifteen minutes: `pam_faillock` locks an account after three by default.
"""
_Account: TypeAlias = tuple[Connect, str, int | None, str | None]


class SentPasswords:
    """What sudo made of the passwords that were sent. Thread-safe.

    Args:
        now: monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], Seconds] = time.monotonic) -> None:
        self._lock, self._now = threading.Lock(), now
        self._taken: set[tuple[str, _Account]] = set()
        self._refused_at: dict[tuple[str, _Account], Seconds] = {}

    def learn(self, settings: HostSettings, sent: str | None, said: str, *, taken: bool) -> None:
        """Record what sudo made of a password that was sent.

        A refused password is not sent again: accounts lock, and one account may be that of all hosts. Only
        a host that took it before gets it after another host refused it. If that host itself refuses it,
        its directory may be out of reach for a moment: it gets the password again after `AGAIN_SECONDS`.

        Args:
            settings: of the host.
            sent: the password; None if none was sent.
            said: what sudo printed, which may be a refusal of the password.
            taken: whether the host did what the password was sent for. Without both, nothing is known.
        """
        if sent is None:
            return
        key = sent, _account(settings)
        with self._lock:
            if sudo.is_wrong_password(said):
                self._refused_at[key] = self._now()
            elif taken:
                self._taken.add(key)
                self._refused_at.pop(key, None)

    def learn_rights(self, settings: HostSettings, sent: str | None, rights: Collection[Right]) -> None:
        """The same from the answers about the rights for which a password was sent."""
        taken = any(right.allowed and right.what != LOCK and not right.asks_nothing for right in rights)
        self.learn(settings, sent, "\n".join(right.said for right in rights), taken=taken)

    @property
    def any_was_taken(self) -> bool:
        """Whether sudo has taken a password anywhere; until then, one host is asked before the others."""
        with self._lock:
            return any(key not in self._refused_at for key in self._taken)

    def without_refused(self, settings: HostSettings) -> HostSettings:
        """The settings for the next command. `sudo -n` still runs what needs no password."""
        return replace(settings, sudo=Sudo.PASSWORDLESS) if self._is_withheld(settings) else settings

    def _is_withheld(self, settings: HostSettings) -> bool:
        try:
            password = sudo.stdin(settings) if self._refused_at else None
        except ConfigError:  # reported where it is sent
            return False
        if password is None:
            return False
        key = password, _account(settings)
        with self._lock:
            if key in self._taken:
                return key in self._refused_at and self._now() < self._refused_at[key] + AGAIN_SECONDS
            return any(refused == password for refused, _ in self._refused_at)


def _account(settings: HostSettings) -> _Account:
    return settings.connect, settings.address, settings.port, settings.user
