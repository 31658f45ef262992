"""What the live view showed of a run, beside the journal of that run: its bar, its time left, its signs.

A recording is the screen every second (`terminal.py`) and the records of the run. What they add up to is
apart from how they are taken, so that it can be shown without nodes that each defect would be noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.model.action import StartNode
from orchestrator.model.event import ActionConfirmed, Event, NodeRecovered, PhaseEntered, Record, WaveStarted
from orchestrator.view.text import duration, table
from tests.lab.terminal import Look

FULL, HALF, EMPTY = "━", "╸", "╌"
_BAR: Final = re.compile(f"([{FULL}{HALF}]*)({EMPTY}*)")
_SHORTEST_BAR: Final = 10
"""Characters; a rule or a sign that looks alike is shorter."""
_TIME: Final = r"(?:\d+(?:\.\d+)?[dhms] ?)+"
_LEFT: Final = re.compile(
    rf"(?P<low>{_TIME})(?:to (?P<high>{_TIME}))?left\b"
    rf"(?: \(\d\d:\d\d\), (?P<least>{_TIME})to (?P<most>{_TIME}))?"
)
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HELD: Final = re.compile(r"│ HELD\b")

OVER, NOW = "✓", "▶"
"""The sign of a step that is over, and of one in progress."""

Shows = Callable[[Event, str], bool]


def _node_in(*phases: str) -> Shows:
    return lambda event, node: isinstance(event, PhaseEntered) and event.node == node and event.to in phases


def _chosen(event: Event, node: str) -> bool:
    return isinstance(event, WaveStarted) and node in event.wave.nodes


def _started(event: Event, node: str) -> bool:
    confirmed = isinstance(event, ActionConfirmed) and isinstance(event.action, StartNode)
    return (confirmed and event.action.node == node) or _node_in("rejoined")(event, node)


def _back(event: Event, node: str) -> bool:
    return isinstance(event, NodeRecovered) and event.node == node


EVENTS: Final[Mapping[tuple[str, str], Shows]] = {
    (NOW, "check"): _chosen,
    (OVER, "check"): _chosen,
    (NOW, "disable allocation"): _chosen,
    (OVER, "disable allocation"): _node_in("stopping"),
    (NOW, "stop"): _node_in("stopping"),
    (OVER, "stop"): _node_in("stopped"),
    (NOW, "work"): _node_in("stopped"),
    (OVER, "work"): _node_in("starting"),
    (NOW, "start"): _node_in("starting"),
    (NOW, "start and join"): _node_in("starting"),
    (OVER, "start"): _started,
    (NOW, "join"): _started,
    (OVER, "join"): _node_in("rejoined"),
    (OVER, "start and join"): _node_in("rejoined"),
    (NOW, "recover"): _node_in("rejoined"),
    (OVER, "recover"): _back,
    (OVER, "done"): _back,
}
"""Sign and step to the event before which no screen may show them: the first of this kind for the node."""

_STEPS: Final = sorted({step for _, step in EVENTS}, key=len, reverse=True)
_STEP: Final = re.compile(rf"([{OVER}{NOW}]) ({'|'.join(_STEPS)})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The bar of one look."""

    at: float
    share: float  # of it that is full
    left: str  # the time left beside it, with its range, as it is written; empty without one
    held: bool  # whether the run waited for a hold to clear


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign as it was first seen, beside its event."""

    node: str
    sign: str
    step: str
    seen: float
    event: float | None  # None if the journal has no such event

    @property
    def ahead(self) -> bool:
        """Whether the screen said it before it was so."""
        return self.event is None or self.seen < self.event


def bar_of(look: Look) -> Bar | None:
    """The bar that a look shows; None without one."""
    for number, line in enumerate(look.lines):
        found = max(_BAR.finditer(line), key=lambda one: len(one[0]))
        if len(found[0]) < _SHORTEST_BAR or not line.startswith("│"):
            continue
        full = 2 * found[1].count(FULL) + found[1].count(HALF)
        left = _LEFT.search(" ".join(look.lines[max(0, number - 1) : number + 1]))
        held = any(map(_HELD.search, look.lines))
        return Bar(at=look.at, share=full / (2 * len(found[0])), left=left[0] if left else "", held=held)
    return None


def seconds_of(left: str) -> tuple[float, float]:
    """The shortest and the longest time left that this text allows."""
    found = _LEFT.search(left)
    assert found is not None, left
    least = found["least"] or found["low"]
    return _seconds(least), _seconds(found["most"] or found["high"] or least)


def _seconds(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([dhms])", text))


def _within(bar: Bar, end: float) -> str:
    """Whether the time left, as it was shown, has what it took."""
    low, high = seconds_of(bar.left) if bar.left else (0.0, 0.0)
    return "within" if low <= end - bar.at <= high else ""


class Recording:
    """A run as it was seen, and as it was.

    Attributes:
        bars: of the looks that have one.
    """

    def __init__(self, looks: Sequence[Look], records: Sequence[Record], nodes: Sequence[str]) -> None:
        self._looks, self._records, self._nodes = looks, records, nodes
        self.bars = [bar for bar in map(bar_of, looks) if bar is not None]

    def first(self, shows: Shows, node: str) -> float | None:
        """When the first such event of a node was committed."""
        return next((one.at for one in self._records if shows(one.event, node)), None)

    def standstill(self) -> float:
        """The most seconds for which no look saw the bar move, while no hold had the run wait."""
        longest, moved = 0.0, self.bars[0].at
        for before, bar in pairwise(self.bars):
            if bar.share != before.share or bar.held:
                moved = bar.at
            longest = max(longest, bar.at - moved)
        return longest

    def went_back(self) -> list[Bar]:
        """The looks at which the bar was shorter than before."""
        return [bar for before, bar in pairwise(self.bars) if bar.share < before.share]

    def moves(self, node: str) -> int:
        """How often the bar was seen to move between a node's stop and its recovery."""
        begin, end = self.first(_node_in("stopping"), node), self.first(_back, node)
        assert begin is not None, node
        assert end is not None, node
        inside = [bar.share for bar in self.bars if begin <= bar.at < end]
        return sum(before != after for before, after in pairwise(inside))

    def signs(self) -> list[Sign]:
        """Each sign of a step of a node where it was first seen."""
        found: dict[tuple[str, str, str], Sign] = {}
        for look in self._looks:
            for node, sign, step in self._signs_in(look):
                if (node, sign, step) not in found:
                    event = self.first(EVENTS[sign, step], node)
                    found[node, sign, step] = Sign(node=node, sign=sign, step=step, seen=look.at, event=event)
        return list(found.values())

    def _signs_in(self, look: Look) -> Iterator[tuple[str, str, str]]:
        named = "|".join(map(re.escape, self._nodes))
        for line in look.lines:
            yield from ((node, OVER, "done") for node in re.findall(rf"{OVER} ({named})\b", line))
            of_node = re.match(rf"│ ({named})\b", line)
            if of_node is not None:
                yield from ((of_node[1], *sign) for sign in _STEP.findall(line))

    def lines(self) -> list[str]:
        """All of it as tables, for people."""
        begin, end = self.bars[0].at, self.bars[-1].at
        at = {share: begin + share * (end - begin) for share in (0.25, 0.5, 0.75)}
        looks = {share: min(self.bars, key=lambda bar: abs(bar.at - at[share])) for share in at}
        times = [
            (
                f"{share:.0%}",
                f"{bar.share:.0%}",
                bar.left or "none",
                duration(end - bar.at),
                _within(bar, end),
            )
            for share, bar in looks.items()
        ]
        signs = [
            (one.node, f"{one.sign} {one.step}", "no event", "AHEAD")
            if one.event is None
            else (one.node, f"{one.sign} {one.step}", f"{one.seen - one.event:+.1f} s", "AHEAD" * one.ahead)
            for one in self.signs()
        ]
        return [
            f"{duration(end - begin)} of pictures; the bar stood still for {self.standstill():.1f} s at most",
            "",
            *table(("OF THE TIME", "BAR", "LEFT", "IT TOOK", ""), times),
            "",
            *table(("NODE", "SIGN", "AFTER ITS EVENT", ""), signs),
        ]
