"""Two ways into a host of the lab: as an operator does, over SSH, and past all rights, through Docker."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.hostlab import docker

SSH_USER = "deploy"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHost:
    """One container."""

    name: str  # of the host, and of the node on it
    address: str  # its own on the bridge; it outlives a reboot
    zone: str  # awareness zone
    container: str  # for the docker command


def lab_hosts(names: list[str], *, project: str, network: str, zones: str) -> tuple[LabHost, ...]:
    """The hosts of a compose project, from the eleventh address on; a letter of `zones` for each in turn."""
    return tuple(
        LabHost(
            name=name,
            address=f"{network}.{11 + number}",
            zone=zones[number % len(zones)] if zones else "",
            container=f"{project}-{name}",
        )
        for number, name in enumerate(names)
    )


def execute(
    host: LabHost, *command: str, check: bool = True, seconds: float = docker.COMMAND_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command as root in a host, past SSH and sudo; a single word is a shell line."""
    words = ("sh", "-c", *command) if len(command) == 1 else command
    return docker.run(("docker", "exec", host.container, *words), check=check, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """What somebody who logs in brings along."""

    identity: Path  # the private key
    known_hosts: Path  # a strict known_hosts file with the key of every host, by address and by name

    def run(
        self, host: LabHost, line: str, *, user: str = SSH_USER, seconds: float = docker.COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a line over SSH with the strict known_hosts file, as an operator would from a shell."""
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "ConnectTimeout": "10",
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        target = f"{user}@{host.address}"
        command = ("ssh", "-F", "/dev/null", "-i", str(self.identity), *flags, target, line)
        return docker.run(command, check=False, seconds=seconds)
