"""What is asked before anything is changed, and what an answer does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import ask, question
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Hold
from orchestrator.model.plan import Plan, PlannedWave
from orchestrator.model.policy import Kind, Strategy
from orchestrator.model.prediction import Prediction
from orchestrator.runtime.clock import SystemClock
from orchestrator.untrusted import visible

HOLD = Hold(predicate="cluster_not_red", subject="index logs", evidence="red")


def plan(*holds: Hold) -> Plan:
    wave = PlannedWave(
        number=1,
        zone=None,
        nodes=(NodeName("es1"), NodeName("es2")),
        why="",
        predicted=Prediction(low=20.0, likely=90.0, high=600.0),
    )
    return Plan(
        cluster="prod\x1b[2J",
        kind=Kind.ELASTICSEARCH,
        distribution="elasticsearch",
        version="9.1.0",
        strategy=Strategy.ZONE,
        fingerprint="sha256:0123",
        waves=(wave,),
        lower_bound_waves=None,
        holds=holds,
        steps=(),
        settings_changed={},
        predicted=wave.predicted,
    )


def test_the_question_says_what_a_yes_begins() -> None:
    assert visible(question(plan())) == r"Restart 2 nodes of prod\x1b[2J in 1 wave, likely 1m 30s?"
    assert question(plan(HOLD)).endswith("likely 1m 30s, though 1 predicate holds it now?")


@pytest.mark.parametrize(
    ("answer", "goes_on", "noted"), [("y\n", True, ""), ("n\n", False, ""), ("", False, "\n")]
)
def test_a_message_behind_a_broken_off_question_begins_a_line(
    monkeypatch: pytest.MonkeyPatch, answer: str, *, goes_on: bool, noted: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    err = io.StringIO()
    around = Context(
        environment={}, home=Path("/"), clock=SystemClock(), output=Output.TEXT, out=io.StringIO(), err=err
    )
    if goes_on:
        ask("Go on?", around)
    else:
        with pytest.raises(typer.Abort):
            ask("Go on?", around)
    assert err.getvalue() == noted
