"""Whether the account used on a host is root there. `sudo: auto` depends on it."""

from __future__ import annotations

import os
import threading
from typing import Final, TypeAlias

from orchestrator.hosts import script, sudo
from orchestrator.hosts.connection import CommandResult, Connection, Trouble, Unreachable
from orchestrator.hosts.settings import Connect, HostSettings, Sudo

_ASK: Final = "id -u"
_Account: TypeAlias = tuple[Connect, str, int | None, str | None]


class Accounts:
    """The accounts of a run's hosts. Each host is asked once. Thread-safe.

    A survey already reads whether the account is root. A host is asked separately only without a survey.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: dict[_Account, bool] = {}

    def learn(self, settings: HostSettings, *, root: bool | None) -> None:
        """Record whether the account is root; None = the host did not answer that."""
        if root is not None:
            with self._lock:
                self._root[_account(settings)] = root

    def as_known(self, settings: HostSettings) -> HostSettings:
        """The settings with `Sudo.AUTO` resolved, if the account is already known."""
        if settings.sudo is not Sudo.AUTO:
            return settings
        if settings.connect is Connect.LOCAL:
            return sudo.settled(settings, root=os.geteuid() == 0)
        with self._lock:
            root = self._root.get(_account(settings))
        return settings if root is None else sudo.settled(settings, root=root)

    def settled(self, settings: HostSettings, connection: Connection) -> HostSettings | Unreachable:
        """The settings with `Sudo.AUTO` resolved; the host is asked if the account is not known yet."""
        known = self.as_known(settings)
        if known.sudo is not Sudo.AUTO:
            return known
        answer = connection.run(script.shell(_ASK), timeout=settings.limits.command)
        if isinstance(answer, Unreachable):
            return answer
        said = answer.stdout.split() if isinstance(answer, CommandResult) else []
        if not said or not said[-1].isdigit():
            reason = (
                f"`{_ASK}` was not answered, so sudo may be needed or not: set `hosts.sudo` to true or false"
            )
            return Unreachable(trouble=Trouble.PROTOCOL, reason=reason)
        self.learn(settings, root=said[-1] == "0")
        return self.as_known(settings)


def _account(settings: HostSettings) -> _Account:
    return settings.connect, settings.address, settings.port, settings.user
