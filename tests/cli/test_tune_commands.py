"""`orchestrate tune` as it is typed: this machine is read for real, and nothing on it is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.hosts.tuning.boot_files import script_text
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.tuning import ValueChange
from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.ledger import Tuning
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.stores.elasticsearch.lease import lease_body
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

SWAPPINESS = Path("/proc/sys/vm/swappiness")


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def file(console: Console, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    monkeypatch.chdir(console.folder)
    return cluster.write_file(console.folder)


def profile(console: Console, value: str, tunable: str = "vm.swappiness", *, persist: bool = False) -> str:
    path = console.folder / "wanted.yml"
    wanted = {"applies_to": "elasticsearch", "settings": {tunable: value}, "persist": persist}
    path.write_text(json.dumps(wanted))
    return str(path)


def running() -> str:
    return SWAPPINESS.read_text().strip()


def other() -> str:
    """A value that the machine does not have."""
    return "7" if running() != "7" else "8"


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def store_of(console: Console) -> StateStore:
    return open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)


def check(file: str, wanted: str, *more: str) -> int:
    return run(["tune", "check", "--cluster", file, "--profile", wanted, *more])


def test_hosts_that_are_right(file: str, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file, profile(console, running())) == ExitCode.DONE
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[:4] == ["es1,", "es2,", "es3", "vm.swappiness"]
    assert out[1].split()[-1] == "ok"
    assert out[-1] == "every host is as the profile wants it"
    assert not console.state.exists()


def test_drift_in_json(file: str, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = profile(console, other())
    assert check(file, wanted, "--output", "json", "--only", "es[12]", "--exclude", "es2") == ExitCode.HELD
    state, summary = lines(capsys)
    assert (state["event"], state["node"], state["verdict"]) == ("tunable", "es1", "drift")
    assert (state["running"], state["wanted"]) == (running(), other())
    change = {"change": "value", "path": str(SWAPPINESS), "found": running(), "wanted": other()}
    assert state["changes"] == [change]
    assert (summary["outcome"], summary["exit_code"], summary["drifted"]) == ("held", 3, ["es1"])
    assert (summary["profile"], summary["hosts"], summary["unreachable"]) == ("wanted", 1, [])


def test_the_script_is_the_one_that_is_installed_at_boot(
    file: str, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = profile(console, other(), persist=True)
    assert check(file, wanted, "--output", "script", "--only", "es1") == ExitCode.HELD
    said = capsys.readouterr()
    assert said.out == script_text("")
    assert "es1: /etc/orchestrate-tuning/lab+es1.part\n" in said.err
    assert f"parameter vm.swappiness {other()}\n" in said.err


def test_the_shipped_profile_is_that_of_the_kind(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["tune", "check", "--cluster", file, "--output", "json"])
    told = lines(capsys)
    assert code in (ExitCode.DONE, ExitCode.HELD)
    assert told[-1]["profile"] == "elasticsearch"
    named = {line["tunable"] for line in told[:-1]}
    assert {"transparent_hugepage.enabled", "io_scheduler", "vm.max_map_count", "numad"} <= named
    assert all(line["changes"] for line in told[:-1] if line["verdict"] == "drift")


def test_a_cluster_that_is_down_has_the_hosts_of_its_file(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = {"es1": {"user": "a"}, "es9": {"connect": "ssh"}, "es*": {"user": "b"}}
    file = cluster.write_file(
        console.folder, hosts={"overrides": overrides}, endpoints=["http://127.0.0.1:1"]
    )
    assert check(file, profile(console, running())) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "warning: cluster lab cannot be read" in said.err
    assert "the hosts are those that" in said.err
    rows = [line.split() for line in said.out.splitlines()[1:-1]]
    assert (rows[0][0], rows[0][-1]) == ("es1", "ok")
    assert "NOT REACHED: es9: its address is not known: name it under `hosts.overrides`" in said.out
    assert said.out.splitlines()[-1] == "unreachable: es9"


def test_a_cluster_that_is_down_and_names_no_host(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cluster.write_file(console.folder, endpoints=["http://127.0.0.1:1"])
    assert check(file, profile(console, running())) == ExitCode.USAGE
    assert "it is unknown which hosts are meant" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "apply"])
def test_bad_profiles(
    file: str, console: Console, cluster: SmallCluster, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for make, says in (
        (lambda: "nothing", "there is no tuning profile 'nothing'"),
        (lambda: "./no.yml", "there is no such tuning profile file"),
        (lambda: profile(console, "much"), 'wanted.yml:1: settings["vm.swappiness"]'),
        (lambda: profile(console, "1", "vm.swapiness"), "unknown tunable"),
    ):
        wanted = make()
        command = ["tune", verb, "--cluster", file, "--profile", wanted, "--output", "json"]
        assert run([*command, *(["--yes"] if verb == "apply" else [])]) == ExitCode.USAGE
        said = capsys.readouterr()
        assert says in said.err
        assert json.loads(said.out)["exit_code"] == ExitCode.USAGE
    assert cluster.asked == []


def test_a_node_that_is_none(file: str, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file, profile(console, running()), "--only", "es7") == ExitCode.USAGE
    assert capsys.readouterr().err == "orchestrate: no node is called es7; there is es1, es2, es3\n"


def test_without_a_terminal_and_without_yes_nothing_is_changed(
    file: str, console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = running()
    assert run(["tune", "apply", "--cluster", file, "--profile", profile(console, other())]) == ExitCode.USAGE
    said = f"there is no terminal for the question: check with `orchestrate tune check --cluster {file} "
    assert said in capsys.readouterr().err
    assert cluster.asked == []
    assert running() == before


def test_a_run_that_holds_the_cluster_bars_apply_and_revert(
    file: str, console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the lease in the state database, and by that of another machine in the cluster."""
    record = LeaseRecord(
        epoch=1, run="run-9", owner="ben@there", process=str(current_process()), started="2026-11-02"
    )
    store = store_of(console)
    store.lease("uuid").create(record)
    change = ValueChange(path=str(SWAPPINESS), found=running(), wanted=other())
    tuning = Tuning(node=NodeName("es1"), tunable="vm.swappiness", changes=(change,), operator="anna")
    store.ledger("lab").record(tuning, 1.0)
    apply = ["tune", "apply", "--cluster", file, "--profile", profile(console, other()), "--yes"]
    revert = ["tune", "revert", "--cluster", file, "--yes"]
    before = running()
    for command in (apply, revert):
        assert run(command) == ExitCode.LEASED
        assert "another run holds the lease on lab: run run-9 of ben@there" in capsys.readouterr().err
    store.lease("uuid").remove(1)
    store.close()
    cluster.templates["orchestrate-lease-1"] = json.loads(json.dumps(lease_body(record)))
    for command in (apply, revert):
        assert run(command) == ExitCode.LEASED
    assert running() == before


def test_a_missing_state_is_no_proof_that_nothing_is_owed(
    file: str, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `restore`, `resume` and `status` have it: what was done may be in a state that was lost."""
    assert run(["tune", "revert", "--cluster", file, "--yes"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"state file {console.state}: there is no such file; " in said
    assert said.endswith("only in the state of the machine that tuned the hosts: name it by --state\n")
    assert "orchestrate restore" not in said, "it restores no tuning"


def test_nothing_is_owed(file: str, console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    store_of(console).close()
    assert run(["tune", "revert", "--cluster", file, "--output", "json"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert "lab: nothing to restore" in said.err
    assert json.loads(said.out)["outcome"] == "done"


def test_a_change_that_was_never_made_is_written_off(
    file: str, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed between the ledger and the change: the host shows what was found, and nothing is sent to it."""
    store = store_of(console)
    change = ValueChange(path=str(SWAPPINESS), found=running(), wanted=other())
    tuning = Tuning(node=NodeName("es1"), tunable="vm.swappiness", changes=(change,), operator="anna")
    store.ledger("lab").record(tuning, 1.0)
    before = running()
    assert run(["tune", "revert", "--cluster", file, "--yes"]) == ExitCode.DONE
    assert "/proc/sys/vm/swappiness: it has its original value, nothing to restore" in capsys.readouterr().out
    assert (running(), store.ledger("lab").owed()) == (before, {})
    store.close()


def test_the_group_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--help"]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert all(verb in said for verb in ("check", "apply", "revert"))
    assert run(["tune"]) == ExitCode.DONE
    assert capsys.readouterr() == (said, "")
    assert run(["tune", "mend"]) == ExitCode.USAGE


def test_a_profile_for_another_store_is_refused(
    console: Console, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = console.folder / "ring.yml"
    path.write_text(json.dumps({"applies_to": "riak", "settings": {"vm.swappiness": "0"}}))
    assert run(["tune", "check", "--cluster", file, "--profile", str(path)]) == ExitCode.USAGE
    assert "ring is for riak" in capsys.readouterr().err
