"""Starting and ending Riak hosts: one lab of them at a time on a machine, beside one of search nodes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import write_known_hosts
from tests.integration.hostlab.material import make_material
from tests.integration.hostlab.projects import alone, project, write_environment
from tests.integration.hostlab.reaching import lab_hosts
from tests.integration.riaklab.hosts import RiakHosts
from tests.integration.riaklab.images import OWN, build
from tests.lab.distributions import Progress
from tests.riak_nodes import RiakCommand

PROJECT = "orchestrator-riak"
NETWORK_VARIABLE = "ORCHESTRATE_RIAK_NETWORK"
DEFAULT_NETWORK = "10.213.78"
"""The first three numbers of the hosts' addresses; set the variable where this network is in use."""
MOST = 5
"""Hosts that the Compose file knows."""
RING_SIZE = 64
SCHEDULERS = 16
"""As configured on each host, so that n - n // 6 is another number; the machine has fewer processors."""


@contextmanager
def running(
    *,
    hosts: int = MOST,
    formed: bool,
    pace: float = 0.1,
    version: str = "3.2.1",
    plain: tuple[str, ...] = (),
    locations: str = "",
    ring_size: int = RING_SIZE,
    command: RiakCommand = RiakCommand.RELEASE,
    progress: Progress,
) -> Iterator[RiakHosts]:
    """So many hosts, each with a node of the double that was started at boot; ended whatever happens.

    Args:
        hosts: 1 to 5.
        formed: whether the nodes are one cluster from the start; otherwise `cluster join` makes them one.
        pace: real seconds for a second of the recording.
        version: of the Riak that they stand for.
        plain: hosts without a unit, stopped and started through `riak` alone.
        locations: a letter for each host in turn, as 3.x has locations; empty for none.
        ring_size: partitions.
        command: whose exit codes `riak` has.
        progress: is told what goes on.

    Raises:
        LabError: Docker cannot be had, the image not be built, or a host takes no login.
    """
    docker.require_engine()
    network = os.environ.get(NETWORK_VARIABLE, DEFAULT_NETWORK)
    names = [f"riak{number + 1}" for number in range(hosts)]
    with (
        alone("riak-hosts.lock", progress),
        tempfile.TemporaryDirectory(prefix="orchestrator-riak-") as scratch,
    ):
        image = build(progress)
        containers = lab_hosts(names, project=PROJECT, network=network, zones=locations)
        folder = Path(scratch)
        (folder / "keys").mkdir()
        keys = make_material(folder / "keys", names=names, addresses=[host.address for host in containers])
        environment = {
            "LAB_IMAGE": image,
            "LAB_MATERIAL": str(keys.mounted),
            "LAB_NETWORK": network,
            "RIAK_RING_SIZE": str(ring_size),
            "RIAK_SCHEDULERS": str(SCHEDULERS),
            "RIAK_VERSION": version,
            "RIAK_PACE": str(pace),
            "RIAK_COMMAND": command.value,
            "RIAK_MEMBERS": ",".join(f"riak@{name}" for name in names) if formed else "",
            **{f"RIAK_MANAGER_{n + 1}": "plain" if f"riak{n + 1}" in plain else "unit" for n in range(MOST)},
            **{f"RIAK_LOCATION_{n + 1}": (locations * MOST)[n : n + 1] for n in range(MOST)},
        }
        settings = folder / "environment"
        write_environment(settings, environment)
        known_hosts = folder / "known_hosts"
        lab = RiakHosts(
            hosts=containers,
            identity=keys.identity,
            known_hosts=known_hosts,
            pace=pace,
            plain=frozenset(plain),
        )
        with project(PROJECT, names, folder=OWN, environment=settings, progress=progress):
            write_known_hosts(known_hosts, containers)
            for name in names:
                lab.wait_up(name)
            progress(f"{hosts} hosts take logins and their nodes answer")
            yield lab
