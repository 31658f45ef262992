"""What holds a run, and what does not, on real nodes: found before anything is changed, or at the stop."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.doomed import RACED_INDEX as INDEX
from tests.integration.killing import QUICKEST, Truth, assert_put_back, assert_restarted_once, prepare, truth
from tests.integration.restarting import events, held_by, restart

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real

Change = Callable[["LabCluster"], object]


def put(path: str, body: Any, verb: str = "PUT") -> Change:
    """Something that the operator changes."""
    return lambda lab: lab.client.ask(verb, path, body)


def settings(level: str, key: str, value: str | None) -> Change:
    """A cluster setting."""
    return put("/_cluster/settings", {level: {key: value}})


def index(name: str, *, shards: int = 3, replicas: int = 0, **more: str) -> Change:
    """An index; without replicas and with three shards it has a copy on every node."""
    settings = {"number_of_shards": shards, "number_of_replicas": replicas, **more}
    return put(f"/{name}", {"settings": settings})


def ruled(**rules: object) -> Change:
    """The index `kept` with a copy on every node, and then a rule under which some would not come back."""

    def change(lab: LabCluster) -> None:
        settings = {"number_of_shards": 1, "number_of_replicas": 2}
        lab.client.ask("PUT", "/kept?wait_for_active_shards=all", {"settings": settings})
        lab.client.ask("PUT", "/kept/_settings", {f"index.{key}": value for key, value in rules.items()})

    return change


ALLOCATION = "cluster.routing.allocation"
VOTING = "/_cluster/voting_config_exclusions"
MAINTENANCE = "no_other_maintenance"
FILTERED = "routing.allocation"
LATER = "es3"
NOT_BACK = ("copies_can_return", "index kept")
HOLDS: Mapping[str, tuple[Change, Change, tuple[str, str]]] = {
    "an index without replicas": (
        index("bare"),
        put("/bare", None, "DELETE"),
        ("zero_replica_indices", "index bare"),
    ),
    "an index without replicas on a node of a later wave": (
        index("bare", shards=1, **{f"{FILTERED}.require._name": LATER}),
        put("/bare", None, "DELETE"),
        ("zero_replica_indices", "index bare"),
    ),
    "allocation that is disabled": (
        settings("persistent", f"{ALLOCATION}.enable", "none"),
        settings("persistent", f"{ALLOCATION}.enable", "all"),
        (MAINTENANCE, f"{ALLOCATION}.enable"),
    ),
    "allocation of primaries alone": (
        settings("transient", f"{ALLOCATION}.enable", "primaries"),
        settings("transient", f"{ALLOCATION}.enable", None),
        (MAINTENANCE, f"{ALLOCATION}.enable"),
    ),
    "a node that is emptied": (
        settings("transient", f"{ALLOCATION}.exclude._name", "es3"),
        settings("transient", f"{ALLOCATION}.exclude._name", None),
        (MAINTENANCE, f"{ALLOCATION}.exclude._name"),
    ),
    "a node without a vote": (
        put(f"{VOTING}?node_names=nobody", None, "POST"),
        put(f"{VOTING}?wait_for_removal=false", None, "DELETE"),
        (MAINTENANCE, "voting exclusions"),
    ),
    "a copy that its node may not have again": (
        ruled(**{f"{FILTERED}.exclude._name": "es3"}),
        put("/kept", None, "DELETE"),
        NOT_BACK,
    ),
    "a tag that was changed under started copies": (
        ruled(**{f"{FILTERED}.require.box": "cold"}),
        put("/kept", None, "DELETE"),
        NOT_BACK,
    ),
    "what a shrink by hand left": (
        ruled(**{f"{FILTERED}.require._name": "es1", "blocks.write": True}),
        put("/kept", None, "DELETE"),
        NOT_BACK,
    ),
}
"""What an operator did, what undoes it, and the predicate and subject that hold a run."""


def untouched(lab: LabCluster, before: Truth) -> None:
    """Nothing at all was changed."""
    after = truth(lab)
    assert (after.starts, after.lives, after.settings) == (before.starts, before.lives, before.settings)
    assert after.leases == ()


@pytest.mark.proves("no-replicas")
def test_a_hold_is_found_before_any_change(
    process_cluster: ProcessCluster, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    lab = process_cluster(QUICKEST)
    prepare(lab)
    for what, (done, undone, hold) in HOLDS.items():
        with subtests.test(what=what):
            done(lab)
            lab.wait_ready()
            before = truth(lab)
            code, lines = restart(lab, tmp_path, playbook={"deadlines": {"hold": "5s"}})
            assert code == 3, lines[-1]
            assert hold in held_by(lines)
            untouched(lab, before)
        undone(lab)


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
    before, only = prepare(lab), first(lab)
    with agent(lab, tmp_path):
        waiting = {"configuration_management": "hold", "deadlines": {"hold": "12s"}}
        code, lines = restart(lab, tmp_path, playbook=waiting)
        assert code == 3, lines[-1]
        assert {name for name, _ in held_by(lines)} == {"no_management_run_on_candidates"}
        assert "puppet (process " in str(lines[-1]), lines[-1]
        untouched(lab, before)
        code, lines = restart(lab, tmp_path, "--only", only)
        assert code == 0, lines[-1]
    assert_restarted_once(lab, before, nodes=[only])


def test_what_is_accepted_or_yellow_for_ever_does_not_hold(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    """A copy that can never be placed is not waited for; an added replica is taken away again."""
    lab = process_cluster(QUICKEST)
    before, only = prepare(lab), first(lab)
    index("bare")(lab)
    index("yellow", shards=1, replicas=4)(lab)
    accept = {"zero_replica_indices": {"accept": ["bare"]}}
    code, lines = restart(lab, tmp_path, "--only", only, playbook=accept)
    assert code == 0, lines[-1]
    assert events(lines, "rescued") == []
    put("/yellow", None, "DELETE")(lab)
    assert_restarted_once(lab, before, nodes=[only])

    before, only = truth(lab), first(lab)
    code, lines = restart(lab, tmp_path, "--only", only, playbook={"zero_replica_indices": "add_replica"})
    assert code == 0, lines[-1]
    assert len(events(lines, "replicas_added")) == 1
    found = lab.client.ask("GET", "/bare/_settings")["bare"]["settings"]["index"]["number_of_replicas"]
    assert found == "0"
    assert_restarted_once(lab, before, nodes=[only])

    ruled(**{f"{FILTERED}.require.box": "cold"})(lab)
    before, only = truth(lab), first(lab)
    accept = {"zero_replica_indices": {"accept": ["bare"]}, "accept": {"not_returning": ["kept"]}}
    code, lines = restart(lab, tmp_path, "--only", only, playbook=accept)
    assert code == 0, lines[-1]
    assert "kept" in str(lines[-1]), lines[-1]
    put("/kept", None, "DELETE")(lab)
    assert_restarted_once(lab, before, nodes=[only])


@pytest.mark.proves("last-reading")
def test_the_last_reading_sees_a_new_index_on_the_candidate(
    process_cluster: ProcessCluster, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    race = {"moment": "flush", "node": first(lab), "endpoint": lab.endpoints[0]}
    code, lines = restart(lab, tmp_path, playbook={"deadlines": {"hold": "5s"}}, race=race)
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
    race = {"moment": "stop", "node": first(lab), "endpoint": lab.endpoints[0]}
    code, lines = restart(lab, tmp_path, "--pause-after", "1", race=race)
    rescued = events(lines, "rescued")
    assert [line["shards"] for line in rescued] == [[f"[{INDEX}][0]"]], lines[-1]
    assert code == 9, lines[-1]
    health = lab.client.ask("GET", f"/_cluster/health/{INDEX}")
    assert health["status"] == "green"
    assert_put_back(lab, before)


def first(lab: LabCluster) -> str:
    """The node that a run takes first: by name, the elected master last."""
    state = lab.client.ask("GET", "/_cluster/state/nodes,master_node")
    master = state["nodes"][state["master_node"]]["name"]
    return next(node.name for node in lab.nodes if node.name != master)
