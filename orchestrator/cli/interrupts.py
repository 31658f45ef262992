"""Signals that come before a command has begun: kept while modules are loaded, and an exception from then on.

An exception in the middle of an import may be lost in whatever is imported, and the signal with it.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from orchestrator.runtime.signals import CAUGHT

_BEFORE: Final = "interrupted before anything was changed"
_AFTER: Final = (
    "interrupted while it ended, after its work: `orchestrate status` shows a run, `orchestrate tune check` "
    "shows hosts"
)


class InterruptedEarly(BaseException):
    """A signal while the command does not catch them itself."""


class EarlySignals:
    """What came while modules were loaded; nothing is done about signals until `keep`.

    Attributes:
        said: what a command that one ends has to say.
    """

    def __init__(self) -> None:
        self._kept: list[int] | None = None
        self.said = _BEFORE

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

    def begin(self) -> None:
        """A command begins; nothing was changed yet."""
        self.said = _BEFORE

    def overtaken(self) -> None:
        """A command catches signals itself from now on; one that comes after that ends it as it closes."""
        self.said = _AFTER


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise InterruptedEarly


EARLY: Final = EarlySignals()
"""Those of this process."""
