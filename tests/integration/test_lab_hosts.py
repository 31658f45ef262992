"""The lab itself: the hosts are what operators have, before anything is tested on them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.lease_records import lease_records
from tests.lab.client import LabClient
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(2400),
    pytest.mark.part(name="hosts"),
]  # the first image takes minutes

# The hosts are one image: what differs is the archive in it, so one is enough for `make test`.
SYSTEMD = (
    "9.1.0",
    *(pytest.param(other) for other in ("8.19.0", "opensearch-2.19.0")),
)
REFUSED = 1
"""What `sudo -n` exits with when no rule fits."""


def incarnations(cluster: HostCluster) -> dict[str, str]:
    """The ephemeral id of every node, by name: a new one at each start of the process."""
    client = LabClient(cluster.admin)
    try:
        nodes = client.ask("GET", "/_cluster/state/nodes")["nodes"]
    finally:
        client.close()
    return {node["name"]: node["ephemeral_id"] for node in nodes.values()}


def wait_down(cluster: HostCluster, name: str, before: str) -> None:
    """Wait until a host that was told to reboot has left the boot of that id."""
    limit = time.monotonic() + 240
    while time.monotonic() < limit:
        try:
            if cluster.boot_id(name) != before:
                return
        except LabError:  # between two boots there is nothing to ask
            return
        time.sleep(0.2)
    pytest.fail(f"{name} does not go down")


@pytest.mark.parametrize("flavour", SYSTEMD)
def test_three_hosts_in_three_zones_run_one_cluster(host_cluster: HostClusterFactory, flavour: str) -> None:
    cluster = host_cluster(flavour)
    client = LabClient(cluster.admin)
    nodes = client.ask("GET", "/_nodes/process,jvm")["nodes"].values()
    assert {(node["name"], node["ip"], node["attributes"]["zone"]) for node in nodes} == {
        (host.name, host.address, host.zone) for host in cluster.hosts
    }
    assert {node["version"] for node in nodes} == {cluster.flavour.distribution.version}
    for name in cluster.names:
        assert cluster.ssh(name, "hostname; ps -o comm= -p 1; id -un").stdout.split() == [
            name,
            "systemd",
            "deploy",
        ]
        assert cluster.ssh(name, "systemctl is-system-running").stdout.strip() == "running"
        assert cluster.ssh(name, f"systemctl is-active {cluster.unit}").stdout.strip() == "active"
    boots = {cluster.boot_id(name) for name in cluster.names}
    keys = {line.split()[2] for line in cluster.known_hosts.read_text().splitlines()}
    machines = {cluster.exec(name, "cat", "/etc/machine-id").stdout for name in cluster.names}
    assert len(boots) == len(keys) == len(machines) == 3
    client.close()


@pytest.mark.parametrize("flavour", SYSTEMD)
def test_the_ssh_user_may_only_stop_and_start_the_unit(
    host_cluster: HostClusterFactory, flavour: str
) -> None:
    cluster = host_cluster(flavour)
    before = incarnations(cluster)
    for action, state in (("stop", "inactive"), ("start", "active")):
        done = cluster.ssh("es2", f"sudo -n systemctl {action} {cluster.unit}", seconds=600)
        assert (done.returncode, done.stderr) == (0, "")
        assert cluster.ssh("es2", f"systemctl is-active {cluster.unit}").stdout.strip() == state
    cluster.wait_ready(status="green")
    after = incarnations(cluster)
    assert {name for name in after if after[name] != before[name]} == {"es2"}
    assert cluster.ssh("es3", f"sudo -n systemctl --no-block stop {cluster.unit}").returncode == 0
    assert cluster.ssh("es3", f"sudo -n systemctl --no-block start {cluster.unit}").returncode == 0
    for line in (
        "sudo -n id",
        "sudo -n sh -c id",
        "sudo -n systemctl stop ssh",
        f"sudo -n systemctl stop {cluster.unit} ssh",
        f"sudo -n systemctl restart {cluster.unit}",
        f"sudo -n systemctl edit {cluster.unit}",
        "sudo -n systemctl reboot",
    ):
        done = cluster.ssh("es1", line)
        assert (done.returncode, "password is required" in done.stderr) == (REFUSED, True), line


def test_an_unknown_host_key_is_refused(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    known = cluster.known_hosts.read_text()
    lines = known.splitlines()
    try:
        swapped = [lines[0].split()[0], *lines[1].split()[1:]]
        cluster.known_hosts.write_text(" ".join(swapped) + "\n")
        done = cluster.ssh("es1", "true")
    finally:
        cluster.known_hosts.write_text(known)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
    assert cluster.ssh("es1", "true").returncode == 0


def test_a_reboot_changes_only_the_boot_id(
    host_cluster: HostClusterFactory,
) -> None:
    cluster = host_cluster("9.1.0")
    boot, before = cluster.boot_id("es1"), incarnations(cluster)
    client = LabClient(cluster.admin)
    client.ask("PUT", "/posts", {"settings": {"number_of_shards": 1, "number_of_replicas": 2}})
    client.ask("PUT", "/posts/_doc/1?refresh=true", {"text": "kept"})
    answer = cluster.ssh("es1", "sudo -n systemctl reboot", user="rebooter")
    assert answer.returncode in {0, 255}, answer.stderr  # 255: the connection went before the answer
    wait_down(cluster, "es1", boot)
    cluster.wait_host("es1")
    cluster.wait_ready(status="green")
    after = incarnations(cluster)
    assert cluster.boot_id("es1") != boot
    assert cluster.ssh("es1", "cat /proc/sys/kernel/random/boot_id").stdout.strip() == cluster.boot_id("es1")
    assert {name for name in after if after[name] != before[name]} == {"es1"}
    assert client.ask("GET", "/posts/_count")["count"] == 1
    client.close()


def test_a_host_without_power_stays_down_until_switched_on(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    boot = cluster.boot_id("es3")
    cluster.kill_host("es3")
    cluster.wait_ready(nodes=2)
    assert cluster.ssh("es3", "true", seconds=30).returncode == 255
    cluster.start_host("es3")
    cluster.wait_ready(status="green")
    assert cluster.boot_id("es3") != boot


def test_a_docker_restart_is_a_restart_of_the_node(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    boot, before = cluster.boot_id("es2"), incarnations(cluster)
    cluster.restart_host("es2")
    cluster.wait_ready(status="green")
    after = incarnations(cluster)
    assert {name for name in after if after[name] != before[name]} == {"es2"}
    assert cluster.boot_id("es2") != boot


def test_a_reset_takes_away_what_a_test_left(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    client = LabClient(cluster.admin)
    client.ask("PUT", "/left-behind", {"settings": {"number_of_replicas": 0}})
    client.ask(
        "PUT", "/_cluster/settings", {"persistent": {"cluster.routing.allocation.enable": "primaries"}}
    )
    client.ask("PUT", "/_template/orchestrate-lease-1", {"index_patterns": ["orchestrate-lease-none-*"]})
    client.ask("PUT", "/_component_template/orchestrate-lease-2", {"template": {}})
    overlay = f"/etc/systemd/system/{cluster.unit}.service.d"
    cluster.exec(
        "es1", f"mkdir {overlay} && printf '[Service]\\nExecStartPre=/bin/false\\n' > {overlay}/broken.conf"
    )
    cluster.exec("es1", "systemctl daemon-reload")
    cluster.exec("es1", "systemctl", "stop", cluster.unit)
    broken = cluster.ssh("es1", f"sudo -n systemctl start {cluster.unit}")
    assert broken.returncode == 1
    assert host_cluster("9.1.0") is cluster
    state = client.ask("GET", "/_cluster/state/metadata?filter_path=metadata.indices.*.state")
    settings = client.ask("GET", "/_cluster/settings")
    assert (state, settings, lease_records(client)) == ({}, {"persistent": {}, "transient": {}}, [])
    assert cluster.ssh("es1", f"systemctl is-active {cluster.unit}").stdout.strip() == "active"
    client.close()


@pytest.mark.parametrize("flavour", ["sysv"])
def test_a_sysv_host_stops_and_starts_its_service(host_cluster: HostClusterFactory, flavour: str) -> None:
    cluster = host_cluster(flavour, nodes=1)
    before = incarnations(cluster)
    assert cluster.ssh("es1", "ps -o comm= -p 1").stdout.strip() == "init"
    assert cluster.ssh("es1", "sudo -n service elasticsearch stop", seconds=150).returncode == 0
    assert cluster.ssh("es1", "/usr/sbin/service elasticsearch status").returncode == 3
    assert cluster.ssh("es1", "sudo -n service elasticsearch start", seconds=600).returncode == 0
    assert cluster.ssh("es1", "/usr/sbin/service elasticsearch status").returncode == 0
    for line in ("sudo -n service ssh stop", "sudo -n reboot", "sudo -n id"):
        assert cluster.ssh("es1", line).returncode == REFUSED, line
    cluster.wait_ready(status="green")
    assert incarnations(cluster)["es1"] != before["es1"]
    boot = cluster.boot_id("es1")
    answer = cluster.ssh("es1", "sudo -n reboot", user="rebooter")
    assert answer.returncode in {0, 255}, answer.stderr
    wait_down(cluster, "es1", boot)
    cluster.wait_host("es1")
    assert cluster.boot_id("es1") != boot
