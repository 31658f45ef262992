"""Where the programs of a service manager are on a host. Pure.

Sudo matches commands word for word, so a program is used at its usual path where it exists: the sudoers
files of the documentation have that one. Elsewhere it is searched for, in folders for administrators too:
RHEL 6 has `/sbin/service`, Debian 9 and Ubuntu 18.04 have `/bin/systemctl`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.hosts import services
from orchestrator.hosts.services import HostProgram, Reboot
from orchestrator.hosts.settings import HostSettings

FUNCTIONS: Final = """\
find_program() {
    if [ -x "$2" ]; then echo "$2"; return 0; fi
    (PATH=$PATH:/usr/sbin:/sbin:/usr/bin:/bin; command -v "$1") 2>/dev/null
}"""
"""What the lines of `find` need before them."""
_PROGRAM, _REBOOT = "program", "reboot"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPrograms:
    """What a host answered."""

    # path of what takes the verbs of the service; None if there is none, or it needs none
    program: str | None = None
    reboot: str | None = None  # the command line of a reboot; None if the host has no program for it


def find(program: HostProgram, variable: str) -> str:
    """A shell line that sets a variable to a program's path: its usual one if the host has none at all."""
    return f"{variable}=$(find_program {program.name} {program.path}) || {variable}={program.path}"


def with_search(settings: HostSettings) -> tuple[str, HostSettings]:
    """Shell lines that find what is not known yet, and settings whose lines use it; the lines stand first."""
    service, manager = settings.service, services.manager(settings)
    lines = [FUNCTIONS]
    if service.program is None and manager.program is not None:
        lines.append(find(manager.program, _PROGRAM))
        service = replace(service, program=f'"${_PROGRAM}"')
    if service.reboot is None:
        usual = services.plain_reboot(settings)
        ways = [_way(reboot) for reboot in manager.reboots]
        lines.append(" || ".join((*ways, f"{_REBOOT}={shlex.quote(usual)}")))
        service = replace(service, reboot=f"${_REBOOT}")
    if len(lines) == 1:
        return "", settings
    return "\n".join(lines), replace(settings, service=service)


def _way(reboot: Reboot) -> str:
    program = reboot.program
    found = f"{_REBOOT}=$(find_program {program.name} {program.path})"
    return f'{{ {found} && {_REBOOT}="${_REBOOT}{reboot.words}"; }}'


REPORT: Final = f'echo "{_PROGRAM}=${{{_PROGRAM}:-}}"; echo "{_REBOOT}=${{{_REBOOT}:-}}"'
"""A shell line that prints what was found."""


def read_report(text: str) -> FoundPrograms:
    """The answer to `REPORT`."""
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    return FoundPrograms(program=values.get(_PROGRAM) or None, reboot=values.get(_REBOOT) or None)


def settled(settings: HostSettings, found: FoundPrograms) -> HostSettings:
    """The settings with what a host answered; what they have themselves stays."""
    service = settings.service
    if services.manager(settings).program is not None:
        service = replace(service, program=service.program or found.program)
    return replace(settings, service=replace(service, reboot=service.reboot or found.reboot))
