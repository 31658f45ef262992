"""What holds a run, and what does not, on real nodes: found before anything is changed, or at the stop."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import QUICKEST, Truth, assert_put_back, assert_restarted_once, prepare, truth
from tests.integration.racing import INDEX
from tests.integration.restarting import events, held_by, restart

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real


def put(lab: LabCluster, path: str, body: Any) -> None:
    """Change something as the operator."""
    lab.client.ask("PUT", path, body)


def bare_index(lab: LabCluster) -> None:
    """An index without replicas, with a copy on every node."""
    put(lab, "/bare", {"settings": {"number_of_shards": 3, "number_of_replicas": 0}})
    lab.wait_ready(status="green")


def untouched(lab: LabCluster, before: Truth) -> None:
    """Nothing at all was changed."""
    after = truth(lab)
    assert (after.starts, after.lives, after.settings) == (before.starts, before.lives, before.settings)
    assert after.leases == ()


def test_an_index_without_replicas_holds_the_run(process_cluster: ProcessCluster, tmp_path: Path) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    bare_index(lab)
    code, lines = restart(lab, tmp_path)
    assert (code, held_by(lines)) == (3, {("zero_replica_indices", "index bare")})
    untouched(lab, before)


@contextmanager
def agent(lab: LabCluster, folder: Path) -> Iterator[None]:
    """A run of configuration management that starts every service again, every 5 s."""
    program = folder / "puppet"
    starts = "; ".join(shlex.join(lab.nodectl("start", node.name)) for node in lab.nodes)
    program.write_text(f"#!/bin/sh\nwhile :; do {starts}; sleep 5; done >/dev/null 2>&1\n")
    program.chmod(0o755)
    with subprocess.Popen([program, "agent", "--test"], start_new_session=True) as process:  # noqa: S603  (its own)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def test_an_agent_that_starts_services_holds_the_run(process_cluster: ProcessCluster, tmp_path: Path) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    with agent(lab, tmp_path):
        code, lines = restart(lab, tmp_path, playbook={"deadlines": {"hold": "12s"}})
        assert code == 3, lines[-1]
        assert {name for name, _ in held_by(lines)} == {"no_management_run_on_candidates"}
        assert "puppet (process " in str(lines[-1]), lines[-1]
        untouched(lab, before)
        code, lines = restart(lab, tmp_path, playbook={"configuration_management": "ignore"})
        assert code == 0, lines[-1]
    assert_restarted_once(lab, before)


@pytest.mark.part(name="nodes")
def test_an_accepted_index_without_replicas_does_not_hold(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    bare_index(lab)
    code, lines = restart(lab, tmp_path, playbook={"zero_replica_indices": {"accept": ["bare"]}})
    assert code == 0, lines[-1]
    assert events(lines, "rescued") == []
    assert_restarted_once(lab, before)


def test_an_added_replica_is_taken_away_again(process_cluster: ProcessCluster, tmp_path: Path) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    bare_index(lab)
    only = first(lab)
    code, lines = restart(lab, tmp_path, "--only", only, playbook={"zero_replica_indices": "add_replica"})
    assert code == 0, lines[-1]
    assert len(events(lines, "replicas_added")) == 1
    found = lab.client.ask("GET", "/bare/_settings")["bare"]["settings"]["index"]["number_of_replicas"]
    assert found == "0"
    assert_restarted_once(lab, before, nodes=[only])


@pytest.mark.part(name="nodes")
def test_an_index_that_is_yellow_for_ever_does_not_hold(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    put(lab, "/yellow", {"settings": {"number_of_shards": 1, "number_of_replicas": 4}})
    code, lines = restart(lab, tmp_path)
    assert code == 0, lines[-1]
    after = truth(lab)
    assert all(after.starts[name] - before.starts[name] == 1 for name in before.starts)
    assert after.settings == before.settings


@pytest.mark.proves("last-reading")
def test_the_last_reading_sees_a_new_index_on_the_candidate(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    node = first(lab)
    soon = {"deadlines": {"hold": "5s"}}
    race = {"moment": "flush", "node": node, "endpoint": lab.endpoints[0]}
    code, lines = restart(lab, tmp_path, playbook=soon, race=race)
    assert code == 3, lines[-1]
    assert ("zero_replica_indices", f"index {INDEX}") in held_by(lines)
    assert not [line for line in events(lines, "action_sent") if line["action"]["verb"] == "stop"]
    assert_put_back(lab, before)
    assert truth(lab).starts == before.starts


@pytest.mark.proves("rescue")
def test_a_new_index_after_the_last_reading_is_rescued(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    node = first(lab)
    race = {"moment": "stop", "node": node, "endpoint": lab.endpoints[0]}
    code, lines = restart(lab, tmp_path, "--pause-after", "1", race=race)
    rescued = events(lines, "rescued")
    assert [line["shards"] for line in rescued] == [[f"[{INDEX}][0]"]], lines[-1]
    assert code == 9, lines[-1]
    health = lab.client.ask("GET", f"/_cluster/health/{INDEX}")
    assert health["status"] == "green"
    assert_put_back(lab, before)


@pytest.mark.parametrize(
    ("body", "predicate"),
    [
        ({"persistent": {"cluster.routing.allocation.enable": "none"}}, "no_other_maintenance"),
        # The rule's own tests try every kind of maintenance; that a real cluster tells of it, one shows.
        pytest.param(
            {"transient": {"cluster.routing.allocation.enable": "primaries"}},
            "no_other_maintenance",
            marks=pytest.mark.part(name="nodes"),
        ),
        pytest.param(
            {"transient": {"cluster.routing.allocation.exclude._name": "nobody"}},
            "no_other_maintenance",
            marks=pytest.mark.part(name="nodes"),
        ),
    ],
)
def test_foreign_maintenance_is_found_before_any_change(
    process_cluster: ProcessCluster, tmp_path: Path, body: Mapping[str, Any], predicate: str
) -> None:
    lab = process_cluster(QUICKEST)
    prepare(lab)
    put(lab, "/_cluster/settings", body)
    before = truth(lab)
    code, lines = restart(lab, tmp_path)
    assert code == 3, lines[-1]
    assert {name for name, _ in held_by(lines)} == {predicate}
    untouched(lab, before)


def test_foreign_voting_exclusions_are_found_before_any_change(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    lab.client.ask("POST", "/_cluster/voting_config_exclusions?node_names=nobody")
    try:
        code, lines = restart(lab, tmp_path)
    finally:
        lab.client.ask("DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false")
    assert code == 3, lines[-1]
    assert ("no_other_maintenance", "voting exclusions") in held_by(lines)
    untouched(lab, before)


def first(lab: LabCluster) -> str:
    """The node that a run takes first: by name, the elected master last."""
    state = lab.client.ask("GET", "/_cluster/state/nodes,master_node")
    master = state["nodes"][state["master_node"]]["name"]
    return next(node.name for node in lab.nodes if node.name != master)
