"""The service managers by their names in a cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.hosts.managers.command_lines import CommandLines
from orchestrator.hosts.managers.docker import Docker
from orchestrator.hosts.managers.manager import ServiceManager
from orchestrator.hosts.managers.systemd import Systemd
from orchestrator.hosts.managers.sysv import Sysv
from orchestrator.model.host import Manager

MANAGERS: Final[Mapping[Manager, ServiceManager]] = {
    Manager.SYSTEMD: Systemd(),
    Manager.SYSV: Sysv(),
    Manager.DOCKER: Docker(),
    Manager.COMMAND: CommandLines(),
}
