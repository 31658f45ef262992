"""`orchestrate diagnose` as a user meets it: what it says, what it exits with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from tests.cli.console import REPOSITORY
from tests.cli.small_cluster import SmallCluster

DATA = REPOSITORY / "tests" / "data"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{tmp_path}/state.db")


def _lines(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_an_incident_is_shown_with_numbers_advice_and_tunable(capsys: Capture) -> None:
    assert run(["diagnose", "--from", str(DATA / "incidents" / "zone-reclaim")]) == 3
    said = capsys.readouterr().out
    head, row = said.splitlines()[:2]
    assert head.split() == ["SYNDROME", "NODE", "ON", "CONFIDENCE", "TUNABLE", "EVIDENCE"]
    assert row.split()[:5] == ["direct_reclaim", "zone-reclaim", "host", "certain", "vm.zone_reclaim_mode"]
    assert "  scanned by direct reclaim: 1,210,314 pages/s  (usual: below 10000)\n" in said
    assert "  do: Set vm.zone_reclaim_mode to 0" in said


def test_all_incidents_at_once_are_one_host_each(capsys: Capture) -> None:
    assert run(["diagnose", "--from", str(DATA / "incidents"), "--output", "json"]) == 3
    *lines, summary = _lines(capsys)
    named = {line["node"]: line["syndrome"] for line in lines if line["event"] == "finding"}
    assert named == {
        "numad": "numad_page_moves",
        "zone-reclaim": "direct_reclaim",
        "thp-hadoop": "thp_compaction",
        "thp-profile": "thp_compaction",
        "fragmentation": "fragmented_memory",
        "erlang-busy-wait": "busy_waiting_schedulers",
    }
    assert (summary["event"], summary["outcome"], summary["exit_code"]) == ("summary", "held", 3)
    assert summary["findings"] == 6


def test_a_line_of_json_holds_all_of_a_finding(capsys: Capture) -> None:
    assert run(["diagnose", "--from", str(DATA / "incidents" / "numad"), "--output", "json"]) == 3
    line = _lines(capsys)[0]
    assert {line["event"], line["confidence"], line["tunable"]} == {"finding", "certain", "numad"}
    assert (line["run"], line["node"], line["nodes"]) == (None, "numad", ["numad"])
    longest = {"name": "longest move (java 32434 to NUMA node 0)", "value": 177.1, "unit": "s"}
    assert {**longest, "usual": "below 1"} in line["evidence"]


def test_healthy_hosts_yield_nothing_and_it_says_so(capsys: Capture) -> None:
    assert run(["diagnose", "--from", str(DATA / "healthy" / "compile")]) == 0
    said = capsys.readouterr().out
    assert said == "nothing found: none of the 7 known syndromes; 1 host read (compile)\n"


def test_a_record_that_holds_little_is_not_called_healthy(capsys: Capture) -> None:
    assert run(["diagnose", "--from", str(DATA / "healthy" / "thp-never")]) == 0
    said = capsys.readouterr().out
    assert "nothing found in what could be looked at" in said
    assert "direct_reclaim" in said


def test_the_hosts_of_a_cluster_are_sampled(cluster: SmallCluster, tmp_path: Path, capsys: Capture) -> None:
    # This machine is whatever it is: what counts is that it was read and that the code says what was found.
    code = run(["diagnose", "--cluster", cluster.write_file(tmp_path), "--sample", "1s", "--output", "json"])
    said = capsys.readouterr()
    summary = json.loads(said.out.splitlines()[-1])
    assert summary["examined"] == ["es1", "es2", "es3"]
    assert code == (3 if summary["findings"] else 0)
    assert said.err == "read 3 of 3 hosts\nsampling for 1s …\nread them again\n"
    assert not (tmp_path / "state.db").exists(), "a diagnosis writes nothing"


def test_a_host_that_cannot_be_read_is_told_and_is_exit_code_4(
    cluster: SmallCluster, tmp_path: Path, capsys: Capture
) -> None:
    gone = {"connect": "ssh", "address": "127.0.0.1", "port": 1}
    file = cluster.write_file(tmp_path, hosts={"overrides": {"es3": gone}})
    assert run(["diagnose", "--cluster", file, "--sample", "1s"]) == 4
    said = capsys.readouterr().out
    assert "NOT READ: es3: " in said
    assert "none of the" not in said


def test_nodes_can_be_chosen_and_a_wrong_name_is_refused(
    cluster: SmallCluster, tmp_path: Path, capsys: Capture
) -> None:
    file = cluster.write_file(tmp_path)
    assert run(["diagnose", "--cluster", file, "--sample", "1s", "--only", "es[12]"]) in {0, 3}
    assert "es3" not in capsys.readouterr().out
    assert run(["diagnose", "--cluster", file, "--only", "es9"]) == 2
    assert capsys.readouterr().err == "orchestrate: no node is called es9; there are es1, es2, es3\n"


def test_a_cluster_without_answer_is_diagnosed_by_its_hosts(tmp_path: Path, capsys: Capture) -> None:
    hosts: dict[str, Any] = {"connect": "local", "sudo": False, "service": {"unit": "x"}}
    document = {"kind": "elasticsearch", "name": "lab", "endpoints": ["http://127.0.0.1:1"], "hosts": hosts}
    file = tmp_path / "lab.yml"
    file.write_text(json.dumps(document))
    assert run(["diagnose", "--cluster", str(file), "--sample", "1s"]) == 2
    assert "`address` in `hosts.overrides`" in capsys.readouterr().err
    hosts["overrides"] = {"es1": {"address": "127.0.0.1"}, "data*": {"address": "10.0.0.1"}}
    file.write_text(json.dumps(document))
    assert run(["diagnose", "--cluster", str(file), "--sample", "1s"]) in {0, 3}
    said = capsys.readouterr()
    assert "es1" in said.out
    assert "warning: the cluster cannot be read" in said.err


BOUNDS = "must be 1s to 10m: less is noise, and more is monitoring"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "diagnose needs either --cluster or --from; see `orchestrate diagnose --help`"),
        (
            "--cluster x --from y",
            "diagnose needs either --cluster or --from; see `orchestrate diagnose --help`",
        ),
        (
            "--cluster x --sample 11m",
            "--sample 11m: must be 1s to 10m: less is noise, and more is monitoring",
        ),
        ("--cluster x --sample 0s", "--sample 0s: must be 1s to 10m: less is noise, and more is monitoring"),
        (
            "--cluster x --sample 10",
            "--sample 10: must be a duration with its unit, such as 90s, 10m, 8h or 30d",
        ),
        ("--from /nowhere/at/all", "--from /nowhere/at/all: there is no such folder"),
    ],
)
def test_a_wrong_command_line_is_told(line: str, message: str, capsys: Capture) -> None:
    assert run(["diagnose", *line.split()]) == 2
    assert capsys.readouterr().err == f"orchestrate: {message}\n"


def test_a_file_that_is_no_record_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "notes.txt").write_text("all quiet\n")
    assert run(["diagnose", "--from", str(tmp_path)]) == 2
    assert "notes.txt is no record of" in capsys.readouterr().err
