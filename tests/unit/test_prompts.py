"""What is asked before anything is changed, and what an answer does."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from orchestrator.cli.context import Context
from orchestrator.cli.options import Output
from orchestrator.cli.prompts import ask, question
from orchestrator.model.event import Hold
from orchestrator.model.plan import Plan
from orchestrator.model.prediction import Prediction
from orchestrator.runtime.waiting import SystemClock
from orchestrator.untrusted import visible
from tests.unit.view import samples

HOLD = Hold(predicate="cluster_not_red", subject="index logs", evidence="red")


def plan(*holds: Hold) -> Plan:
    wave = replace(samples.plan().waves[0], nodes=samples.ES[:2])
    predicted = Prediction(low=20.0, likely=90.0, high=600.0)
    return samples.plan(cluster="prod\x1b[2J", waves=(wave,), holds=holds, predicted=predicted)


def test_the_question_says_what_a_yes_begins() -> None:
    assert visible(question(plan())) == r"Restart 2 nodes of prod\x1b[2J?"
    assert question(plan(HOLD)).endswith("[2J, though 1 check holds it now?")


def test_a_message_behind_a_broken_off_question_begins_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, noted in (("y\n", ""), ("n\n", ""), ("", "\n")):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        out, err = io.StringIO(), io.StringIO()
        around = Context(
            environment={}, home=Path("/"), clock=SystemClock(), output=Output.TEXT, out=out, err=err
        )
        with nullcontext() if answer == "y\n" else pytest.raises(typer.Abort):
            ask("Go on?", around)
        assert err.getvalue() == noted
