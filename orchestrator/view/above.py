"""The lines above the panel of the live view: what it does not show. Bursts of one kind are one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.kinds import kind_of
from orchestrator.model import event as ev
from orchestrator.model import work_event as wev
from orchestrator.model.action import Flush, ForceHandoff, ProbeSettings, StartNode, StopNode, WriteSettings
from orchestrator.model.event import Event, Record
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Kind, Wave
from orchestrator.model.reading import Instant
from orchestrator.steps import JOIN, START, TURN
from orchestrator.untrusted import one_line
from orchestrator.view.feed import LISTED, Feed, Line
from orchestrator.view.text import duration, listed, size
from orchestrator.view.turns import Turns

BURST: Final = 4
"""So many events of one kind in one step of the run are one line."""

_REASON: Final = 240
"""Characters of a line about a failure or a hold."""

_ENTERED: Final = {NodePhase.STOPPED.value: "stopped", NodePhase.REJOINED.value: "joined"}
"""Phases of which a burst is worth a line: one node's are in the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveLine:
    """A line above the panel."""

    at: Instant
    text: str
    sign: str = ""  # its name in `SIGNS`; empty for none
    bad: bool = False


class Above:
    """The lines of a run's events, step by step.

    Args:
        feed: the sentences of the events.
        turns: when the steps of the nodes began; it has seen the records that are given.
        kind: kind of cluster, which has its own words.
    """

    def __init__(self, feed: Feed, turns: Turns, kind: Kind) -> None:
        self._feed, self._turns, self._kind = feed, turns, kind
        self._wave: Wave | None = None

    def lines(self, records: Sequence[Record]) -> list[AboveLine]:
        """These were committed, in one step of the run."""
        alike: dict[object, list[Line]] = {}
        ends = any(isinstance(one.event, ev.StandingDown) and one.event.never_began for one in records)
        for number, line in enumerate(self._feed.lines(records)):
            if ends and isinstance(line.record.event, ev.Hold):
                continue  # the end of the run follows at once, with the same sentence
            if isinstance(line.record.event, ev.WaveStarted):
                self._wave = line.record.event.wave
            alike.setdefault(_kind_of(line) or number, []).append(line)
        return [above for found in alike.values() for above in self._of(found)]

    def _of(self, found: Sequence[Line]) -> list[AboveLine]:
        event, at = found[0].record.event, found[0].record.at
        if len(found) >= BURST:
            return [AboveLine(at=at, text=self._together(found), sign=sign_of(event), bad=is_bad(event))]
        news = (line for line in found if not self._shown_below(line))
        return [above for line in news for above in self._each(line)]

    def _each(self, line: Line) -> list[AboveLine]:
        event, at = line.record.event, line.record.at
        text = self._back(event, at) if isinstance(event, ev.NodeRecovered) else line.text
        if sign_of(event) in ("failed", "attention"):
            # A long reason, or one with many names, is whole at the end of the run.
            text = one_line(text.splitlines()[0].split(" | ")[0], _REASON)
        first = AboveLine(at=at, text=text, sign=sign_of(event), bad=is_bad(event))
        return [first, *(AboveLine(at=at, text=below) for below in line.below)]

    def _together(self, found: Sequence[Line]) -> str:
        """A burst: where, how many nodes, and what."""
        wave = self._wave
        where = "" if wave is None else f"zone {wave.zone}: " if wave.zone else f"wave {wave.number}: "
        event = found[0].record.event
        match event:
            case ev.PhaseEntered(to=to):
                return f"{where}{len(found)} {_ENTERED[to]}"
            case ev.NodeRecovered():
                back = (one.record.event for one in found)
                took = {one.node: one.seconds for one in back if isinstance(one, ev.NodeRecovered)}
                low, high = duration(min(took.values())), duration(max(took.values()))
                last = max(took, key=lambda name: took[name])
                times = low if low == high else f"{low} to {high}, the slowest is {last}"
                return f"{where}{len(found)} back after {times}"
            case _:
                names, said = [one.text.partition(": ")[0] for one in found], _without_name(found[0])
                return f"{where}{listed(names, 3)}: {said}"

    def _back(self, event: ev.NodeRecovered, at: Instant) -> str:
        """A node that is done, with what its steps took."""
        took, own = self._turns.took(event.node, at), kind_of(self._kind).words.steps
        if JOIN in took:
            both = TURN[NodePhase.STARTING.value]
            took = {both if step == START else step: seconds for step, seconds in took.items()}
            took[both] += took.pop(JOIN)
        steps = [
            f"{own.get(step, step)} {duration(seconds)}"
            for step, seconds in took.items()
            if step in TURN.values() and seconds >= 1.0
        ]
        copied = f"; {size(event.bytes_copied)} copied" if event.bytes_copied else ""
        after = f"{event.node}  back after {duration(event.seconds)}"
        return f"{after}: {', '.join(steps)}{copied}" if steps else f"{after}{copied}"

    def _shown_below(self, line: Line) -> bool:
        """Whether the panel shows an event, so that it needs no line above it."""
        event = line.record.event
        if line.text.startswith(LISTED):  # the panel has what is left to restore
            return True
        if isinstance(event, ev.WaveFinished):
            return self._wave is None or len(self._wave.nodes) == 1
        return in_panel(event)


def in_panel(event: Event) -> bool:
    """Whether the panel or the summary shows an event, such as a step that goes as planned."""
    match event:
        case ev.GoodReading(count=count):
            return count > 0
        case ev.ActionConfirmed(output=output):
            return not output.strip()
        case ev.ActionSent(action=action):
            return isinstance(action, _PLANNED)
        case ev.PhaseEntered(node=node, to=to, why=why):
            return not why or (node is not None and to == NodePhase.STOPPED.value)
        case ev.AlertsAtStart(alerts=alerts):
            return not alerts
        case ev.SettingRestored(note=note):
            return not note
        case ev.BaselineRecorded(missing=missing):
            return not missing
        case ev.LeaseTaken(takeover=takeover):
            return not takeover
        case _:
            return isinstance(event, _SHOWN_BELOW)


_PLANNED: Final = (StopNode, StartNode, Flush, ForceHandoff, ProbeSettings, WriteSettings)
_SHOWN_BELOW: Final = (
    *(ev.RunFinished, ev.SettingChanged, ev.VotingExcluded, ev.VotingRestored, ev.TakenDown, ev.WaveStarted),
    *(ev.HoldsCleared, ev.GatesPassed, ev.Notified, ev.SilenceRenewed, wev.WritesRead, wev.HandoffWaits),
)


def _kind_of(line: Line) -> object | None:
    """What the events of a burst have in common; None for an event that is none of one."""
    match line.record.event:
        case ev.PhaseEntered(node=str(), to=to, why=why):
            shown = to == NodePhase.STOPPED.value or (to == NodePhase.REJOINED.value and not why)
            return ("entered", to) if shown else None
        case ev.NodeRecovered():
            return "back"
        case ev.ActionSent() | ev.ActionConfirmed() | wev.TuningApplied():
            return None if in_panel(line.record.event) or line.below else _without_name(line)
        case _:
            return None


def _without_name(line: Line) -> str | None:
    """What a line says of its node, with {node} for its name; None if it does not begin with one."""
    name, colon, rest = line.text.partition(": ")
    return rest.replace(name, "{node}") if colon and " " not in name else None


def is_bad(event: Event) -> bool:
    """Whether a person has to look at it: it is bold."""
    return sign_of(event) == "failed"


def sign_of(event: Event) -> str:
    """The name of the sign of an event's line: of failures, of holds, of progress; empty for all else."""
    if isinstance(event, ev.StoodDown):
        return "failed" if event.left else "done" if event.outcome is Outcome.RESTORED else "attention"
    return next((name for name, kinds in _SIGNED.items() if isinstance(event, kinds)), "")


_SIGNED: Final = {
    "failed": (*(ev.ActionFailed, ev.LeaseLost, ev.Deposed, ev.Rescued, ev.SecondFailure, wev.StartFailed),),
    "attention": (
        *(ev.Hold, ev.GateClosed, ev.StandingDown, ev.Requested, ev.NotNotified, wev.TuningMissed),
        *(wev.MergeWarned, wev.NotHastened, wev.FellSilent, wev.AccessRefused),
    ),
    "done": (ev.NodeRecovered, ev.WaveFinished, wev.IndexMerged, ev.GateOpened),
}
