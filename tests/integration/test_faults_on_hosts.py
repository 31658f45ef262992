"""What goes wrong on real hosts: no second node goes down, the node in hand is started, settings go back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults import (
    FLAVOUR,
    QUICK,
    changed,
    elected,
    first,
    overlay,
    prepared,
    repair,
    resumed,
    summary,
)
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.killing import FOUND
from tests.integration.operating import Operator, ask, leases, lives, settings

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts")]


@pytest.mark.proves("failed-start")
def test_a_unit_that_fails_to_start_stands_the_run_down(
    host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, born, victim = settings(cluster), lives(cluster), first(cluster)
    file = operator.write(playbook={"deadlines": QUICK})
    overlay(cluster, victim, "[Service]\nExecStartPre=/bin/false\n")
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--output", "json")
    end = summary(run)
    assert (run.returncode, end["outcome"], end["failed"]) == (4, "failed", [victim]), run.stdout + run.stderr
    assert victim in str(end["message"])
    assert settings(cluster) == was
    assert leases(cluster) == []
    assert changed(born, lives(cluster)) == set()
    assert set(lives(cluster)) == set(cluster.names) - {victim}
    repair(cluster, victim)
    resumed(operator, cluster, born, was, "--retry-failed")


def test_a_host_that_drops_ssh_in_mid_command_gets_its_node_back(
    host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, born, victim = settings(cluster), lives(cluster), first(cluster)
    hook = {"run": "touch /tmp/hook-runs; sleep 45", "timeout": "90s"}
    file = operator.write(playbook={"deadlines": QUICK, "hooks": {"while_stopped": [hook]}})
    process = operator.begin("restart", "--cluster", str(file), "--yes")
    assert wait_until(
        lambda: cluster.exec(victim, "test", "-e", "/tmp/hook-runs", check=False).returncode == 0, seconds=120
    )
    cluster.exec(victim, "pkill -KILL -u deploy; rm /tmp/hook-runs", check=False)
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 4, output
    cluster.wait_ready()
    assert settings(cluster) == was
    assert changed(born, lives(cluster)) == {victim}
    assert "while_stopped" in output


@pytest.mark.proves("queued-start")
def test_a_host_that_hangs_in_stop_has_a_start_queued_behind_it(
    host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, born, victim = settings(cluster), lives(cluster), first(cluster)
    file = operator.write(playbook={"deadlines": {**QUICK, "stop": "8s"}})
    overlay(cluster, victim, "[Service]\nExecStop=/bin/sleep 25\n")
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes")
    assert run.returncode == 4, run.stdout + run.stderr
    assert "did not stop within 8 s" in run.stdout
    assert settings(cluster) == was
    assert changed(born, lives(cluster)) <= {victim}
    assert set(lives(cluster)) == set(cluster.names)
    repair(cluster, victim)
    resumed(operator, cluster, born, was)


@pytest.mark.proves("full-disk")
def test_a_full_disk_under_the_state_file_while_a_node_is_down(
    host_cluster: HostClusterFactory, tmp_path: Path, small_disk: Path
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, born, victim = settings(cluster), lives(cluster), first(cluster)
    fill = {"run": f"dd if=/dev/zero of={small_disk}/fill bs=4k 2>/dev/null || true", "local": True}
    file = operator.write(playbook={"deadlines": QUICK, "hooks": {"while_stopped": [fill]}})
    state = f"sqlite:///{small_disk}/state.db"
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--state", state)
    assert run.returncode == 4, run.stdout + run.stderr
    assert "journal" in run.stdout
    cluster.wait_ready()
    assert settings(cluster) == was
    assert changed(born, lives(cluster)) == {victim}
    (small_disk / "fill").unlink()
    file = operator.write(playbook={"deadlines": QUICK})
    again = operator.orchestrate("restore", "--state", state)
    assert again.returncode == 0, again.stdout + again.stderr
    assert settings(cluster) == was


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.proves("second-failure")
def test_the_master_dies_by_itself_while_another_node_is_down(
    host_cluster: HostClusterFactory, tmp_path: Path, nodes: int
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path, nodes=nodes)
    was, born = settings(cluster), lives(cluster)
    victim, master = first(cluster), elected(cluster)
    kill = {
        "run": f"docker exec {cluster.host(master).container} systemctl kill -s KILL {cluster.unit}",
        "local": True,
    }
    file = operator.write(playbook={"deadlines": QUICK, "hooks": {"while_stopped": [kill]}})
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--output", "json")
    assert run.returncode == 4, run.stdout + run.stderr
    assert f"node {master} left the cluster" in str(summary(run)["message"])
    assert changed(born, lives(cluster)) == {victim}
    assert set(lives(cluster)) == set(cluster.names) - {master}
    assert settings(cluster) == was
    cluster.exec(master, "systemctl", "reset-failed", cluster.unit, check=False)
    cluster.exec(master, "systemctl", "start", cluster.unit, seconds=240)
    cluster.wait_ready(status="green")
    operator.write()
    assert_restore_finds_nothing_left(operator, cluster, born, was)


def assert_restore_finds_nothing_left(
    operator: Operator, cluster: HostCluster, born: dict[str, str], was: object
) -> None:
    """`restore`, since a resume goes by the playbook that the run began with, whose hook would kill again."""
    run = operator.orchestrate("restore")
    assert run.returncode == 0, run.stdout + run.stderr
    assert settings(cluster) == was
    assert len(changed(born, lives(cluster))) == 2  # the one that we restarted, and the one that died


def test_a_reboot_is_proven_by_another_boot_id(host_cluster: HostClusterFactory, tmp_path: Path) -> None:
    """Simulated: the lab gives each start of a container a boot id file of its own."""
    cluster = host_cluster(FLAVOUR)
    ask(cluster, "PUT", "/_cluster/settings", FOUND)
    operator = Operator(folder=tmp_path, cluster=cluster, reboot=True)
    was, born = settings(cluster), lives(cluster)
    boots = {name: cluster.boot_id(name) for name in cluster.names}
    file = operator.write(playbook={"deadlines": {**QUICK, "reboot": "5m"}})
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--reboot")
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(cluster.boot_id(name) != boots[name] for name in cluster.names)
    assert changed(born, lives(cluster)) == set(cluster.names)
    assert settings(cluster) == was


def test_a_restart_by_somebody_else_counts(host_cluster: HostClusterFactory, tmp_path: Path) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, born = settings(cluster), lives(cluster)
    others = [name for name in cluster.names if name not in (first(cluster), elected(cluster))]
    file = operator.write(playbook={"deadlines": QUICK})
    run = operator.orchestrate("restart", "--cluster", str(file), "--yes", "--pause-after", "1")
    assert run.returncode == 9, run.stdout + run.stderr
    paused = lives(cluster)
    cluster.restart_host(others[0])
    cluster.wait_ready(status="green")
    under_us = lives(cluster)
    assert changed(paused, under_us) == set(others)
    again = operator.orchestrate("resume", "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    after = lives(cluster)
    assert changed(born, after) == set(cluster.names)
    assert after[others[0]] == under_us[others[0]]
    assert settings(cluster) == was
