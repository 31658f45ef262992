"""A cluster on container hosts as tests see it: names, addresses, credentials, what can be done to a host."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.integration.hostlab import docker, material
from tests.integration.hostlab.flavours import Flavour
from tests.integration.hostlab.material import Material
from tests.integration.hostlab.reaching import SSH_USER, LabHost, Ssh, execute
from tests.lab.client import Access, LabClient
from tests.lab.errors import LabError, LabNodeError
from tests.lab.reset import clear
from tests.lab.security import users_file

REBOOT_USER = "rebooter"
HOST_SECONDS = 240.0
CLUSTER_SECONDS = 600.0
"""Three nodes take 50 s on two idle cores; more than 300 s were seen with ten times as much to do."""
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCluster:
    """A running cluster on hosts."""

    flavour: Flavour  # what runs there
    hosts: tuple[LabHost, ...]  # in the order of their names
    keys: Material  # SSH key, certificates and passwords
    known_hosts: Path  # a strict known_hosts file with the key of every host, by address and by name

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(host.name for host in self.hosts)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The nodes' URLs."""
        scheme = "https" if self.flavour.secured else "http"
        return tuple(f"{scheme}://{host.address}:9200" for host in self.hosts)

    @property
    def ca(self) -> Path | None:
        """The authority to trust, or None without TLS."""
        return self.keys.ca if self.flavour.secured else None

    @property
    def unit(self) -> str:
        """The name of the service."""
        return self.flavour.unit

    @property
    def ssh_user(self) -> str:
        """The user with the shipped sudoers file and nothing more."""
        return SSH_USER

    @property
    def identity(self) -> Path:
        """That user's private key (and the rebooting one's)."""
        return self.keys.identity

    @property
    def admin(self) -> Access:
        """The superuser's access, for the tests' own load and checks."""
        return self._access(material.ADMIN, self.keys.admin_password)

    @property
    def orchestrator(self) -> Access:
        """The access of the user with the shipped role."""
        return self._access(material.ORCHESTRATOR, self.keys.orchestrator_password)

    def _access(self, user: str, password: str) -> Access:
        if not self.flavour.secured:
            return Access(endpoints=self.endpoints)
        return Access(endpoints=self.endpoints, user=user, password=password, ca=str(self.keys.ca))

    def host(self, name: str) -> LabHost:
        """The host of that name."""
        return next(host for host in self.hosts if host.name == name)

    def exec(
        self, name: str, *command: str, check: bool = True, seconds: float = docker.COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root in a host, past SSH and sudo; a single word is a shell line."""
        return execute(self.host(name), *command, check=check, seconds=seconds)

    def ssh(
        self, name: str, line: str, *, user: str = SSH_USER, seconds: float = docker.COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a line over SSH with the strict known_hosts file, as an operator would from a shell."""
        ssh = Ssh(identity=self.identity, known_hosts=self.known_hosts)
        return ssh.run(self.host(name), line, user=user, seconds=seconds)

    def change_password(self, password: str) -> None:
        """Give the program's user another password on every host; nodes that are up read it within 5 s.

        A host that boots has the first one again.
        """
        text = users_file(self.keys.users(orchestrator_password=password))
        for host in self.hosts:
            command = ("docker", "exec", "--interactive", host.container, "sh", "-c", "cat > /etc/node/users")
            docker.run(command, stdin=text)

    def boot_id(self, name: str) -> str:
        """The host's boot id, which the lab simulates: new at each start of the container."""
        return self.exec(name, "cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def wait_host(self, name: str) -> None:
        """Wait until sshd answers to a login.

        Raises:
            LabNodeError: it did not in time.
        """
        ready = wait_until(lambda: self._logged_in(name), seconds=HOST_SECONDS)
        if not ready:
            raise LabNodeError(f"host {name} took no SSH login in {HOST_SECONDS:.0f} s: {self.journal(name)}")

    def _logged_in(self, name: str) -> bool:
        return self.ssh(name, "true", seconds=20).returncode == 0

    def wait_ready(self, *, status: str = "yellow", nodes: int | None = None) -> None:
        """Wait until the cluster has all its nodes (or so many) and is at least as healthy as `status`.

        Raises:
            LabNodeError: not in time; what the nodes logged last is in the text.
        """
        wanted = len(self.hosts) if nodes is None else nodes
        path = (
            f"/_cluster/health?wait_for_nodes={wanted}&wait_for_status={status}"
            "&wait_for_events=languid&timeout=5s"
        )
        client = LabClient(self.admin)

        def ready() -> bool:
            try:
                return client.ask("GET", path, seconds=20)["timed_out"] is False
            except LabError:
                return False

        try:
            if not wait_until(ready, seconds=CLUSTER_SECONDS):
                logs = "\n".join(f"{host.name}: {self.journal(host.name)}" for host in self.hosts)
                raise LabNodeError(f"no cluster of {wanted} nodes in {CLUSTER_SECONDS:.0f} s\n{logs}")
        finally:
            client.close()

    def journal(self, name: str) -> str:
        """The end of what a host's node has logged."""
        line = f"journalctl --no-pager -n 30 -u {self.unit} || tail -n 30 /var/log/node/lab.log"
        return self.exec(name, line, check=False).stdout

    def reset(self) -> None:
        """Bring hosts, nodes and cluster back to what they were after the first start, but for their age.

        Raises:
            LabError: the cluster is not fit for another test.
        """
        for host in self.hosts:
            docker.run(("docker", "start", host.container))
        for host in self.hosts:
            self.wait_host(host.name)
            self._restore_service(host.name)
        self.wait_ready()
        with closing(LabClient(self.admin)) as client:
            clear(client)
        self.wait_ready(status="green")

    def _restore_service(self, name: str) -> None:
        """Take away what a test laid over the unit, and have it running."""
        if self.flavour.init == "sysv":
            self.exec(name, "service", self.unit, "start", seconds=CLUSTER_SECONDS)
            return
        overlay = f"/etc/systemd/system/{self.unit}.service.d"
        self.exec(
            name, f"rm -rf {overlay} && systemctl daemon-reload; systemctl reset-failed {self.unit} || true"
        )
        self.exec(name, "systemctl", "start", self.unit, seconds=CLUSTER_SECONDS)


def write_known_hosts(path: Path, hosts: Sequence[LabHost]) -> None:
    """Write the hosts' public keys, read out of the containers: nothing on the network is believed.

    Raises:
        LabError: a host has made no key in time.
    """
    lines = []
    for host in hosts:
        command = ("docker", "exec", host.container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        found: list[str] = []

        def read(command: tuple[str, ...] = command, found: list[str] = found) -> bool:
            found[:] = docker.run(command, check=False).stdout.split()[:2]
            return len(found) == 2

        if not wait_until(read, seconds=HOST_SECONDS):
            raise LabError(f"host {host.name} has no SSH host key after {HOST_SECONDS:.0f} s")
        lines.append(f"{host.address},{host.name} {' '.join(found)}\n")
    path.write_text("".join(lines), encoding="utf-8")


def wait_until(check: Callable[[], bool], *, seconds: float) -> bool:
    """Ask again and again until the answer is yes or the time is over; the last answer."""
    limit = time.monotonic() + seconds
    while not check():
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_SECONDS)
    return True
