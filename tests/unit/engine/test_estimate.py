"""Predicted seconds: from the cluster's own past, without the time in which nobody worked on a run."""

from __future__ import annotations

from orchestrator.engine.estimate import (
    PUBLISHED,
    node_times,
    predict_node,
    predict_wave,
    total,
    total_overlapped,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, NodeRecovered, Record, RunFinished, RunResumed
from orchestrator.model.phase import Outcome
from orchestrator.model.plan import Prediction
from orchestrator.model.policy import Wave

ES1, ES2 = NodeName("es1"), NodeName("es2")
RESUMED = RunResumed(operator="ann", host="bastion")
WAVES = [
    Prediction(low=20.0, likely=90.0, high=600.0),
    Prediction(low=60.0, likely=75.0, high=140.0),
]
INTERRUPTED = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=140.0)


def journal(*told: tuple[float, Event]) -> list[Record]:
    return [
        Record(run="run-1", sequence=place, at=at, event=event) for place, (at, event) in enumerate(told, 1)
    ]


def back(node: NodeName, seconds: float) -> NodeRecovered:
    return NodeRecovered(node=node, seconds=seconds)


def test_a_night_between_two_attempts_is_no_time_of_a_node() -> None:
    times = node_times(
        journal(
            (100.0, back(ES1, 60.0)),
            (140.0, INTERRUPTED),
            (30_140.0, RESUMED),
            (30_160.0, back(ES2, 30_040.0)),
        )
    )
    assert times == {ES1: 60.0, ES2: 40.0}, "es2 was stopped at 120, worked on until 140 and from 30140 on"


def test_a_node_stopped_after_the_night_has_all_of_its_time() -> None:
    assert node_times(journal((140.0, INTERRUPTED), (9_000.0, RESUMED), (9_070.0, back(ES2, 60.0)))) == {
        ES2: 60.0
    }


def test_an_estimate_is_by_own_past_then_peers_then_published() -> None:
    assert predict_node(ES1, {ES1: (50.0, 70.0, 60.0), ES2: (500.0,)}).likely == 60.0
    assert predict_node(ES1, {ES2: (500.0,)}).likely == 500.0
    assert predict_node(ES1, {}) == PUBLISHED.node


def test_the_slowest_node_decides_how_long_a_wave_takes() -> None:
    wave = Wave(number=1, nodes=(ES1, ES2), why="")
    assert predict_wave(wave, {ES1: (50.0,), ES2: (80.0,)}).likely == 80.0


def test_waves_add_up() -> None:
    assert total(WAVES) == Prediction(low=80.0, likely=165.0, high=740.0)


def test_with_overlap_only_the_lower_end_is_another_one() -> None:
    assert total_overlapped(WAVES) == Prediction(low=60.0, likely=165.0, high=740.0)


def test_no_wave_takes_no_time() -> None:
    nothing = Prediction(low=0.0, likely=0.0, high=0.0)
    assert total([]) == total_overlapped([]) == nothing
