"""Hosts with the double of Riak for tests: five containers with systemd, sshd and `/usr/sbin/riak`.

One lab of them at a time on a machine, beside one of search nodes. Without a Docker engine these tests fail;
with SKIP_REAL=1 they are skipped, and the summary says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import HOST_SECONDS, wait_until, write_known_hosts
from tests.integration.hostlab.images import BASE, BUILD_SECONDS, HOSTS, NAME, fingerprint
from tests.integration.hostlab.material import make_material
from tests.integration.hostlab.projects import alone, project, write_environment
from tests.integration.hostlab.reaching import SSH_USER, LabHost, Ssh, execute, lab_hosts
from tests.lab.distributions import Progress, cache_folder
from tests.lab.errors import LabNodeError
from tests.riak_nodes import RiakCommand

TESTS = Path(__file__).parents[1]
OWN = Path(__file__).with_name("riakhosts")
PROJECT = "orchestrator-riak"
NETWORK_VARIABLE = "ORCHESTRATE_RIAK_NETWORK"
DEFAULT_NETWORK = "10.213.78"
"""The first three numbers of the hosts' addresses; set the variable where this network is in use."""
MOST = 5
"""Hosts that the Compose file knows."""
SCHEDULERS = 16
"""As configured on each host, so that n - n // 6 is another number; the machine has fewer processors."""
PACE = 0.05
"""Real seconds for a second of the recording."""
PLAIN = ("riak2", "riak4")
"""Hosts without a unit, whose nodes are stopped and started through `riak` alone."""
NODE_SECONDS = 120.0
LOG = "/var/lib/riak-double/log"


def member(host: str) -> str:
    """The name of the node of a host."""
    return f"riak@{host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakHosts:
    """Running hosts."""

    hosts: tuple[LabHost, ...]  # in the order of their names; `riak1` has the node `riak@riak1`
    identity: Path  # the private key of `deploy` and `tuner`, of whom the second may do all that root may
    known_hosts: Path  # a strict known_hosts file with the key of every host, by address and by name

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

    def exec(self, name: str, *command: str, check: bool = True) -> str:
        """What a command prints that is run as root, past SSH and sudo; a single word is a shell line."""
        return execute(self.host(name), *command, check=check).stdout

    def ssh(
        self, name: str, line: str, *, user: str = SSH_USER, seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a line over SSH with the strict known_hosts file, as an operator would from a shell."""
        ssh = Ssh(identity=self.identity, known_hosts=self.known_hosts)
        return ssh.run(self.host(name), line, user=user, seconds=seconds)

    def riak(self, name: str, words: str) -> subprocess.CompletedProcess[str]:
        """Run `riak WORDS` over SSH through sudo."""
        return self.ssh(name, f"sudo -n /usr/sbin/riak {words}")

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

    def schedulers(self, name: str) -> str:
        """What a running node says of its schedulers."""
        found = json.loads(self.get(name, "/stats")[1])["sys_system_version"]
        return re.findall(r"\[smp:\d+:\d+\]", found)[0]

    def stop(self, name: str) -> int:
        """Stop a node as its host's manager does; the exit code."""
        return self.riak(name, "stop").returncode if name in PLAIN else self._unit(name, "stop")

    def start(self, name: str) -> int:
        """Start a node as its host's manager does; the exit code."""
        return self.riak(name, "daemon").returncode if name in PLAIN else self._unit(name, "start")

    def _unit(self, name: str, verb: str) -> int:
        return self.ssh(name, f"sudo -n systemctl {verb} riak", seconds=NODE_SECONDS).returncode

    def wait_up(self, name: str) -> None:
        """Wait until sshd takes a login and the node answers.

        Raises:
            LabNodeError: it did not in time; the end of the node's log is in the text.
        """

        def up() -> bool:
            return self.ssh(name, "true").returncode == 0 and self.get(name, "/ping")[0] == 200

        if not wait_until(up, seconds=HOST_SECONDS):
            log = self.exec(name, f"tail -n 20 {LOG}; systemctl --failed", check=False)
            raise LabNodeError(f"host {name} is not up after {HOST_SECONDS:.0f} s: {log}")

    # What is true there, past the program under test

    def limits(self, *, down: str = "") -> dict[str, int]:
        """The transfer limit of every node, by what each one tells its peers."""
        up = [name for name in self.names if name != down]
        return {name: json.loads(self.exec(name, "riak-double", "report"))["transfer_limit"] for name in up}

    def starts(self) -> dict[str, int]:
        """How many processes each node has been, by the double's own log."""
        logs = {name: self.exec(name, "cat", LOG) for name in self.names}
        return {name: len(re.findall(r"(?m)^started as process \d+$", log)) for name, log in logs.items()}

    def pids(self) -> dict[str, str]:
        """The process of every node, by Riak's own command; empty where it is down."""
        said = {name: self.riak(name, "pid").stdout.strip() for name in self.names}
        return {name: text if text.isdecimal() else "" for name, text in said.items()}

    def commands_left(self, name: str, words: str) -> list[str]:
        """Processes of `riak WORDS` on a host, the shells and sudo around it included."""
        listed = self.exec(name, "ps", "-eo", "pid=,args=").splitlines()
        return [line for line in listed if re.search(rf"riak(-admin)? {words}", line)]

    def at_rest(self) -> bool:
        """Every node is up, runs its partitions and has nothing to hand off, as two nodes see it."""
        told = [self.riak(name, "admin transfers").stdout for name in self.names[:2]]
        status = self.riak(self.names[0], "admin cluster status").stdout
        return all(text.startswith("No transfers active\n") for text in told) and "down!" not in status

    # For a cluster file

    def cluster_document(
        self, user: str = SSH_USER, overrides: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Its content, for somebody who logs in as this user; hosts with a unit say so by overrides."""
        units = [name for name in self.names if name not in PLAIN]
        by_unit = {"service": {"manager": "systemd", "unit": "riak"}}
        return {
            "kind": "riak",
            "name": "ring",
            "endpoints": [self.endpoint(name) for name in self.names[:3:2]],
            "hosts": {
                "user": user,
                "identity": str(self.identity),
                "known_hosts": str(self.known_hosts),
                "sudo": True,
                "nodes": {host.name: host.address for host in self.hosts},
                "overrides": {**dict.fromkeys(units, by_unit), **(overrides or {})},
            },
        }


def build(progress: Progress) -> str:
    """Have the image, built once for each content of what goes in; the name to run it by.

    Raises:
        LabError: it could not be built.
    """
    doubles = TESTS / "doubles"
    code = [doubles / "riak-double", doubles / "riak-double-node", *(doubles / "riak_double").glob("*.py")]
    own = ("Dockerfile", "sudoers", "riak.service", "riak-at-boot.service", "lab-init")
    content = {
        **{name: OWN / name for name in own},
        **{name: HOSTS / name for name in ("sshd.conf", "ssh-host-keys.conf")},
        **{f"doubles/{path.relative_to(doubles)}": path for path in code},
        "stats.json": TESTS / "data" / "riak" / "riak-3.2.1-stats.json",
    }
    base = docker.run(("docker", "image", "inspect", "--format", "{{.Id}}", BASE), check=False).stdout.strip()
    image = f"{NAME}:riak-{fingerprint(content, base)}"
    if docker.run(("docker", "image", "inspect", image), check=False).returncode == 0:
        return image
    progress(f"building {image}: the first time it takes a minute or two")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as context:
        for name, path in content.items():
            target = Path(context) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        docker.run(("docker", "build", "-t", image, context), seconds=BUILD_SECONDS)
    return image


@contextmanager
def riak_hosts(
    request: pytest.FixtureRequest, *, hosts: int = MOST, command: RiakCommand = RiakCommand.PACKAGED
) -> Iterator[RiakHosts]:
    """So many hosts whose nodes are one cluster, started at boot; ended whatever happens. For a fixture.

    Args:
        request: of the fixture.
        hosts: 1 to 5.
        command: whose exit codes `riak` has.
    """
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    docker.require_engine()
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"lab: {line}", flush=True)  # noqa: T201  (minutes without a word look like a hang)

    network = os.environ.get(NETWORK_VARIABLE, DEFAULT_NETWORK)
    names = [f"riak{number + 1}" for number in range(hosts)]
    with alone("riak-hosts.lock", say), tempfile.TemporaryDirectory(prefix="orchestrator-riak-") as scratch:
        image = build(say)
        containers = lab_hosts(names, project=PROJECT, network=network, zones="")
        folder = Path(scratch)
        (folder / "keys").mkdir()
        keys = make_material(folder / "keys", names=names, addresses=[host.address for host in containers])
        environment = {
            "LAB_IMAGE": image,
            "LAB_MATERIAL": str(keys.mounted),
            "LAB_NETWORK": network,
            "RIAK_RING_SIZE": "64",
            "RIAK_SCHEDULERS": str(SCHEDULERS),
            "RIAK_PACE": str(PACE),
            "RIAK_COMMAND": command.value,
            "RIAK_MEMBERS": ",".join(member(name) for name in names),
            **{f"RIAK_MANAGER_{n + 1}": "plain" if f"riak{n + 1}" in PLAIN else "unit" for n in range(MOST)},
            **{f"RIAK_LOCATION_{n + 1}": "" for n in range(MOST)},
        }
        write_environment(folder / "environment", environment)
        lab = RiakHosts(hosts=containers, identity=keys.identity, known_hosts=folder / "known_hosts")
        with project(PROJECT, names, folder=OWN, environment=folder / "environment", progress=say):
            write_known_hosts(lab.known_hosts, containers)
            for name in names:
                lab.wait_up(name)
            yield lab
