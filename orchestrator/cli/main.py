"""The entry point. It catches signals before it loads the other modules, which takes a while."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """The console script. A signal that comes while modules load ends the program once they are loaded.

    An ignored signal stays ignored: under `nohup` a command has to outlive its terminal.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, note)
    from orchestrator.cli.program import run_heeding  # noqa: PLC0415  (the modules that take long to load)

    sys.exit(run_heeding(sys.argv[1:], came))
