"""What a run wrote, and what that comes to for a task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.airflow.output import Ending, Fate, ending_of, run_of, verdict
from orchestrator.errors import ExitCode

RUN = "20270101-0000-abcd"


def _ended(code: Any, **rest: Any) -> Ending:
    return Ending(run=RUN, summary={"event": "summary", "exit_code": code, "message": "", **rest})


FATES = {
    ExitCode.DONE: Fate.SUCCESS,
    ExitCode.DEFECT: Fate.FAIL,
    ExitCode.USAGE: Fate.FAIL,
    ExitCode.HELD: Fate.RETRY,
    ExitCode.FAILED: Fate.FAIL,
    ExitCode.INTERRUPTED: Fate.FAIL,
    ExitCode.LEASED: Fate.RETRY,
    ExitCode.PLAN_MISMATCH: Fate.FAIL,
    ExitCode.NOT_RESTORED: Fate.FAIL,
    ExitCode.PAUSED: Fate.FAIL,
}
REPAIRS = {
    ExitCode.FAILED: f"orchestrate resume {RUN} --retry-failed",
    ExitCode.INTERRUPTED: f"orchestrate resume {RUN}",
    ExitCode.NOT_RESTORED: f"orchestrate restore {RUN}",
    ExitCode.PAUSED: f"orchestrate resume {RUN}",
}


def test_every_exit_code_has_its_fate(subtests: pytest.Subtests) -> None:
    for code in list(ExitCode):
        with subtests.test(code=code):
            found = verdict(_ended(int(code)))
            assert found.fate is FATES[code]
            assert f"ended with {int(code)} " in found.message


@pytest.mark.parametrize(("code", "repair"), REPAIRS.items())
def test_what_needs_a_person_names_the_command(code: ExitCode, repair: str) -> None:
    assert verdict(_ended(int(code))).message.endswith(repair)


def test_a_held_run_says_by_what() -> None:
    hold = {
        "predicate": "indices_not_written",
        "subject": "index posts-1",
        "evidence": "12 documents in 10 s",
    }
    message = verdict(_ended(3, holds=[hold], message="held for 1h")).message
    assert "held for 1h" in message
    assert "held by indices_not_written (index posts-1): 12 documents in 10 s" in message


@pytest.mark.parametrize("code", [99, "0", None])
def test_an_exit_code_that_is_not_known_is_no_success(code: Any) -> None:
    found = verdict(_ended(code))
    assert found.fate is Fate.FAIL
    assert "unknown here" in found.message


def _text(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


SUMMARY = {"run": RUN, "event": "summary", "exit_code": 0}


def test_the_summary_is_the_last_line_and_the_run_any_line() -> None:
    text = _text({"run": None, "event": "plan"}, {"run": RUN, "event": "run_started"}, SUMMARY)
    assert ending_of(text) == Ending(run=RUN, summary=SUMMARY)
    assert run_of(_text({"run": None, "event": "plan"})) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(_text({"run": RUN, "event": "hold"}), id="killed"),
        pytest.param(
            _text({"run": RUN, "event": "hold"}) + json.dumps(SUMMARY)[:-5], id="killed in the line"
        ),
        pytest.param(_text(SUMMARY, {"run": RUN, "event": "hold"}), id="a summary that is not the last"),
    ],
)
def test_no_whole_summary_at_the_end_is_none(text: str) -> None:
    assert ending_of(text).summary is None


def test_text_of_a_wrapper_does_not_hide_the_lines() -> None:
    assert ending_of("welcome to the bastion\n3\n" + _text(SUMMARY)).summary == SUMMARY
    assert verdict(ending_of(_text({**SUMMARY, "holds": "no list", "left": None}))).fate is Fate.SUCCESS
