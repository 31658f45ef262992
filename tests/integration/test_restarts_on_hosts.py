"""Restarts on real hosts with systemd, sshd and the shipped rights: under load, with faults, when due."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.model.host import Manager
from tests.integration.host_scenes import FLAVOUR, Scene, changed
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.operating import PASSWORD_VARIABLE, Operator, lives
from tests.integration.zoning import Vigil, events, story, waves, whole_zones

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.fixtures_processes import Show

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400), pytest.mark.part(name="hosts")]

SceneOn = Callable[..., Scene]
FOLDER = "/etc/node"


@pytest.fixture
def scene_on(host_cluster: HostClusterFactory, tmp_path: Path) -> SceneOn:
    """`scene_on(flavour, nodes=…, reboot=…)`: a fresh cluster with data and settings."""

    def made(flavour: str = FLAVOUR, *, nodes: int = 3, reboot: bool = False) -> Scene:
        return Scene(host_cluster(flavour, nodes=nodes), tmp_path, reboot=reboot)

    return made


def exists(cluster: HostCluster, name: str, file: str) -> bool:
    """Whether a file of a host has something in it."""
    return cluster.exec(name, "test", "-s", file, check=False).returncode == 0


@pytest.mark.parametrize(
    ("flavour", "nodes", "strategy"),
    [("9.1.0", 3, "node"), ("8.19.0", 6, "zone"), (FLAVOUR, 3, "node")],
)
@pytest.mark.proves("settings-restored")
def test_every_node_restarts_once_under_load_without_a_trace(
    scene_on: SceneOn, flavour: str, nodes: int, strategy: str, show: Show
) -> None:
    scene = scene_on(flavour, nodes=nodes)
    with Vigil(scene.cluster.admin, scene.zones) as vigil:
        said = scene.restart("--strategy", strategy, "--output", "json")
    went = waves(said)
    show(f"{flavour}\n  {story(said)}\n  {vigil.told()}")
    if strategy == "zone":
        assert went == whole_zones(scene.zones, scene.master)
    scene.assert_all_restarted_once()
    vigil.assert_nothing_was_lost(went)


@pytest.mark.proves("failed-start")
def test_a_node_that_fails_to_start_spares_its_zone_neighbour(scene_on: SceneOn, show: Show) -> None:
    """The run stands down; after a repair it is resumed."""
    scene = scene_on(nodes=6)
    cluster, zone = scene.cluster, whole_zones(scene.zones, scene.master)[0]
    victim, neighbour = zone
    with Vigil(cluster.admin, scene.zones) as vigil:
        scene.overlay(victim, "ExecStartPre=/bin/false")
        said = scene.restart("--strategy", "zone", "--output", "json", code=4)
        # A run that went on would have touched another zone; one that gave its wave up, this node.
        scene.assert_left({neighbour}, f"{victim} is down")
        scene.repair(victim)
        again = scene.run("resume", "--yes", "--retry-failed", "--output", "json")
    show(f"a node that fails to start\n  {story(said)}\n  {story(again)}\n  {vigil.told()}")
    assert events(said, "summary")[-1]["failed"] == [victim], said
    assert waves(said) == [zone]
    assert waves(again) == whole_zones(scene.zones, scene.master)[1:], again
    scene.assert_all_restarted_once(but=[victim])
    vigil.assert_nothing_was_lost([*waves(said), *waves(again)])


@pytest.mark.proves("queued-start")
def test_a_host_that_hangs_in_stop_has_a_start_queued_behind_it(scene_on: SceneOn) -> None:
    scene = scene_on()
    scene.overlay(scene.victim, "ExecStop=/bin/sleep 25")
    assert "did not stop within 8s" in scene.restart(code=4, deadlines={"stop": "8s"})
    assert scene.left() == "nothing"
    assert scene.restarted() <= {scene.victim}
    scene.repair(scene.victim)
    scene.run("resume", "--yes")
    scene.assert_left(scene.cluster.names)


def test_a_stop_that_leaves_the_process_is_followed_by_no_work(scene_on: SceneOn) -> None:
    """systemd says that the service has ended, as where it ends `docker run` alone; the node serves on."""
    scene = scene_on()
    cluster, victim = scene.cluster, scene.victim
    scene.overlay(victim, "KillMode=none")
    hook = {"run": "echo now >/tmp/hook-runs"}
    said = scene.restart(code=4, hooks={"while_stopped": [hook]}, deadlines={"stop": "8s"})
    assert re.search(
        rf"{victim} did not stop within 8s: its service has ended \(.*the cluster still has", said
    )
    assert not exists(cluster, victim, "/tmp/hook-runs")
    assert scene.restarted() == set()
    assert scene.left() == "nothing"
    cluster.exec(victim, "pkill -u node java; while pgrep -u node java; do sleep 0.2; done")
    scene.repair(victim)
    scene.run("resume", "--yes", "--retry-failed")
    scene.assert_left(cluster.names)


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.proves("second-failure")
def test_the_master_dies_by_itself_while_another_node_is_down(scene_on: SceneOn, nodes: int) -> None:
    scene = scene_on(nodes=nodes)
    cluster, master, unit = scene.cluster, scene.master, scene.cluster.unit
    kill = f"docker exec {cluster.host(master).container} systemctl kill -s KILL {unit}"
    said = scene.restart(code=4, hooks={"while_stopped": [{"run": kill, "local": True}]})
    assert f"node {master} left the cluster" in said
    scene.assert_left({scene.victim}, f"{master} is down")
    cluster.exec(master, "systemctl", "reset-failed", unit, check=False)
    cluster.exec(master, "systemctl", "start", unit, seconds=240)
    cluster.wait_ready(status="green")
    # A resume would go by the playbook that the run began with, whose hook would kill again.
    scene.operator.write()
    scene.run("restore")
    scene.assert_left({scene.victim, master})


@pytest.mark.parametrize("flavour", ["9.1.0"])
def test_only_due_nodes_restart_and_then_none(scene_on: SceneOn, flavour: str) -> None:
    scene = scene_on(flavour, reboot=True)
    cluster, operator = scene.cluster, scene.operator
    files = [f"{FOLDER}/elasticsearch.yml", f"{FOLDER}/jvm.options.d"]
    file = operator.write(playbook={"config_files": files})
    first, second, third = cluster.names

    def restarted(*due: str) -> set[str]:
        """The nodes that a run restarts, which is done; a second run restarts none."""
        words = ("restart", "--cluster", str(file), "--yes", *due)
        born, boots = lives(cluster), {name: cluster.boot_id(name) for name in cluster.names}
        scene.run(*words)
        after = lives(cluster)
        rebooted = {name for name, boot in boots.items() if cluster.boot_id(name) != boot}
        assert rebooted == (changed(born, after) if "--reboot" in due else set())
        assert "nothing to restart: no selected node is due" in scene.run(*words)
        assert lives(cluster) == after
        return changed(born, after)

    closed = scene.run("plan", "--cluster", str(file), "--due", "config", code=2)
    assert "Permission denied" in closed
    assert "setfacl -m u:ACCOUNT:rx FOLDER" in closed
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


AGENT, OTHER = "agent.timer", "other.timer"
FILES = """
cd /etc/systemd/system
printf '[Service]\\nType=oneshot\\nExecStart=/usr/bin/systemctl start {unit}\\n' >agent.service
printf '[Timer]\\nOnActiveSec=1\\nOnUnitActiveSec=5\\nAccuracySec=1s\\n' >agent.timer
printf '[Timer]\\nOnActiveSec=1d\\nUnit=agent.service\\n' >other.timer
for verb in stop start; do for unit in agent other; do
  echo "{user} ALL=(root) NOPASSWD: /usr/bin/systemctl $verb $unit.timer"
done; done >/etc/sudoers.d/agent
systemctl daemon-reload
systemctl start agent.timer
"""
TAKEN_AWAY = """
systemctl stop agent.timer
rm -f /etc/systemd/system/agent.* /etc/systemd/system/other.timer /etc/sudoers.d/agent
systemctl daemon-reload
"""
HOOK = "rm -f /tmp/stopped; echo now >/tmp/stopping; sleep 20; systemctl is-active {unit} >/tmp/stopped; true"


def test_an_agent_is_off_for_the_turn_and_on_after_restore(scene_on: SceneOn) -> None:
    """`configuration_management: disable`, with an agent that starts the service every 5 s."""
    scene = scene_on()
    cluster, victim = scene.cluster, scene.victim
    cluster.exec(victim, FILES.format(unit=cluster.unit, user=cluster.ssh_user))

    def is_active(unit: str) -> bool:
        return cluster.exec(victim, "systemctl", "is-active", unit, check=False).returncode == 0

    run = scene.begin(
        "--only",
        victim,
        configuration_management="disable",
        management_units=[AGENT, OTHER],
        hooks={"while_stopped": [{"run": HOOK.format(unit=cluster.unit)}]},
    )
    assert wait_until(lambda: exists(cluster, victim, "/tmp/stopping"), seconds=120)
    assert not is_active(AGENT)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert wait_until(lambda: exists(cluster, victim, "/tmp/stopped"), seconds=60)
    assert "inactive" in cluster.exec(victim, "cat", "/tmp/stopped").stdout, "nothing started it for 20 s"
    assert not is_active(AGENT), "a killed run leaves it disabled"
    for words in (("restore", "--cluster", str(scene.operator.folder / "lab.yml")), ("resume",)):
        scene.run(*words, "--yes")
        assert (is_active(AGENT), is_active(OTHER)) == (True, False)
        cluster.wait_ready()
        scene.assert_left({victim})
    cluster.exec(victim, TAKEN_AWAY)


@pytest.mark.parametrize("flavour", ["9.1.0"])
def test_init_finds_the_service_of_each_node_by_its_process(
    host_cluster: HostClusterFactory, tmp_path: Path, flavour: str
) -> None:
    cluster = host_cluster(flavour)
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
