"""The steps of nodes: none is over before its event, and the share that is done grows while work goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    NodeRecovered,
    PhaseEntered,
    Record,
    RestoreBegun,
    RunResumed,
    WaveFinished,
    WaveGaveWay,
    WaveStarted,
    node_phase,
    run_phase,
)
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.model.policy import Wave
from orchestrator.model.prediction import Forecast, Prediction
from orchestrator.model.reading import Instant, Seconds
from orchestrator.steps import STEP_OF_NODE, STEP_OF_RUN
from orchestrator.view.turns import (
    Meter,
    StepState,
    Turns,
    TurnStep,
    in_words,
    left_in_words,
    run_in_words,
    share_done,
    steps_of,
    time_left,
)
from tests.simulation.chance_riak import FIRST
from tests.simulation.wide import life_of
from tests.unit.view import samples

SEEDS = (1, 3, 7, 8, FIRST)
"""Drawn runs with mishaps and kills: overlap, an upgrade, merges, a takeover, and one on Riak."""
LONG: Seconds = 900.0
"""Waits are followed for so long: after that nothing is different."""

_ENDS = {
    "check": {(False, "withheld"), (True, "stopping")},
    "disable allocation": {(False, "down")},
    "stop": {(True, "stopped"), (True, "starting")},
    "work": {(True, "starting")},
    "start": {(False, "rejoined"), (True, "rejoined")},
    "join": {(True, "rejoined")},
    "recover": {(True, "recovered")},
    "handoff": {(True, "recovered")},
}
"""By step, the phases of which one has to be entered, by the node (True) or the run, before it is over."""


@cache
def journals() -> dict[str, tuple[Record, ...]]:
    """The journals of drawn runs."""
    found = {}
    for seed in SEEDS:
        life = life_of(seed)
        life.live()
        for one in life.simulation.own_runs:
            found[f"{seed} {one}"] = tuple(life.simulation.written(one))
    return found


def moments_of(records: tuple[Record, ...]) -> Iterator[tuple[RunState, Turns, Record]]:
    state, turns = RunState(run=records[0].run), Turns()
    for record in records:
        state = evolve(state, record)
        turns.see(record)
        yield state, turns, record


def test_no_step_is_over_before_its_event(subtests: pytest.Subtests) -> None:
    shown = set[str]()
    for name, records in journals().items():
        entered: dict[NodeName, set[tuple[bool, str]]] = {}
        with subtests.test(run=name):
            for state, turns, record in moments_of(records):
                match record.event:
                    case RunResumed() | RestoreBegun():
                        entered.clear()
                    case WaveStarted(wave=wave):
                        entered.update({name: set() for name in wave.nodes})
                    case PhaseEntered(node=None, to=to):
                        for phases in entered.values():
                            phases.add((False, to))
                    case PhaseEntered(node=str(node), to=to):
                        entered.setdefault(NodeName(node), set()).add((True, to))
                    case _:
                        pass
                for one in state.nodes.values():
                    steps = steps_of(state, one, turns, record.at)
                    over = {step.name for step in steps if step.state is StepState.OVER}
                    early = {step for step in over if not _ENDS[step] & entered[one.name]}
                    assert not early, f"{one.name} at {record}"
                    shown |= over
    assert shown == _ENDS.keys()


def test_the_share_done_never_falls_or_stands_still(subtests: pytest.Subtests) -> None:
    """It is looked at every second. A hold, merges and a stand-down are no progress of the restarts."""
    for name, records in journals().items():
        with subtests.test(run=name):
            meter, last, before = Meter(), -1.0, records[0].at
            state, turns = RunState(run=records[0].run), Turns()
            for record in records:
                works = state.phase in WORKS and not state.in_phase.holds
                for second in range(1, int(min(LONG, record.at - before))):
                    share = meter.shown(share_done(state, turns, before + second))
                    assert share > last or (not works and share == last), f"{before + second}, {state.phase}"
                    last = share
                state, before = evolve(state, record), record.at
                turns.see(record)
                share = meter.shown(share_done(state, turns, before))
                assert share >= last, str(record)
                last = share
            assert last == 1.0 or state.unfinished


WORKS = frozenset(Phase) - {Phase.MERGING, Phase.MERGED, Phase.STANDING_DOWN, Phase.ENDED}


ON_PROCESSES = {"check": 1.5, "disable": 0.6, "stop": 2.0, "start": 1.0, "join": 26.0, "recover": 11.0}
UNDER_SYSTEMD = {**ON_PROCESSES, "start": 25.0, "join": 3.0}
"""Seconds of the steps of real nodes. Some services run at once, others only when they are ready."""


def restarts(turns: Sequence[Mapping[str, Seconds]]) -> list[Record]:
    """The records of a run over three nodes, by the seconds of their steps; the plan gave each node 90 s."""
    records, now = list[Record](), samples.t0

    def add(*events: Event, after: Seconds = 0.0) -> None:
        nonlocal now
        now += after
        for event in events:
            records.append(Record(run="r", sequence=len(records) + 1, at=now, event=event))

    in_all = Prediction(low=15.0, likely=270.0, high=1800.0)
    forecast = Forecast(in_all=in_all, nodes=dict.fromkeys(samples.ES, 90.0))
    planned = tuple((name,) for name in samples.ES)
    add(replace(samples.started, nodes=samples.ES, forecast=forecast, planned=planned, indices=()))
    before = Phase.PREPARING
    for number, (node, took) in enumerate(zip(samples.ES, turns, strict=True), start=1):
        add(run_phase(before, Phase.GATED))
        wave = WaveStarted(wave=Wave(number=number, nodes=(node,)), incarnations={})
        add(wave, run_phase(Phase.GATED, Phase.WITHHELD), after=took["check"])
        add(run_phase(Phase.WITHHELD, Phase.DOWN), after=took["disable"])
        add(node_phase(node, NodePhase.PENDING, NodePhase.STOPPING))
        add(node_phase(node, NodePhase.STOPPING, NodePhase.STOPPED), after=took["stop"])
        add(node_phase(node, NodePhase.STOPPED, NodePhase.STARTING))
        add(run_phase(Phase.DOWN, Phase.REJOINED), after=took["start"])
        back = node_phase(node, NodePhase.STARTING, NodePhase.REJOINED)
        add(back, run_phase(Phase.REJOINED, Phase.REASSIGNED), after=took["join"])
        over = node_phase(node, NodePhase.REJOINED, NodePhase.RECOVERED)
        seconds = sum(took.values())
        add(NodeRecovered(node=node, seconds=seconds), over, after=took["recover"])
        before = Phase.SETTLED
        add(WaveFinished(number=number, seconds=seconds), run_phase(Phase.REASSIGNED, before))
    add(run_phase(Phase.SETTLED, Phase.GATED), run_phase(Phase.GATED, Phase.FINISHING))
    add(run_phase(Phase.FINISHING, Phase.ENDED), after=1.0)
    return records


def looks(records: Sequence[Record]) -> Iterator[tuple[Instant, RunState, Turns]]:
    """The run as it is seen every half second."""
    state, turns = RunState(run=records[0].run), Turns()
    for record, following in pairwise(records):
        state = evolve(state, record)
        turns.see(record)
        for half in range(int(2 * (following.at - record.at)) + 1):
            yield record.at + half / 2, state, turns


def drawn_turns() -> Iterator[list[dict[str, Seconds]]]:
    """Nodes that are alike, and nodes whose steps take up to half as long again, or a third less."""
    yield from ([usual] * 3 for usual in (ON_PROCESSES, UNDER_SYSTEMD))
    dice = Random(7)  # noqa: S311  (repeatable, and secret to nobody)
    for usual in (ON_PROCESSES, UNDER_SYSTEMD) * 10:
        yield [{step: took * dice.uniform(0.7, 1.5) for step, took in usual.items()} for _ in range(3)]


def test_the_bar_is_seen_to_move() -> None:
    """At 80 columns it has 75, of which halves are drawn: an undisturbed run has none for long."""
    stills = []
    for turns in drawn_turns():
        meter, drawn, since, longest = Meter(), -1, samples.t0, 0.0
        for now, state, seen_turns in looks(restarts(turns)):
            halves = int(150 * meter.shown(share_done(state, seen_turns, now)))
            since, drawn = (now, halves) if halves != drawn else (since, drawn)
            longest = max(longest, now - since)
        stills.append(longest)
    assert max(stills[:2]) <= 4.0, "nodes that are alike"
    assert max(stills) <= 7.0, "nodes of which one takes twice as long as another"
    assert sorted(stills)[len(stills) // 2] <= 4.5


def test_the_time_left_has_what_it_takes(subtests: pytest.Subtests) -> None:
    """At a quarter, at half and at three quarters of the time it takes."""
    for turns in drawn_turns():
        records = restarts(turns)
        every = [(now, time_left(state, seen_turns, now)) for now, state, seen_turns in looks(records)]
        begin, end = records[0].at, records[-1].at
        for share in (0.25, 0.5, 0.75):
            now, left = min(every, key=lambda one: abs(one[0] - (begin + share * (end - begin))))
            with subtests.test(share=share, turns=turns):
                assert left is not None
                assert left.low - 5 <= end - now <= left.high + 5


def predicted(low: float, likely: float, high: float) -> RunState:
    """es1 is back, es2 starts, es3 is to come; the plan gave each node so many seconds."""
    state = samples.run_state()
    in_all = Prediction(low=3 * low, likely=3 * likely, high=3 * high)
    forecast = Forecast(in_all=in_all, nodes=dict.fromkeys(state.nodes, likely))
    return replace(state, begun=replace(state.begun, forecast=forecast))


def seen(*events: Event) -> Turns:
    """The first wave was finished, as these say."""
    return Turns(samples.records(events))


def test_the_time_left_is_that_of_the_work_left() -> None:
    state, now = predicted(100.0, 160.0, 300.0), samples.t0 + 120
    assert time_left(samples.run_state(), Turns(), now) is None, "nothing was predicted or seen"
    planned = time_left(state, Turns(), now)
    assert planned is not None
    # es3 takes 160 s. es2 starts and joins for 20 s of 96, and what was before had 0.15 of its 160 s.
    assert planned.likely == pytest.approx(160 + 160 - 0.15 * 160 - 20 + 5)
    assert planned.low == pytest.approx(planned.likely * 100 / 160)
    assert planned.high == pytest.approx(planned.likely * 300 / 160)
    done = NodeRecovered(node=samples.ES[0], seconds=70), WaveFinished(number=1, seconds=80)
    half = time_left(state, seen(*done), now)
    assert half is not None
    assert half.likely - 5 == pytest.approx((planned.likely - 5) / 2), "the first wave took half of it"
    assert half.high / half.likely < planned.high / planned.likely, "a wave has shown how long one takes"
    late = time_left(state, seen(*done), now + 1000)
    assert late is not None
    assert 80 < late.likely < half.likely, "es3 is left, and the rest of es2"
    assert time_left(samples.ended_state(), seen(*done), now) is None
    assert time_left(samples.run_state(phase=Phase.STANDING_DOWN), seen(*done), now) is None


def test_with_overlap_the_pace_is_by_the_clock() -> None:
    state, now = samples.run_state(), samples.t0 + 300.0
    first = NodeRecovered(node=samples.ES[0], seconds=290.0), WaveFinished(number=1, seconds=290.0)
    left = time_left(state, seen(WaveGaveWay(number=1, copies=2), *first), now)
    alone = time_left(state, seen(*first), now)
    assert left is not None
    assert alone is not None
    assert (left.likely - 5) / (alone.likely - 5) == pytest.approx(300 / 290)


def test_the_time_left_in_words() -> None:
    now = samples.t0
    for (low, likely, high), words in [
        ((62.0, 80.0, 101.0), "1m 0s to 1m 40s left (08:01)"),
        ((78.0, 80.0, 82.0), "about 1m 20s left (08:01)"),
        ((1.0, 2.0, 3.0), "about 5s left (08:00)"),
        ((3600.0, 4000.0, 9000.0), "1h 0m to 2h 30m left (09:06)"),
        ((15.0, 270.0, 1800.0), "about 4m 30s left (08:04), 15s to 30m 0s"),
    ]:
        assert left_in_words(Prediction(low=low, likely=likely, high=high), now, UTC) == words


def test_every_phase_has_a_step_in_words() -> None:
    assert STEP_OF_RUN.keys() == {phase.value for phase in Phase}
    assert STEP_OF_NODE.keys() == {phase.value for phase in NodePhase}
    done = {phase.value for phase in NodePhase if STEP_OF_NODE[phase.value] == "done"}
    assert done == {"recovered"}
    state = samples.run_state()
    assert [in_words(state, node) for node in state.nodes.values()] == ["done", "start", "to come"]
    joining = samples.run_state(phase=Phase.REJOINED)
    assert in_words(joining, joining.nodes[samples.ES[1]]) == run_in_words(joining) == "join"


def test_a_stand_down_undoes_no_step_of_a_node() -> None:
    """A node that the run waits for to join does not go back to its start in the view."""
    joins = 0
    for records in journals().values():
        for place, (state, turns, record) in enumerate(moments_of(records), 1):
            for node in state.nodes_in(NodePhase.STARTING):
                before = names_of(steps_of(state, node, turns, record.at))
                if before[-2:] != ["join", "recover"] or state.phase is not Phase.REJOINED:
                    continue
                down = replace(record, event=run_phase(state.phase, Phase.STANDING_DOWN))
                ended, seen = evolve(state, down), Turns([*records[:place], down])
                assert names_of(steps_of(ended, ended.nodes[node.name], seen, down.at)) == before[:-1]
                joins += 1
    assert joins


def names_of(steps: Sequence[TurnStep]) -> list[str]:
    return [step.name for step in steps]
