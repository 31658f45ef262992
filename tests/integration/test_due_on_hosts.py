"""`--due` on real hosts: exactly the due nodes restart, and a second run finds none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults import changed
from tests.integration.operating import Operator, lives

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts"), pytest.mark.timeout(2400)]

FOLDER = "/etc/node"
FILES = {"config_files": [f"{FOLDER}/elasticsearch.yml", f"{FOLDER}/jvm.options.d"]}


def test_only_due_nodes_restart_and_then_none(host_cluster: HostClusterFactory, tmp_path: Path) -> None:
    cluster = host_cluster("9.1.0")
    operator = Operator(folder=tmp_path, cluster=cluster, reboot=True)
    file = operator.write(playbook=FILES)
    first, second, third = cluster.names

    def restarted(*due: str) -> set[str]:
        """The nodes that a run restarts, which is done; a second run restarts none."""
        words = ("restart", "--cluster", str(file), "--yes", *due)
        born, boots = lives(cluster), {name: cluster.boot_id(name) for name in cluster.names}
        run = operator.orchestrate(*words)
        assert run.returncode == 0, run.stdout + run.stderr
        after = lives(cluster)
        rebooted = {name for name, boot in boots.items() if cluster.boot_id(name) != boot}
        assert rebooted == (changed(born, after) if "--reboot" in due else set())
        again = operator.orchestrate(*words)
        assert (again.returncode, lives(cluster)) == (0, after), again.stdout + again.stderr
        assert "nothing to restart: no selected node is due" in again.stderr
        return changed(born, after)

    closed = operator.orchestrate("plan", "--cluster", str(file), "--due", "config")
    assert closed.returncode == 2, closed.stdout
    assert "Permission denied" in closed.stderr
    assert "setfacl -m u:ACCOUNT:rx FOLDER" in closed.stderr
    for name in cluster.names:
        cluster.exec(name, f"mkdir -p {FOLDER}/jvm.options.d && chmod o+rx {FOLDER} {FOLDER}/jvm.options.d")
    assert restarted("--due", "config") == set(cluster.names), "their rights changed"
    cluster.exec(second, f"echo '-Dlab.due=1' > {FOLDER}/jvm.options.d/due.options")
    assert restarted("--due", "config") == {second}
    cluster.exec(third, "touch /run/reboot-required")
    assert restarted("--due", "reboot-required", "--reboot") == {third}
    cluster.exec(first, f"touch {FOLDER}/elasticsearch.yml")
    cluster.exec(second, "touch /run/reboot-required")
    both = ("--due", "config", "--due", "reboot-required", "--reboot", "--due", "version:9.1.0")
    assert restarted(*both, "--exclude", second) == {first}
    assert restarted(*both) == {second}
