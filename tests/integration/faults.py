"""Faults on real hosts: a fresh cluster, a unit that is overlaid and repaired, and what a run left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.hostlab.hosts import HostCluster
from tests.integration.killing import FOUND
from tests.integration.operating import Operator, ask, leases, lives, settings
from tests.lab.client import LabClient
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory


FLAVOUR = "opensearch-2.19.0"
"""The quickest to boot; what is shown here is about hosts, not about versions."""
QUICK = {"stop": "20s", "start": "120s", "rejoin": "120s", "recover": "10m", "hold": "60s"}


def prepared(
    host_cluster: HostClusterFactory, folder: Path, *, nodes: int = 3, flavour: str = FLAVOUR
) -> tuple[HostCluster, Operator]:
    """A fresh cluster with a little data and the operator's settings."""
    cluster = host_cluster(flavour, nodes=nodes)
    client = LabClient(cluster.admin)
    seed(client, (SeedIndex(name="posts", shards=2, documents=300),))
    client.close()
    ask(cluster, "PUT", "/_cluster/settings", FOUND)
    return cluster, Operator(folder=folder, cluster=cluster)


def elected(cluster: HostCluster) -> str:
    """The name of the elected master."""
    state = ask(cluster, "GET", "/_cluster/state/nodes,master_node")
    return str(state["nodes"][state["master_node"]]["name"])


def first(cluster: HostCluster) -> str:
    """The node that a run takes first: all are alike, so by name, the elected master last."""
    return next(name for name in cluster.names if name != elected(cluster))


def overlay(cluster: HostCluster, name: str, text: str) -> None:
    """Lay something over the node's unit."""
    folder = f"/etc/systemd/system/{cluster.unit}.service.d"
    cluster.exec(
        name, f"mkdir -p {folder} && printf '%s' '{text}' > {folder}/fault.conf && systemctl daemon-reload"
    )


def repair(cluster: HostCluster, name: str) -> None:
    """Take it away again."""
    cluster.exec(
        name,
        f"rm -rf /etc/systemd/system/{cluster.unit}.service.d && systemctl daemon-reload; "
        f"systemctl reset-failed {cluster.unit} || true",
    )


def summary(run: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The last line of `--output json`."""
    line: dict[str, object] = json.loads(run.stdout.splitlines()[-1])
    return line


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Nodes that live another life."""
    return {name for name in after if after[name] != before.get(name)}


def resumed(operator: Operator, cluster: HostCluster, born: dict[str, str], was: object, *flags: str) -> None:
    """After the repair `resume` ends well: every node in another life, everything as found."""
    run = operator.orchestrate("resume", "--yes", *flags)
    assert run.returncode == 0, run.stdout + run.stderr
    assert changed(born, lives(cluster)) == set(cluster.names)
    assert settings(cluster) == was
    assert leases(cluster) == []
