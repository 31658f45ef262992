"""`--reboot` where several nodes share one machine: a reboot would take down more than the wave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.kinds.predicates import Question
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import HostView
from tests.unit.engine.asking import ES2, cluster_of, findings, holding, question, seeing, viewing, wanting

ES5 = NodeName("es5")


def _hosts(asked: Question, **at: tuple[str, str]) -> Question:
    """These nodes are on these machines, in these boots."""
    hosts = dict(asked.observation.hosts)
    for name, (machine, boot) in at.items():
        host = hosts[NodeName(name)]
        assert isinstance(host, HostView)
        hosts[NodeName(name)] = replace(host, machine_id=machine, boot_id=boot)
    return seeing(asked, hosts=hosts)


def test_two_nodes_of_one_machine_hold_a_reboot() -> None:
    asked = _hosts(wanting(question(), reboot=True), es2=("m", "b"), es5=("m", "b"))
    told = dict(findings(asked, "selected_hosts_ready"))
    assert told["host of es2"].startswith("es5 on the same machine would go down with it")
    assert "restart them without `--reboot`" in told["host of es2"]


def test_without_a_reboot_each_restarts_for_itself() -> None:
    assert holding(_hosts(question(), es2=("m", "b"), es5=("m", "b"))) == []


@pytest.mark.parametrize("other", [("m", "other"), ("other", "b")], ids=["clones", "containers"])
def test_clones_and_containers_are_machines_of_their_own(other: tuple[str, str]) -> None:
    """Clones of one image share the machine id, containers of one machine the boot id."""
    asked = _hosts(wanting(question(), reboot=True), es2=("m", "b"), es5=other)
    assert findings(asked, "selected_hosts_ready") == []


def test_a_member_whose_host_was_not_read_is_told_by_its_address() -> None:
    asked = wanting(question(), reboot=True)
    nodes = cluster_of(asked.observation.cluster).nodes
    at = next(node.address for node in nodes if node.name == ES2)
    moved = tuple(replace(node, address=at) if node.name == ES5 else node for node in nodes)
    hosts = {name: host for name, host in asked.observation.hosts.items() if name != ES5}
    told = dict(findings(viewing(seeing(asked, hosts=hosts), nodes=moved), "selected_hosts_ready"))
    assert told["host of es2"].startswith("es5 on the same machine")
