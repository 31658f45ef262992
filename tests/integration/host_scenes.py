"""A cluster on real hosts, its operator, and the truth before a run: what the run may change, and what not.

Every oracle asks the hosts and the nodes themselves, past the program.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.integration.hostlab.hosts import HostCluster
from tests.integration.killing import DATA, FOUND
from tests.integration.operating import Operator, ask, leases, lives, settings, starts
from tests.lab.client import LabClient
from tests.lab.seed import seed

FLAVOUR = "opensearch-2.19.0"
"""The quickest to boot, where a test is about hosts and not about versions."""
QUICK = {"stop": "20s", "start": "120s", "rejoin": "120s", "recover": "10m", "hold": "60s"}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Nodes that live another life."""
    return {name for name in after if after[name] != before.get(name)}


class Scene:
    """Hosts with data and the operator's settings, and how all was before the run.

    Attributes:
        victim: the node that a run takes first: by name, the elected master last.
        master: the elected master's node.
    """

    def __init__(self, cluster: HostCluster, folder: Path, *, reboot: bool = False) -> None:
        client = LabClient(cluster.admin)
        seed(client, DATA)
        client.close()
        ask(cluster, "PUT", "/_cluster/settings", FOUND)
        self.cluster = cluster
        self.operator = Operator(folder=folder, cluster=cluster, reboot=reboot)
        self.zones = {host.name: host.zone for host in cluster.hosts}
        self.was, self.born = settings(cluster), lives(cluster)
        self._started = {name: starts(cluster, name) for name in cluster.names}
        state = ask(cluster, "GET", "/_cluster/state/nodes,master_node")
        self.master = str(state["nodes"][state["master_node"]]["name"])
        self.victim = next(name for name in cluster.names if name != self.master)

    def left(self) -> str:
        """What is other than before: nodes that are down, cluster settings, lease records."""
        now, there = settings(self.cluster), lives(self.cluster)
        found = [f"{name} is down" for name in self.cluster.names if name not in there]
        for level, wanted in self.was.items():
            found += [
                f"{key} ({level}): {now[level].get(key)}, was {wanted.get(key)}"
                for key in sorted(wanted.keys() | now[level].keys())
                if wanted.get(key) != now[level].get(key)
            ]
        found += [f"lease record {record}" for record in leases(self.cluster)]
        return "; ".join(found) or "nothing"

    def restarted(self) -> set[str]:
        """The nodes that live another life."""
        return changed(self.born, lives(self.cluster))

    def is_up(self) -> bool:
        """Whether the node that a run takes first is in the cluster."""
        return self.victim in lives(self.cluster)

    def assert_left(self, restarted: Collection[str], left: str = "nothing") -> None:
        """These nodes are in another life; this is left of the run."""
        assert self.left() == left
        assert self.restarted() == set(restarted)

    def assert_all_restarted_once(self, but: Collection[str] = ()) -> None:
        """Every node is in another life by one start of its unit, and all else is as before."""
        self.assert_left(self.cluster.names)
        times = {name: starts(self.cluster, name) - before for name, before in self._started.items()}
        for name in but:  # started by a repair too
            del times[name]
        assert times == dict.fromkeys(times, 1)

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command to its end, with this exit code; what it said."""
        done = self.operator.orchestrate(*words)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def restart(self, *words: str, code: int = 0, **playbook: Any) -> str:
        """`orchestrate restart` to its end, as above."""
        return self.run(*self.restarting(*words, **playbook), code=code)

    def restarting(self, *words: str, **playbook: Any) -> tuple[str, ...]:
        """The words of a restart by this playbook, whose files are written."""
        deadlines = {**QUICK, **playbook.pop("deadlines", {})}
        file = self.operator.write(playbook={**playbook, "deadlines": deadlines})
        return ("restart", "--cluster", str(file), "--yes", *words)

    def begin(self, *words: str, **playbook: Any) -> subprocess.Popen[str]:
        """The same, which the test disturbs."""
        return self.operator.begin(*self.restarting(*words, **playbook))

    def overlay(self, name: str, text: str) -> None:
        """Lay something over the node's unit."""
        folder = f"/etc/systemd/system/{self.cluster.unit}.service.d"
        write = f"printf '%s' '[Service]\n{text}\n' > {folder}/fault.conf"
        self.cluster.exec(name, f"mkdir -p {folder} && {write} && systemctl daemon-reload")

    def repair(self, name: str) -> None:
        """Take it away again."""
        unit = self.cluster.unit
        self.cluster.exec(
            name,
            f"rm -rf /etc/systemd/system/{unit}.service.d && systemctl daemon-reload; "
            f"systemctl reset-failed {unit} || true",
        )
