"""How machines are reached and services are run: the words of a cluster file."""

from __future__ import annotations

from enum import Enum


class Connect(Enum):
    """How commands reach a node's machine."""

    SSH = "ssh"
    OPENSSH = "openssh"
    LOCAL = "local"


class Manager(Enum):
    """The service manager of a node's process."""

    SYSTEMD = "systemd"
    SYSV = "sysv"
    DOCKER = "docker"
    COMMAND = "command"
