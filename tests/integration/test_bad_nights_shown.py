"""What the helpers of `bad_nights.py` would notice, from commands made by hand; no host is needed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.bad_nights import Mishap, Typed, advised, table
from tests.integration.operating import Operator


class _Shell:
    """Types a line of shell in place of the program."""

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """As `Operator.begin`."""
        line: Any = ("sh", "-c", *words)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603


def typed(line: str) -> Typed:
    """A line of shell as a command that is typed."""
    return Typed(cast("Operator", _Shell()), line)


def test_a_line_has_the_moment_at_which_it_came() -> None:
    with typed("echo one; sleep 0.3; echo two; exit 3") as command:
        one, two = command.wait_for("one"), command.wait_for("two")
        assert command.end() == 3
    assert two.at - one.at > 0.2
    assert command.find("one", since=two.at) is None
    assert command.text == "one\ntwo"


def test_a_line_that_does_not_come_fails_with_what_was_said() -> None:
    with typed("echo something") as command, pytest.raises(AssertionError, match=r"(?s)ended.*something"):
        command.wait_for("anything")
    with typed("echo something; exec sleep 60") as command, pytest.raises(AssertionError, match="within 0 s"):
        command.wait_for("anything", seconds=0.3)


def test_a_command_that_does_not_end_is_ended_with_the_block(tmp_path: Path) -> None:
    began = time.monotonic()
    with typed(f"echo $$ > {tmp_path}/pid; exec sleep 60") as command:
        with pytest.raises(AssertionError, match="not ended"):
            command.end(seconds=0.5)
        pid = (tmp_path / "pid").read_text().strip()
    assert time.monotonic() - began < 30
    assert not Path(f"/proc/{pid}").exists()


def test_the_advised_command_is_typed_as_it_is_printed() -> None:
    line = "repair es1, then continue: `orchestrate resume 2026-a --retry-failed --state 'sqlite:///a b.db'`."
    assert advised(f"{line}\n{line}", "resume") == [
        *("resume", "2026-a", "--retry-failed"),
        *("--state", "sqlite:///a b.db"),
    ]
    for text in ("nothing to do", "orchestrate resume 1\nor orchestrate resume 2"):
        with pytest.raises(AssertionError, match="not one command to resume"):
            advised(text, "resume")


def test_the_table_has_the_seconds_the_line_and_what_is_left() -> None:
    named = Mishap(what="disk full", seconds=1.25, line="the disk is full", left="nothing")
    unnamed = Mishap(what="rotated", seconds=None, line="no line", left="es1 is down")
    assert table([named, unnamed]) == [
        "  1.2 s  disk full; left: nothing",
        "         the disk is full",
        "      -  rotated; left: es1 is down",
        "         no line",
    ]
