"""Predicted durations: from this cluster's past runs, else from what its nodes store and published times.

A wave takes what its slowest node takes from its stop to its recovery, and its share of what a run does
beside that: it reads, withholds allocation, restores settings, ends. A run takes its waves. What the last
predictions were off by corrects the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from orchestrator.engine.waves import nodes_to_restart
from orchestrator.formats import counted
from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    AroundEvent,
    Event,
    NodeRecovered,
    PhaseEntered,
    Record,
    RestoreBegun,
    RunFinished,
    RunResumed,
    RunStarted,
    WaveFinished,
    WaveGaveWay,
)
from orchestrator.model.observation import Observation
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Wave
from orchestrator.model.prediction import Prediction, Usual
from orchestrator.model.reading import Instant, Seconds, Unknown

PUBLISHED: Final = Usual(
    node=Prediction(low=5.0, likely=90.0, high=600.0),
    rests_on="published times of other clusters: 96 s a node (0.90, SSD) to 10 minutes (6.x, 10 TB a node)",
)
"""For a node of Elasticsearch without past runs; a small one was seen to take 7 s."""

_RECENT: Final = 5
"""Older runs are ignored: data and machines have changed since."""
_LOW, _HIGH = 0.8, 2.0
"""The fastest and the slowest that was seen are no bounds: the next time may be beyond them by so much."""
_MOST_GROWN: Final = 4.0
"""No recovery is expected to take so many times as long, or as short, since data grew or shrank."""
_MOST_OFF: Final = 2.0
"""One run that waited for hours must not spoil the next prediction."""


def stored_by_node(seen: Observation) -> dict[NodeName, int]:
    """Bytes of the copies on each node, as far as they were read."""
    disks = {} if isinstance(seen.disks, Unknown) else seen.disks
    return {name: disk.stored_bytes for name, disk in disks.items() if disk.stored_bytes is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """One turn of a node that one process saw from its stop to its recovery."""

    seconds: Seconds  # all of it; `recovery`: from its return to its recovery
    recovery: Seconds = 0.0
    stored: int | None = None  # bytes that the node stored then; None if it was not read

    def storing(self, stored: int | None) -> Seconds:
        """Its duration if the node stored so much: the recovery changes with it."""
        if not stored or not self.stored:
            return self.seconds
        grown = min(max(stored / self.stored, 1 / _MOST_GROWN), _MOST_GROWN)
        return self.seconds + self.recovery * (grown - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTimes:
    """What past runs of a cluster took, the oldest first."""

    turns: Mapping[NodeName, tuple[PastTurn, ...]] = field(default_factory=dict)  # by node
    # of each run, a wave's share of the time beside the slowest node of each wave
    beside: tuple[Seconds, ...] = ()
    # how many times as long as predicted, before the correction, those runs took whose prediction rested on
    # earlier ones
    off: tuple[float, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether any turn is known."""
        return any(self.turns.values())

    def then(self, later: PastTimes) -> PastTimes:
        """These times and those of a later run."""
        names = dict.fromkeys((*self.turns, *later.turns))
        return PastTimes(
            turns={name: (*self.turns.get(name, ()), *later.turns.get(name, ())) for name in names},
            beside=(*self.beside, *later.beside),
            off=(*self.off, *later.off),
        )


def last_of_run(records: Sequence[Record]) -> Record:
    """The last record of the run itself: what became of the messages about its end comes after it."""
    return next((one for one in reversed(records) if not isinstance(one.event, AroundEvent)), records[-1])


def seconds_of(records: Sequence[Record]) -> Seconds:
    """The duration of all attempts at a run, without the time between them."""
    own = [one for one in records if not isinstance(one.event, AroundEvent)]
    again = (pair for pair in pairwise(own) if isinstance(pair[1].event, RunResumed | RestoreBegun))
    idle = sum(begins.at - ended.at for ended, begins in again)
    return last_of_run(records).at - records[0].at - idle


def whole_turns(events: Iterable[Event]) -> dict[NodeName, Seconds]:
    """Seconds from stop to recovered of each node whose turn one process saw from its stop to its recovery.

    If the process ended in between, no process has seen how long the node took: such a turn is left out. The
    events may be those of the last process alone: after a resume, a turn needs its own stop.
    """
    times: dict[NodeName, Seconds] = {}
    under_way, resumed = set[NodeName](), False
    for event in events:
        match event:
            case ActionSent(action=StopNode(node=node)):
                under_way.add(node)
            case RunResumed() | RestoreBegun():
                under_way.clear()
                resumed = True
            case NodeRecovered(node=node, seconds=seconds):
                if node in under_way or not resumed:
                    times[node] = seconds
                under_way.discard(node)
            case _:
                pass
    return times


def cut_turns(records: Sequence[Record]) -> dict[NodeName, Seconds]:
    """Seconds from stop to recovered of each node whose turn needed several attempts, with the time between.

    That is how long the node took for its users. It says nothing of a turn that one process does.
    """
    times, stopped = dict[NodeName, Seconds](), dict[NodeName, Instant]()
    for record in records:
        match record.event:
            case ActionSent(action=StopNode(node=node)):
                stopped[node] = record.at
            case NodeRecovered(node=node) if node in stopped:
                times[node] = record.at - stopped.pop(node)
            case _:
                pass
    whole = whole_turns(record.event for record in records)
    return {node: seconds for node, seconds in times.items() if node not in whole}


def times_of(records: Sequence[Record]) -> PastTimes:
    """What one run took, by its journal. Waves that overlap, or were cut in two, tell only their turns.

    Merges before the first wave are left out: a later run may have none.
    """
    whole = whole_turns(record.event for record in records)
    turns: dict[NodeName, tuple[PastTurn, ...]] = {}
    back, stored = dict[NodeName, Instant](), dict[NodeName, int]()
    beside, slowest = list[Seconds](), 0.0
    since: Instant | None = None
    for record in records:
        match record.event:
            case RunStarted(forecast=forecast):
                since, stored = record.at, {} if forecast is None else dict(forecast.stored)
            case RunResumed() | RestoreBegun():
                since = None
            case PhaseEntered(node=None, from_=Phase.MERGED.value) if since is not None:
                since = record.at
            case PhaseEntered(node=str(node), to=NodePhase.REJOINED.value):
                back[node] = record.at
            case NodeRecovered(node=node, seconds=seconds):
                slowest = max(slowest, seconds)
                if whole.get(node) == seconds:
                    recovery = min(seconds, record.at - back.get(node, record.at))
                    turns[node] = (PastTurn(seconds=seconds, recovery=recovery, stored=stored.get(node)),)
            case WaveFinished():
                if since is not None:
                    beside.append(max(0.0, record.at - since - slowest))
                since, slowest = record.at, 0.0
            case RunFinished(outcome=Outcome.DONE) if since is not None and beside:
                beside[-1] += record.at - since
            case _:
                pass
    if any(isinstance(record.event, WaveGaveWay) for record in records):
        beside = []
    return PastTimes(turns=turns, beside=(fmean(beside),) if beside else (), off=_off(records))


def _off(records: Sequence[Record]) -> tuple[float, ...]:
    """Actual over predicted seconds of a run that was done, if its prediction rested on earlier runs.

    It is the error of the prediction before its correction: else a correction that is right would end itself.
    """
    begun, last = (records[0].event, last_of_run(records).event) if records else (None, None)
    if not isinstance(begun, RunStarted) or not isinstance(last, RunFinished) or begun.indices:
        return ()
    forecast = begun.forecast
    whole = nodes_to_restart(begun) == len(begun.nodes)  # the plan of a canary ends at its pause
    if last.outcome is not Outcome.DONE or forecast is None or not forecast.measured or not whole:
        return ()
    uncorrected = forecast.in_all.likely / forecast.correction
    return (seconds_of(records) / uncorrected,) if uncorrected else ()


def predict_node(
    name: NodeName, times: PastTimes, usual: Usual = PUBLISHED, *, stored: int | None = None
) -> Prediction:
    """One node, from its own last restarts, else from those of its peers, else from the usual time.

    It stores so many bytes now, if known.
    """
    own = times.turns.get(name, ())[-_RECENT:]
    past = own or [turn for others in times.turns.values() for turn in others[-_RECENT:]]
    if not past:
        return usual.nodes.get(name, usual.node)
    return _spread([turn.storing(stored) for turn in past])


def predict_wave(
    wave: Wave,
    times: PastTimes,
    usual: Usual = PUBLISHED,
    *,
    stored: Mapping[NodeName, int] | None = None,
) -> Prediction:
    """Nodes of a wave restart at once, so the slowest decides; with what the run does beside it."""
    nodes = [predict_node(name, times, usual, stored=(stored or {}).get(name)) for name in wave.nodes]
    beside = _spread(times.beside[-_RECENT:])
    return _corrected(
        Prediction(
            low=max(node.low for node in nodes) + beside.low,
            likely=max(node.likely for node in nodes) + beside.likely,
            high=max(node.high for node in nodes) + beside.high,
        ),
        times,
    )


def _spread(past: Sequence[Seconds]) -> Prediction:
    if not past:
        return Prediction(low=0.0, likely=0.0, high=0.0)
    return Prediction(low=_LOW * min(past), likely=median(past), high=_HIGH * max(past))


def correction(times: PastTimes) -> float:
    """The factor by what the last predictions were off: the more of them there are, the more they count."""
    recent = times.off[-_RECENT:]
    factor = median(recent) ** (len(recent) / (len(recent) + 2)) if recent else 1.0
    return min(max(factor, 1 / _MOST_OFF), _MOST_OFF)


def _corrected(prediction: Prediction, times: PastTimes) -> Prediction:
    """The prediction with its correction."""
    likely = prediction.likely * correction(times)
    return Prediction(low=min(prediction.low, likely), likely=likely, high=max(prediction.high, likely))


def rests_on(times: PastTimes, usual: Usual) -> str:
    """The basis of predictions from these times, for people."""
    past = sum(len(each[-_RECENT:]) for each in times.turns.values())
    instead = f"; {usual.instead}" if usual.instead else ""
    if not past:
        return f"no restart of this cluster is on record; {usual.rests_on}{instead}"
    nodes = sum(bool(each) for each in times.turns.values())
    return f"{counted(past, 'restart')} in earlier runs, of {counted(nodes, 'node')}{instead}"


def total(predictions: Sequence[Prediction], *, away: Sequence[Seconds] | None = None) -> Prediction:
    """Waves go one after the other.

    With overlap each may begin while earlier ones recover. Between none and all of the recoveries overlap
    with later waves, so only the lower end changes: it is the longest wave, or the time in which nodes are
    `away` (as of `least_away`), if that is longer.
    """
    low = sum(p.low for p in predictions)
    if away is not None:
        low = min(low, max([sum(away), *(p.low for p in predictions)]))
    return Prediction(
        low=low, likely=sum(p.likely for p in predictions), high=sum(p.high for p in predictions)
    )


def least_away(wave: Wave, times: PastTimes, usual: Usual = PUBLISHED) -> Seconds:
    """The shortest time until the nodes of a wave are back, without their recovery.

    No other wave stops meanwhile, with overlap neither. Without a past turn of any of them it is the least
    time of a usual restart, in which nothing has to recover.
    """
    past = [times.turns.get(name, ())[-_RECENT:] for name in wave.nodes]
    known = [min(turn.seconds - turn.recovery for turn in turns) for turns in past if turns]
    return _LOW * max(known) if known else usual.node.low
