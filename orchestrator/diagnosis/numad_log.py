"""numad's log: which process's pages moved, to which node, for how long, and how long ago. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from orchestrator.model.diagnosis import PageMove
from orchestrator.model.reading import Seconds

_STAMP: Final = r"^(?:(?P<stamp>\w{3} \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4}): )?"
_ADVISED: Final = re.compile(_STAMP + r"Advising pid (?P<pid>\d{1,20}) \((?P<command>.*)\) move from nodes")
_MOVED: Final = re.compile(
    _STAMP
    + r"PID (?P<pid>\d{1,20}) moved to node\(s\) (?P<nodes>\S+) in "
    + r"(?P<whole>\d{1,12})\.(?P<rest>\d{1,2}) seconds"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""Months of ctime(3) in numad's lines: English in any locale. The time is the host's local time."""


def read_numad_log(text: str, now: str | None = None) -> tuple[PageMove, ...]:
    """The finished moves, in their order.

    numad writes the hundredths of a second without a leading zero ("%d.%d" in its source): 59.2 seconds are
    59.02.

    Args:
        text: the log or its end.
        now: the host's local time as `2015-03-14T06:10:00`; None = unknown.
    """
    commands: dict[int, str] = {}
    moves = []
    clock = _moment(now)
    for line in text.splitlines():
        if advised := _ADVISED.match(line):
            commands[int(advised["pid"])] = advised["command"]
        elif moved := _MOVED.match(line):
            moves.append(
                PageMove(
                    pid=int(moved["pid"]),
                    command=commands.get(int(moved["pid"]), ""),
                    to_nodes=moved["nodes"],
                    seconds=int(moved["whole"]) + int(moved["rest"]) / 100,
                    age=_age(moved["stamp"], clock),
                )
            )
    return tuple(moves)


def _moment(now: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(now) if now else None
    except ValueError:
        return None


def _age(stamp: str | None, now: datetime | None) -> Seconds | None:
    """How long ago; both times are the host's local time."""
    if stamp is None or now is None:
        return None
    _, month, day, time, year = stamp.split()
    try:
        hour, minute, second = (int(part) for part in time.split(":"))
        then = datetime(int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=None)  # noqa: DTZ001  (local on both sides)
    except ValueError:
        return None
    return max(0.0, (now.replace(tzinfo=None) - then).total_seconds())
