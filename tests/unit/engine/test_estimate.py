"""Predicted seconds: from the cluster's own past, without the time in which nobody worked on a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.estimate import (
    PUBLISHED,
    PastTimes,
    PastTurn,
    correction,
    cut_turns,
    least_away,
    predict_node,
    predict_wave,
    times_of,
    total,
    whole_turns,
)
from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
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
from orchestrator.model.merging import MergeTarget
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Wave
from orchestrator.model.prediction import Forecast, Prediction
from tests.simulation.play import cluster, policy
from tests.simulation.program import Simulation

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
RESUMED = RunResumed(operator="ann", host="bastion")
WAVES = [
    Prediction(low=20.0, likely=90.0, high=600.0),
    Prediction(low=60.0, likely=75.0, high=140.0),
]
INTERRUPTED = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=140.0)


def back(node: NodeName, seconds: float) -> NodeRecovered:
    return NodeRecovered(node=node, seconds=seconds)


def past(seconds: dict[NodeName, tuple[float, ...]], **more: Any) -> PastTimes:
    return PastTimes(
        turns={n: tuple(PastTurn(seconds=s) for s in each) for n, each in seconds.items()}, **more
    )


def test_only_turns_that_one_process_saw_whole_have_a_time() -> None:
    """es1 came back while no process looked: 2.8 s after the resume is no time that a node takes."""
    stop = {name: ActionSent(action=StopNode(node=name)) for name in (ES1, ES2, ES3)}
    events: list[Event] = [stop[ES3], back(ES3, 48.0), stop[ES1], RESUMED, back(ES1, 2.8)]
    assert whole_turns(events) == {ES3: 48.0}
    events += [stop[ES2], INTERRUPTED, RestoreBegun(operator="ann", host="bastion"), back(ES2, 30.0)]
    assert whole_turns(events) == {ES3: 48.0}
    assert whole_turns([*events, stop[ES1], back(ES1, 50.0)]) == {ES3: 48.0, ES1: 50.0}, "a later, whole turn"
    assert whole_turns([RESUMED, back(ES1, 2.8), stop[ES2], back(ES2, 30.0)]) == {ES2: 30.0}, (
        "the last process"
    )


def test_a_turn_over_attempts_takes_until_it_is_recovered() -> None:
    """es1 was stopped at 10 and recovered at 500, after the resume; one process saw es2 whole."""
    events = {10.0: ActionSent(action=StopNode(node=ES1)), 400.0: RESUMED, 500.0: back(ES1, 2.8)}
    events |= {510.0: ActionSent(action=StopNode(node=ES2)), 540.0: back(ES2, 30.0)}
    records = [Record(run="r", sequence=int(at), at=at, event=event) for at, event in events.items()]
    assert cut_turns(records) == {ES1: 490.0}
    assert whole_turns(events.values()) == {ES2: 30.0}


def test_an_estimate_is_by_own_past_then_peers_then_published() -> None:
    assert predict_node(ES1, past({ES1: (50.0, 70.0, 60.0), ES2: (500.0,)})).likely == 60.0
    assert predict_node(ES1, past({ES2: (500.0,)})).likely == 500.0
    assert predict_node(ES1, PastTimes()) == PUBLISHED.node


def test_with_overlap_nodes_are_away_one_wave_after_another() -> None:
    turns = {name: (PastTurn(seconds=100.0, recovery=40.0),) for name in (ES1, ES2)}
    turns[ES2] += (PastTurn(seconds=80.0, recovery=30.0),)
    times = PastTimes(turns=turns)
    pair, unknown = Wave(number=1, nodes=(ES1, ES2), why=""), Wave(number=2, nodes=(ES3,), why="")
    assert [least_away(pair, times), least_away(unknown, times)] == [pytest.approx(48.0), PUBLISHED.node.low]
    assert total(WAVES, away=[20.0, 50.0]).low == 70.0
    assert total(WAVES, away=[20.0, 10.0]).low == 60.0, "the longest wave"
    assert total(WAVES, away=[200.0, 10.0]).low == 80.0, "no more than without overlap"


def test_a_recovery_grows_with_what_the_node_holds() -> None:
    turn = PastTurn(seconds=100.0, recovery=60.0, stored=10)
    times = PastTimes(turns={ES1: (turn,)})
    assert predict_node(ES1, times, stored=20).likely == 160.0
    assert predict_node(ES1, times, stored=5).likely == 70.0
    assert predict_node(ES1, times, stored=None).likely == 100.0
    assert predict_node(ES1, times, stored=10_000).likely == 280.0, "no more than four times as long"
    assert predict_node(ES1, times, stored=1).likely == 55.0, "no less than a quarter"


def test_the_last_predictions_correct_the_next_one() -> None:
    wave = Wave(number=1, nodes=(ES1,), why="")
    alone = predict_wave(wave, past({ES1: (100.0,)}))
    assert (alone.low, alone.likely, alone.high) == (80.0, 100.0, 200.0)
    assert predict_wave(wave, past({ES1: (100.0,)}, off=(1.3, 1.1, 1.2))).likely == pytest.approx(
        100 * 1.2**0.6
    )
    assert predict_wave(wave, past({ES1: (100.0,)}, off=(40.0,))).likely == 200.0, "one night of waiting"
    corrected = predict_wave(wave, past({ES1: (100.0,)}, off=(0.5, 0.5, 0.5)))
    assert corrected.likely == pytest.approx(100 * 0.5**0.6)
    assert (corrected.low, corrected.high) == (corrected.likely, 200.0)


def test_what_a_run_does_beside_its_nodes_counts() -> None:
    wave = Wave(number=1, nodes=(ES1,), why="")
    predicted = predict_wave(wave, past({ES1: (100.0,)}, beside=(4.0, 6.0)))
    assert (predicted.low, predicted.likely, predicted.high) == (80.0 + 3.2, 105.0, 200.0 + 12.0)
    assert total([predicted, predicted]).likely == 210.0
    assert total([]).likely == 0.0


def run_of(*events: tuple[float, Event]) -> list[Record]:
    return [Record(run="r", sequence=n, at=at, event=event) for n, (at, event) in enumerate(events)]


def rejoined(node: NodeName) -> PhaseEntered:
    return PhaseEntered(from_="starting", to="rejoined", node=node)


def stop(node: NodeName) -> ActionSent:
    return ActionSent(action=StopNode(node=node))


DONE = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=100.0)


def begun(**fields: Any) -> RunStarted:
    return replace(Simulation(cluster(3)).start_of(policy()), **fields)


def two_waves(*, forecast: Forecast | None = None) -> list[Record]:
    return run_of(
        (0.0, begun(forecast=forecast)),
        (8.0, stop(ES1)),
        (28.0, rejoined(ES1)),
        (38.0, back(ES1, 30.0)),
        (40.0, WaveFinished(number=1, seconds=33.0)),
        (43.0, stop(ES2)),
        (63.0, rejoined(ES2)),
        (83.0, back(ES2, 40.0)),
        (84.0, WaveFinished(number=2, seconds=42.0)),
        (90.0, DONE),
    )


def test_a_journal_tells_what_each_part_took() -> None:
    none = Prediction(low=0.0, likely=0.0, high=0.0)
    times = times_of(two_waves(forecast=Forecast(in_all=none, stored={ES1: 10})))
    assert times.turns == {
        ES1: (PastTurn(seconds=30.0, recovery=10.0, stored=10),),
        ES2: (PastTurn(seconds=40.0, recovery=20.0),),
    }
    assert (times.beside, times.off) == ((10.0,), ()), "90 s, of which the nodes took 70"


@pytest.mark.parametrize(("measured", "off"), [(True, (1.5,)), (False, ())])
def test_only_a_measured_prediction_tells_its_error(*, measured: bool, off: tuple[float, ...]) -> None:
    forecast = Forecast(in_all=Prediction(low=50.0, likely=60.0, high=200.0), measured=measured)
    assert times_of(two_waves(forecast=forecast)).off == off


def test_no_other_run_tells_the_error_of_a_prediction() -> None:
    """Merges are not predicted, an interrupted run was not long enough, and a canary's plan ends early."""
    forecast = Forecast(in_all=Prediction(low=50.0, likely=60.0, high=200.0), measured=True)
    target = MergeTarget(index="logs", index_uuid="logs-uuid", segments=9, bytes=9, due=True)
    (_, first), *others = [(record.at, record.event) for record in two_waves(forecast=forecast)]
    assert isinstance(first, RunStarted)
    assert times_of(run_of((0.0, replace(first, indices=(target,))), *others)).off == ()
    assert times_of(run_of((0.0, first), *others[:-1], (90.0, INTERRUPTED))).off == ()
    canary = replace(first, nodes=(ES1, ES2), policy=replace(first.policy, pause_after=1))
    assert times_of(run_of((0.0, canary), *others)).off == ()


def test_a_node_that_took_longer_than_its_wave() -> None:
    """Its stop was sent in an earlier wave, and done late."""
    late = [replace(one, event=back(ES2, 75.0)) if one.at == 83.0 else one for one in two_waves()]
    assert times_of(late).beside == (8.0,), "10 s before, 0 s between and 6 s after"


def test_a_correction_that_is_right_stays() -> None:
    """Each run takes 90 s, and 60 s are predicted from what its parts took before."""
    times = PastTimes()
    for _ in range(8):
        factor = correction(times)
        likely = Prediction(low=50.0, likely=60.0 * factor, high=200.0)
        forecast = Forecast(in_all=likely, measured=True, correction=factor)
        times = times.then(times_of(two_waves(forecast=forecast)))
    assert times.off == pytest.approx((1.5,) * 8)
    assert correction(times) == pytest.approx(1.5 ** (5 / 7))


def test_merges_are_no_part_of_what_a_run_does_beside() -> None:
    _, *others = two_waves()
    merged = PhaseEntered(from_="merged", to="gated")
    late = [(record.at + 7200.0, record.event) for record in others]
    times = times_of(run_of((0.0, begun()), (7202.0, merged), *late))
    assert times.beside == (9.0,)


def test_the_time_in_which_nobody_worked_is_left_out() -> None:
    records = run_of(
        (0.0, begun()),
        (8.0, stop(ES1)),
        (20.0, INTERRUPTED),
        (500.0, RESUMED),
        (510.0, rejoined(ES1)),
        (520.0, back(ES1, 512.0)),
        (521.0, WaveFinished(number=1, seconds=515.0)),
        (530.0, stop(ES2)),
        (550.0, rejoined(ES2)),
        (560.0, back(ES2, 30.0)),
        (561.0, WaveFinished(number=2, seconds=32.0)),
        (565.0, DONE),
    )
    times = times_of(records)
    assert times.turns == {ES2: (PastTurn(seconds=30.0, recovery=10.0),)}
    assert times.beside == (14.0,), "of the second wave and the end"


def test_waves_that_overlap_tell_only_their_turns() -> None:
    late = two_waves()
    times = times_of([*late[:4], replace(late[4], event=WaveGaveWay(number=1, copies=1)), *late[5:]])
    assert (set(times.turns), times.beside) == ({ES1, ES2}, ())
