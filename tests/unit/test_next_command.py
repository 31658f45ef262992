"""Commands that messages advise: one function makes each, and each can be typed as it is printed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from orchestrator.cli.program import app
from orchestrator.next_command import next_command, without_password
from orchestrator.runtime.database import named_state

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "orchestrator").rglob("*.py"))
GROUP = get_command(app)
COMMANDS = "|".join(sorted(getattr(GROUP, "commands", {}), key=len, reverse=True))
EXPLAINED = {
    "cli/work/explain.py",  # the reference of exit codes; a run is named RUN
    "view/phrases.py",  # the glossary
    "config/lookup.py",  # the name of the command alone: no run and no state is meant
    "config/playbook.py",
    "config/policy.py",
    "config/which_file.py",
    "diagnosis/outlier.py",
    "hosts/tunables/own_files.py",  # written into files on hosts
    "hosts/tuning/boot_files.py",
    "hosts/undoing.py",  # within the output of `tune revert`
    "runs/drafting.py",  # written into cluster files
    "runs/files.py",
    "airflow/attempt.py",  # names a command that was run
}
"""Modules that name a command to explain it."""


def literals(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_no_module_composes_a_command_line_of_its_own() -> None:
    typed = re.compile(rf"`?\borchestrate (?:{COMMANDS}|$)")
    found = {
        str(path.relative_to(ROOT / "orchestrator"))
        for path in MODULES
        if any(map(typed.search, literals(path)))
    }
    of_hosts = {"hosts/tuning_script.py", "hosts/connections/openssh/frame.py", "view/tuning.py"}
    assert found - of_hosts == EXPLAINED


def advised() -> Iterator[tuple[str, ...]]:
    """The words of each advised command in the source; what is known only at work is a word of its kind."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"next_command", "command", "on_cluster"} and node.args and _verb(node.args[0]):
                words = [
                    w.value if isinstance(w, ast.Constant) else "es1"
                    for w in node.args[1:]
                    if not isinstance(w, ast.Starred)
                ]
                cluster = ["--cluster", "prod"] if name == "on_cluster" else []
                yield (_verb(node.args[0]), *map(str, words), *cluster)


def _verb(node: ast.expr) -> str:
    found = node.value if isinstance(node, ast.Constant) else ""
    return found if isinstance(found, str) and found.split(" ")[0] in COMMANDS.split("|") else ""


@pytest.mark.parametrize("words", sorted(set(advised())), ids=" ".join)
def test_the_program_takes_each_command_that_it_advises(words: tuple[str, ...]) -> None:
    """And with the state, where it has one. What a person has to add (a cluster, a file) may be missing."""
    words = (*words, "FILE") if words[-1] == "--out" else words
    state = () if words[0] in {"init", "validate", "explain", "rehearse", "diagnose"} else ("--state", "s")
    given = [*words[0].split(), *words[1:], *state]
    line = next_command(words[0], *words[1:], state="s" if state else "")
    assert shlex.split(line) == ["orchestrate", *given]
    command, arguments = GROUP, given
    while (inner := getattr(command, "commands", None)) is not None:
        command, arguments = inner[arguments[0]], arguments[1:]
    if "--help" not in arguments:
        parsed = command.make_context(given[0], list(arguments), resilient_parsing=True)
        assert parsed.args == []


def test_there_are_commands_to_look_at() -> None:
    verbs = {words[0] for words in advised()}
    assert {"resume", "restore", "status", "stop", "history", "tune revert", "validate", "apply"} <= verbs


def test_what_has_to_be_quoted_is_quoted() -> None:
    line = next_command("restore", "--cluster", "my prod.yml", state="sqlite:////mnt/a b/state.db")
    assert line == "orchestrate restore --cluster 'my prod.yml' --state 'sqlite:////mnt/a b/state.db'"
    assert next_command("tune revert", "--cluster", "prod") == "orchestrate tune revert --cluster prod"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://ann:s3cret@db/state", "postgresql+psycopg://ann:***@db/state"),
        ("postgresql://ann:p:w/1@db/state", "postgresql://ann:***@db/state"),
        (
            "postgresql://db/state?user=a&password=s3cret&sslmode=on",
            "postgresql://db/state?user=a&password=***&sslmode=on",
        ),
        ("postgresql://ann@db/state", "postgresql://ann@db/state"),
        ("sqlite:////var/a:b@c/state.db", "sqlite:////var/a:b@c/state.db"),
    ],
)
def test_no_password_is_printed(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "s3cret" not in next_command("status", state=url)


def test_the_state_is_named_where_it_is_not_in_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_state(None, {}) == ""
    here = f"sqlite:///{tmp_path}/state.db"
    assert named_state("sqlite:///state.db", {}) == here
    assert named_state(None, {"ORCHESTRATE_STATE": here}) == here
    whole = "postgresql+psycopg://ann:s3cret@db/state"
    assert named_state(None, {"ORCHESTRATE_STATE": whole}) == "", "the next command finds it there too"
    assert named_state(whole, {}) == "postgresql+psycopg://ann:***@db/state"
