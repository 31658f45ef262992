"""A rolling restart with tuning by the operator's own `ssh`, of hosts that nothing less reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.guarded_hosts import Guarded
from tests.integration.killing import FOUND
from tests.integration.mistuned import SCHEDULER, WRONG, mistune, scheduler, values
from tests.integration.operating import Operator, ask, leases, lives, settings
from tests.integration.tuning import check, journal, verdicts
from tests.lab.client import LabClient
from tests.lab.load import Load
from tests.lab.seed import seed

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

FLAVOUR = "tuning"
pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts")]
DRIFT, UNREACHABLE = 3, 255


def test_hosts_behind_a_jump_with_a_certificate_and_of_old_age(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = fresh_host_cluster(FLAVOUR)
    client = LabClient(cluster.admin)
    seed(client)
    ask(cluster, "PUT", "/_cluster/settings", FOUND)
    before, born = settings(cluster), lives(cluster)
    for name in cluster.names:
        mistune(cluster, name)
    wrong = {name: {**WRONG, scheduler(cluster, name): SCHEDULER} for name in cluster.names}
    guarded = Guarded(folder=tmp_path, cluster=cluster)
    known_hosts = guarded.guard()
    # With the right key alone none but the second lets one in, and of that the key is known here by itself.
    for name, why in (("es1", "Permission denied"), ("es3", "Unable to negotiate")):
        plain = cluster.ssh(name, "true")
        assert plain.returncode == UNREACHABLE, plain.stderr
        assert why in plain.stderr
    operator = Operator(folder=tmp_path, cluster=cluster, before=guarded.at_home())
    over = {"connect": "openssh", "known_hosts": str(known_hosts)}
    book = {"tune": "elasticsearch", "settle": {"consecutive": 2}}
    file = operator.write(playbook=book, hosts=over)
    found = check(operator)
    assert found.returncode == DRIFT, found.stdout + found.stderr
    assert not any(verdicts(found, "unknown").values()), found.stdout
    with Load(cluster.admin) as load:
        load.wait_acknowledged(200)
        run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--output", "json")
        load.stop()
        proof = load.verify()
    assert run.returncode == 0, run.stdout + run.stderr
    with capsys.disabled():
        print(  # noqa: T201  (the figures are part of what this shows)
            f"\n{FLAVOUR} by openssh: exit {run.returncode}; {proof.acknowledged} documents acknowledged, "
            f"{len(proof.missing)} missing, {len(proof.duplicated)} twice; {applied(operator)}"
        )
    assert proof.whole
    assert settings(cluster) == before
    assert leases(cluster) == []
    after = lives(cluster)
    assert all(after[name] != born[name] for name in cluster.names)
    assert_tuned(check(operator))
    for name in cluster.names:
        read = values(cluster, name)
        assert not set(wrong[name].items()) & set(read.items()), name
        assert {"boot", "io_scheduler", "numad"} <= set(applied(operator)[name]), name
    client.close()


def applied(operator: Operator) -> dict[str, list[str]]:
    """What the run's journal says was tuned, by host."""
    told: dict[str, list[str]] = {}
    for event in journal(operator):
        if event["event"] == "tuning_applied":
            told.setdefault(event["node"], []).append(event["tunable"])
    return told


def assert_tuned(again: subprocess.CompletedProcess[str]) -> None:
    assert again.returncode == 0, again.stdout + again.stderr
    for verdict in ("drift", "unknown"):
        assert not any(verdicts(again, verdict).values()), again.stdout
