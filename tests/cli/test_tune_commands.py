"""`orchestrate tune` as it is typed: this machine is read for real, and nothing on it is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import ValueChange
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.ledger import Tuning
from orchestrator.runtime.store import StateStore
from orchestrator.tuning.boot import script_text
from tests.cli.console import Console, Said
from tests.cli.runs import leave, record_of
from tests.cli.small_cluster import SmallCluster

# Hosts in containers have this machine's kernel, whose values their tests change.
pytestmark = pytest.mark.xdist_group("hosts")
SWAPPINESS = Path("/proc/sys/vm/swappiness")
RUNNING = SWAPPINESS.read_text().strip()
OTHER = "7" if RUNNING != "7" else "8"
"""A value that the machine does not have."""
NOWHERE = "http://127.0.0.1:1"


def tune(console: Console, verb: str, *more: str) -> Said:
    """Nothing of this machine is changed by it."""
    said = console.run("tune", verb, "--cluster", "lab.yml", *more)
    assert SWAPPINESS.read_text().strip() == RUNNING
    return said


def profile(
    console: Console, value: str = OTHER, tunable: str = "vm.swappiness", **keys: object
) -> tuple[str, str]:
    wanted = {"applies_to": "elasticsearch", "settings": {tunable: value}, "persist": False, **keys}
    (console.folder / "wanted.yml").write_text(json.dumps(wanted))
    return ("--profile", "./wanted.yml")


def record(store: StateStore) -> None:
    """A change of this machine in the ledger, which was never made."""
    change = ValueChange(path=str(SWAPPINESS), found=RUNNING, wanted=OTHER)
    tuning = Tuning(node=NodeName("es1"), tunable="vm.swappiness", changes=(change,), operator="anna")
    store.ledger("lab").record(tuning, 1.0)


@pytest.mark.usefixtures("file")
def test_check_of_hosts_that_are_right(console: Console) -> None:
    said = tune(console, "check", *profile(console, RUNNING))
    out = said.out.splitlines()
    assert said.code == ExitCode.DONE
    assert out[1].split()[:4] == ["es1,", "es2,", "es3", "vm.swappiness"]
    assert out[1].split()[-1] == "ok"
    assert out[-1] == "every host is as the profile wants it"
    assert not console.state.exists()


def test_a_node_that_is_down_is_missed(console: Console, cluster: SmallCluster) -> None:
    """Its host was left out without a word: it is no member, and the file does not name it."""
    cluster.write_file(console.folder, expect={"nodes": 4})
    said = tune(console, "check", *profile(console, RUNNING))
    few = "3 nodes known, 4 expected (`expect.nodes`): the hosts of nodes that are down are not among these"
    assert (said.code, said.err) == (ExitCode.DONE, f"warning: {few}\n")


@pytest.mark.usefixtures("file")
def test_check_names_drift_in_json(console: Console) -> None:
    nodes = ("--only", "es[12]", "--exclude", "es2")
    said = tune(console, "check", *profile(console), "--output", "json", *nodes)
    state, summary = said.lines
    assert said.code == ExitCode.HELD
    assert (state["event"], state["node"], state["verdict"]) == ("tunable", "es1", "drift")
    assert (state["running"], state["wanted"]) == (RUNNING, OTHER)
    change = {"change": "value", "path": str(SWAPPINESS), "found": RUNNING, "wanted": OTHER}
    assert state["changes"] == [change]
    assert (summary["outcome"], summary["exit_code"], summary["drifted"]) == ("held", 3, ["es1"])
    assert (summary["profile"], summary["hosts"], summary["unreachable"]) == ("wanted", 1, [])


@pytest.mark.usefixtures("file")
def test_the_script_is_the_one_that_is_installed_at_boot(console: Console) -> None:
    wanted = profile(console, persist=True)
    said = tune(console, "check", *wanted, "--output", "script", "--only", "es1")
    assert (said.code, said.out) == (ExitCode.HELD, script_text(""))
    assert "es1: /etc/orchestrate-tuning/lab+es1.part\n" in said.err
    assert f"parameter vm.swappiness {OTHER}\n" in said.err


@pytest.mark.usefixtures("file")
def test_the_shipped_profile_is_that_of_the_kind(console: Console) -> None:
    said = tune(console, "check", "--output", "json")
    *states, summary = said.lines
    assert said.code in {ExitCode.DONE, ExitCode.HELD}
    assert summary["profile"] == "elasticsearch"
    named = {line["tunable"] for line in states}
    assert {"transparent_hugepage.enabled", "io_scheduler", "vm.max_map_count", "numad"} <= named
    assert all(line["changes"] for line in states if line["verdict"] == "drift")


def test_a_cluster_that_is_down_has_the_hosts_of_its_file(console: Console, cluster: SmallCluster) -> None:
    cluster.write_file(console.folder, endpoints=[NOWHERE])
    said = tune(console, "check", *profile(console, RUNNING))
    assert said.code == ExitCode.USAGE
    assert "it is unknown which hosts are meant" in said.err
    overrides = {"es1": {"user": "a"}, "es9": {"connect": "ssh"}, "es*": {"user": "b"}}
    cluster.write_file(console.folder, hosts={"overrides": overrides}, endpoints=[NOWHERE])
    said = tune(console, "check", *profile(console, RUNNING))
    assert said.code == ExitCode.FAILED
    assert "warning: cluster lab cannot be read" in said.err
    assert "the hosts are those that" in said.err
    first, *_, last = said.out.splitlines()[1:]
    assert (first.split()[0], first.split()[-1]) == ("es1", "ok")
    assert "NOT REACHED: es9: its address is not known: name it under `hosts.overrides`" in said.out
    assert last == "unreachable: es9"


@pytest.mark.usefixtures("file")
def test_a_run_that_holds_the_cluster_bars_apply_and_revert(
    console: Console, cluster: SmallCluster, store: StateStore
) -> None:
    """By the lease in the state database, and by that of another machine in the cluster."""
    lease = record_of("run-9", str(current_process()))
    store.lease("uuid").create(lease)
    record(store)
    for place in ("state", "cluster"):
        if place == "cluster":
            store.lease("uuid").remove(1)
            leave(cluster, lease)
        for words in (("apply", *profile(console)), ("revert",)):
            said = tune(console, *words, "--yes")
            assert said.code == ExitCode.LEASED
            assert "another run holds the lease on lab: run run-9 of ben@here" in said.err


@pytest.mark.usefixtures("file")
def test_revert_without_a_state_is_no_proof_that_nothing_is_owed(console: Console) -> None:
    """As `restore`, `resume` and `status` have it: what was done may be in a state that was lost."""
    said = tune(console, "revert", "--yes")
    assert said.code == ExitCode.USAGE
    assert f"state file {console.state}: there is no such file; " in said.err
    assert said.err.endswith("only in the state of the machine that tuned the hosts: name it by --state\n")
    assert "orchestrate restore" not in said.err, "it restores no tuning"


@pytest.mark.usefixtures("file")
def test_revert_of_a_change_that_was_never_made(console: Console, store: StateStore) -> None:
    """Killed between the ledger and the change: the host shows what was found, and nothing is sent to it."""
    said = tune(console, "revert", "--output", "json")
    assert (said.code, said.lines[-1]["outcome"]) == (ExitCode.DONE, "done")
    assert "lab: nothing to restore" in said.err
    record(store)
    said = tune(console, "revert", "--yes")
    assert said.code == ExitCode.DONE
    assert "/proc/sys/vm/swappiness: it has its original value, nothing to restore" in said.out
    assert store.ledger("lab").owed() == {}
