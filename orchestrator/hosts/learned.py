"""What a run has learned of its hosts: who the account is there, where programs are, and wrong passwords."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeAlias

from orchestrator.errors import ConfigError
from orchestrator.hosts import programs, script, services, sudo
from orchestrator.hosts.connection import CommandResult, HostConnection, Trouble, Unreachable
from orchestrator.hosts.programs import FoundPrograms
from orchestrator.hosts.settings import HostSettings, Sudo
from orchestrator.hosts.survey import LOCK, Right
from orchestrator.model.host import Connect, Manager
from orchestrator.model.reading import Seconds

_ACCOUNT, _PROGRAMS = "account", "programs"
_ASK: Final = "id -u"
AGAIN_SECONDS: Final[Seconds] = 480.0
"""How long a host that has refused a password after it took it does not get it again.

So there are at most two attempts in fifteen minutes: `pam_faillock` locks an account after three by default.
"""
_Account: TypeAlias = tuple[Connect, str, int | None, str | None]


class Learned:
    """What the hosts of a run have answered about themselves. Each host is asked once. Thread-safe.

    A survey already reads it. A host is asked separately only without a survey.

    Args:
        now: monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], Seconds] = time.monotonic) -> None:
        self._lock, self._now = threading.Lock(), now
        self._root: dict[_Account, bool] = {}
        self._found: dict[tuple[_Account, Manager], FoundPrograms] = {}
        self._taken: set[tuple[str, _Account]] = set()
        self._refused_at: dict[tuple[str, _Account], Seconds] = {}

    def learn(self, settings: HostSettings, *, root: bool | None, found: FoundPrograms | None) -> None:
        """Record whether the account is root, and where programs are; None = the host did not answer that."""
        with self._lock:
            if root is not None:
                self._root[_account(settings)] = root
            if found is not None:
                self._found[_account(settings), settings.service.manager] = found

    def learn_password(self, settings: HostSettings, sent: str | None, said: str, *, taken: bool) -> None:
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
        self.learn_password(settings, sent, "\n".join(right.said for right in rights), taken=taken)

    @property
    def has_taken_password(self) -> bool:
        """Whether sudo has taken a password anywhere; until then, one host is asked before the others."""
        with self._lock:
            return any(key not in self._refused_at for key in self._taken)

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

    def as_known(self, settings: HostSettings) -> HostSettings:
        """The settings with `Sudo.AUTO` resolved and paths filled in, as far as they are known.

        A password that sudo has refused is omitted: `sudo -n` still runs what needs none.
        """
        with self._lock:
            root = self._root.get(_account(settings))
            found = self._found.get((_account(settings), settings.service.manager), FoundPrograms())
        if settings.connect is Connect.LOCAL:
            root = os.geteuid() == 0
        known = programs.settled(settings, found)
        if self._is_withheld(settings):
            return replace(known, sudo=Sudo.PASSWORDLESS)
        return known if root is None else sudo.settled(known, root=root)

    def settled(self, settings: HostSettings, connection: HostConnection) -> HostSettings | Unreachable:
        """The same with everything that a verb needs; the host is asked for what is not known yet."""
        known = self.as_known(settings)
        if known.sudo is not Sudo.AUTO and _has_program(known):
            return known
        search, _ = programs.with_search(settings)
        parts = script.sections([(_ACCOUNT, _ASK), (_PROGRAMS, programs.REPORT)])
        answer = connection.run(script.untranslated(f"{search}\n{parts}"), timeout=settings.limits.command)
        if isinstance(answer, Unreachable):
            return answer
        said = script.read_sections(answer.stdout) if isinstance(answer, CommandResult) else {}
        account, report = said.get(_ACCOUNT), said.get(_PROGRAMS)
        found = None if report is None else programs.read_report(report.text)
        root = account.text == "0" if account is not None and account.text.isdigit() else None
        self.learn(settings, root=root, found=found)
        known = self.as_known(settings)
        if known.sudo is not Sudo.AUTO:
            return known
        reason = f"`{_ASK}` was not answered, so sudo may be needed or not: set `hosts.sudo` to true or false"
        return Unreachable(trouble=Trouble.PROTOCOL, reason=reason)


def _has_program(settings: HostSettings) -> bool:
    return services.manager(settings).program is None or settings.service.program is not None


def _account(settings: HostSettings) -> _Account:
    return settings.connect, settings.address, settings.port, settings.user
