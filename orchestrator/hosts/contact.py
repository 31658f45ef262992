"""The first contact with a host: who the account is there, and where the programs of its service are.

A host is asked once. Its answer completes the settings of its nodes, which are frozen: `Sudo.AUTO` is
resolved, and the paths of programs are filled in. A host that has another boot, or another account, than at
the first contact may be another machine: it is asked again.

Sudo matches commands word for word, so a program is used at its usual path where it exists: the sudoers
files of the documentation have that one. Elsewhere it is searched for, in folders for administrators too:
RHEL 6 has `/sbin/service`, Debian 9 and Ubuntu 18.04 have `/bin/systemctl`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.hosts import script, services
from orchestrator.hosts.connection import CommandResult, HostConnection, HostError, Trouble, Unreachable
from orchestrator.hosts.readings import ask
from orchestrator.hosts.services import HostProgram, Reboot
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, Sudo

FIND_PROGRAM: Final = script.text("find_program.sh")
"""What the lines of `find` need before them."""
ACCOUNT: Final = "id -u"
BOOT: Final = "cat /proc/sys/kernel/random/boot_id"
_ACCOUNT, _BOOT, _PROGRAM, _REBOOT = "account", "boot-id", "program", "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstContact:
    """What a host answered."""

    root: bool | None  # whether the account is root; None if the host did not answer that
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
    """The first contacts with the hosts of a run. Thread-safe: an answer is kept or replaced as a whole."""

    def __init__(self) -> None:
        self._met: dict[tuple[object, ...], FirstContact] = {}

    def meet(self, settings: HostSettings, connection: HostConnection) -> HostSettings:
        """The completed settings of a node; its host is asked if it was not asked before.

        Raises:
            HostError: it did not answer.
        """
        met = self._met.get(_host(settings)) or first_contact(settings, connection)
        if met.root is not None:
            self._met[_host(settings)] = met
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


def first_contact(settings: HostSettings, connection: HostConnection) -> FirstContact:
    """Ask a host; it has to answer who the account is where the settings leave `sudo` to it.

    Raises:
        HostError: it did not answer.
    """
    outcome = ask(connection, settings, contact_script(settings.service.manager))
    if not isinstance(outcome, CommandResult):
        raise HostError(outcome)
    met = read_contact(outcome.stdout)
    if met.root is None and settings.sudo is Sudo.AUTO:
        said = "not answered, so sudo may be needed or not: set `hosts.sudo` to true or false"
        raise HostError(Unreachable(trouble=Trouble.PROTOCOL, reason=f"`{ACCOUNT}` was {said}"))
    return met


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
    said = {name: part.text for name, part in script.read_sections(output).items() if part.exit == 0}
    account = said.get(_ACCOUNT, "")
    return FirstContact(
        root=account == "0" if account.isdigit() else None,
        boot=said.get(_BOOT) or None,
        program=said.get(_PROGRAM) or None,
        reboot=said.get(_REBOOT) or None,
    )
