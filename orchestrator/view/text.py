"""Numbers, times, foreign text and tables as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TextIO

from rich.cells import cell_len

from orchestrator.formats import clock_time, counted, duration, listed, size, stamp, stamp_seconds
from orchestrator.model.observation import SettingValue
from orchestrator.untrusted import visible

__all__ = [
    "clock_time",
    "counted",
    "duration",
    "listed",
    "nodes_of",
    "printed",
    "setting",
    "size",
    "stamp",
    "stamp_seconds",
    "table",
]


def nodes_of(count: int, total: int) -> str:
    """`3 nodes` if these are all, else `1 of 3 nodes`."""
    return counted(total, "node") if count == total else f"{count} of {counted(total, 'node')}"


def setting(value: SettingValue | None) -> str:
    """A setting's value, or `not set`."""
    match value:
        case None:
            return "not set"
        case str():
            return value or '""'
        case _:
            return f"[{', '.join(value)}]"


IN_ASCII: Final[Mapping[str, str]] = {"→": "->", "…": "...", "·": "-", "✓": "+", "✗": "X", "▶": ">"}
"""The program's own signs that are not ASCII, and what is written to a stream whose encoding lacks them."""


def printed(lines: Iterable[str], stream: TextIO) -> str:
    """Lines as they are written to a stream: each made visible, so that none can be more than one.

    Signs that the stream's encoding lacks are written in ASCII, and any other such character is escaped.
    """
    text = "".join(f"{visible(line)}\n" for line in lines)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    lacking = {ord(sign): plain for sign, plain in IN_ASCII.items() if not sign.encode(encoding, "ignore")}
    return text.translate(lacking).encode(encoding, "backslashreplace").decode(encoding)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> list[str]:
    """The lines of a table; the columns in `numbers` are right-aligned, the last column is not padded."""
    rows = [[visible(text) for text in row] for row in rows]
    widths = [max(cell_len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  ".join(
            _cell(text, width, right=place in numbers, last=place == len(head) - 1)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def _cell(text: str, width: int, *, right: bool, last: bool) -> str:
    blanks = " " * (width - cell_len(text))
    if right:
        return blanks + text
    return text if last else text + blanks
