"""Reads the output of a run line by line, and derives the task's result from it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, assert_never

from orchestrator.errors import ExitCode
from orchestrator.holds import public_in_words
from orchestrator.next_command import AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A program that has ended."""

    run: str | None  # the run's id; None if there is none yet
    # the last line; None when the program was killed or could not be started
    summary: Mapping[str, Any] | None
    errors: str = ""  # the end of its standard error


class Fate(Enum):
    """The result of the task."""

    SUCCESS = "success"
    RETRY = "retry"
    """It fails, and Airflow's own retries may try again."""
    FAIL = "fail"
    """It fails permanently: another try would do harm or have no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The task's fate, its reason, and the command that repairs it."""

    fate: Fate
    message: str


_SHOWN: Final = 2000
"""Maximum characters of standard error in a message."""


def lines(text: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of an output. Incomplete objects (a line being written) are skipped."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # text of a wrapper around the program, or the line that a kill cut off
        if isinstance(found, dict):
            yield found


def run_of(text: str) -> str | None:
    """The run's id, as soon as a line contains it."""
    return next((run for line in lines(text) if isinstance(run := line.get("run"), str)), None)


def ending_of(text: str, errors: str = "") -> Ending:
    """How the program ended, from its whole output."""
    last = next(iter(deque(lines(text), maxlen=1)), None)
    summary = last if last is not None and last.get("event") == "summary" else None
    return Ending(run=run_of(text), summary=summary, errors=errors[-_SHOWN:].strip())


def verdict(ending: Ending, state: str | None = None) -> Verdict:
    """Map the exit code to the task's fate.

    Held and leased are retried: both clear with time, and finished work is not repeated. A killed program is
    retried because the next one takes over its run. Not retried: requests of a person (5, 9), outcomes that
    need a person (4, 8), and errors that recur each time (1, 2, 7).

    Args:
        ending: how the program ended.
        state: the task's `state`, which the next command needs too.
    """
    if ending.summary is None:
        why = f": {ending.errors}" if ending.errors else ""
        return Verdict(
            fate=Fate.RETRY,
            message=f"orchestrate ended without a summary: killed, or it could not be started{why}",
        )
    try:
        code = ExitCode(ending.summary["exit_code"])
    except (KeyError, ValueError):
        found = ending.summary.get("exit_code")
        return Verdict(fate=Fate.FAIL, message=f"orchestrate ended with an exit code unknown here: {found}")
    parts = [f"orchestrate ended with {int(code)} ({code.name.lower().replace('_', ' ')})", *_said(ending)]
    if code in AFTER and _fate(code) is Fate.FAIL:
        step, run = AFTER[code], (ending.run,) if ending.run else ()
        parts.append(f"{step.lead}: {step.command(*run, state=state or '')}")
    return Verdict(fate=_fate(code), message="; ".join(parts))


def _fate(code: ExitCode) -> Fate:
    match code:
        case ExitCode.DONE:
            return Fate.SUCCESS
        case ExitCode.HELD | ExitCode.LEASED:
            return Fate.RETRY
        case (
            ExitCode.DEFECT
            | ExitCode.USAGE
            | ExitCode.FAILED
            | ExitCode.INTERRUPTED
            | ExitCode.PLAN_MISMATCH
            | ExitCode.NOT_RESTORED
            | ExitCode.PAUSED
        ):
            return Fate.FAIL
        case _:
            assert_never(code)


def _said(ending: Ending) -> Iterator[str]:
    summary = ending.summary or {}
    if summary.get("message"):
        yield str(summary["message"])
    for hold in _listed(summary, "holds"):
        if isinstance(hold, dict):
            yield f"held by {public_in_words(hold)}"
    for item in _listed(summary, "left"):
        yield f"NOT RESTORED: {item}"


def _listed(summary: Mapping[str, Any], key: str) -> list[Any]:
    found = summary.get(key)
    return found if isinstance(found, list) else []
