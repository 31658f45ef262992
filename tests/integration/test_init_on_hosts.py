"""`init` on real hosts: the service of each node is found over SSH, and `validate` accepts the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.config.cluster import ClusterSpec, load_cluster
from orchestrator.config.services import Manager
from tests.integration.operating import PASSWORD_VARIABLE, Operator

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400), pytest.mark.part(name="hosts")]


def test_the_service_of_each_node_is_found_by_its_process(
    host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster = host_cluster("9.1.0")
    operator = Operator(folder=tmp_path, cluster=cluster)
    done = operator.orchestrate(
        *("init", "--endpoint", cluster.endpoints[0], "--out", "new.yml", "--ca", str(cluster.ca)),
        *("--username", str(cluster.orchestrator.user), "--password", f"env:{PASSWORD_VARIABLE}"),
        *("--ssh-user", cluster.ssh_user, "--identity", str(cluster.identity)),
        *("--known-hosts", str(cluster.known_hosts)),
    )
    assert done.returncode == 0, done
    file = load_cluster(tmp_path / "new.yml", home=tmp_path)
    assert isinstance(file.spec, ClusterSpec)
    service = file.spec.hosts.service
    assert (service.manager, service.unit) == (Manager.SYSTEMD, cluster.unit)
    assert set(file.spec.endpoints) == set(cluster.endpoints)
    assert f"found over SSH on {', '.join(sorted(cluster.names))}" in (tmp_path / "new.yml").read_text()
    validated = operator.orchestrate("validate", "--cluster", "./new.yml")
    assert validated.returncode == 0, validated
