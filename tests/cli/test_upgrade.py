"""`orchestrate upgrade`, `plan --to` and `rehearse --to` on a small cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.small_cluster import NODES, SmallCluster
from tests.fakes.scripted_http import reply

STEPS: list[dict[str, Any]] = [
    {"run": "install --version {version}"},
    {"run": "plugins {node}", "as_root": False},
]


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


class Files:
    """A cluster file, and its playbook with this `upgrade`."""

    def __init__(self, console: Console, cluster: SmallCluster) -> None:
        self.playbook = console.folder / "book.yml"
        self.cluster = cluster.write_file(
            console.folder, hosts={"together": "never"}, playbook=str(self.playbook)
        )
        self.write()

    def write(self, **keys: Any) -> None:
        upgrade = {"install": STEPS, **keys}
        self.playbook.write_text(json.dumps({"kind": "elasticsearch", "upgrade": upgrade}))


@pytest.fixture
def files(console: Console, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    return Files(console, cluster)


class Plans:
    """`plan --to …` of this cluster file."""

    def __init__(self, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
        self._files, self._capsys = files, capsys

    def __call__(self, *words: str, to: str = "8.19.5") -> tuple[int, dict[str, Any], str]:
        """The exit code, the plan, and what was said beside it."""
        code = run(["plan", "--cluster", self._files.cluster, "--to", to, "--output", "json", *words])
        said = self._capsys.readouterr()
        lines: list[dict[str, Any]] = [json.loads(line) for line in said.out.splitlines()]
        return code, next((line for line in lines if line["event"] == "plan"), {}), said.err


@pytest.fixture
def plans(files: Files, capsys: pytest.CaptureFixture[str]) -> Plans:
    return Plans(files, capsys)


def _nodes(plan: dict[str, Any]) -> list[str]:
    return sorted(node for wave in plan["waves"] for node in wave["nodes"])


def test_a_plan_has_the_version_and_every_step(plans: Plans, cluster: SmallCluster) -> None:
    code, plan, said = plans()
    assert (code, plan["holds"], said) == (ExitCode.DONE, [], "")
    assert (plan["version"], plan["target_version"]) == ("8.19.0", "8.19.5")
    assert plan["owed"] == {node: ["version"] for node in NODES}
    assert plan["other_versions"] == {}
    of_es2 = [(step["action"], step["detail"]) for step in plan["steps"] if step["target"] == "es2"]
    assert of_es2 == [
        ("stop", "true"),
        ("install", "install --version 8.19.5"),
        ("install", "plugins es2"),
        ("start", "true"),
    ]
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_the_plan_for_people(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--cluster", files.cluster, "--to", "8.19.5", "--only", "es1")
    assert run(words) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "Plan for lab: Elasticsearch 8.19.0, upgrade to 8.19.5, strategy node\n" in said
    assert "mixed versions after this run: es2 8.19.0, es3 8.19.0\n" in said
    assert "install --version 8.19.5" in said


def test_a_dry_run_shows_the_same_plan(
    files: Files, plans: Plans, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("upgrade", "--cluster", files.cluster, "--to", "8.19.5", "--dry-run", "--output", "json")
    assert run(words) == ExitCode.DONE
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert shown["fingerprint"] == plans()[1]["fingerprint"]


def test_nodes_that_run_the_version_are_left_alone(plans: Plans, cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "8.19.5")
    code, plan, said = plans()
    assert (code, _nodes(plan)) == (ExitCode.DONE, ["es1", "es3"])
    assert said == "left out, since they run 8.19.5 already: es2\n"


def test_a_second_run_finds_nothing_to_do(
    files: Files, plans: Plans, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    nothing = "lab: nothing to upgrade: every selected node runs 8.19.5\n"
    code, plan, said = plans()
    assert (code, _nodes(plan), said) == (ExitCode.DONE, [], nothing)
    assert run(["upgrade", "--cluster", files.cluster, "--to", "8.19.5", "--yes"]) == ExitCode.DONE
    assert capsys.readouterr().err == nothing
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_a_node_without_a_plugin_is_not_upgraded_yet(
    files: Files, plans: Plans, cluster: SmallCluster
) -> None:
    files.write(plugins=["analysis-icu"])
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    assert _nodes(plans()[1]) == list(NODES)
    cluster.plugins = ("analysis-icu", "repository-x")
    _, plan, said = plans()
    assert (_nodes(plan), said) == (
        [],
        "lab: nothing to upgrade: every selected node runs 8.19.5 with analysis-icu\n",
    )


def test_due_and_age_narrow_an_upgrade(plans: Plans, cluster: SmallCluster) -> None:
    assert _nodes(plans("--due", "version:8.19.0")[1]) == []
    cluster.upgrade("es2", "8.19.5")
    code, plan, said = plans("--started-before", "1d", "--only", "es2")
    assert (code, _nodes(plan)) == (ExitCode.DONE, [])
    assert "nothing to upgrade: no selected node started before" in said
    assert said.endswith("and is to be upgraded to 8.19.5\n")


def test_a_node_that_is_newer_holds(plans: Plans, cluster: SmallCluster) -> None:
    cluster.upgrade("es2", "8.19.9")
    code, plan, _ = plans()
    assert code == ExitCode.HELD
    (newer,) = [hold for hold in plan["holds"] if hold["predicate"] == "no_node_is_newer"]
    assert "es2" in newer["evidence"]


def test_a_plan_says_that_waiting_does_not_help(
    files: Files, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.upgrade("es2", "8.19.9")
    assert run(["plan", "--cluster", files.cluster, "--to", "8.19.5"]) == ExitCode.HELD
    said = capsys.readouterr().out
    assert "Waiting cannot clear no_node_is_newer: a run ends at once, with code 3.\n" in said
    assert "No waves: the run ends before the first.\n" in said


def test_a_server_without_deprecations_is_no_dead_end(
    files: Files, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was to be corrected, and then resumed: neither could be done."""
    cluster.versions = dict.fromkeys(NODES, "8.19.0")
    cluster.on("/_migration/deprecations", reply({"error": "no handler found for uri"}, status=400))
    words = ["upgrade", "--cluster", files.cluster, "--to", "9.1.0", "--yes"]
    assert run(words) == ExitCode.HELD
    said = capsys.readouterr().out
    flag = "--disable-predicate no_critical_deprecations=deprecations"
    assert f"read its list of breaking changes instead; another run passes it with {flag}\n" in said
    assert "this run keeps its policy: begin another run, with what the hold names\n" in said
    assert "orchestrate resume" not in said
    assert run(["plan", *words[1:-1]]) == ExitCode.HELD
    assert flag in capsys.readouterr().out
    assert run(["plan", *words[1:-1], *flag.split()]) == ExitCode.DONE


def test_what_a_person_can_correct_is_still_resumed(
    files: Files, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A deprecation can be corrected, and the run continues; its policy stays."""
    listed = {"level": "critical", "message": "node.x is gone", "url": ""}
    found = {"cluster_settings": [listed], "node_settings": [], "index_settings": {}}
    cluster.on("/_migration/deprecations", reply(found))
    assert run(["upgrade", "--cluster", files.cluster, "--to", "9.1.0", "--yes"]) == ExitCode.HELD
    said = capsys.readouterr().out
    assert "correct what holds it, then continue: orchestrate resume " in said
    assert "needs another run\n" in said
    assert "--disable-predicate" not in said


def test_a_saved_plan_keeps_the_upgrade(
    files: Files, cluster: SmallCluster, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = console.folder / "plan.json"
    words = ["plan", "--cluster", files.cluster, "--to", "8.19.5", "--out", str(saved)]
    assert run(words) == ExitCode.DONE
    files.playbook.write_text("kind: elasticsearch\n")
    assert json.loads(saved.read_text())["policy"]["upgrade"]["target"] == "8.19.5"
    for node in NODES:
        cluster.upgrade(node, "8.19.5")
    capsys.readouterr()
    assert run(["apply", str(saved), "--yes"]) == ExitCode.PLAN_MISMATCH
    assert "needs an upgrade to 8.19.5 any more" in capsys.readouterr().err


def test_a_rehearsal_upgrades_the_simulation(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rehearse", "--cluster", files.cluster, "--to", "8.19.5", "--seed", "0", "--output", "json"]
    code = run(words)
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.out.splitlines()]
    assert code == ExitCode.DONE, said
    assert sorted(one["node"] for one in events if one["event"] == "upgraded") == list(NODES)
    assert "rehearsing an upgrade to 8.19.5 of 3 nodes" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "9"), "--to 9: must be a version with three numbers, such as 9.1.0"),
        (("--to", "latest"), "--to latest: must be a version with three numbers"),
        (("--to", "v9.1.0"), "--to v9.1.0: must be a version with three numbers"),
        (("--to", ""), "--to : must be a version with three numbers"),
        (("--to", "9.1.0; reboot"), "must be a version with three numbers"),
        (("--to", "9.1.0", "--begin-anyway"), "--begin-anyway: not for an upgrade"),
        ((), "Missing option '--to'"),
    ],
)
def test_bad_flags_are_refused_before_the_cluster_is_read(
    words: tuple[str, ...],
    message: str,
    files: Files,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["upgrade", "--cluster", files.cluster, "--yes", *words]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert cluster.asked == []


def test_a_playbook_without_commands_is_refused(
    files: Files, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    files.playbook.write_text("kind: elasticsearch\n")
    assert run(["upgrade", "--cluster", files.cluster, "--to", "8.19.5", "--yes"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"orchestrate: {files.playbook}: `upgrade.install` is missing: ")
    assert "apt-get install -y -q elasticsearch={version}" in said
    assert cluster.asked == []


def test_a_snapshot_of_a_rehearsal_has_its_version(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rehearse", "--snapshot", str(console.folder / "snapshot.json"), "--to", "8.19.5"]
    assert run(words) == ExitCode.USAGE
    assert "a snapshot holds its run" in capsys.readouterr().err
