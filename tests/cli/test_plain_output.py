"""`--output plain`: lines on a terminal too, without colours, drawn lines and a moving cursor."""

from __future__ import annotations

import io
from pathlib import Path

from orchestrator.cli.context import Context, _reporter
from orchestrator.cli.options import Output
from orchestrator.cli.work.tune import show_states
from orchestrator.model.cluster import NodeName
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, TunableState, Verdict
from orchestrator.runs.connection import Watched
from orchestrator.runtime.waiting import SystemClock
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


def test_hosts_are_in_brief_on_a_terminal_and_a_table_elsewhere() -> None:
    ok, drift = (
        TunableState(tunable=name, wanted="1", running=running, at_boot="1", verdict=verdict)
        for name, running, verdict in (("a", "1", Verdict.OK), ("b", "60", Verdict.DRIFT))
    )
    good, bad = HostTuning(states=(ok,)), HostTuning(states=(ok, drift))
    found = {NodeName("es1"): good, NodeName("es2"): bad, NodeName("es3"): Unknown(reason="no route")}
    said = {}
    for output in (Output.TEXT, Output.PLAIN):
        context = _context(output)
        show_states(found, context)
        said[output] = context.out.getvalue().splitlines()  # type: ignore[attr-defined]  # a Terminal
    assert said[Output.TEXT] == [
        "ok   1 host as wanted: a",
        "BAD  es2          b            running 60, at next boot 1, wanted 1",
        "BAD  es3          NOT REACHED  no route",
    ]
    assert said[Output.PLAIN] == [
        "host  tunable  wanted  running  at next boot  verdict",
        "es1   a        1       1        1             ok",
        "es2   a        1       1        1             ok",
        "es2   b        1       60       1             DRIFT",
        "es3   -        -       -        -             NOT REACHED: no route",
    ]


def test_nothing_that_is_not_right_is_left_out_in_brief() -> None:
    def state(verdict: Verdict, detail: str, *, overridden: bool = False) -> TunableState:
        return TunableState(
            tunable="a",
            wanted="1",
            running="1",
            at_boot="1",
            verdict=verdict,
            detail=detail,
            overridden=overridden,
        )

    rows = {
        "BAD  es1          a            UNKNOWN: no file": state(Verdict.UNKNOWN, "no file"),
        "BAD  es1          a            es2 has 2": state(Verdict.OK, "es2 has 2", overridden=True),
        "-    es1          a            at its next start": state(Verdict.OK, "at its next start"),
        "-    es1          a            not applicable: no numad": state(Verdict.NOT_APPLICABLE, "no numad"),
    }
    for line, one in rows.items():
        context = _context(Output.TEXT)
        show_states({NodeName("es1"): HostTuning(states=(one,))}, context)
        assert line in context.out.getvalue().splitlines()  # type: ignore[attr-defined]  # a Terminal
