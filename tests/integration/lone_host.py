"""A host of its own in a container, over SSH: for accounts, sudo and services, without a search node."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.model.host_settings import HostSettings, ServiceSettings
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import wait_until, write_known_hosts
from tests.integration.hostlab.images import BASE, HOSTS
from tests.integration.hostlab.reaching import LabHost, execute
from tests.integration.sshd import make_key

BUILD_SECONDS = 900.0
ENGINE = "/var/run/docker.sock"
_AUTHORIZE = """
for home in /root /home/*; do
    user=${home##*/}
    install -d -m 700 -o "$user" "$home/.ssh"
    echo '%s' >"$home/.ssh/authorized_keys"
    chown "$user" "$home/.ssh/authorized_keys"
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneHost:
    """A running one."""

    host: LabHost  # its address and its container
    identity: Path  # the key of every account
    known_hosts: Path  # with its host key

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
        return HostSettings(**{**values, **changes})

    def run(self, line: str, *, check: bool = True) -> str:
        """What a shell line prints there, as root and past SSH."""
        return execute(self.host, line, check=check).stdout.strip()

    def write(self, path: str, text: str, owner: str = "root") -> None:
        """Lay a file there, in folders of the same account."""
        self.run(
            f"install -d -o {owner} $(dirname {path}); cat >{path} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\n"
            f"chown {owner} {path}"
        )

    def unit(self, *lines: str) -> None:
        """Have a unit `elasticsearch` of these lines."""
        self.write("/etc/systemd/system/elasticsearch.service", "\n".join(("[Service]", *lines)))
        self.run("systemctl daemon-reload; systemctl reset-failed elasticsearch || true")


@contextmanager
def accounts_host(folder: Path) -> Iterator[LoneHost]:
    """One with systemd, whose unit `elasticsearch` is a process that sleeps, until the end of the context."""
    with lone_host(folder, "accounts", *systemd_options()) as host:
        assert wait_until(lambda: host.run("systemctl is-active ssh", check=False) == "active", seconds=60)
        host.unit("ExecStart=/usr/bin/sleep infinity")
        yield host


def systemd_options() -> tuple[str, ...]:
    """Options of `docker run` with which systemd runs in a container, and reaches the machine's engine."""
    cgroup = ("-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw") if docker.cgroup_version() == "1" else ()
    free = ("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined")
    rights = ("--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--tmpfs", "/tmp:exec")
    return (*rights, *free, *cgroup, "-v", f"{ENGINE}:{ENGINE}")


def _image(kind: str) -> str:
    text = (HOSTS / f"Dockerfile.{kind}").read_text(encoding="utf-8")
    base = docker.run(("docker", "image", "inspect", "--format", "{{.Id}}", BASE), check=False).stdout.strip()
    image = f"orchestrator-lab:{kind}-{hashlib.sha256(f'{base}{text}'.encode()).hexdigest()[:12]}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode != 0:
        docker.run(("docker", "build", "-t", image, "-"), stdin=text, seconds=BUILD_SECONDS)
    return image


@contextmanager
def lone_host(folder: Path, kind: str, *options: str) -> Iterator[LoneHost]:
    """One, until the end of the context; without it, where they are not wanted, the test is skipped.

    Args:
        folder: for its keys.
        kind: the suffix of its Dockerfile.
        options: more of `docker run`.
    """
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    docker.require_engine()
    identity = make_key(folder / "id")
    name = f"orchestrator-lab-{kind}-{secrets.token_hex(4)}"
    memory = ("--tmpfs", "/run", "--tmpfs", "/run/lock")
    command = ("docker", "run", "--detach", "--rm", "--name", name, *memory, *options, _image(kind))
    docker.run(command, seconds=BUILD_SECONDS)
    try:
        address = docker.run(
            ("docker", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
        ).stdout.strip()
        host = LabHost(name="n1", address=address, zone="", container=name)
        execute(host, _AUTHORIZE % identity.with_suffix(".pub").read_text(encoding="utf-8").strip())
        known_hosts = folder / "known_hosts"
        write_known_hosts(known_hosts, [host])
        yield LoneHost(host=host, identity=identity, known_hosts=known_hosts)
    finally:
        docker.run(("docker", "rm", "--force", name), check=False)
