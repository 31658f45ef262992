"""`--output plain`: lines on a terminal too, without colours, drawn lines and a moving cursor."""

from __future__ import annotations

import io
from pathlib import Path

from orchestrator.cli.context import Context, _reporter
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import show_rows
from orchestrator.model.policy import Kind
from orchestrator.runs.connection import Watched
from orchestrator.runtime.clock import SystemClock
from orchestrator.view.live import LiveReporter
from orchestrator.view.progress import NOTHING_SEEN
from orchestrator.view.reporters import LineReporter
from tests.cli.console import Terminal


def _context(output: Output) -> Context:
    return Context(
        environment={"TERM": "xterm-256color"},
        home=Path("/nowhere"),
        clock=SystemClock(),
        output=output,
        out=Terminal(),
        err=io.StringIO(),
    )


def test_a_run_on_a_terminal() -> None:
    watched = Watched(seen=lambda: NOTHING_SEEN, past=(), kind=Kind.ELASTICSEARCH)
    for output, kind in ((Output.TEXT, LiveReporter), (Output.PLAIN, LineReporter)):
        with _reporter(_context(output), watched) as reporter:
            assert isinstance(reporter, kind)
    assert [output.for_people for output in Output] == [True, True, False]


def test_a_table_on_a_terminal_has_no_drawn_lines() -> None:
    said = {}
    for output in (Output.TEXT, Output.PLAIN):
        context = _context(output)
        show_rows(("host", "verdict"), [("es1", "DRIFT")], context)
        said[output] = context.out.getvalue()  # type: ignore[attr-defined]  # a Terminal
    assert "\x1b" in said[Output.TEXT]
    assert said[Output.PLAIN] == "host  verdict\nes1   DRIFT\n"
