"""Options and commands that do not exist, and lists with commas."""

from __future__ import annotations

import shlex

import pytest

from orchestrator.cli.suggest import _ELSEWHERE, suggested
from orchestrator.errors import ExitCode
from tests.cli.command_lines import LEAVES
from tests.cli.console import Console


def test_what_is_meant_by_a_wrong_word(subtests: pytest.Subtests) -> None:
    known = (
        "--only",
        "--exclude",
        "--dry-run",
        "--disable-predicate",
        "--yes",
        "--max-unavailable",
        "--zone",
    )
    for word, *meant in [
        ("--nodes", "--only"),
        ("--zones", "--zone"),
        ("--dry", "--dry-run"),
        ("--DRY_RUN", "--dry-run"),
        ("--force", "--disable-predicate", "--yes"),
        ("-y", "--yes"),
        ("--onli", "--only"),
        ("--exlcude", "--exclude"),
        ("--max-u", "--max-unavailable"),
        ("--bogus",),
        ("-",),
        ("-x",),
        ("--d",),
    ]:
        with subtests.test(word=word):
            assert suggested(word, known) == tuple(meant)


@pytest.mark.parametrize("value", ["", ",", "es1,", " ,es1", "es1,,es2"])
def test_an_empty_name_is_refused_before_anything_is_read(console: Console, value: str) -> None:
    """A variable of a script that is not set names nothing, and not everything."""
    for option, line in [
        ("--skip", "resume --yes"),
        ("--only", "restart --yes --cluster none"),
        ("--exclude", "plan --cluster none"),
        ("--in-service", "restore --cluster none"),
        ("--host", "serve"),
    ]:
        said = console.run(*line.split(), option, value)
        assert (said.code, said.out) == (ExitCode.USAGE, "")
        named = f"{option} {shlex.quote(value)}: a name is empty; name each, as in a,b"
        assert said.err == f"orchestrate: {named}\n"


def test_each_word_of_other_tools_is_for_an_option_that_exists() -> None:
    """And is no option of the same command."""
    known = {option for command in LEAVES.values() for each in command.params for option in each.opts}
    meant = {name for name in _ELSEWHERE if name.startswith("--")}
    assert meant - known == {"--help", "--version"}
    assert {name for name in _ELSEWHERE if not name.startswith("--")} <= set(LEAVES)
    for name, command in LEAVES.items():
        options = {option for each in command.params for option in each.opts}
        assert [one for one in options if suggested(one, options) != (one,)] == [], name


def test_a_list_with_commas_is_taken_wherever_a_name_is(subtests: pytest.Subtests) -> None:
    for line, name, values in [
        ("restart --cluster c --only es1,es2 --only es3", "only", ["es1", "es2", "es3"]),
        ("restart --cluster c --exclude es[1,2],x*", "exclude", ["es[1,2]", "x*"]),
        ("tune check --cluster c --only es1,es2", "only", ["es1", "es2"]),
        ("diagnose --cluster c --only es1,es2", "only", ["es1", "es2"]),
        ("resume --skip es1,es2", "skip", ["es1", "es2"]),
        ("restore --cluster c --in-service es1,es2", "in_service", ["es1", "es2"]),
        ("serve --host a,b", "host", ["a", "b"]),
        ("restart --cluster c --due config,version:9.1.0", "due", ["config", "version:9.1.0"]),
        (
            "plan --cluster c --disable-predicate gates_open=a,b,no_old_tasks,cluster_not_red=x",
            "disable_predicate",
            ["gates_open=a,b", "no_old_tasks", "cluster_not_red=x"],
        ),
        ("resume --accept-alert A{x=y,z=1}", "accept_alert", ["A{x=y,z=1}"]),
        ("restart --cluster c", "only", None),
    ]:
        with subtests.test(line=line):
            command = next(each for each in sorted(LEAVES, reverse=True) if line.startswith(each))
            context = LEAVES[command].make_context(command, line.removeprefix(command).split())
            assert context.params[name] == values
