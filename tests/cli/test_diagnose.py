"""`orchestrate diagnose` as a user meets it: what it says, what it exits with."""

from __future__ import annotations

import json
from typing import Any

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
    said = of_hosts(console, file, "--output", "json", "--only", "es[12]")
    summary = said.lines[-1]
    assert summary["examined"] == ["es1", "es2"]
    assert said.code == (3 if summary["findings"] else 0)
    assert said.err == "read 2 of 2 hosts\nsampling for 1s …\nread them again\n"
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
