"""`orchestrate upgrade`, `plan --to` and `rehearse --to` on a small cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said
from tests.cli.small_cluster import NODES, SmallCluster
from tests.fakes.scripted_http import reply

STEPS: list[dict[str, Any]] = [
    {"run": "install --version {version}"},
    {"run": "plugins {node}", "as_root": False},
]
TO = ("--to", "8.19.5")


def write_book(console: Console, **keys: Any) -> Path:
    """The playbook with this `upgrade`."""
    path = console.folder / "book.yml"
    path.write_text(json.dumps({"kind": "elasticsearch", "upgrade": {"install": STEPS, **keys}}))
    return path


@pytest.fixture
def book(console: Console, cluster: SmallCluster) -> Path:
    """The playbook of the cluster file."""
    path = write_book(console)
    cluster.write_file(console.folder, hosts={"together": "never"}, playbook=str(path))
    return path


def plan(console: Console, *words: str) -> Said:
    return console.run("plan", "--cluster", "lab.yml", *TO, "--output", "json", *words)


def upgrade(console: Console, *words: str) -> Said:
    return console.run("upgrade", "--cluster", "lab.yml", *words)


@pytest.mark.usefixtures("book")
def test_a_plan_has_the_version_and_every_step(console: Console, cluster: SmallCluster) -> None:
    said = plan(console)
    assert (said.code, said.plan["holds"], said.err) == (ExitCode.DONE, [], "")
    assert (said.plan["version"], said.plan["target_version"]) == ("8.19.0", "8.19.5")
    assert said.plan["owed"] == {node: ["version"] for node in NODES}
    assert said.plan["other_versions"] == {}
    of_es2 = [(step["action"], step["detail"]) for step in said.plan["steps"] if step["target"] == "es2"]
    assert of_es2 == [
        ("stop", "true"),
        ("install", "install --version 8.19.5"),
        ("install", "plugins es2"),
        ("start", "true"),
    ]
    dry = upgrade(console, *TO, "--dry-run", "--output", "json")
    assert (dry.code, dry.plan["fingerprint"]) == (ExitCode.DONE, said.plan["fingerprint"])
    assert {asked.method for asked in cluster.asked} == {"GET"}
    shown = console.run("plan", "--cluster", "lab.yml", *TO, "--only", "es1", "--steps")
    assert "lab · Elasticsearch 8.19.0 · 1 node · rolling upgrade to 8.19.5, node by node\n" in shown.out
    assert "Mixed versions after this run: es2 8.19.0, es3 8.19.0.\n" in shown.out
    assert "install --version 8.19.5" in shown.out


@pytest.mark.usefixtures("book")
def test_nodes_that_run_the_version_are_left_alone(console: Console, cluster: SmallCluster) -> None:
    assert plan(console, "--due", "version:8.19.0").nodes == []
    cluster.upgrade("es2", "8.19.5")
    said = plan(console)
    assert (said.code, said.nodes) == (ExitCode.DONE, ["es1", "es3"])
    assert said.err == "left out, since they run 8.19.5 already: es2\n"
    said = plan(console, "--started-before", "1d", "--only", "es2")
    assert (said.code, said.nodes) == (ExitCode.DONE, [])
    assert "nothing to upgrade: no selected node started before" in said.err
    assert said.err.endswith("and is to be upgraded to 8.19.5\n")
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    nothing = "lab: nothing to upgrade: every selected node runs 8.19.5\n"
    said = plan(console)
    assert (said.code, said.nodes, said.err) == (ExitCode.DONE, [], nothing)
    said = upgrade(console, *TO, "--yes")
    assert (said.code, said.err) == (ExitCode.DONE, f"✓ {nothing}")
    assert {asked.method for asked in cluster.asked} == {"GET"}


@pytest.mark.usefixtures("book")
def test_a_node_without_a_plugin_is_not_upgraded_yet(console: Console, cluster: SmallCluster) -> None:
    write_book(console, plugins=["analysis-icu"])
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    assert plan(console).nodes == list(NODES)
    cluster.plugins = ("analysis-icu", "repository-x")
    said = plan(console)
    nothing = "lab: nothing to upgrade: every selected node runs 8.19.5 with analysis-icu\n"
    assert (said.nodes, said.err) == ([], nothing)


@pytest.mark.usefixtures("book")
def test_no_node_is_newer_holds_and_no_wait_clears_it(console: Console, cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "8.19.9")
    said = plan(console)
    (newer,) = [hold for hold in said.plan["holds"] if hold["predicate"] == "no_node_is_newer"]
    assert (said.code, "es2" in newer["evidence"]) == (ExitCode.HELD, True)
    shown = console.run("plan", "--cluster", "lab.yml", *TO).out
    assert "Waiting cannot clear it: a run ends at once, with code 3.\nMore: orchestrate explain no_" in shown
    assert "No waves: the run ends before the first.\n" in shown


@pytest.mark.usefixtures("book")
def test_a_server_without_deprecations_is_no_dead_end(console: Console, cluster: SmallCluster) -> None:
    """Nothing can be corrected there, so the way is another run, with the flag that the hold names."""
    cluster.on("/_migration/deprecations", reply({"error": "no handler found for uri"}, status=400))
    to = ("--to", "9.1.0")
    said = upgrade(console, *to, "--yes")
    flag = "--disable-predicate no_critical_deprecations=deprecations"
    assert said.code == ExitCode.HELD
    assert "read its list of breaking changes instead\n" in said.out
    assert "begin another run, with the options of this one:\n" in said.out
    again = f"upgrade --cluster {console.folder}/lab.yml --to 9.1.0 {flag} --state {console.url}"
    assert said.out.splitlines()[-1] == f"    orchestrate {again}"
    held = console.run("plan", "--cluster", "lab.yml", *to)
    assert (held.code, flag in held.out) == (ExitCode.HELD, True)
    assert console.run("plan", "--cluster", "lab.yml", *to, *flag.split()).code == ExitCode.DONE


@pytest.mark.usefixtures("book")
def test_a_deprecation_can_be_corrected_and_is_resumed(console: Console, cluster: SmallCluster) -> None:
    listed = {"level": "critical", "message": "node.x is gone", "url": ""}
    found = {"cluster_settings": [listed], "node_settings": [], "index_settings": {}}
    cluster.on("/_migration/deprecations", reply(found))
    said = upgrade(console, "--to", "9.1.0", "--yes")
    assert said.code == ExitCode.HELD
    assert "correct what holds it (a resumed run keeps its playbook), then continue:\n" in said.out
    assert said.out.splitlines()[-1].startswith("    orchestrate resume ")
    assert "--disable-predicate" not in said.out


def test_a_saved_plan_keeps_the_upgrade(console: Console, cluster: SmallCluster, book: Path) -> None:
    assert console.run("plan", "--cluster", "lab.yml", *TO, "--out", "plan.json").code == ExitCode.DONE
    book.write_text("kind: elasticsearch\n")
    saved = json.loads((console.folder / "plan.json").read_text())
    assert saved["policy"]["upgrade"]["target"] == "8.19.5"
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    said = console.run("apply", "plan.json", "--yes")
    assert said.code == ExitCode.PLAN_MISMATCH
    assert "needs an upgrade to 8.19.5 any more" in said.err


@pytest.mark.usefixtures("book")
def test_a_rehearsal_upgrades_the_simulation(console: Console) -> None:
    said = console.run("rehearse", "--cluster", "lab.yml", *TO, "--seed", "0", "--output", "json")
    assert said.code == ExitCode.DONE, said
    assert sorted(one["node"] for one in said.lines if one["event"] == "upgraded") == list(NODES)
    assert "rehearsing an upgrade to 8.19.5 of 3 nodes" in said.err
    said = console.run("rehearse", "--snapshot", "snapshot.json", *TO)
    assert said.code == ExitCode.USAGE
    assert "a snapshot holds its run" in said.err
