"""The entry point. It catches signals before it loads the other modules, which takes a while."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

CAUGHT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: those that end a run (`runtime/signals.py`, which takes long to load)."""


def main() -> None:
    """The console script. A signal that comes while modules load ends the program once they are loaded.

    An ignored signal stays ignored: under `nohup` a command has to outlive its terminal.
    """
    _open_closed_streams()
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, note)
    from orchestrator.cli.program import run_heeding  # noqa: PLC0415  (the modules that take long to load)

    sys.exit(run_heeding(sys.argv[1:], came))


def _open_closed_streams() -> None:
    """Connect standard streams that are closed (`>&-`) to `/dev/null`, so that everything finds a stream.

    In this order each gets its own number, which a file that is opened later must not have.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace"))
