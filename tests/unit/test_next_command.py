"""Commands that messages advise: one function makes each, and each can be typed as it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from orchestrator.cli.program import app
from orchestrator.next_command import next_command, without_password
from orchestrator.runtime.database import named_state
from tests.unit.sources import SOURCES, modules

pytestmark = SOURCES

GROUP = get_command(app)
COMMANDS = sorted(getattr(GROUP, "commands", {}), key=len, reverse=True)
EXPLAINED = {
    "config/lookup.py",  # the name of the command alone: no run and no state is meant
    "config/elasticsearch.py",  # texts of keys
    "config/riak.py",
    "config/management.py",
    "config/playbook_parts.py",
    "config/policy.py",
    "config/which_file.py",
    "diagnosis/findings.py",
    "tuning/tunable.py",  # written into files on hosts
    "tuning/boot.py",
    "tuning/undoing.py",  # within the output of `tune revert`
    "around/silence.py",  # the comment of a silence
    "runs/first_file.py",  # written into cluster files
    "runs/files.py",
    "view/text.py",  # knows one in a note, to break it where a shell may
    "airflow/attempt.py",  # names a command that was run
}
"""Modules that name a command to explain it."""


def test_no_module_composes_a_command_line_of_its_own() -> None:
    typed = re.compile(rf"`?\borchestrate (?:{'|'.join(COMMANDS)}|$)")
    found = {module.name for module in modules() if any(typed.search(text) for _, text in module.texts)}
    of_hosts = {"tuning/tuning_script.py", "hosts/connections/frame.py", "view/tuning.py"}
    assert found - of_hosts == EXPLAINED


def advised() -> Iterator[tuple[str, ...]]:
    """The words of each advised command in the source; what is known only at work is a word of its kind."""
    for name, (verb, *words) in (call for module in modules() for call in module.calls if call[1]):
        if name in {"next_command", "command", "on_cluster"} and (verb or "").split(" ")[0] in COMMANDS:
            cluster = ["--cluster", "prod"] if name == "on_cluster" else []
            yield (str(verb), *(word or "es1" for word in words), *cluster)


def test_the_program_takes_each_command_that_it_advises(subtests: pytest.Subtests) -> None:
    commands = sorted(set(advised()))
    verbs = {words[0] for words in commands}
    assert {"resume", "restore", "status", "stop", "history", "tune revert", "validate", "apply"} <= verbs
    for words in commands:
        with subtests.test(" ".join(words)):
            _taken((*words, "FILE") if words[-1] == "--out" else words)


def _taken(words: tuple[str, ...]) -> None:
    """With the state, where it has one. What a person has to add (a cluster, a file) may be missing."""
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


def test_next_command_quotes_what_has_to_be() -> None:
    line = next_command("restore", "--cluster", "my prod.yml", state="sqlite:////mnt/a b/state.db")
    assert line == "orchestrate restore --cluster 'my prod.yml' --state 'sqlite:////mnt/a b/state.db'"
    assert next_command("tune revert", "--cluster", "prod") == "orchestrate tune revert --cluster prod"


def test_without_password_no_password_is_printed(subtests: pytest.Subtests) -> None:
    for url, shown in [
        ("postgresql+psycopg://ann:s3cret@db/state", "postgresql+psycopg://ann:***@db/state"),
        ("postgresql://ann:p:w/1@db/state", "postgresql://ann:***@db/state"),
        (
            "postgresql://db/state?user=a&password=s3cret&sslmode=on",
            "postgresql://db/state?user=a&password=***&sslmode=on",
        ),
        ("postgresql://ann@db/state", "postgresql://ann@db/state"),
        ("sqlite:////var/a:b@c/state.db", "sqlite:////var/a:b@c/state.db"),
    ]:
        with subtests.test(url):
            assert without_password(url) == shown
            assert "s3cret" not in next_command("status", state=url)


def test_named_state_is_empty_in_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_state(None, {}) == ""
    here = f"sqlite:///{tmp_path}/state.db"
    assert named_state("sqlite:///state.db", {}) == here
    assert named_state(None, {"ORCHESTRATE_STATE": here}) == here
    whole = "postgresql+psycopg://ann:s3cret@db/state"
    assert named_state(None, {"ORCHESTRATE_STATE": whole}) == "", "the next command finds it there too"
    assert named_state(whole, {}) == "postgresql+psycopg://ann:***@db/state"
