"""SIGINT, SIGTERM and SIGHUP: the first makes the run stand down, a second ends the program at once.

Python runs its signal handlers in the main thread, and only when that thread is back in the interpreter: not
while it looks up a name or waits for a lock of SQLite. So the handlers here do nothing. The C handler itself
writes the number of each signal to a pipe (`signal.set_wakeup_fd`). A thread that only reads this pipe can
end the program even if the main thread hangs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread, Timer
from types import FrameType, TracebackType
from typing import Any, Final, Self

from orchestrator.errors import ExitCode
from orchestrator.model.phase import Request
from orchestrator.model.reading import Seconds
from orchestrator.next_command import AFTER, next_command

CAUGHT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_ACT_SECONDS: Final[Seconds] = 0.5
"""One act can send several signals: a closed terminal sends SIGHUP twice (kernel and shell), and wrappers
such as sudo repeat the terminal's SIGINT. Signals within this time count as one."""
_WRITE_SECONDS: Final[Seconds] = 2.0
"""The last words may go into a pipe that is not read; after this time the program ends without them."""

_Handler = Callable[[int, FrameType | None], Any] | int | None
"""Argument and result of `signal.signal`; None for a handler that was not set from Python."""


@dataclass(slots=True)
class HeardSignal:
    """The first signal that a command has caught. It remains after its `Signals` object is gone."""

    first: tuple[str, float] | None = None  # its name, and its time on the monotonic clock; None before


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalTexts:
    """The texts to write before the program ends at once."""

    error: str  # for standard error
    output: str = ""  # for standard output: the summary line of `--output json`


def last_words(run: str | None, left: Sequence[str], state: str = "") -> list[str]:
    """The lines when a run is ended at once: the settings that are not restored, and the repair."""
    if run is None:
        early = "orchestrate: left at once, before a run had begun; nothing was changed."
        return [f"{early} A lease that was taken runs out by itself"]
    lines = [f"orchestrate: run {run} was left at once on a second signal; nothing more is done."]
    lines += [f"  NOT RESTORED: {item}" for item in left] or [
        "  nothing that it has changed is known to be left"
    ]
    step = AFTER[ExitCode.NOT_RESTORED]
    return [*lines, f"  Now: {step.lead}:", f"    {step.command(run, state=state)}"]


class Signals:
    """Context manager that catches the signals; to be used in the main thread.

    Args:
        wake: ends the current wait (`SystemClock.wake`).
        leaving: called from another thread, at any moment; must not wait, and only return the texts.
        heard: an earlier caught signal.
    """

    def __init__(
        self, wake: Callable[[], None], leaving: Callable[[], FinalTexts], heard: HeardSignal | None = None
    ) -> None:
        self._wake, self._leaving = wake, leaving
        self._heard = heard or HeardSignal()
        self._before: dict[signal.Signals, _Handler] = {}
        self._wakeup_before = -1
        self._read = self._write = -1
        self._thread: Thread | None = None

    def asked(self) -> tuple[Request, str]:
        """`INTERRUPT` and the signal's name once one has come."""
        first = self._heard.first
        return (Request.INTERRUPT, first[0]) if first else (Request.NONE, "")

    def interrupted(self) -> bool:
        """Whether a signal has come."""
        return self._heard.first is not None

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in CAUGHT:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup: the operator wants the run to outlive the terminal
            self._before[number] = signal.signal(number, _noted)
        self._thread = Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._write, b"\0")  # no signal has this number: the thread ends
        if self._thread is not None:
            self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _listen(self) -> None:
        while True:
            for number in os.read(self._read, 512):
                if number == 0:
                    return
                if number in CAUGHT:
                    self._came(signal.Signals(number).name)

    def _came(self, name: str) -> None:
        now = time.monotonic()
        if self._heard.first is None:
            self._heard.first = (name, now)
            self._wake()
        elif now - self._heard.first[1] >= SAME_ACT_SECONDS:
            self._leave()

    def _leave(self) -> None:
        late = Timer(_WRITE_SECONDS, os._exit, (int(ExitCode.NOT_RESTORED),))
        late.daemon = True
        late.start()
        try:
            words = self._leaving()
        except Exception as error:  # noqa: BLE001  (any error in the words: the operator wants to leave)
            words = FinalTexts(error=f"orchestrate: left at once ({error}); see `{next_command('status')}`\n")
        for stream, text in ((1, words.output), (2, words.error)):
            with contextlib.suppress(OSError):  # the reader is gone
                _write_all(stream, text.encode("utf-8", "backslashreplace"))
        os._exit(int(ExitCode.NOT_RESTORED))


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The Python handler, which does nothing; see the module's docstring."""


def _write_all(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]
