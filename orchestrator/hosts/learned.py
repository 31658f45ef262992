"""What a run has learned of its hosts: who the account is there, where programs are, and wrong passwords."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Final, TypeAlias

from orchestrator.errors import ConfigError
from orchestrator.hosts import programs, script, services, sudo
from orchestrator.hosts.connection import CommandResult, Connection, Trouble, Unreachable
from orchestrator.hosts.programs import Found
from orchestrator.hosts.settings import HostSettings, Sudo
from orchestrator.model.hosts import Connect, Manager

_ACCOUNT, _PROGRAMS = "account", "programs"
_ASK: Final = "id -u"
_Account: TypeAlias = tuple[Connect, str, int | None, str | None]


class Learned:
    """What the hosts of a run have answered about themselves. Each host is asked once. Thread-safe.

    A survey already reads it. A host is asked separately only without a survey.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: dict[_Account, bool] = {}
        self._found: dict[tuple[_Account, Manager], Found] = {}
        self._taken: dict[str, set[_Account]] = {}
        self._wrong: set[str] = set()

    def learn(self, settings: HostSettings, *, root: bool | None, found: Found | None) -> None:
        """Record whether the account is root, and where programs are; None = the host did not answer that."""
        with self._lock:
            if root is not None:
                self._root[_account(settings)] = root
            if found is not None:
                self._found[_account(settings), settings.service.manager] = found

    def learn_password(self, settings: HostSettings, sent: str | None, said: str) -> None:
        """Record whether sudo has refused a password that was sent, according to what it printed.

        A refused password is not sent again: accounts lock, and one account may be that of all hosts. Only
        a host that took it before gets it after another host refused it.
        """
        if sent is None:
            return
        with self._lock:
            taken = self._taken.setdefault(sent, set())
            if sudo.is_wrong_password(said):
                self._wrong.add(sent)
                taken.discard(_account(settings))
            else:
                taken.add(_account(settings))

    @property
    def has_taken_password(self) -> bool:
        """Whether sudo has taken a password anywhere; until then, one host is asked before the others."""
        with self._lock:
            return any(self._taken.values())

    def _is_withheld(self, settings: HostSettings) -> bool:
        try:
            password = sudo.stdin(settings) if self._wrong else None
        except ConfigError:  # reported where it is sent
            return False
        return password in self._wrong and _account(settings) not in self._taken[password]

    def as_known(self, settings: HostSettings) -> HostSettings:
        """The settings with `Sudo.AUTO` resolved and paths filled in, as far as they are known.

        A password that sudo has refused is omitted: `sudo -n` still runs what needs none.
        """
        with self._lock:
            root = self._root.get(_account(settings))
            found = self._found.get((_account(settings), settings.service.manager), Found())
        if settings.connect is Connect.LOCAL:
            root = os.geteuid() == 0
        known = programs.settled(settings, found)
        if self._is_withheld(settings):
            return replace(known, sudo=Sudo.PASSWORDLESS)
        return known if root is None else sudo.settled(known, root=root)

    def settled(self, settings: HostSettings, connection: Connection) -> HostSettings | Unreachable:
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
