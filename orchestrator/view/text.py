"""Numbers, times, foreign text and tables as plain text."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import Final, TextIO

from rich.cells import cell_len

from orchestrator.formats import clock_time, counted, duration, listed, setting, size, stamp, stamp_seconds
from orchestrator.next_command import shell_lines
from orchestrator.untrusted import visible
from orchestrator.view.signs import in_encoding

__all__ = [
    "clock_time",
    "counted",
    "day_and_minute",
    "duration",
    "hung",
    "listed",
    "nodes_of",
    "noted",
    "printed",
    "setting",
    "size",
    "stamp",
    "stamp_seconds",
    "table",
    "time_of_day",
    "wrapped",
    "zone_name",
]


def nodes_of(count: int, total: int) -> str:
    """`3 nodes` if these are all, else `1 of 3 nodes`."""
    return counted(total, "node") if count == total else f"{count} of {counted(total, 'node')}"


def time_of_day(at: float, zone: tzinfo | None = None) -> str:
    """The time of day where the reader is: `21:38:05`. Without a zone it is that of this machine."""
    return datetime.fromtimestamp(at, zone).strftime("%H:%M:%S")


def day_and_minute(at: float, zone: tzinfo | None = None) -> str:
    """The same with the date: `2026-11-28 21:38`."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M")


def zone_name(at: float, zone: tzinfo | None = None) -> str:
    """The name of that zone then: `CET`."""
    return datetime.fromtimestamp(at, zone).astimezone(zone).tzname() or ""


def printed(lines: Iterable[str], stream: TextIO) -> str:
    """Lines as they are written to a stream: each made visible, so that none can be more than one.

    Signs that the stream's encoding lacks are written in ASCII, and any other such character is escaped.
    """
    text = "".join(f"{visible(line)}\n" for line in lines)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return in_encoding(text, encoding).encode(encoding, "backslashreplace").decode(encoding)


def noted(lines: Iterable[str], stream: TextIO) -> str:
    """The same, wrapped for a terminal. A line that is a command can be pasted: see `shell_lines`."""
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    return printed((part for line in lines for part in _noted(visible(line), width)), stream)


def _noted(line: str, width: int | None) -> list[str]:
    text = line.lstrip(" ")
    blank = line[: len(line) - len(text)]
    if blank and text.startswith("orchestrate "):
        with suppress(ValueError):  # no command: a quote is open
            return shell_lines(text, width, indent=len(blank))
    return wrapped(text, width, first=blank)


_INDENT: Final = 4
"""Columns by which the later lines of a text or a row are set in."""
_BELOW: Final = " " * 6
"""That of a cell below its row."""
_LEAST: Final = 24
"""The fewest columns in which a text beside a table is read easily; with fewer it goes below its row."""


def wrapped(text: str, width: int | None, *, first: str = "", then: str | None = None) -> list[str]:
    """A text in lines of at most this width, each with its indent. No word is broken, however long it is.

    Args:
        text: on one line.
        width: in columns; None: it stays one line.
        first: the indent of the first line.
        then: that of the later ones; None: by a few columns more than the first.
    """
    if width is None or cell_len(first + text) <= width:
        return [f"{first}{text}".rstrip()]
    then = first + " " * _INDENT if then is None else then
    lines: list[str] = []
    line = ""
    for word in text.split():
        begun = f"{line} {word}" if line else f"{then if lines else first}{word}"
        if line and cell_len(begun) > width:
            lines.append(line)
            begun = f"{then}{word}"
        line = begun
    return [*lines, line]


def hung(label: str, text: str, width: int | None) -> list[str]:
    """A foreign text behind its label, below whose end the other lines begin.

    Args:
        label: the beginning of the first line, with its blanks.
        text: the rest; a long word of it begins below the label.
        width: columns; None does not break it.
    """
    text = visible(text)
    if width is not None and max(map(cell_len, text.split()), default=0) > width - cell_len(label):
        return [label.rstrip(), *wrapped(text, width, first=" " * _INDENT, then=" " * _INDENT)]
    return wrapped(text, width, first=label, then=" " * min(cell_len(label), (width or 0) // 3))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    width: int | None = None,
) -> list[str]:
    """The lines of a table.

    Args:
        head: the names of the columns; without any there is no such line.
        rows: a text for each column.
        numbers: columns that are right-aligned. The last column is not padded.
        width: of the terminal. The last column is wrapped; where it would be too narrow, it is below its row.
            A table that is wider without it has a line for each cell.
    """
    rows = [[visible(text) for text in row] for row in rows]
    lines = [head, *rows] if head else rows
    if not lines:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    before = sum(widths[:-1]) + 2 * len(widths[:-1])
    if width is None or before + min(widths[-1], _LEAST) <= width:
        return [line for row in lines for line in _row(row, widths, numbers, width)]
    if before - 2 > width:
        return [line for row in rows for line in _record(head or [""] * len(row), row, width)]
    found = [] if not head else _row([*head[:-1], ""], widths, numbers, None)
    for row in rows:
        found += _row([*row[:-1], ""], widths, numbers, None)
        found += wrapped(row[-1], width, first=_BELOW, then=_BELOW) if row[-1] else []
    return found


def _row(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[int], width: int | None) -> list[str]:
    """A row, with its last cell wrapped to the width."""
    padded = [
        _cell(text, wide, right=place in numbers)
        for place, (text, wide) in enumerate(zip(cells[:-1], widths[:-1], strict=True))
    ]
    before, number = "".join(f"{text}  " for text in padded), len(padded) in numbers
    last = _cell(cells[-1], widths[-1], right=True) if number else cells[-1]
    return wrapped(last, width, first=before, then=" " * cell_len(before))


def _record(head: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """A row as a line for each cell, under the first."""
    first, *others = (f"{name} {text}".strip() for name, text in zip(head, row, strict=True) if text)
    return [*wrapped(first, width), *(line for cell in others for line in wrapped(cell, width, first="  "))]


def _cell(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
