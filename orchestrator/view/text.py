"""Numbers, times, foreign text and tables as plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.cells import cell_len

from orchestrator.model.observation import SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.untrusted import visible

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_BRIEF_SECONDS = 10
"""Below this duration a tenth of a second is still shown."""


def duration(seconds: Seconds) -> str:
    """A duration in its two largest units: `0.4s`, `42s`, `1m 12s`, `3h 5m`, `2d 4h`. Below 0 counts as 0."""
    seconds = max(0.0, seconds)
    if round(seconds, 1) < _BRIEF_SECONDS:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"


def size(count: int) -> str:
    """Bytes in decimal units: `512 B`, `1.2 GB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        # 999.95 would be shown as 1000.0
        if abs(amount) < 999.95:  # noqa: PLR2004  (see the line above)
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} PB"


def stamp(at: Instant) -> str:
    """RFC 3339 in UTC with milliseconds, for `ts`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp_seconds(at: Instant) -> str:
    """RFC 3339 in UTC to the second, for lines that people read."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock_time(at: Instant) -> str:
    """The time of day in UTC, for use where the date is clear."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 node`, `3 nodes`, `2 copies`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def nodes_of(count: int, total: int) -> str:
    """`3 nodes` if these are all, else `1 of 3 nodes`."""
    return counted(total, "node") if count == total else f"{count} of {counted(total, 'node')}"


def listed(names: Collection[str], limit: int = 8) -> str:
    """Names with commas; names beyond the limit are only counted: `es1, es2 and 28 more`."""
    shown = list(names)[:limit]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def setting(value: SettingValue | None) -> str:
    """A setting's value, or `absent`."""
    match value:
        case None:
            return "absent"
        case str():
            return value or '""'
        case _:
            return f"[{', '.join(value)}]"


def printed(lines: Iterable[str], stream: TextIO) -> str:
    """Lines as they are written to a stream: each made visible, so that none can be more than one.

    Characters that the stream's encoding lacks are escaped too.
    """
    text = "".join(f"{visible(line)}\n" for line in lines)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


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
