"""Runs the tests in two halves side by side: `python -m tests.halves -m "not exhaustive" --durations=15`.

Tests on real nodes and hosts mostly wait for servers that start; all others mostly reckon. One after the
other each leaves one of two cores idle. So each half is a pytest of its own, with the arguments given here.
The half on real servers prints as it goes; what the other one printed is shown when both have ended.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType
from typing import Final

import pytest

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
        here = subprocess.Popen(_pytest(on_servers))  # noqa: S603  (ours)

        def end(_number: int, _frame: FrameType | None) -> None:
            for half in (here, beside):
                half.send_signal(signal.SIGINT)

        # A half that is told to end takes down what it started. A terminal tells both by itself.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, end)
        codes = [here.wait(), beside.wait()]
        told.seek(0)
        shutil.copyfileobj(told, sys.stdout.buffer)
    return verdict(*codes)


def _pytest(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
