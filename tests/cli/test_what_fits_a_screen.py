"""A plan with its question, `validate` and `rehearse` as a terminal shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.cli.program import COMMANDS
from orchestrator.errors import ExitCode
from tests.cli.console import Console, Said


@pytest.fixture
def terminal(console: Console) -> Console:
    return replace(console, environment={"COLUMNS": "80", "TERM": "xterm"})


def fits(said: Said, lines: int) -> Iterator[str]:
    """Its lines; a path that is longer than a line has one of its own."""
    shown = said.out.splitlines()
    wide = [line for line in shown if len(line) > 80 and " " in line.strip()]
    assert (len(shown) <= lines, wide) == (True, []), said.out
    return iter(shown)


def test_the_question_is_right_under_the_verdict(terminal: Console, file: str) -> None:
    said = terminal.run("restart", "--cluster", file, typed="n\n")
    *above, verdict, question = fits(said, 24)
    assert above[0] == "lab · Elasticsearch 8.19.0 · 3 nodes · rolling restart, node by node"
    assert verdict.startswith("Ready: all 25 checks pass. 3 waves, predicted ")
    assert question.startswith("Restart 3 nodes of lab? [y/N]")
    assert "PUT /_cluster/settings" not in said.out


def test_the_commands_alone_fit_a_screen(terminal: Console) -> None:
    for columns in ("60", "80"):
        said = replace(terminal, environment={"COLUMNS": columns}).run(typed="")
        assert said.code == ExitCode.DONE
        shown = list(fits(said, 23))
        assert set(COMMANDS) <= set(re.findall(r"[\w-]+", said.out))
        assert max(map(len, shown)) <= int(columns)


def test_a_state_that_cannot_be_written_is_refused_first(terminal: Console, file: str) -> None:
    """Before the cluster is read, and before the question."""
    nowhere = f"sqlite:///{terminal.home}/none/state.db"
    said = terminal.run("restart", "--cluster", file, "--state", nowhere, typed="y\n")
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    assert "its folder is not there; make it first" in said.err
    folder = terminal.home / "folder"
    folder.mkdir()
    said = terminal.run("restart", "--cluster", file, "--state", f"sqlite:///{folder}", typed="y\n")
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    said = terminal.run("restart", "--cluster", file, typed="n\n")
    assert said.out
    assert not terminal.state.exists(), "a no creates nothing"


def test_steps_are_shown_where_they_are_wanted(terminal: Console, file: str) -> None:
    for words in (("plan",), ("restart", "--dry-run")):
        brief, full = (
            terminal.run(*words, "--cluster", file, *more, typed="") for more in ((), ("--steps",))
        )
        assert (brief.code, full.code) == (ExitCode.DONE, ExitCode.DONE)
        assert ("Steps, " in brief.out, "Steps, as a run would send them:\n" in full.out) == (False, True)
        assert ("sha256:" in brief.out, "sha256:" in full.out) == (False, True)
        assert brief.out.splitlines()[-1] == full.out.splitlines()[-1], "the verdict"
    one, other = (
        terminal.run("plan", "--cluster", file, "--output", "json", *more) for more in ((), ("--steps",))
    )
    assert one.plan["steps"] == other.plan["steps"] != []


def test_lines_for_a_pipe_are_not_wrapped(terminal: Console, file: str) -> None:
    assert max(map(len, terminal.run("plan", "--cluster", file, "--steps").out.splitlines())) > 120


def test_validate_counts_the_hosts_that_are_ready(terminal: Console, file: str) -> None:
    brief = terminal.run("validate", "--cluster", file, typed="")
    lines = list(fits(brief, 24))
    assert sum(line.startswith("ok   3 hosts ready: ") for line in lines) == 1
    assert lines[-1].startswith("Ready for a restart: all ")
    every = terminal.run("validate", "--cluster", file, "--verbose", typed="").out.splitlines()
    assert len(every) > len(lines)
    assert every[-1] == lines[-1]


def test_a_rehearsal_shows_how_far_it_is(terminal: Console, file: str) -> None:
    """On a line that changes, where the terminal can and gets no log."""
    words = ("rehearse", "--cluster", file, "--seed", "0")
    for console, more, typed, shown in (
        (terminal, (), "", True),
        (terminal, ("--verbose",), "", False),
        (terminal, ("--output", "plain"), "", False),
        (terminal, (), None, False),
        (replace(terminal, environment={"TERM": "dumb"}), (), "", False),
    ):
        said = console.run(*words, *more, typed=typed)
        assert said.code == ExitCode.DONE
        assert (" of 3 nodes restarted, " in said.out, "\x1b[" in said.out) == (shown, shown)
        assert ("wave 1: finished" in said.out) is ("--verbose" in more)


def test_a_plain_terminal_shows_it_at_times(
    terminal: Console, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.work.rehearse._SPEAKS_EVERY", 0.0)
    words = ("rehearse", "--cluster", file, "--seed", "0", "--output", "plain")
    for typed, shown in (("", True), (None, False)):
        said = terminal.run(*words, typed=typed)
        assert (" of 3 nodes restarted, " in said.err, "\x1b" in said.out + said.err) == (shown, False)
