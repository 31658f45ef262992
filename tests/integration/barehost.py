"""A host with sshd and nothing more, as a container: no sudo, no init system, users `root` and `deploy`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.hosts.settings import HostSettings, ServiceSettings
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import write_known_hosts
from tests.integration.hostlab.images import BASE, HOSTS
from tests.integration.hostlab.reaching import LabHost, execute
from tests.integration.sshd import make_key

BUILD_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BareHost:
    """A running one.

    Attributes:
        host: its address and its container.
        identity: the key of both users.
        known_hosts: with its host key.
    """

    host: LabHost
    identity: Path
    known_hosts: Path

    def settings(self, user: str, service: ServiceSettings, **changes: object) -> HostSettings:
        """How node `n1` is reached there."""
        values = {
            "node": "n1",
            "address": self.host.address,
            "user": user,
            "identities": (str(self.identity),),
            "known_hosts": (str(self.known_hosts),),
            "use_agent": False,
            "ssh_config": (),
            "service": service,
        }
        return HostSettings(**{**values, **changes})  # type: ignore[arg-type]  # field names by keyword

    def run(self, line: str) -> str:
        """What a shell line prints there, as root and past SSH."""
        return execute(self.host, line).stdout.strip()


def _image() -> str:
    text = (HOSTS / "Dockerfile.bare").read_text(encoding="utf-8")
    base = docker.run(("docker", "image", "inspect", "--format", "{{.Id}}", BASE), check=False).stdout.strip()
    image = f"orchestrator-lab:bare-{hashlib.sha256(f'{base}{text}'.encode()).hexdigest()[:12]}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode != 0:
        docker.run(("docker", "build", "-t", image, "-"), stdin=text, seconds=BUILD_SECONDS)
    return image


@contextmanager
def bare_host(folder: Path, shared: Path) -> Iterator[BareHost]:
    """One, until the end of the context.

    Args:
        folder: for its keys.
        shared: a folder that is under the same path there.
    """
    docker.require_engine()
    identity = make_key(folder / "id")
    name = f"orchestrator-lab-bare-{secrets.token_hex(4)}"
    mounts = ("--tmpfs", "/run", "--tmpfs", "/run/lock", "-v", f"{shared}:{shared}")
    docker.run(
        ("docker", "run", "--detach", "--rm", "--name", name, *mounts, _image()), seconds=BUILD_SECONDS
    )
    try:
        address = docker.run(
            ("docker", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
        ).stdout.strip()
        host = LabHost(name="n1", address=address, zone="", container=name)
        key = identity.with_suffix(".pub").read_text(encoding="utf-8").strip()
        for home, user in (("/root", "root"), ("/home/deploy", "deploy")):
            execute(
                host,
                f"install -d -m 700 -o {user} {home}/.ssh && echo '{key}' >{home}/.ssh/authorized_keys"
                f" && chown {user} {home}/.ssh/authorized_keys",
            )
        known_hosts = folder / "known_hosts"
        write_known_hosts(known_hosts, [host])
        yield BareHost(host=host, identity=identity, known_hosts=known_hosts)
    finally:
        docker.run(("docker", "rm", "--force", name), check=False)
