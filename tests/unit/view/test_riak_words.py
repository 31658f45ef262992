"""What is said of a Riak cluster: of vnodes and handoff, never of copies and allocation."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from orchestrator.model.event import BaselineRecorded, NodeRecovered, PhaseEntered, SecondFailure
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Kind
from orchestrator.view.live import LiveReporter
from orchestrator.view.phrases import awaited, product
from orchestrator.view.reporters import LineReporter
from orchestrator.view.status import status_text
from orchestrator.view.summary import summary, summary_lines
from orchestrator.view.words import sentence
from tests.states import state_with
from tests.unit.view import samples

_OTHERS = ("copies", "copy ", "allocation", "shard", "master")


def of_riak(state: Any) -> Any:
    return state_with(state, policy=replace(state.begun.policy, kind=Kind.RIAK))


MINE = (BaselineRecorded, NodeRecovered, SecondFailure)


def examples() -> list[Any]:
    """Those of all kinds; a ring has no copy that is missing before the run."""
    return [
        replace(event, missing=()) if isinstance(event, BaselineRecorded) else event
        for event in samples.examples()
    ]


def told() -> list[Any]:
    return [record for record in samples.records(examples()) if isinstance(record.event, MINE)]


def test_four_kinds_of_events_are_told_in_riaks_words() -> None:
    for event in examples():
        line = sentence(event, Kind.RIAK)
        if event == PhaseEntered(node=None, from_="gated", to="withheld"):  # Riak has no allocation
            assert line == "run: check"
            continue
        assert (line != sentence(event)) is isinstance(event, MINE)
        assert not isinstance(event, MINE) or not any(word in line for word in _OTHERS), line
    assert {type(record.event) for record in told()} == set(MINE)


def test_what_is_awaited_is_said_of_vnodes_and_limits() -> None:
    for phase in set(Phase) - {Phase.MERGED}:  # which no run on Riak reaches
        said = awaited(of_riak(samples.run_state(phase=phase)))
        assert not any(word in said for word in _OTHERS), said


def test_lines_status_and_the_live_view_use_them() -> None:
    records = told()
    lines = io.StringIO()
    LineReporter(lines, lambda: samples.t0, kind=Kind.RIAK).events(records)
    state = of_riak(samples.run_state())
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=120)
    with LiveReporter(console, lambda: samples.t0, kind=Kind.RIAK) as live:
        live.events(records)
        live.finished(state, Outcome.DONE)
    assert "all its vnodes" in lines.getvalue()
    for text in (lines.getvalue(), drawn.getvalue(), status_text(state, records, now=samples.t0 + 120)):
        assert "all its copies" not in text


def test_a_node_that_is_back_and_still_hands_off_is_told_so() -> None:
    state = samples.run_state()
    first = next(iter(state.nodes))
    nodes = state.nodes.changed(replace(state.nodes[first], phase=NodePhase.REJOINED))
    end = summary(of_riak(replace(state, nodes=nodes)), Outcome.FAILED, (), samples.t0 + 120)
    lines = summary_lines(end)
    assert any("the run ended before its handoff was checked" in line for line in lines)
    assert not any("copies" in line for line in lines)

    assert product("riak", Kind.RIAK) == "Riak"
