"""Units that run `docker run --rm` under a real systemd: what the host port says, and what a container does.

The engine is the machine's own, whose socket the host has: its containers run beside the host and not in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from orchestrator.hosts.connections.pool import Connections
from orchestrator.hosts.find_service import FoundService, find_services
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import Done, StartNode, StopNode
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import ServiceSettings, Sudo
from orchestrator.model.observation import HostView, ServiceState
from tests.integration.hostlab import docker
from tests.integration.hostlab.hosts import wait_until
from tests.integration.hostlab.images import BASE
from tests.integration.lone_host import LoneHost, accounts_host

pytestmark = [pytest.mark.docker, pytest.mark.part(name="services"), pytest.mark.timeout(2400)]

GONE = (ServiceState.STOPPED, ServiceState.FAILED)
NODE = "trap 'sleep 1; exit 143' TERM; while :; do sleep 60 & wait $$!; done"
"""A container that ends as a JVM does when it is asked to; `$$` is the unit's way to write `$`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contained:
    """The service of a host, and its container."""

    host: LoneHost
    hosts: Hosts
    name: str  # of the container

    def runs(self, *options: str, unit: tuple[str, ...] = ()) -> None:
        """Have a unit that runs the container by these options of `docker run`, up and running."""
        words = " ".join(("--rm", "--name", self.name, "--network", "none", *options))
        self.host.unit(f'ExecStart=/usr/bin/docker run {words} {BASE} sh -c "{NODE}"', *unit)
        assert self.started() is ServiceState.RUNNING
        assert wait_until(self.lives, seconds=60)

    def lives(self) -> bool:
        """Whether the container runs."""
        asked = ("docker", "inspect", "--format", "{{.State.Running}}", self.name)
        return docker.run(asked, check=False).stdout.strip() == "true"

    def is_left(self) -> bool:
        """Whether the engine has anything of the container."""
        return docker.run(("docker", "inspect", self.name), check=False).returncode == 0

    def seen(self) -> HostView:
        reading = self.hosts.observe(["n1"], rights=False)["n1"]
        assert isinstance(reading, HostView), reading
        return reading

    def stopped(self) -> HostView:
        """What is seen once a stop has ended."""
        assert self.hosts.perform(StopNode(node="n1")) == Done(output="")
        assert wait_until(lambda: self.seen().service in GONE, seconds=60)
        return self.seen()

    def started(self) -> ServiceState:
        """What is seen once a start has ended, and some time later."""
        assert self.hosts.perform(StartNode(node="n1")) == Done(output="")
        self.host.run("sleep 2")
        return self.seen().service


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneHost]:
    with accounts_host(tmp_path_factory.mktemp("host")) as made:
        yield made


@pytest.fixture
def contained(host: LoneHost) -> Iterator[Contained]:
    service = ServiceSettings(manager=Manager.SYSTEMD, unit="elasticsearch")
    settings = host.settings("deploy", service, sudo=Sudo.PASSWORDLESS)
    name = f"orchestrate-test-{secrets.token_hex(6)}"
    with closing(Hosts({"n1": settings})) as hosts:
        try:
            yield Contained(host=host, hosts=hosts, name=name)
        finally:
            host.run("systemctl kill --signal KILL elasticsearch || true", check=False)
            docker.run(("docker", "rm", "--force", name), check=False)


def test_a_stop_ends_the_container_and_a_start_makes_another(contained: Contained) -> None:
    """Of the first unit the stop reads as failed, since 143 is no success to it: that is gone too."""
    ends_well = "SuccessExitStatus=143"
    for unit, state in (
        ((), ServiceState.FAILED),
        ((ends_well,), ServiceState.STOPPED),
        ((ends_well, f"ExecStop=/usr/bin/docker stop -t 60 {contained.name}"), ServiceState.STOPPED),
    ):
        contained.runs(unit=unit)
        assert contained.stopped().service is state
        assert wait_until(lambda: not contained.is_left(), seconds=30)
        assert contained.started() is ServiceState.RUNNING
        assert wait_until(contained.lives, seconds=60)
        contained.stopped()


@pytest.mark.parametrize(
    ("options", "unit"),
    [
        (("--sig-proxy=false",), ()),
        ((), ("KillMode=none",)),
        ((), ("KillSignal=SIGKILL",)),
        (("--stop-signal", "SIGUSR1"), ("ExecStop=/bin/kill -KILL $MAINPID",)),
    ],
    ids=["no signal is handed on", "none is sent", "the client is killed", "killed by ExecStop"],
)
def test_a_client_that_ends_alone_leaves_its_container(
    contained: Contained, options: tuple[str, ...], unit: tuple[str, ...]
) -> None:
    """systemd has no more of the node: the run asks the cluster too, and a start fails with the reason."""
    contained.runs(*options, unit=unit)
    assert contained.stopped().service in GONE
    assert contained.lives()
    assert contained.started() is ServiceState.FAILED
    assert contained.lives()
    assert "status 125" in contained.seen().detail


def test_the_reason_of_a_name_in_use_is_in_the_journal(host: LoneHost, contained: Contained) -> None:
    """For an account that may read it."""
    host.run("usermod --append --groups systemd-journal deploy")
    contained.runs("--sig-proxy=false")
    contained.stopped()
    assert contained.started() is ServiceState.FAILED
    said = " ".join(contained.seen().said)
    assert f'The container name "/{contained.name}" is already in use' in said


def test_the_unit_of_a_container_is_found_by_its_name(contained: Contained) -> None:
    """The account sees no containers, and the node's process is none of the unit's."""
    contained.runs()
    settings = contained.host.settings("deploy", ServiceSettings())
    with closing(Connections()) as connections:
        found = find_services([settings], {"n1": 1}, connections)["n1"]
    assert found == FoundService(manager=Manager.SYSTEMD, unit="elasticsearch")
