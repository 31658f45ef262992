"""The steps of a run's nodes: which is over, which one is now, how much of the run is done and what is left.

A step is over once an event of the journal says so, and never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

from orchestrator.engine.estimate import PUBLISHED
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import nodes_to_restart
from orchestrator.kinds import kind_of
from orchestrator.model.action import Purpose
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    NodeRecovered,
    PhaseEntered,
    Record,
    RestoreBegun,
    RunResumed,
    RunStarted,
    SettingChanged,
    SettingRestored,
    WaveFinished,
    WaveGaveWay,
    WaveStarted,
)
from orchestrator.model.phase import RESTART, VERSION, NodePhase, Phase
from orchestrator.model.prediction import Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.steps import (
    CHECK,
    DISABLE,
    DONE,
    JOIN,
    RECOVER,
    START,
    STOP,
    WORK,
    step_of_node,
    step_of_run,
)
from orchestrator.view.text import duration, time_of_day

_ORDER: Final = (CHECK, DISABLE, STOP, WORK, START, JOIN, RECOVER)

_USUAL: Final[Mapping[str, float]] = {
    CHECK: 0.03,
    DISABLE: 0.02,
    STOP: 0.08,
    WORK: 0.02,
    START: 0.1,
    JOIN: 0.5,
    RECOVER: 0.25,
}
"""The share of each step in a turn, until this run has measured one: as small real nodes take it."""
_LONGER: Final = 1.3
"""A step may take so many times its median before the bar counts it as late: most nodes differ by less."""
_WITH_WORK: Final = 0.3
"""That of the work of a node with hooks, an install, tuning or a reboot, as far as it was not measured."""

_END: Final = 0.02
"""The share of the whole that is kept for the end of a run, which restores settings."""
_TO_END: Final[Seconds] = 5.0
"""The usual time of that."""


class StepState(Enum):
    """Whether a step is over."""

    OVER = "over"
    NOW = "now"
    TO_COME = "to come"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStep:
    """A step of a node's turn."""

    name: str
    state: StepState
    seconds: Seconds | None = None  # how long it took, or has taken so far; None where no record shows it


class Turns:
    """When the steps of a run's nodes began, by its records in order, and what the finished ones took.

    Only what one process has seen counts: no step lasts over the end of a process.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        # by node, the steps of its turn with their beginnings; DONE is the last. Each value is replaced as a
        # whole, for another thread.
        self.begun: dict[NodeName, tuple[tuple[str, Instant], ...]] = {}
        self.waves_measured = 0
        self.overlaps = False
        self._wave: tuple[NodeName, ...] = ()
        self._check_since: Instant = 0.0
        self._disabled: set[tuple[object, str]] = set()
        self._took: dict[str, list[Seconds]] = {}
        self._expected: dict[tuple[Seconds, bool], Mapping[str, Seconds]] = {}  # until the next node is done
        self.wave_seconds: Seconds = 0.0
        self.recovered: set[NodeName] = set()
        for record in records:
            self.see(record)

    def see(self, record: Record) -> None:
        """One more record."""
        at = record.at
        match record.event:
            case RunStarted() | RunResumed() | RestoreBegun():
                self.begun.clear()
                self._wave, self._check_since = (), at
            case SettingChanged(purpose=Purpose.WITHHOLD, level=level, key=key):
                self._disabled.add((level, key))
            case SettingRestored(level=level, key=key):
                self._disabled.discard((level, key))
            case WaveStarted(wave=wave):
                self._wave = wave.nodes
                for name in wave.nodes:
                    self.begun[name] = ((CHECK, self._check_since),)
            case PhaseEntered(node=None, to=to):
                self._run_enters(to, at)
            case PhaseEntered(node=str(name), to=to):
                self._node_enters(NodeName(name), NodePhase(to), at)
            case NodeRecovered(node=name):
                self.recovered.add(name)
            case WaveFinished(seconds=seconds):
                self.waves_measured += 1
                self.wave_seconds += seconds
            case WaveGaveWay():
                self.overlaps = True
            case _:
                pass

    def _run_enters(self, phase: str, at: Instant) -> None:
        if phase == Phase.GATED.value:
            self._check_since = at
        elif phase == Phase.WITHHELD.value and self._disabled:
            for name in self._wave:
                self._begin(name, DISABLE, at)
        elif phase == Phase.REJOINED.value:
            for name in [name for name, begun in self.begun.items() if begun[-1][0] == START]:
                self._begin(name, JOIN, at)

    def _node_enters(self, name: NodeName, phase: NodePhase, at: Instant) -> None:
        match phase:
            case NodePhase.PENDING | NodePhase.SKIPPED | NodePhase.FAILED:
                self.begun.pop(name, None)
            case NodePhase.RECOVERED:
                self._begin(name, DONE, at)
                for step, seconds in self.took(name).items():
                    self._took.setdefault(step, []).append(seconds)
                self._expected = {}
            case _:
                self._begin(name, _STEP_OF[phase], at)

    def _begin(self, name: NodeName, step: str, at: Instant) -> None:
        self.begun[name] = (*self.begun.get(name, ()), (step, at))

    def took(self, name: NodeName, until: Instant | None = None) -> dict[str, Seconds]:
        """Seconds of the steps of a node that are over, in order. With `until`, the last one ends then."""
        begun, found = self.begun.get(name, ()), dict[str, Seconds]()
        if until is not None:
            begun = (*begun, (DONE, until))
        for (step, since), (_, end) in pairwise(begun):
            found[step] = found.get(step, 0.0) + end - since
        return found

    def usual(self, step: str) -> Seconds | None:
        """What this step took so far in this run; None before the first node."""
        return median(self._took[step]) if self._took.get(step) else None

    def expected(self, seconds: Seconds, *, works: bool) -> Mapping[str, Seconds]:
        """What each step of a turn takes: as measured, else its usual share of a turn of so many seconds."""
        found = self._expected.get((seconds, works))
        if found is None:
            shares = {**_USUAL, WORK: _WITH_WORK} if works else _USUAL
            taken = {step: self.usual(step) for step in _ORDER}
            found = {
                step: max(0.1, shares[step] * seconds if usual is None else _LONGER * usual)
                for step, usual in taken.items()
            }
            self._expected[seconds, works] = found
        return found


_STEP_OF: Final = {
    NodePhase.STOPPING: STOP,
    NodePhase.STOPPED: WORK,
    NodePhase.STARTING: START,
    NodePhase.REJOINED: RECOVER,
}


# The steps of one node ------------------------------------


def current_step(state: RunState, node: NodeProgress) -> str | None:
    """The step of its turn that a node is in; None before and after its turn."""
    if node.phase is NodePhase.STARTING:
        return JOIN if state.phase is Phase.REJOINED else START
    if node.phase is NodePhase.PENDING and state.phase in (Phase.GATED, Phase.WITHHELD):
        if state.wave is None or node.name not in state.wave.nodes:
            return None
        return DISABLE if state.phase is Phase.WITHHELD and state.unrestored.withheld else CHECK
    return _STEP_OF.get(node.phase)


def in_words(state: RunState, node: NodeProgress) -> str:
    """The step of a node for people: `join`, `to come`, `done`."""
    own, step = _own_names(state), current_step(state, node)
    return step_of_node(node.phase.value, own) if step is None else own.get(step, step)


def run_in_words(state: RunState) -> str:
    """The step of a run for people: `check`, `stop and start`, `stand down`."""
    return step_of_run(state.phase.value, _own_names(state))


def _own_names(state: RunState) -> Mapping[str, str]:
    """Steps that the kind of this run's cluster calls otherwise."""
    return kind_of(state.begun.policy.kind).words.steps


def steps_of(state: RunState, node: NodeProgress, turns: Turns, now: Instant) -> tuple[TurnStep, ...]:
    """The steps of a node: those that the records show as over, the current one, and those to come.

    Empty before its turn. What another process has seen is left out.
    """
    current, took, begun = current_step(state, node), turns.took(node.name), turns.begun.get(node.name, ())
    if current == START and begun and begun[-1][0] == JOIN:
        current = JOIN  # the run stands down since, which undoes no step
    own = _own_names(state)
    if current is None and node.phase is not NodePhase.RECOVERED:
        return ()
    place = len(_ORDER) if current is None else _ORDER.index(current)
    found = [
        TurnStep(name=own.get(step, step), state=StepState.OVER, seconds=took[step])
        for step in _ORDER[:place]
        if step in took and not (step == WORK and took[step] < 1.0)
    ]
    if current is not None:
        name = own.get(current, current)
        found.append(TurnStep(name=name, state=StepState.NOW, seconds=in_step(state, node, turns, now)))
    ends = state.phase is Phase.STANDING_DOWN
    for step in () if ends else _ORDER[place + 1 :]:
        if step == DISABLE or (step == WORK and not has_work(node)):
            continue
        found.append(TurnStep(name=own.get(step, step), state=StepState.TO_COME))
    return tuple(found)


def has_work(node: NodeProgress) -> bool:
    """Whether a stopped node needs more than its start: hooks, an install, tuning, a reboot."""
    return bool(node.work - {RESTART, VERSION})


def in_step(state: RunState, node: NodeProgress, turns: Turns, now: Instant) -> Seconds:
    """How long a node has been in its step."""
    begun = turns.begun.get(node.name, ())
    since = begun[-1][1] if begun else node.since or state.process.started
    return max(0.0, now - since)


# How much is done, and what is left ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The work of a run until its pause or its end, in predicted seconds or in nodes."""

    total: float
    left: float
    slowest: float  # the same as `left`, where the slowest node of the wave decides


def share_done(state: RunState, turns: Turns, now: Instant) -> float:
    """How much of the run's restarts is done, from 0 to 1: the steps inside a node count by their usual time.

    It may fall when a wave is called off or a node needs another turn: `Meter` does not.
    """
    if state.phase is Phase.ENDED and not state.unfinished:
        return 1.0
    work = _work(state, turns, now)
    restarts = 1.0 - work.left / work.total if work.total else 0.0
    ending = _within((now - state.in_phase.since) / _TO_END) if state.phase is Phase.FINISHING else 0.0
    return (1.0 - _END) * restarts + _END * ending


def time_left(state: RunState, turns: Turns, now: Instant) -> Prediction | None:
    """Seconds until every node is restarted, from the work that is left; None without a prediction or a pace.

    It is a range, at first that of the plan, which becomes narrower with each finished wave of this run.
    """
    if state.phase in (Phase.STANDING_DOWN, Phase.ENDED) or state.merging.unfinished:
        return None
    work, pace = _work(state, turns, now), _pace(state, turns, now)
    if pace is None or not work.total:
        return None
    likely, forecast, low, high = pace * work.slowest + _TO_END, state.begun.forecast, 0.5, 2.0
    if forecast is not None and forecast.in_all.likely:
        low = min(1.0, forecast.in_all.low / forecast.in_all.likely)
        high = max(1.0, forecast.in_all.high / forecast.in_all.likely)
    if turns.waves_measured:
        off = _OFF / sqrt(turns.waves_measured)
        low, high = max(low, 1.0 - off), min(high, 1.0 + off)
    return Prediction(low=low * likely, likely=likely, high=high * likely)


_OFF: Final = 0.5
"""What is left may take so much more or less than one wave has shown; the more waves, the less."""


def _pace(state: RunState, turns: Turns, now: Instant) -> float | None:
    """Seconds for each unit of work: by what the finished waves took, and before them by the plan."""
    weights = _weights(state)
    done = sum(weights.get(name, 1.0) for name in turns.recovered)
    if done and turns.overlaps:  # the seconds of waves that overlap do not add up
        return max(0.0, now - state.process.started) / done
    if done and turns.waves_measured:
        return turns.wave_seconds / done
    return 1.0 if weights else None


def _weights(state: RunState) -> Mapping[NodeName, Seconds]:
    forecast = state.begun.forecast
    return {} if forecast is None else forecast.nodes


def _work(state: RunState, turns: Turns, now: Instant) -> _Work:
    weights, total, left = _weights(state), 0.0, 0.0
    pending = state.nodes_in(NodePhase.PENDING)
    others = len(state.nodes) - len(pending)
    to_come = max(0, nodes_to_restart(state.begun, paused=state.paused) - others)
    wave = frozenset(state.wave.nodes) if state.wave is not None else frozenset[NodeName]()
    counted = [node for node in pending if node.name in wave]
    counted += [node for node in pending if node.name not in wave][: max(0, to_come - len(counted))]
    if not wave and state.phase in (Phase.PREPARING, Phase.GATED) and counted:
        planned = next((names for names in state.begun.planned if counted[0].name in names), ())
        wave = frozenset(planned or (counted[0].name,))
    wave_seconds = sum(weights.get(name, 1.0) for name in wave) if weights else _WITHOUT
    moving, shares = 0.0, list[float]()
    for node in state.nodes.values():
        weight = weights.get(node.name, 1.0)
        if node.phase is NodePhase.RECOVERED:
            total += weight
        elif node.phase is NodePhase.FAILED:
            total, left = total + weight, left + weight
        elif node.phase is NodePhase.SKIPPED:
            continue
        elif node.phase is not NodePhase.PENDING or node.name in wave:
            share = _share_of(state, node, turns, now, wave_seconds if node.name in wave else weight)
            total += weight
            left += weight * (1.0 - share)
            moving += weight
            shares.append(share)
    later = sum(weights.get(node.name, 1.0) for node in counted if node.name not in wave)
    slowest = moving * (1.0 - min(shares, default=1.0))
    return _Work(total=total + later, left=left + later, slowest=slowest + later)


_WITHOUT: Final[Seconds] = PUBLISHED.node.likely
"""The time of a turn where nothing was predicted."""


def _share_of(state: RunState, node: NodeProgress, turns: Turns, now: Instant, seconds: Seconds) -> float:
    """How much of its turn, which takes so many seconds, a node has had."""
    usual = turns.expected(seconds, works=has_work(node))
    step, elapsed = _step_so_far(state, node, turns, now)
    before = sum(usual[earlier] for earlier in _ORDER[: _ORDER.index(step)])
    here = usual[START] + usual[JOIN] if step == START else usual[step]
    return (before + here * _within(elapsed / here)) / sum(usual.values())


def _step_so_far(state: RunState, node: NodeProgress, turns: Turns, now: Instant) -> tuple[str, Seconds]:
    """The step of a node and how long it has been in it. START has JOIN in it.

    Some services run at once and join late, others run only once they are about to join.
    """
    step = current_step(state, node)
    if step is None and state.phase is Phase.DOWN:
        return STOP, 0.0
    if step in (None, CHECK, DISABLE):
        held = state.in_phase.held_since
        until = now if held is None else min(now, held)
        return step or CHECK, max(0.0, until - state.in_phase.since)
    if step != JOIN:
        return step, in_step(state, node, turns, now)
    begun = [since for name, since in turns.begun.get(node.name, ()) if name == START]
    return START, max(0.0, now - begun[-1]) if begun else in_step(state, node, turns, now)


def _within(times: float) -> float:
    """How much of a step is done after so many times its usual duration: always more, and never all."""
    return times if times <= _EVEN else 1.0 - (1.0 - _EVEN) ** 2 / (times + 1.0 - 2.0 * _EVEN)


_EVEN: Final = 0.5
"""So much of a step goes evenly. After that it slows down, as its end is not known."""


class Meter:
    """A share that never falls: where the work has become more, what is left is divided again."""

    def __init__(self) -> None:
        self._last = self._shown = 0.0

    def shown(self, share: float) -> float:
        """The share to show for this one, which may be less than the last."""
        if share > self._last:
            self._shown += (1.0 - self._shown) * (share - self._last) / (1.0 - self._last)
        self._last = min(share, 1.0 - 1e-9)
        return self._shown


def left_in_words(left: Prediction, now: Instant, zone: tzinfo | None = None) -> str:
    """The time left for people, with the local time of the end.

    `1m 0s to 1m 40s left (21:39)`, `about 1m 20s left (21:39)`; a wide range alone would say little:
    `about 4m 30s left (21:43), 15s to 30m 0s`.
    """
    low, likely, high = (duration(rounded(one)) for one in (left.low, left.likely, left.high))
    end = f"left ({time_of_day(now + left.likely, zone)[:5]})"
    if low == high or left.high < _NARROW * left.low:
        return f"about {likely} {end}"
    return (
        f"{low} to {high} {end}" if left.high < _WIDE * left.low else f"about {likely} {end}, {low} to {high}"
    )


_NARROW: Final = 1.3
"""A range whose ends are nearer than that is one number."""
_WIDE: Final = 4.0
"""One whose ends are further apart has its likely value named."""


def rounded(seconds: Seconds) -> Seconds:
    """As exact as a guess is: to 5 s, then to 10 s, then to a minute."""
    unit = next(
        (unit for below, unit in ((120.0, 5.0), (600.0, 10.0), (7200.0, 60.0)) if seconds < below), 300.0
    )
    return max(unit, round(seconds / unit) * unit)
