"""A program in a terminal of 80 columns and 24 rows, as a person sees it: its screen every second."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pyte

COLUMNS: Final = 80
ROWS: Final = 24
EVERY: Final = 1.0
"""Seconds from one look at the screen to the next."""
_QUIET: Final = 0.05
"""Seconds without output after which a picture is taken for whole."""
_LINES_KEPT: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The screen at one moment."""

    at: float  # seconds since the epoch, once the picture was there
    lines: tuple[str, ...]


class Terminal:
    """A program that runs in a terminal; Ctrl-C is typed. Use as a context manager: it ends with the block.

    Attributes:
        looks: the screen every second, and at the end.
    """

    def __init__(self, words: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> None:
        self.looks: list[Look] = []
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=_LINES_KEPT, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the program under test)
                # With a controlling terminal, Ctrl-C becomes a signal as it does for a person.
                ["/usr/bin/setsid", "--ctty", *words],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=folder,
                env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            )
        finally:
            os.close(slave)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        """Feed the screen until the program has closed the terminal."""
        due = time.monotonic() + EVERY
        while True:
            late = time.monotonic() >= due
            ready, _, _ = select.select([self._master], [], [], _QUIET if late else due - time.monotonic())
            if not ready:
                if late:
                    due = time.monotonic() + EVERY
                    self._look()
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # EIO: no process has the terminal any more
                data = b""
            if not data:
                self._look()
                return
            with self._lock:
                self._stream.feed(data)

    def _look(self) -> None:
        with self._lock:
            lines = tuple(line.rstrip() for line in self._screen.display)
        self.looks.append(Look(at=time.time(), lines=lines))

    @property
    def text(self) -> str:
        """All lines as a selection copies them: those that have scrolled away, then the screen.

        A line that the terminal has wrapped is whole; the program itself leaves the last column free.
        """
        with self._lock:
            above = ["".join(row[place].data for place in range(COLUMNS)) for row in self._screen.history.top]
            lines = [*above, *self._screen.display]
        return "".join(line if line[-1:].strip() else f"{line.rstrip()}\n" for line in lines).rstrip() + "\n"

    def type(self, text: str) -> None:
        """Type this; `\\x03` is Ctrl-C."""
        os.write(self._master, text.encode())

    @property
    def runs(self) -> bool:
        """Whether the program has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send the program a signal that no key sends."""
        self._process.send_signal(number)

    def await_text(self, wanted: Callable[[str], bool], seconds: float = 600.0) -> None:
        """Return once the text is as wanted; fail when the program ends without that, or takes too long."""
        limit = time.monotonic() + seconds
        while not wanted(self.text):
            assert self._reader.is_alive(), f"ended without it:\n{self.text}"
            assert time.monotonic() < limit, f"not within {seconds:.0f} s:\n{self.text}"
            time.sleep(0.05)

    def end(self, seconds: float = 1500.0) -> int:
        """Wait for the end; the exit code (-9: killed)."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        return code
