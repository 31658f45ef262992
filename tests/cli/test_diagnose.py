"""`orchestrate diagnose` as a user meets it: what it says, what it exits with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.console import REPOSITORY, Console, Said
from tests.cli.small_cluster import SmallCluster

DATA = REPOSITORY / "tests" / "data"


def of_folder(console: Console, name: str, *more: str) -> Said:
    return console.run("diagnose", "--from", str(DATA / name), *more)


def of_hosts(console: Console, file: str, *more: str) -> Said:
    said = console.run("diagnose", "--cluster", file, "--sample", "1s", *more)
    assert not console.state.exists(), "a diagnosis writes nothing"
    return said


def test_an_incident_is_shown_with_numbers_advice_and_tunable(console: Console) -> None:
    said = of_folder(console, "incidents/zone-reclaim")
    assert said.code == 3
    head, row = said.out.splitlines()[:2]
    assert head.split() == ["SYNDROME", "NODE", "ON", "CONFIDENCE", "TUNABLE", "EVIDENCE"]
    assert row.split()[:5] == ["direct_reclaim", "zone-reclaim", "host", "certain", "vm.zone_reclaim_mode"]
    assert "  scanned by direct reclaim: 1,210,314 pages/s  (usual: below 10000)\n" in said.out
    assert "  do: Set vm.zone_reclaim_mode to 0" in said.out


def test_all_incidents_at_once_are_one_host_each(console: Console) -> None:
    said = of_folder(console, "incidents", "--output", "json")
    *lines, summary = said.lines
    named = {line["node"]: line["syndrome"] for line in lines if line["event"] == "finding"}
    assert named == {
        "numad": "numad_page_moves",
        "zone-reclaim": "direct_reclaim",
        "thp-hadoop": "thp_compaction",
        "thp-profile": "thp_compaction",
        "fragmentation": "fragmented_memory",
        "erlang-busy-wait": "busy_waiting_schedulers",
    }
    assert (summary["event"], summary["outcome"], summary["exit_code"]) == ("summary", "held", said.code)
    assert (said.code, summary["findings"]) == (3, 6)
    (numad,) = [line for line in lines if line.get("tunable") == "numad"]
    assert (numad["event"], numad["confidence"], numad["node"]) == ("finding", "certain", "numad")
    assert (numad["run"], numad["nodes"]) == (None, ["numad"])
    longest = {"name": "longest move (java 32434 to NUMA node 0)", "value": 177.1, "unit": "s"}
    assert {**longest, "usual": "below 1"} in numad["evidence"]


def test_nothing_found_is_healthy_only_if_all_was_read(console: Console) -> None:
    said = of_folder(console, "healthy/compile")
    nothing = "nothing found: none of the 7 known syndromes; 1 host read (compile)\n"
    assert (said.code, said.out) == (0, nothing)
    said = of_folder(console, "healthy/thp-never")
    assert (said.code, "direct_reclaim" in said.out) == (0, True)
    assert "nothing found in what could be looked at" in said.out


def test_the_hosts_of_a_cluster_are_sampled(console: Console, file: str) -> None:
    # This machine is whatever it is: what counts is that it was read and that the code says what was found.
    said = of_hosts(console, file, "--output", "json")
    summary = said.lines[-1]
    assert summary["examined"] == ["es1", "es2", "es3"]
    assert said.code == (3 if summary["findings"] else 0)
    assert said.err == "read 3 of 3 hosts\nsampling for 1s …\nread them again\n"
    said = of_hosts(console, file, "--only", "es[12]")
    assert (said.code in {0, 3}, "es3" in said.out) == (True, False)
    said = of_hosts(console, file, "--only", "es9")
    assert (said.code, said.message) == (2, "no node is called es9; there are es1, es2, es3")


def test_a_host_that_cannot_be_read_is_named_and_is_exit_code_4(
    console: Console, cluster: SmallCluster
) -> None:
    gone = {"connect": "ssh", "address": "127.0.0.1", "port": 1}
    said = of_hosts(console, cluster.write_file(console.folder, hosts={"overrides": {"es3": gone}}))
    assert (said.code, "NOT READ: es3: " in said.out, "none of the" in said.out) == (4, True, False)


def test_a_cluster_without_answer_is_diagnosed_by_its_hosts(console: Console) -> None:
    hosts: dict[str, Any] = {"connect": "local", "sudo": False, "service": {"unit": "x"}}
    document = {"kind": "elasticsearch", "name": "lab", "endpoints": ["http://127.0.0.1:1"], "hosts": hosts}
    file = console.folder / "lab.yml"
    file.write_text(json.dumps(document))
    said = of_hosts(console, "lab.yml")
    assert (said.code, "`address` in `hosts.overrides`" in said.err) == (2, True)
    hosts["overrides"] = {"es1": {"address": "127.0.0.1"}, "data*": {"address": "10.0.0.1"}}
    file.write_text(json.dumps(document))
    said = of_hosts(console, "lab.yml")
    assert (said.code in {0, 3}, "es1" in said.out) == (True, True)
    assert "warning: the cluster cannot be read" in said.err


def test_a_wrong_command_line_or_record_is_refused(console: Console, subtests: pytest.Subtests) -> None:
    notes = console.folder / "notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("all quiet\n")
    either = "diagnose needs either --cluster or --from; see `orchestrate diagnose --help`"
    bounds = "must be 1s to 10m: less is noise, and more is monitoring"
    unit = "must be a duration with its unit, such as 90s, 10m, 8h or 30d"
    for line, message in [
        ("", either),
        ("--cluster x --from y", either),
        ("--cluster x --sample 11m", f"--sample 11m: {bounds}"),
        ("--cluster x --sample 0s", f"--sample 0s: {bounds}"),
        ("--cluster x --sample 10", f"--sample 10: {unit}"),
        ("--from /nowhere/at/all", "--from /nowhere/at/all: there is no such folder"),
        ("--from notes", "notes.txt is no record of"),
    ]:
        with subtests.test(line=line):
            said = console.run("diagnose", *line.split())
            assert (said.code, message in said.message, said.err.count("\n")) == (2, True, 1)
