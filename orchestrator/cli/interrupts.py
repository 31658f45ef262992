"""Signals that come before a command has begun: kept while modules are loaded, and an exception from then on.

An exception in the middle of an import may be lost in whatever is imported, and the signal with it.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from orchestrator.runtime.signals import CAUGHT


class InterruptedEarly(BaseException):
    """A signal while no run is driven."""


class Signals:
    """What came while modules were loaded; nothing is done about signals until `keep`."""

    def __init__(self) -> None:
        self._kept: list[int] | None = None

    def keep(self, kept: list[int]) -> None:
        """From now on signals are kept, in the list in which there may be some."""
        self._kept = kept
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _frame: kept.append(number))

    def heed(self) -> None:
        """From now on one ends the command. Called once all is loaded that the command needs.

        Raises:
            InterruptedEarly: one came before.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            return
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        if kept:
            raise InterruptedEarly


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise InterruptedEarly


EARLY: Final = Signals()
"""Those of this process."""
