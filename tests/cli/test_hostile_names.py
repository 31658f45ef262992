"""Hooks on a cluster with a name that a shell could read as code: refused before anything begins."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

NAME = "$(touch canary) 'x"
REFUSED = """the name "$(touch canary) 'x" is not plain"""
FORM = 'Rename the node, or write "$ORCHESTRATE_NODE" in place of `{node}`'


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster(("es1", NAME, "es3")) as server:
        yield server


def planned(console: Console, cluster: SmallCluster, hook: str, *words: str) -> int:
    book = console.folder / "book.yml"
    hooks = {"before_stop": [{"run": hook, "local": True}]}
    book.write_text(json.dumps({"kind": "elasticsearch", "hooks": hooks}))
    file = cluster.write_file(console.folder, playbook=str(book))
    return run([*words, "--cluster", file, "--state", f"sqlite:///{console.state}"])


@pytest.mark.parametrize("words", [("plan",), ("restart", "--yes"), ("restart", "--dry-run")], ids=" ".join)
@pytest.mark.parametrize("hook", ["depool '{node}'", "sh -c 'depool {node}'"])
def test_a_hook_with_the_name_in_it_is_refused(
    console: Console,
    cluster: SmallCluster,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    hook: str,
) -> None:
    assert planned(console, cluster, hook, *words) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert REFUSED in said
    assert f"`{hook}`. {FORM}" in said


def test_the_variable_is_planned_and_an_edited_plan_refused(
    console: Console, cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = console.folder / "plan.json"
    hook = "sh -c 'depool \"$ORCHESTRATE_NODE\"'"
    assert planned(console, cluster, hook, "plan", "--out", str(plan)) == ExitCode.DONE
    assert "ORCHESTRATE_NODE='$(touch canary) '\"'\"'x'; export ORCHESTRATE_NODE; " in capsys.readouterr().out
    plan.write_text(plan.read_text().replace(r"depool \"$ORCHESTRATE_NODE\"", "depool {node}"))
    assert run(["apply", str(plan), "--yes", "--state", f"sqlite:///{console.state}"]) == ExitCode.USAGE
    assert FORM in capsys.readouterr().err
