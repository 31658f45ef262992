"""Predicted seconds: from the cluster's own past, without the time in which nobody worked on a run."""

from __future__ import annotations

from orchestrator.engine.estimate import (
    PUBLISHED,
    predict_node,
    predict_wave,
    total,
    total_overlapped,
    whole_turns,
)
from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionSent, Event, NodeRecovered, RestoreBegun, RunFinished, RunResumed
from orchestrator.model.phase import Outcome
from orchestrator.model.plan import Prediction
from orchestrator.model.policy import Wave

ES1, ES2, ES3 = NodeName("es1"), NodeName("es2"), NodeName("es3")
RESUMED = RunResumed(operator="ann", host="bastion")
WAVES = [
    Prediction(low=20.0, likely=90.0, high=600.0),
    Prediction(low=60.0, likely=75.0, high=140.0),
]
INTERRUPTED = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=140.0)


def back(node: NodeName, seconds: float) -> NodeRecovered:
    return NodeRecovered(node=node, seconds=seconds)


def test_only_turns_that_one_process_saw_whole_have_a_time() -> None:
    """es1 came back while no process looked: 2.8 s after the resume is no time that a node takes."""
    stop = {name: ActionSent(action=StopNode(node=name)) for name in (ES1, ES2, ES3)}
    events: list[Event] = [stop[ES3], back(ES3, 48.0), stop[ES1], RESUMED, back(ES1, 2.8)]
    assert whole_turns(events) == {ES3: 48.0}
    events += [stop[ES2], INTERRUPTED, RestoreBegun(operator="ann", host="bastion"), back(ES2, 30.0)]
    assert whole_turns(events) == {ES3: 48.0}
    assert whole_turns([*events, stop[ES1], back(ES1, 50.0)]) == {ES3: 48.0, ES1: 50.0}, "a later, whole turn"


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
