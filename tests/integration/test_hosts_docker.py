"""The host port on a service that is a container: a real Docker engine, no node in it."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings, Manager, ServiceSettings
from orchestrator.model.action import Done, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, ServiceState
from tests.integration.hostlab import docker
from tests.integration.hostlab.images import BASE

pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts")]

NODE = NodeName("es1")
ENDS_WHEN_ASKED = "trap 'exit 143' TERM; while :; do sleep 60 & wait $!; done"
"""As a JVM does: 128 + 15."""
HEARS_NOTHING = "trap '' TERM; while :; do sleep 60; done"

Contained = Callable[..., Hosts]


@pytest.fixture
def contained() -> Iterator[Contained]:
    """`contained(script, grace=…)`: the port on a host of this machine whose service is that container."""
    if docker.unwanted():
        pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
    docker.require_engine()
    with ExitStack() as stack:

        def begin(script: str, *, grace: float = 30.0) -> Hosts:
            name = f"orchestrate-test-{uuid.uuid4().hex[:12]}"
            docker.run(("docker", "run", "--detach", "--name", name, BASE, "/bin/sh", "-c", script))
            stack.callback(partial(docker.run, ("docker", "rm", "--force", name)))
            service = ServiceSettings(
                manager=Manager.DOCKER, unit=name, grace=grace, program=shutil.which("docker")
            )
            settings = HostSettings(node=NODE, address="localhost", connect=Connect.LOCAL, service=service)
            hosts = Hosts({NODE: settings})
            stack.callback(hosts.close)
            return hosts

        yield begin


def seen(hosts: Hosts) -> HostView:
    reading = hosts.observe([NODE], rights=True)[NODE]
    assert isinstance(reading, HostView), reading
    return reading


def until(hosts: Hosts, state: ServiceState) -> None:
    deadline = time.monotonic() + 60
    while (service := seen(hosts).service) is not state:
        assert time.monotonic() < deadline, f"{service} and not {state}"
        hosts.watch([NODE], 5.0)


def test_a_container_is_stopped_and_started(contained: Contained) -> None:
    hosts = contained(ENDS_WHEN_ASKED)
    assert (seen(hosts).service, seen(hosts).may_control) == (ServiceState.RUNNING, True)
    assert isinstance(hosts.perform(StopNode(node=NODE)), Done)
    until(hosts, ServiceState.STOPPED)
    assert isinstance(hosts.perform(StartNode(node=NODE)), Done)
    until(hosts, ServiceState.RUNNING)


def test_a_killed_container_is_no_clean_stop_and_can_start(
    contained: Contained,
) -> None:
    hosts = contained(HEARS_NOTHING, grace=1.0)
    assert isinstance(hosts.perform(StopNode(node=NODE)), Done)
    until(hosts, ServiceState.FAILED)
    assert isinstance(hosts.perform(StartNode(node=NODE)), Done)
    until(hosts, ServiceState.RUNNING)
