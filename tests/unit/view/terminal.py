"""A terminal as a person sees it: the program writes to a device of a size, and an emulator draws it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TextIO

import pyte

_DIM, _BLINK, _NEITHER = 2, 5, 22
_HISTORY: Final = 100_000
_MARK: Final = "\x1e"
"""Written by the harness where a person looks; the program writes no such character."""
ROOM: Final = 20
"""A word that is not so much shorter than a line, such as a path, may break."""
FRAME: Final = "╭╮╰╯│─├┤┬┴┼ +|-"
"""Borders of panels and tables."""


class _Emulator(pyte.HistoryScreen):
    """Shows dim text as blinking, which the program never writes: the emulator does not know dim."""

    def select_graphic_rendition(self, *attributes: int, **more: Any) -> None:
        if attributes[:1] not in {(38,), (48,)}:
            attributes = tuple(_BLINK if one == _DIM else one for one in attributes)
            attributes = tuple(
                each for one in attributes for each in ((one, 25) if one == _NEITHER else (one,))
            )
        super().select_graphic_rendition(*attributes, **more)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A character as it is drawn."""

    text: str
    colour: str  # as the emulator names it: "default", a name, or six hexadecimal digits
    dim: bool
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is on a terminal: all lines since the program began, and those that are still on it."""

    lines: tuple[str, ...]  # without blank lines at the end
    shown: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]  # of `shown`
    raw: str  # as it was written

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def last(self) -> tuple[str, ...]:
        """The lines on the screen without the frame, from the last one upwards."""
        return tuple(line for line in map(_within, reversed(self.shown)) if line)


def _within(line: str) -> str:
    return line.strip(FRAME)


@dataclass(kw_only=True)
class Device:
    """One that programs write to; `out` is a stream that is a terminal."""

    out: TextIO
    written: bytearray = field(default_factory=bytearray)
    came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, chunk: bytes) -> None:
        """This came out of it."""
        with self.came:
            self.written.extend(chunk)
            self.came.notify_all()

    def until(self, text: str) -> None:
        """Wait for what a thread of the program writes."""
        with self.came:
            assert self.came.wait_for(lambda: text.encode() in self.written, timeout=30.0), self.written

    def mark(self) -> None:
        """A person looks now."""
        self.out.write(_MARK)
        self.out.flush()


class Answer(io.StringIO):
    """A keyboard at which a person looks at the screen before each answer."""

    def __init__(self, text: str, look: Callable[[], None]) -> None:
        super().__init__(text)
        self._look = look

    def isatty(self) -> bool:
        return True

    def readline(self, *given: Any) -> Any:
        self._look()
        return super().readline(*given)


@contextmanager
def device(width: int, height: int) -> Iterator[Device]:
    """A terminal device of this size. After the block, `written` has every byte that came out of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    out = os.fdopen(theirs, "w", encoding="utf-8", buffering=1)  # closed before the reader ends
    made = Device(out=out)

    def read() -> None:
        with suppress(OSError):  # what a terminal says once nobody writes to it any more
            while chunk := os.read(ours, 65536):
                made.take(chunk)

    reader = threading.Thread(target=read, name="terminal")
    reader.start()
    try:
        yield made
    finally:
        out.close()
        reader.join()
        os.close(ours)


def seen(written: bytes, width: int, height: int, resized: tuple[int, int] | None = None) -> Seen:
    """How it looks on a terminal of this size, at the first mark or else at the end.

    Args:
        written: what came out of the device.
        width: of the terminal; `height` likewise.
        height: as above.
        resized: to which size the terminal is brought at the first mark; it is looked at the second one then.
    """
    first, *later = written.decode().split(_MARK)
    screen = _Emulator(width, height, history=_HISTORY, ratio=1.0)
    stream = pyte.Stream(screen)
    stream.feed(first)
    if resized is not None:
        width, height = resized
        screen.resize(height, width)
        stream.feed(later[0])
    rows = [*screen.history.top, *(screen.buffer[row] for row in range(height))]
    drawn = [[row[column] for column in range(max(row, default=-1) + 1)] for row in rows]
    lines = ["".join(char.data for char in row).rstrip() for row in drawn]
    shown = tuple(lines[len(screen.history.top) :])
    cells = tuple(
        tuple(Cell(char.data, char.fg, dim=char.blink, bold=char.bold) for char in row)
        for row in drawn[-height:]
    )
    while lines and not lines[-1]:
        lines.pop()
    return Seen(lines=tuple(lines), shown=shown, cells=cells, raw=first)


def broken_words(looked: Seen, words: frozenset[str], width: int) -> list[str]:
    """Words that begin on one line and end on the next, though a line has room for them.

    Args:
        looked: what is on the terminal.
        words: those of the same text on a terminal that breaks no line.
        width: of the terminal.
    """
    found = []
    for above, below in pairwise(map(_parts, looked.lines)):
        ends = [(part, below.get(column)) for column, part in above.items()]
        if above and below:
            ends.append((above[max(above)], below[min(below)]))
        for first, second in {(one.split()[-1], other.split()[0]) for one, other in ends if other}:
            whole = f"{first}{second}"
            if whole in words and not {first, second} <= words and len(whole) < width - ROOM:
                found.append(f"{first}|{second}")
    return found


def _parts(line: str) -> dict[int, str]:
    """Parts of a line, as the columns of a table, by where they begin."""
    inside = re.sub(f"^[{re.escape(FRAME)}]+ | [{re.escape(FRAME)}]+$", lambda edge: " " * len(edge[0]), line)
    return {part.start(): part[0] for part in re.finditer(r"\S+(?: \S+)*", inside)}


# Colours ------------------------------------------------------------------------------------------------

_NAMES: Final = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
ANSI: Final = (*_NAMES, *(f"bright{name}" for name in _NAMES))
"""The sixteen colours that a terminal's palette sets, by the emulator's names: `brown` is yellow."""


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a terminal: its text, its background, and the sixteen."""

    text: str
    background: str
    sixteen: str

    def colour(self, name: str) -> str:
        """Six hexadecimal digits of a colour by the emulator's name."""
        if name == "default":
            return self.text
        return self.sixteen.split()[ANSI.index(name)] if name in ANSI else name


_XTERM: Final = (
    "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
    " 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff"
)
_SOLARIZED: Final = (
    "073642 dc322f 859900 b58900 268bd2 d33682 2aa198 eee8d5"
    " 002b36 cb4b16 586e75 657b83 839496 6c71c4 93a1a1 fdf6e3"
)
PALETTES: Final = {
    "xterm, black": Palette("e5e5e5", "000000", _XTERM),
    "xterm, white": Palette("000000", "ffffff", _XTERM),
    "VS Code, dark": Palette(
        "cccccc",
        "1e1e1e",
        "000000 cd3131 0dbc79 e5e510 2472c8 bc3fbc 11a8cd e5e5e5"
        " 666666 f14c4c 23d18b f5f543 3b8eea d670d6 29b8db e5e5e5",
    ),
    "VS Code, light": Palette(
        "333333",
        "ffffff",
        "000000 cd3131 107c10 949800 0451a5 bc05bc 0598bc 555555"
        " 666666 cd3131 14ce14 b5ba00 0451a5 bc05bc 0598bc a5a5a5",
    ),
    "Solarized, dark": Palette("839496", "002b36", _SOLARIZED),
    "Solarized, light": Palette("657b83", "fdf6e3", _SOLARIZED),
    "macOS Terminal, Basic": Palette(
        "000000",
        "ffffff",
        "000000 990000 00a600 999900 0000b2 b200b2 00a6b2 bfbfbf"
        " 666666 e50000 00d900 e5e500 0000ff e500e5 00e5e5 e5e5e5",
    ),
}


def _channels(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4))


def _luminance(channels: tuple[float, ...]) -> float:
    linear = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(cell: Cell, palette: Palette, background: str = "") -> float:
    """Contrast of a character with its background, as WCAG 2 has it: 1 to 21. Dim is halfway to it."""
    behind = _channels(background or palette.background)
    before = _channels(palette.colour(cell.colour))
    if cell.dim:
        before = tuple((one + other) / 2 for one, other in zip(before, behind, strict=True))
    light, dark = sorted((_luminance(before), _luminance(behind)), reverse=True)[:2]
    return (light + 0.05) / (dark + 0.05)
