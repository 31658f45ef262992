"""The host port on real hosts: systemd and sysv, real sudo, the shipped sudoers file and nothing more."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.hosts.port import Hosts
from orchestrator.model.action import Done, InDoubt, RebootHost, Refused, StartNode, StopNode
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from tests.integration.hostlab.hosts import wait_until
from tests.integration.perform_and_wait import killed_at_work

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]  # the first image takes minutes


def settings(cluster: HostCluster, manager: Manager, *, user: str | None = None) -> HostSettings:
    host = cluster.hosts[0]
    return HostSettings(
        node=host.name,
        address=host.address,
        user=user or cluster.ssh_user,
        identities=(str(cluster.identity),),
        known_hosts=(str(cluster.known_hosts),),
        use_agent=False,
        ssh_config=(),
        sudo=Sudo.PASSWORDLESS,
        service=ServiceSettings(manager=manager, unit=cluster.unit),
    )


def seen(hosts: Hosts, *, rights: bool = False) -> HostView:
    reading = hosts.observe(["es1"], rights=rights)["es1"]
    assert isinstance(reading, HostView), reading
    return reading


def until(hosts: Hosts, state: ServiceState, seconds: float) -> list[ServiceState]:
    """Watch and look until the service is so; every state that was seen on the way."""
    deadline = time.monotonic() + seconds
    states: list[ServiceState] = []
    while time.monotonic() < deadline:
        states.append(seen(hosts).service)
        if states[-1] is state:
            return states
        hosts.watch(["es1"], 10.0)
    pytest.fail(f"not {state}: {states}")


HOSTS = [("tuning", Manager.SYSTEMD), ("sysv", Manager.SYSV)]
REFUSED = {
    Manager.SYSTEMD: (
        "sudo -n id",
        "sudo -n sh -c id",
        "sudo -n systemctl stop {unit} ssh",
        "sudo -n systemctl restart {unit}",
        "sudo -n systemctl edit {unit}",
        "sudo -n systemctl reboot",
    ),
    Manager.SYSV: ("sudo -n id", "sudo -n service ssh stop", "sudo -n reboot"),
}
"""What the shipped sudoers files do not allow."""


@pytest.mark.parametrize(("flavour", "manager"), HOSTS)
def test_stops_starts_and_reboots_with_the_shipped_rights(
    host_cluster: HostClusterFactory, flavour: str, manager: Manager
) -> None:
    cluster = host_cluster(flavour, nodes=1)
    hosts = Hosts({"es1": settings(cluster, manager)})
    try:
        until(hosts, ServiceState.RUNNING, 180)  # its start command may end after its node is in the cluster
        first = seen(hosts, rights=True)
        assert (first.service, first.may_control) == (ServiceState.RUNNING, True)
        assert first.boot_id == cluster.boot_id("es1")
        assert isinstance(hosts.perform(StopNode(node="es1")), Done)
        assert len(until(hosts, ServiceState.STOPPED, 120)) < 8  # each look had its reason
        assert isinstance(hosts.perform(StartNode(node="es1")), Done)
        assert ServiceState.FAILED not in until(hosts, ServiceState.RUNNING, 180)
        # An init script may still be at work: until it has ended, nothing else is done to its node.
        assert wait_until(lambda: "at work" not in seen(hosts).detail, seconds=180)
        refused = hosts.perform(RebootHost(node="es1"))
        assert isinstance(refused, Refused)
        assert "sudo refused" in refused.reason
        other = replace(settings(cluster, manager), service=ServiceSettings(manager=manager, unit="cron"))
        wrong = Hosts({"es1": other})
        assert isinstance(wrong.perform(StopNode(node="es1")), Refused)
        wrong.close()
        for line in REFUSED[manager]:
            done = cluster.ssh("es1", line.format(unit=cluster.unit))
            assert (done.returncode, "password is required" in done.stderr) == (1, True), line
    finally:
        hosts.close()


@pytest.mark.parametrize("flavour", ["sysv"])
def test_an_init_script_start_sent_again_is_the_first_one(
    host_cluster: HostClusterFactory, flavour: str
) -> None:
    """With the shipped sudoers file: the lock is the account's, and sudo runs what it always ran."""
    cluster = host_cluster(flavour, nodes=1)
    reached = settings(cluster, Manager.SYSV)
    hosts = Hosts({"es1": reached})
    try:
        assert isinstance(hosts.perform(StopNode(node="es1")), Done)
        until(hosts, ServiceState.STOPPED, 120)
        most = 0

        def nodes() -> int:
            """Java processes that are Elasticsearch itself, and not its launcher."""
            line = "pgrep -u node -f org.elasticsearch.bootstrap.Elasticsearch | wc -l"
            return int(cluster.exec("es1", line).stdout)

        with killed_at_work(reached, "start", lambda: "its start" in seen(hosts).detail):
            assert seen(hosts).service is ServiceState.STARTING
            assert isinstance(hosts.perform(StartNode(node="es1")), Done)
            stop = hosts.perform(StopNode(node="es1"))
            assert isinstance(stop, Refused)
            assert "the lock of this node on its host is held by its start" in stop.reason
            deadline = time.monotonic() + 180
            while "at work" in (view := seen(hosts)).detail or view.service is not ServiceState.RUNNING:
                assert time.monotonic() < deadline, view
                most = max(most, nodes())
                time.sleep(0.2)
        assert (most, nodes()) == (1, 1)
    finally:
        hosts.close()
        cluster.wait_ready()


@pytest.mark.part(name="services")
@pytest.mark.parametrize(("flavour", "manager"), HOSTS)
def test_a_reboot_is_seen_through_on_a_new_connection(
    host_cluster: HostClusterFactory, flavour: str, manager: Manager
) -> None:
    cluster = host_cluster(flavour, nodes=1)
    hosts = Hosts({"es1": settings(cluster, manager, user="rebooter")})
    try:
        boot = seen(hosts).boot_id
        assert isinstance(hosts.perform(RebootHost(node="es1")), Done | InDoubt)
        deadline = time.monotonic() + 180
        # No reading need fail on the way: a host that is back within a second is reached on a new connection.
        last = hosts.observe(["es1"], rights=False)["es1"]
        while time.monotonic() < deadline and not (isinstance(last, HostView) and last.boot_id != boot):
            hosts.watch(["es1"], 10.0)
            last = hosts.observe(["es1"], rights=False)["es1"]
        assert isinstance(last, HostView), last
        assert last.boot_id == cluster.boot_id("es1") != boot
    finally:
        hosts.close()
        cluster.wait_ready()
