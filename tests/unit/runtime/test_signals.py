"""Signals to a run: the first is a request, a second one leaves at once, wherever the run is stuck."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.signals import SAME_ACT_SECONDS, last_words

Start = Callable[..., Any]


def ready(process: Any) -> None:
    assert process.stdout.readline() == "ready\n"


def still_there(process: Any, seconds: float) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)


def send_twice(process: Any, first: int, second: int) -> None:
    process.send_signal(first)
    still_there(process, 0.3)
    process.send_signal(second)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_the_first_signal_is_a_request_and_ends_the_wait(start: Start, number: signal.Signals) -> None:
    child = start("signalled", "wait")
    ready(child)
    child.send_signal(number)
    assert child.stdout.readline() == f"INTERRUPT {number.name} True\n"
    still_there(child, 0.2)


@pytest.mark.parametrize(
    ("stuck", "second"),
    [
        ("wait", signal.SIGINT),
        ("network", signal.SIGINT),
        ("network", signal.SIGTERM),
        ("database", signal.SIGINT),
        ("database", signal.SIGHUP),
    ],
    ids=str,
)
def test_a_second_signal_leaves_at_once_wherever_it_is_stuck(
    start: Start, tmp_path: Path, stuck: str, second: signal.Signals
) -> None:
    lock = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    child = start("hasty", stuck, str(tmp_path / "x.db"))
    ready(child)
    send_twice(child, signal.SIGINT, second)
    output, errors = child.communicate(timeout=10)
    lock.close()
    assert child.returncode == 8
    assert output.endswith('{"event": "summary", "exit_code": 8}\n')
    assert "NOT RESTORED: cluster.routing.allocation.enable (persistent) = primaries, found all" in errors
    assert "orchestrate restore r1" in errors
    assert "left in order" not in output


def test_two_signals_of_one_act_are_one(start: Start) -> None:
    """A closed terminal sends SIGHUP twice; sudo passes on a SIGINT that came from the terminal already."""
    child = start("signalled", "network")
    ready(child)
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGTERM)
    still_there(child, 0.5)
    assert SAME_ACT_SECONDS <= 0.5, "the second Ctrl-C of a person counts"


def test_words_that_fail_do_not_keep_it(start: Start) -> None:
    child = start("hasty", "broken")
    ready(child)
    send_twice(child, signal.SIGINT, signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert child.returncode == 8
    assert "left at once (division by zero); see `orchestrate status`" in errors


def test_the_words_say_what_repairs() -> None:
    words = last_words("r1", ["a = b, found c"], "sqlite:///x.db")
    assert "  NOT RESTORED: a = b, found c" in words
    assert words[-1] == "    orchestrate restore r1 --state sqlite:///x.db"
    assert "nothing that it has changed" in last_words("r1", [])[1]
    assert "nothing was changed" in last_words(None, [])[0]
