"""Riak hosts as tests see them: names, addresses, and what can be done to a host or its node."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import HOST_SECONDS, wait_until
from tests.integration.hostlab.reaching import SSH_USER, LabHost, Ssh, execute
from tests.lab.errors import LabNodeError

TUNER = "tuner"
NODE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakHosts:
    """Running hosts.

    Attributes:
        hosts: in the order of their names; `riak1` has the node `riak@riak1`.
        identity: the private key of `deploy` and `tuner`.
        known_hosts: a strict known_hosts file with the key of every host, by address and by name.
        pace: real seconds for a second of the recording.
        plain: hosts without a unit.
    """

    hosts: tuple[LabHost, ...]
    identity: Path
    known_hosts: Path
    pace: float
    plain: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names."""
        return tuple(host.name for host in self.hosts)

    def host(self, name: str) -> LabHost:
        """The host of that name."""
        return next(host for host in self.hosts if host.name == name)

    def endpoint(self, name: str) -> str:
        """The URL of a host's node."""
        return f"http://{self.host(name).address}:8098"

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

    def riak(self, name: str, words: str, *, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run `riak WORDS` over SSH through sudo."""
        return self.ssh(name, f"sudo -n /usr/sbin/riak {words}", seconds=seconds)

    def faults(self, name: str, **values: str) -> None:
        """Have these go wrong on a host from now on, and nothing else; `_` stands for `-`."""
        words = [f"{key.replace('_', '-')}={value}" for key, value in values.items()]
        self.exec(name, "/usr/sbin/riak-double", "faults", *words)

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Status and body of an HTTP request; status 0 if nobody answers."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.endpoint(name)}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ""

    def stats(self, name: str) -> dict[str, Any]:
        """What a node's `/stats` says."""
        found: dict[str, Any] = json.loads(self.get(name, "/stats")[1])
        return found

    def stop(self, name: str) -> subprocess.CompletedProcess[str]:
        """Stop a node as its host's manager does."""
        return self.riak(name, "stop") if name in self.plain else self._unit(name, "stop")

    def start(self, name: str) -> subprocess.CompletedProcess[str]:
        """Start a node as its host's manager does."""
        return self.riak(name, "daemon") if name in self.plain else self._unit(name, "start")

    def _unit(self, name: str, verb: str) -> subprocess.CompletedProcess[str]:
        return self.ssh(name, f"sudo -n systemctl {verb} riak", seconds=NODE_SECONDS)

    def wait_up(self, name: str) -> None:
        """Wait until sshd takes a login and the node answers.

        Raises:
            LabNodeError: it did not in time; the end of the node's log is in the text.
        """

        def up() -> bool:
            return self.ssh(name, "true").returncode == 0 and self.get(name, "/ping")[0] == 200

        if not wait_until(up, seconds=HOST_SECONDS):
            log = self.exec(
                name, "tail -n 20 /var/lib/riak-double/log; systemctl --failed", check=False
            ).stdout
            raise LabNodeError(f"host {name} is not up after {HOST_SECONDS:.0f} s: {log}")
