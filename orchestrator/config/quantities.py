"""Quantities in files and flags: durations, byte sizes, shares, moments.

Every parser takes any YAML value and raises ValueError with a message that says what is wanted
and does not repeat the value.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from orchestrator.model.reading import Instant, Seconds

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_DURATION_DAYS: Final = 3650  # ten years: a longer duration is a typing error

_BYTES: Final = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
"""As in Elasticsearch (ByteSizeValue): powers of 1024, for letters of either case."""

_MAX_BYTES: Final = 2**63 - 1  # Elasticsearch stores sizes in a signed long

DURATION: Final = "a duration with its unit, such as 90s, 10m, 8h or 30d"
BYTE_SIZE: Final = "a size with its unit, such as 512kb, 100mb or 1gb (1mb is 1024 * 1024 bytes)"
PERCENT: Final = "a percentage, such as 50%"


def parse_duration(value: object) -> Seconds:
    """Read `90s`, `10m`, `8h`, `30d`.

    Raises:
        ValueError: it is not a duration, is 0, or is longer than ten years.
    """
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {DURATION}")
    seconds = float(int(match[1]) * _SECONDS[match[2]])
    if not 0 < seconds <= _MAX_DURATION_DAYS * _SECONDS["d"]:
        raise ValueError(f"must be more than nothing and at most {_MAX_DURATION_DAYS}d")
    return seconds


def format_duration(seconds: Seconds) -> str:
    """Write whole seconds with the largest unit that divides them: 600 is `10m`."""
    whole = round(seconds)
    if whole and whole % _SECONDS["d"] == 0:
        return f"{whole // _SECONDS['d']}d"
    unit = next(unit for unit in ("h", "m", "s") if whole % _SECONDS[unit] == 0)
    return f"{whole // _SECONDS[unit]}{unit}"


def parse_byte_size(value: object) -> int:
    """Read `100mb`, `1gb`, `512k` in bytes, as Elasticsearch does.

    Raises:
        ValueError: it is not a size, is 0 (Elasticsearch's "no limit"), or does not fit 63 bits.
    """
    match = re.fullmatch(r"([0-9]{1,19})(b|[kmgtp]b?)", value.lower()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {BYTE_SIZE}")
    size = int(match[1]) * _BYTES[match[2][0]]
    if not 0 < size <= _MAX_BYTES:
        raise ValueError("must be more than nothing and fit a 64-bit number")
    return size


def format_byte_size(size: int) -> str:
    """Write bytes with the largest unit that divides them: 104857600 is `100mb`."""
    unit = next(unit for unit in reversed(_BYTES) if size % _BYTES[unit] == 0)
    return f"{size // _BYTES[unit]}{unit if unit == 'b' else unit + 'b'}"


def parse_percent(value: object) -> float:
    """Read `50%` as 0.5.

    Raises:
        ValueError: it is not a share, or is above 100 %.
    """
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {PERCENT}")
    share = float(match[1]) / 100
    if share > 1:
        raise ValueError("must be at most 100%")
    return share


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Nodes of one wave: a number, or a share of all nodes."""

    count: int | None = None  # nodes, at least 1; None if a share is given
    percent: float | None = None  # more than 0, at most 100; None if a number is given

    def resolve(self, nodes: int) -> int:
        """The number of nodes, given the total: a share is rounded down, and is at least one."""
        if self.percent is not None:
            return max(1, math.floor(nodes * self.percent / 100))
        return self.count or 1

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.percent is not None else str(self.count)


def parse_budget(value: object) -> Budget:
    """Read `2` or `10%`; a text that is a whole number counts as one (flags are text).

    Raises:
        ValueError: it is neither, or is 0.
    """
    wanted = "must be a whole number of at least 1, or a percentage such as 10%"
    if isinstance(value, str) and value.endswith("%"):
        percent = parse_percent(value) * 100
        if percent <= 0:
            raise ValueError(wanted)
        return Budget(percent=round(percent, 3))
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(wanted)
    return Budget(count=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTime:
    """A moment that was given as a time, in seconds since the epoch."""

    at: Instant

    def resolve(self, _now: Instant) -> Instant:
        """The moment itself."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """A moment that was given as a duration before now."""

    seconds: Seconds

    def resolve(self, now: Instant) -> Instant:
        """The moment this duration before now."""
        return now - self.seconds


TimeOrAge: TypeAlias = GivenTime | Age
"""A value of `--started-before`."""


def parse_time_or_age(value: str) -> TimeOrAge:
    """Read `2026-11-01T00:00Z` or `30d`. A time without an offset is refused, since it is ambiguous.

    Raises:
        ValueError: it is neither.
    """
    wanted = "must be a time with its offset, such as 2026-11-01T00:00Z, or an age, such as 30d"
    if re.fullmatch(r"[0-9]+[smhd]", value):
        return Age(seconds=parse_duration(value))
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T", value) is None:
        raise ValueError(wanted)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(wanted) from None
    if moment.tzinfo is None:
        raise ValueError(wanted)
    return GivenTime(at=moment.timestamp())
