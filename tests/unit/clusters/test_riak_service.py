"""Stops, starts and readings of the host port, put to two nodes of the double as processes on this machine.

The cluster file names both with one `riak.command`: the packaged one, whose exit codes are all 0. With the
release's own, `tests/integration/test_riak_on_processes.py` restarts whole clusters of processes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import SecretResolver
from orchestrator.hosts.port import Hosts
from orchestrator.model.action import ActionResult, Done, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView, ServiceState
from orchestrator.model.reading import Unknown
from orchestrator.runs.reach import host_settings
from tests.riak_nodes import RiakCommand, RiakNode, riak_nodes, wait_until
from tests.unit.clusters.cases import known

PACE = 0.02
SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Two nodes, and the host port over them."""

    nodes: tuple[RiakNode, ...]
    hosts: Hosts

    def view(self, node: RiakNode) -> HostView:
        return known(self.hosts.observe([NodeName(node.name)], rights=False)[NodeName(node.name)])

    def stop(self, node: RiakNode) -> ActionResult:
        return self.hosts.perform(StopNode(node=NodeName(node.name)))

    def start(self, node: RiakNode) -> ActionResult:
        return self.hosts.perform(StartNode(node=NodeName(node.name)))

    def ended(self, node: RiakNode) -> None:
        """Return when no command of the node is at work any more."""
        wait_until(lambda: "at work on it" not in self.view(node).detail, "a command goes on")

    def wait(self, node: RiakNode, state: ServiceState) -> HostView:
        wait_until(lambda: self.view(node).service is state, f"it is not {state}")
        return self.view(node)


def hosts_of(folder: Path, command: str) -> Hosts:
    file = folder / "lab.yml"
    names = [f"dev{number}@127.0.0.1" for number in (1, 2)]
    document = {
        "kind": "riak",
        "name": "lab",
        "endpoints": ["http://127.0.0.1:1"],
        "hosts": {"connect": "local", "sudo": False},
        "riak": {"command": command},
    }
    file.write_text(json.dumps(document))
    resolver = SecretResolver(environment={}, folder=folder, home=folder)
    return Hosts(
        host_settings(
            load_cluster(file, home=folder), {NodeName(name): "127.0.0.1" for name in names}, resolver
        )
    )


@pytest.fixture(scope="module")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    with riak_nodes(folder / "nodes", 2, pace=PACE, command=RiakCommand.PACKAGED) as nodes:
        hosts = hosts_of(folder, f"{folder}/nodes/{{name}}/bin/riak")
        yield Machine(nodes=nodes, hosts=hosts)
        hosts.close()


@pytest.fixture
def machine(_machine: Machine) -> Machine:
    """Both nodes up and without a fault."""
    for node in _machine.nodes:
        node.faults()
        if not node.alive:
            node.riak("daemon")
    return _machine


def test_each_node_is_controlled_by_its_own_command(machine: Machine) -> None:
    one, two = machine.nodes
    born = two.pid
    assert machine.view(one).service is machine.view(two).service is ServiceState.RUNNING
    assert isinstance(machine.stop(two), Done)
    assert machine.wait(two, ServiceState.STOPPED).detail.startswith(f"Node {two.name} is not responding")
    assert machine.view(one).service is ServiceState.RUNNING
    assert (one.alive, two.alive) == (True, False)
    assert isinstance(machine.start(two), Done)
    assert machine.wait(two, ServiceState.RUNNING).detail.startswith("pong")
    assert (two.alive, two.pid != born) == (True, True)


def test_a_start_of_a_node_that_runs_starts_nothing(machine: Machine) -> None:
    one, _ = machine.nodes
    born, starts = one.pid, (one.folder / "state" / "log").read_text().count("started as process")
    assert isinstance(machine.start(one), Done)
    machine.ended(one)
    assert machine.view(one).detail == "pong"
    assert (one.alive, one.pid) == (True, born)
    assert (one.folder / "state" / "log").read_text().count("started as process") == starts


def test_the_host_notices_a_node_that_dies(machine: Machine) -> None:
    one, _ = machine.nodes
    machine.view(one)
    killer = threading.Timer(0.5, one.end)
    killer.start()
    assert machine.hosts.watch([NodeName(one.name)], SECONDS) is True
    killer.join()
    assert machine.view(one).service is ServiceState.STOPPED


def test_a_program_that_is_not_there_is_refused_and_unknown(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, str(tmp_path / "none" / "riak"))
    try:
        name = NodeName("dev1@127.0.0.1")
        found = hosts.observe([name], rights=False)[name]
        assert isinstance(found, Unknown)
        assert "the status command cannot be run" in found.reason
    finally:
        hosts.close()
