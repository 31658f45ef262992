"""Starting and ending a cluster on hosts: one at a time on a machine and network."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.integration.hostlab import docker, kernel
from tests.integration.hostlab.flavours import Flavour
from tests.integration.hostlab.hosts import HostCluster, write_known_hosts
from tests.integration.hostlab.images import HOSTS, build
from tests.integration.hostlab.material import make_material
from tests.integration.hostlab.projects import alone, project, write_environment
from tests.integration.hostlab.reaching import lab_hosts
from tests.lab.distributions import Progress

PROJECT = "orchestrator-lab"
LOCK = "hosts.lock"
NETWORK_VARIABLE = "ORCHESTRATE_LAB_NETWORK"
DEFAULT_NETWORK = "10.213.77"
"""The first three numbers of the hosts' addresses; set the variable where this network is in use.

Hosts on another network have other containers too, so both labs can run at the same time.
"""
HEAP = "512m"
ZONES = "abc"
MOST = 6
"""Hosts that the Compose file knows."""


@contextmanager
def running(flavour: Flavour, *, nodes: int, progress: Progress, zones: str = ZONES) -> Iterator[HostCluster]:
    """A cluster on so many hosts, ended whatever happens.

    Only one runs at a time on a network, because addresses are fixed; others wait. Of hosts that are tuned,
    which have the machine's kernel, only one lab runs at a time on a machine.

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
    place_name, lock = _place(network, tunable=flavour.tunable)
    with alone(lock, progress), tempfile.TemporaryDirectory(prefix="orchestrator-lab-") as scratch:
        image = build(flavour, progress=progress)
        hosts = lab_hosts(names, project=place_name, network=network, zones=zones)
        folder = Path(scratch)
        (folder / "keys").mkdir()
        keys = make_material(folder / "keys", names=names, addresses=[host.address for host in hosts])
        environment = {
            "LAB_IMAGE": image,
            "LAB_PROJECT": place_name,
            "LAB_MATERIAL": str(keys.mounted),
            "LAB_NETWORK": network,
            "LAB_HEAP": HEAP,
            "LAB_SEEDS": ",".join(names),
            "LAB_MASTERS": ",".join(names),
            **{f"LAB_ZONE_{number + 1}": zones[number % len(zones)] for number in range(MOST)},
        }
        settings = folder / "environment"
        write_environment(settings, environment)
        known_hosts = folder / "known_hosts"
        cluster = HostCluster(flavour=flavour, hosts=hosts, keys=keys, known_hosts=known_hosts)
        keep = kernel.kept(image, progress) if flavour.tunable else nullcontext()
        own = {"sysv": flavour.init == "sysv", "tuning": flavour.tunable}
        overlays = [name for name, wanted in own.items() if wanted]
        place = project(
            place_name, names, folder=HOSTS, overlays=overlays, environment=settings, progress=progress
        )
        with keep, place:
            started = time.monotonic()
            write_known_hosts(known_hosts, hosts)
            for host in hosts:
                cluster.wait_host(host.name)
            progress(f"{nodes} hosts take logins after {time.monotonic() - started:.0f} s")
            cluster.wait_ready(status="green")
            progress(f"{flavour.name} is a cluster of {nodes} after {time.monotonic() - started:.0f} s")
            yield cluster


def _place(network: str, *, tunable: bool) -> tuple[str, str]:
    """The names of the Compose project and of the lock; each network other than the usual one has its own."""
    if network == DEFAULT_NETWORK:
        return PROJECT, LOCK
    own = network.replace(".", "-")
    return f"{PROJECT}-{own}", LOCK if tunable else f"hosts-{own}.lock"
