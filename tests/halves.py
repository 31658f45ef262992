"""Runs the tests in two halves side by side: `python -m tests.halves -m "not exhaustive" --durations=15`.

Tests on real nodes and hosts mostly wait for servers that start; all others mostly reckon. One after the
other each leaves one of two cores idle. So each half is a pytest of its own, with the arguments given here.
The half on real servers prints as it goes; what the other one printed is shown when both have ended. The last
lines are the summary of a half that failed, so that whoever reads the end alone sees it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType
from typing import Final

import pytest

_SUMMARY: Final = b" short test summary info "
ON_SERVERS: Final = "real or docker"


def halves(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of pytest for the tests on real servers, and for all others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="chosen", default="")
    given, others = parser.parse_known_args(arguments)
    also = f"({given.chosen}) and " if given.chosen else ""
    return [*others, "-m", f"{also}({ON_SERVERS})"], [*others, "-m", f"{also}not ({ON_SERVERS})"]


def verdict(*codes: int) -> int:
    """One exit code: a half that has no such test is no failure, unless the other one has none either."""
    found = [code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED]
    return next(filter(None, found), 0) if found else pytest.ExitCode.NO_TESTS_COLLECTED


def main(arguments: Sequence[str]) -> int:
    """Run both; pytest's exit code."""
    on_servers, others = halves(arguments)
    with tempfile.TemporaryFile() as told:
        beside = subprocess.Popen(_pytest(others), stdout=told, stderr=subprocess.STDOUT)  # noqa: S603  (ours)
        here = subprocess.Popen(_pytest(on_servers), stdout=subprocess.PIPE)  # noqa: S603  (ours)

        def end(_number: int, _frame: FrameType | None) -> None:
            for half in (here, beside):
                half.send_signal(signal.SIGINT)

        # A half that is told to end takes down what it started. A terminal tells both by itself.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, end)
        summary = _passed_on(here)
        codes = [here.wait(), beside.wait()]
        told.seek(0)
        shutil.copyfileobj(told, sys.stdout.buffer)
    if verdict(codes[0]):
        sys.stdout.buffer.write(summary)
    sys.stdout.buffer.flush()
    return verdict(*codes)


def _passed_on(half: subprocess.Popen[bytes]) -> bytes:
    """Show what a half prints as it comes; its summary, from the names of what failed to the last line."""
    lines: list[bytes] = []
    rest = b""
    assert half.stdout is not None
    while part := os.read(half.stdout.fileno(), 65_536):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        *whole, rest = (rest + part).split(b"\n")
        lines += whole
    begin = max((number for number, line in enumerate(lines) if _SUMMARY in line), default=len(lines) - 1)
    return b"\n".join([*lines[begin:], b""])


def _pytest(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
