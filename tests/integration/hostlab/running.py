"""Starting and ending a cluster on hosts: one at a time on a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pytest_docker.plugin import get_docker_services

from orchestrator.lab.distributions import Progress, cache_folder
from orchestrator.lab.errors import LabError
from tests.integration.hostlab import docker, kernel
from tests.integration.hostlab.flavours import Flavour
from tests.integration.hostlab.hosts import HostCluster, LabHost, write_known_hosts
from tests.integration.hostlab.images import HOSTS, build
from tests.integration.hostlab.material import make_material

PROJECT = "orchestrator-lab"
NETWORK_VARIABLE = "ORCHESTRATE_LAB_NETWORK"
DEFAULT_NETWORK = "10.213.77"
"""The first three numbers of the hosts' addresses; set the variable where this network is in use."""
HEAP = "512m"
ZONES = "abc"
MOST = 6
"""Hosts that the Compose file knows."""
LOCK_SECONDS = 3600.0
LOCK_POLL_SECONDS = 1.0


@contextmanager
def running(flavour: Flavour, *, nodes: int, progress: Progress, zones: str = ZONES) -> Iterator[HostCluster]:
    """A cluster on so many hosts, ended whatever happens.

    Only one runs at a time on a machine, for memory's sake and because addresses are fixed; others wait.

    Args:
        flavour: what runs there.
        nodes: 1 to 6.
        progress: is told what goes on.
        zones: a letter for each host in turn, again from the first when they are used up.

    Raises:
        LabError: Docker cannot be had, an image not be built, or the cluster did not come up.
    """
    docker.require_engine()
    network = os.environ.get(NETWORK_VARIABLE, DEFAULT_NETWORK)
    names = [f"es{number + 1}" for number in range(nodes)]
    with _alone(progress), tempfile.TemporaryDirectory(prefix="orchestrator-lab-") as scratch:
        image = build(flavour, progress=progress)
        hosts = tuple(
            LabHost(
                name=name,
                address=f"{network}.{11 + number}",
                zone=zones[number % len(zones)],
                container=f"{PROJECT}-{name}",
            )
            for number, name in enumerate(names)
        )
        folder = Path(scratch)
        (folder / "keys").mkdir()
        keys = make_material(folder / "keys", names=names, addresses=[host.address for host in hosts])
        environment = {
            "LAB_IMAGE": image,
            "LAB_MATERIAL": str(keys.mounted),
            "LAB_NETWORK": network,
            "LAB_HEAP": HEAP,
            "LAB_SEEDS": ",".join(names),
            "LAB_MASTERS": ",".join(names),
            **{f"LAB_ZONE_{number + 1}": zones[number % len(zones)] for number in range(MOST)},
        }
        settings = folder / "environment"
        settings.write_text(
            "".join(f"{key}={value}\n" for key, value in environment.items()), encoding="utf-8"
        )
        known_hosts = folder / "known_hosts"
        cluster = HostCluster(flavour=flavour, hosts=hosts, keys=keys, known_hosts=known_hosts)
        keep = kernel.kept(image, progress) if flavour.tunable else nullcontext()
        with keep, _project(flavour, settings, names, progress):
            started = time.monotonic()
            write_known_hosts(known_hosts, hosts)
            for host in hosts:
                cluster.wait_host(host.name)
            progress(f"{nodes} hosts take logins after {time.monotonic() - started:.0f} s")
            cluster.wait_ready(status="green")
            progress(f"{flavour.name} is a cluster of {nodes} after {time.monotonic() - started:.0f} s")
            yield cluster


@contextmanager
def _project(flavour: Flavour, settings: Path, names: list[str], progress: Progress) -> Iterator[None]:
    """The compose project, ended also when it does not come up; what a killed run left goes first."""
    files = [str(HOSTS / "compose.yml")]
    if docker.cgroup_version() == "1":
        files.append(str(HOSTS / "compose.cgroup-v1.yml"))
    if flavour.init == "sysv":
        files.append(str(HOSTS / "compose.sysv.yml"))
    if flavour.tunable:
        files.append(str(HOSTS / "compose.tuning.yml"))
    command = f"{docker.compose_command()} --env-file {settings}"
    down = "down --volumes --remove-orphans --timeout 2"
    progress(f"starting {', '.join(names)}")
    try:
        with get_docker_services(
            command, files, PROJECT, [down, f"up --detach --no-build {' '.join(names)}"], []
        ):
            yield
    finally:
        with get_docker_services(command, files, PROJECT, [], [down]):
            progress(f"taking {', '.join(names)} down")


@contextmanager
def _alone(progress: Progress) -> Iterator[None]:
    """Hold the machine's one place for a cluster; the kernel frees it with the process."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    limit = time.monotonic() + LOCK_SECONDS
    with (cache_folder() / "hosts.lock").open("w", encoding="utf-8") as handle:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise LabError("another lab has held this machine's hosts for an hour") from None
                if not told:
                    progress("waiting for another lab on this machine to end")
                    told = True
                time.sleep(LOCK_POLL_SECONDS)
                continue
            yield
            return
