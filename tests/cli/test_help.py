"""Help: groups, one example a command that does what it says, and lines that fit a terminal."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from orchestrator.cli import main
from orchestrator.cli.other_commands import Reached, Store
from orchestrator.cli.program import COMMANDS, GROUPS
from orchestrator.model.host import Connect
from orchestrator.model.policy import Kind
from orchestrator.next_command import shell_lines
from orchestrator.runtime import signals
from tests.cli.command_lines import LEAVES
from tests.cli.console import Console

WORDS = {"--yes": "question", "--watch": "watch", "--reboot": "reboot", "--exclude": "without|but"}
WORDS |= {"--only": "only", "--skip": "without", "--to": "install|upgrade", "--pause-after": "pause"}
"""What a sentence says of an option; of another option it has the value."""
WITHOUT_OPTIONS = {"pause", "stop", "restore", "notify test", "explain"}
"""Their example has only what the command is for."""


def test_each_command_is_in_one_group_of_the_help(console: Console) -> None:
    listed = [name for group in GROUPS.values() for name in group]
    assert sorted(listed) == sorted(COMMANDS) == sorted(set(listed))
    shown = console.run("--help").out
    for title, group in GROUPS.items():
        lines = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines] == list(group), title
    assert list(GROUPS)[:3] == ["Before a restart", "Restart", "A run in progress, or one that ended early"]


def test_an_example_is_what_its_sentence_says(subtests: pytest.Subtests) -> None:
    """Its command takes it; each value and option is in the sentence; options are there at all."""
    assert {"restart", "tune check", "explain"} <= set(LEAVES)
    for name, command in LEAVES.items():
        with subtests.test(command=name):
            said, line = command.example
            words = shlex.split(line)
            assert words[: 1 + len(name.split())] == ["orchestrate", *name.split()]
            given = words[1 + len(name.split()) :]
            context = command.make_context(name, list(given))
            assert context.args == []
            assert context.params
            options = [word for word in given if word.startswith("--")]
            assert (set(options) <= {"--cluster"}) is (name in WITHOUT_OPTIONS)
            for option in options:
                assert re.search(WORDS.get(option, ""), said), option
            values = {value for word in given if not word.startswith("--") for value in word.split(",")}
            for value in values - {"prod"}:
                assert re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", said), value


def test_help_ends_with_the_example(console: Console) -> None:
    for name, command in LEAVES.items():
        *_, last = console.run(*name.split(), "--help").out.rstrip().split("\n\n")
        assert last.startswith("For example, "), name
        shown = last.partition(":\n")[2].replace("\\\n", " ")
        assert shlex.split(shown) == shlex.split(command.example[1]), name


def test_what_is_declared_twice_to_load_fast_is_the_same() -> None:
    assert [one.value for one in Reached] == [one.value for one in Connect]
    assert [one.value for one in Store] == [one.value for one in Kind]
    assert main.CAUGHT == signals.CAUGHT


def test_a_long_command_line_is_broken_before_an_option() -> None:
    line = "orchestrate restart --cluster prod --only 'es 1'"
    assert shell_lines(line, 80, indent=2) == [f"  {line}"]
    assert shell_lines(line, 38, indent=2) == [
        "  orchestrate restart --cluster prod \\",
        "    --only 'es 1'",
    ]


@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits_a_terminal_and_breaks_no_word(console: Console, columns: int) -> None:
    narrow = replace(console, environment={"COLUMNS": f"{columns}"})
    wide = replace(console, environment={"COLUMNS": "1000"})
    for name in ("", "tune", "notify", *LEAVES):
        shown = narrow.run(*name.split(), "--help").out
        assert max(map(len, shown.splitlines())) <= columns, name
        assert _words(shown) == _words(wide.run(*name.split(), "--help").out), name


def _words(text: str) -> list[str]:
    return [word for word in text.split() if word != "\\"]
