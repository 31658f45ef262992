"""Signals before a command begins: stored while modules load, and raised as an exception afterwards.

An exception during an import may be lost in the imported module, and the signal with it.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from orchestrator.cli.main import CAUGHT
from orchestrator.next_command import next_command

_BEFORE: Final = "interrupted before anything was changed"
_DECLINED: Final = "the answer was not yes; nothing was changed"
_WATCHED: Final = "no longer watching; the run continues"
_AFTER: Final = (
    f"interrupted while it ended, after its work: `{next_command('status')}` shows a run, "
    f"`{next_command('tune check')}` shows hosts"
)


class InterruptedEarly(BaseException):
    """A signal that arrives while the command does not catch signals itself."""


class EarlySignals:
    """Signals that arrived while modules were loaded. Signals are not handled until `keep`.

    Attributes:
        said: the message of a command that a signal ends.
    """

    def __init__(self) -> None:
        self._kept: list[int] | None = None
        self.said = _BEFORE

    def keep(self, kept: list[int]) -> None:
        """From now on store signals in this list, which may already contain some."""
        self._kept = kept
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _frame: kept.append(number))

    def heed(self) -> None:
        """From now on a signal ends the command. Called once all needed modules are loaded.

        Raises:
            InterruptedEarly: a signal arrived before.
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
        """A command begins. Nothing has been changed yet."""
        self.said = _BEFORE

    @property
    def declined(self) -> str:
        """The message of a command that a question ends."""
        return _DECLINED if self.said == _BEFORE else self.said

    def watching(self) -> None:
        """From now on the command looks at a run of another process, which a signal does not reach."""
        self.said = _WATCHED

    def overtaken(self) -> None:
        """From now on the command catches signals itself. A later signal ends it when it closes."""
        self.said = _AFTER


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise InterruptedEarly


EARLY: Final = EarlySignals()
"""The early signals of this process."""
