"""The main job on real hosts: systemd, sshd, TLS, the shipped sudoers and role, a load throughout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.killing import FOUND
from tests.integration.operating import Operator, ask, leases, lives, settings, starts
from tests.lab.client import LabClient
from tests.lab.load import Load
from tests.lab.seed import seed

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400), pytest.mark.part(name="hosts")]


@pytest.mark.parametrize(
    "flavour",
    # Every fault on hosts is tried on OpenSearch; the undisturbed run on it takes a minute and a half more.
    ["9.1.0", "8.19.0", "opensearch-2.19.0"],
)
@pytest.mark.proves("settings-restored")
def test_every_node_restarts_once_under_load_without_a_trace(
    host_cluster: HostClusterFactory, flavour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = host_cluster(flavour)
    client = LabClient(cluster.admin)
    seed(client)
    ask(cluster, "PUT", "/_cluster/settings", FOUND)
    before, born = settings(cluster), lives(cluster)
    started = {name: starts(cluster, name) for name in cluster.names}
    operator = Operator(folder=tmp_path, cluster=cluster)
    file = operator.write()
    with Load(cluster.admin) as load:
        load.wait_acknowledged(200)
        run = operator.orchestrate("restart", "--cluster", str(file), "--yes")
        load.stop()
        proof = load.verify()
    result = load.result()
    with capsys.disabled():
        print(  # noqa: T201  (the figures are part of what this shows)
            f"\n{flavour}: exit {run.returncode}; {proof.acknowledged} documents acknowledged, "
            f"{len(proof.missing)} missing, {len(proof.duplicated)} twice; failed requests: "
            f"{result.indexing.failed} of {result.indexing.sent} index, "
            f"{result.searching.failed} of {result.searching.sent} search "
            f"({result.searching.abandoned} given up)"
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert settings(cluster) == before
    after = lives(cluster)
    assert set(after) == set(born)
    assert all(after[name] != born[name] for name in born)
    assert {name: starts(cluster, name) - started[name] for name in cluster.names} == dict.fromkeys(
        cluster.names, 1
    )
    assert leases(cluster) == []
    assert proof.whole
    client.close()
