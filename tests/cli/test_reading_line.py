"""What a terminal shows while a cluster and its hosts are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyte
import pytest

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.runtime.store import StateStore
from orchestrator.runtime.waiting import SystemClock
from tests.cli.console import Console, Terminal
from tests.cli.runs import DEAD_PROCESS, RUN, entry, events_of

CAN = {"TERM": "xterm-256color"}


def on_screen(written: str) -> list[str]:
    """The lines that a terminal shows at the end."""
    screen = pyte.Screen(200, 50)
    pyte.Stream(screen).feed(written.replace("\n", "\r\n"))
    return [line.rstrip() for line in screen.display if line.strip()]


@pytest.mark.parametrize("command", ["plan", "validate", "status"])
def test_what_is_read_is_shown_and_removed(
    console: Console, store: StateStore, file: str, command: str
) -> None:
    there = replace(console, environment=CAN)
    events = [
        replace(event, cluster_file=file) if not n else event for n, event in enumerate(events_of("lab"))
    ]
    store.create_run(entry(RUN, DEAD_PROCESS)).append(events[: len(events) // 2], 1.0)
    words = (command, "--cluster", file)
    said, usual = there.run(*words, seen=True), console.run(*words)
    assert "reading cluster lab" in said.err
    assert not [line for line in on_screen(said.err) if "reading" in line]
    assert on_screen(said.err) == usual.err.splitlines()
    ago = re.compile(r"\d+m? ?\d*s? ago|\d\d:\d\d:\d\d|after .*")
    assert [ago.sub("", line) for line in said.out.splitlines()] == [
        ago.sub("", line) for line in usual.out.splitlines()
    ]


@pytest.mark.parametrize(
    ("environment", "output"),
    [
        ({}, Output.TEXT),
        ({"TERM": "dumb"}, Output.TEXT),
        (CAN | {"CI": "true"}, Output.TEXT),
        (CAN, Output.PLAIN),
        (CAN, Output.JSON),
    ],
)
def test_other_terminals_get_nothing(environment: dict[str, str], output: Output) -> None:
    context = _context(environment, output)
    with context.reading("cluster prod"):
        context.note("a note")
    assert context.err.getvalue() == "a note\n"  # type: ignore[attr-defined]  # a Terminal


def test_a_note_is_beside_the_line() -> None:
    """Without colours, too: the cursor is moved all the same."""
    for colours in ({}, {"NO_COLOR": "1"}):
        context = _context(CAN | colours, Output.TEXT)
        with context.reading("cluster \x1b[2Jprod"):
            context.note("warning: one endpoint does not answer")
            with context.reading("what is due"):
                pass
            assert context.line._live is not None
        assert on_screen(context.err.getvalue()) == ["warning: one endpoint does not answer"]  # type: ignore[attr-defined]  # a Terminal
        assert "\x1b[2J" not in context.err.getvalue()  # type: ignore[attr-defined]  # a Terminal
        assert "what is due" not in context.err.getvalue()  # type: ignore[attr-defined]  # a Terminal


def _context(environment: dict[str, str], output: Output) -> Context:
    return Context(
        environment=environment,
        home=Path("/nowhere"),
        clock=SystemClock(),
        output=output,
        out=Terminal(),
        err=Terminal(),
    )
