"""The first contact with a host: who the account is there, and where the programs of its service are.

A host is asked once. Its answer completes the settings of its nodes, which are frozen: `Sudo.AUTO` is
resolved, and the paths of programs are filled in. A host that has another boot, or another account, than at
the first contact may be another machine: it is asked again. So is a host that did not say who the account is,
which may have had no free process then: what it said is kept for `ASKED_AGAIN_SECONDS`.

Sudo matches commands word for word, so a program is used at its usual path where it exists: the sudoers
files of the documentation have that one. Elsewhere it is searched for, in folders for administrators too:
RHEL 6 has `/sbin/service`, Debian 9 and Ubuntu 18.04 have `/bin/systemctl`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.hosts import script, services
from orchestrator.hosts.connection import CommandResult, HostConnection, HostError, Trouble, Unreachable
from orchestrator.hosts.readings import ask
from orchestrator.hosts.services import HostProgram, Reboot
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, Sudo
from orchestrator.model.reading import Seconds
from orchestrator.redact import beginning_of

FIND_PROGRAM: Final = script.text("find_program.sh")
"""What the lines of `find` need before them."""
ACCOUNT: Final = "id -u"
BOOT: Final = "cat /proc/sys/kernel/random/boot_id"
ASKED_AGAIN_SECONDS: Final = 60.0
_ACCOUNT, _BOOT, _PROGRAM, _REBOOT = "account", "boot-id", "program", "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstContact:
    """What a host answered."""

    root: bool | None  # whether the account is root; None if the host did not answer that
    said: str = ""  # what it answered instead
    boot: str | None  # the identity of its boot
    program: str | None = None  # path of what takes the verbs of the service; None if it needs none
    reboot: str | None = None  # the command line of a reboot

    def completed(self, settings: HostSettings) -> HostSettings:
        """The settings with what they leave to the host: root needs no sudo."""
        service, how = settings.service, settings.sudo
        if how is Sudo.AUTO and self.root is not None:
            how = Sudo.OFF if self.root else Sudo.PASSWORDLESS
        service = replace(
            service, program=service.program or self.program, reboot=service.reboot or self.reboot
        )
        return replace(settings, sudo=how, service=service)


class FirstContacts:
    """The first contacts with the hosts of a run. Thread-safe: an answer is kept or replaced as a whole.

    Args:
        now: monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], Seconds] = time.monotonic) -> None:
        self._now = now
        self._met: dict[tuple[object, ...], FirstContact] = {}
        self._kept_until: dict[tuple[object, ...], Seconds] = {}

    def meet(self, settings: HostSettings, connection: HostConnection) -> HostSettings:
        """The completed settings of a node; its host is asked if it was not asked before.

        Raises:
            HostError: it did not answer, or not who the account is where the settings leave `sudo` to it.
        """
        host = _host(settings)
        met = self._met.get(host)
        if met is None or (met.root is None and self._now() >= self._kept_until[host]):
            outcome = ask(connection, settings, contact_script(settings.service.manager))
            if not isinstance(outcome, CommandResult):
                raise HostError(outcome)
            self._kept_until[host] = self._now() + ASKED_AGAIN_SECONDS
            met = self._met[host] = read_contact(outcome.stdout)
        if met.root is None and settings.sudo is Sudo.AUTO:
            reason = (
                f"`{ACCOUNT}` was not answered ({met.said}), so sudo may be needed or not:"
                " set `hosts.sudo` to true or false"
            )
            raise HostError(Unreachable(trouble=Trouble.PROTOCOL, reason=reason))
        return met.completed(settings)

    def as_met(self, settings: HostSettings) -> HostSettings:
        """The same without asking: the settings themselves before the first contact."""
        met = self._met.get(_host(settings))
        return settings if met is None else met.completed(settings)

    def compare(self, settings: HostSettings, *, root: bool | None, boot: str | None) -> None:
        """Forget a host whose account or boot is another one now; None: it was not read."""
        met = self._met.get(_host(settings))
        if met is not None and (root not in (None, met.root) or boot not in (None, met.boot)):
            self._met.pop(_host(settings), None)


def _host(settings: HostSettings) -> tuple[object, ...]:
    return settings.connect, settings.address, settings.port, settings.user, settings.service.manager


def contact_script(manager: Manager) -> str:
    """The command line that asks a host whose services have this manager."""
    program, reboots = services.MANAGERS[manager].program, services.MANAGERS[manager].reboots
    usual = f"{reboots[0].program.path}{reboots[0].words}"
    parts = [
        (_ACCOUNT, ACCOUNT),
        (_BOOT, BOOT),
        (_REBOOT, " || ".join((*map(_way, reboots), f"echo {shlex.quote(usual)}"))),
    ]
    if program is not None:
        parts.append((_PROGRAM, f'{find(program, "found")}; echo "$found"'))
    return script.untranslated(f"{FIND_PROGRAM}\n{script.sections(parts)}")


def find(program: HostProgram, variable: str) -> str:
    """A shell line that sets a variable to a program's path: its usual one if the host has none at all."""
    return f"{variable}=$(find_program {program.name} {program.path}) || {variable}={program.path}"


def _way(reboot: Reboot) -> str:
    program = reboot.program
    return f'{{ found=$(find_program {program.name} {program.path}) && echo "$found{reboot.words}"; }}'


def read_contact(output: str) -> FirstContact:
    """The answer to `contact_script`."""
    answers = script.read_sections(output)
    said = {name: part.text for name, part in answers.items() if part.exit == 0}
    account, part = said.get(_ACCOUNT, ""), answers.get(_ACCOUNT)
    root = account == "0" if account.isdigit() else None
    no_answer = "no answer" if part is None else beginning_of(part.text, 200) or f"exit {part.exit}"
    return FirstContact(
        root=root,
        said=no_answer if root is None else "",
        boot=said.get(_BOOT) or None,
        program=said.get(_PROGRAM) or None,
        reboot=said.get(_REBOOT) or None,
    )
