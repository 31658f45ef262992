"""Hooks on a cluster with a name that a shell could read as code: refused before anything begins."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said
from tests.cli.small_cluster import SmallCluster

NAME = "$(touch canary) 'x"
REFUSED = """the name "$(touch canary) 'x" is not plain"""
FORM = 'Rename the node, or write "$ORCHESTRATE_NODE" in place of `{node}`'


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster(("es1", NAME, "es3")) as server:
        yield server


def with_hook(console: Console, cluster: SmallCluster, hook: str, *words: str) -> Said:
    book = console.folder / "book.yml"
    hooks = {"before_stop": [{"run": hook, "local": True}]}
    book.write_text(json.dumps({"kind": "elasticsearch", "hooks": hooks}))
    return console.run(*words, "--cluster", cluster.write_file(console.folder, playbook=str(book)))


def test_a_hook_with_the_node_name_in_it_is_refused(
    console: Console, cluster: SmallCluster, subtests: pytest.Subtests
) -> None:
    for words in (("plan",), ("restart", "--yes"), ("restart", "--dry-run")):
        for hook in ("depool '{node}'", "sh -c 'depool {node}'"):
            with subtests.test(words=words, hook=hook):
                said = with_hook(console, cluster, hook, *words)
                assert (said.code, REFUSED in said.err) == (ExitCode.USAGE, True)
                assert f"`{hook}`. {FORM}" in said.err


def test_the_variable_is_planned_and_an_edited_plan_refused(console: Console, cluster: SmallCluster) -> None:
    hook = "sh -c 'depool \"$ORCHESTRATE_NODE\"'"
    said = with_hook(console, cluster, hook, "plan", "--out", "plan.json", "--steps")
    assert said.code == ExitCode.DONE
    assert "ORCHESTRATE_NODE='$(touch canary) '\"'\"'x'; export ORCHESTRATE_NODE; " in said.out
    plan = console.folder / "plan.json"
    plan.write_text(plan.read_text().replace(r"depool \"$ORCHESTRATE_NODE\"", "depool {node}"))
    said = console.run("apply", "plan.json", "--yes")
    assert (said.code, FORM in said.err) == (ExitCode.USAGE, True)
