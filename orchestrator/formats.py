"""Numbers and times as text: one form of each, in views, pages and messages."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_BRIEF_SECONDS = 10
"""Below this duration a tenth of a second is still shown."""


def duration(seconds: float) -> str:
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


def stamp(at: float) -> str:
    """RFC 3339 in UTC with milliseconds, for `ts`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp_seconds(at: float) -> str:
    """RFC 3339 in UTC to the second, for lines that people read."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock_time(at: float) -> str:
    """The time of day in UTC, for use where the date is clear."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 node`, `3 nodes`, `2 copies`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Collection[str], limit: int = 8) -> str:
    """Names with commas; names beyond the limit are only counted: `es1, es2 and 28 more`."""
    shown = list(names)[:limit]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def setting(value: object) -> str:
    """A setting's value, or `not set`."""
    match value:
        case None:
            return "not set"
        case str():
            return value or '""'
        case list() | tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return str(value)
