"""Who does not answer a reading: when it is said, how often, and of whom together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from orchestrator.engine import silence
from orchestrator.engine.fold import evolve
from orchestrator.engine.memory import CLUSTER
from orchestrator.engine.predicates import by_reason, by_same_reason
from orchestrator.engine.silence import Heard
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Hold, Record
from orchestrator.model.work_event import Answered, FellSilent

ES1, ES2, ES3 = (NodeName(f"es{number}") for number in (1, 2, 3))
T0 = 1_800_000_000.0


class Listening:
    """A state that follows what is said of the readings."""

    def __init__(self) -> None:
        self.state = RunState(run="r")
        self.said: list[Event] = []

    def hear(self, at: float, heard: Mapping[NodeName, Heard]) -> list[Event]:
        found = list(silence.news(self.state, heard, T0 + at))
        for event in found:
            self.state = evolve(self.state, Record(run="r", sequence=1, at=T0 + at, event=event))
        self.said += found
        return found


@pytest.mark.parametrize("name", [ES1, CLUSTER])
def test_a_silence_is_said_once_and_its_end_too(name: NodeName) -> None:
    nodes = (name,) if name else ()
    listening, waits = Listening(), Heard(since=T0)
    assert listening.hear(9.0, {name: waits}) == []
    assert listening.hear(10.0, {name: waits}) == [FellSilent(nodes=nodes, seconds=10.0)]
    for at in range(11, 600):
        assert listening.hear(float(at), {name: waits}) == []
    assert listening.state.process.silent[name].since == T0
    answer = Heard(since=T0 + 600.0, took=0.3)
    assert listening.hear(600.0, {name: answer}) == [Answered(nodes=nodes, seconds=0.3)]
    assert listening.hear(602.0, {name: answer}) == []
    assert listening.state.process.silent == {}


def test_a_host_is_silent_from_its_first_missed_reading_on() -> None:
    listening = Listening()
    refused = {ES1: Heard(since=T0, why="connection refused")}
    assert listening.hear(0.2, refused) == [
        FellSilent(nodes=(ES1,), seconds=pytest.approx(0.2), why="connection refused")
    ]


@pytest.mark.parametrize("name", [ES1, CLUSTER])
def test_a_reason_is_said_once_when_it_becomes_known(name: NodeName) -> None:
    """A reading may time out after its silence was said, or fail for a certificate."""
    nodes, listening = (name,) if name else (), Listening()
    assert len(listening.hear(10.0, {name: Heard(since=T0)})) == 1
    refused = {name: Heard(since=T0, why="the certificate has expired")}
    assert listening.hear(12.0, refused) == [
        FellSilent(nodes=nodes, seconds=12.0, why="the certificate has expired")
    ]
    assert listening.state.process.silent[name].since == T0
    for why in ("", "the certificate has expired", "connection refused"):
        assert listening.hear(20.0, {name: Heard(since=T0, why=why)}) == []


def test_ever_slower_answers_are_said_ever_more_rarely() -> None:
    """12, 24, 48 s and so on: each time that it takes twice as long, and never for a slow answer again."""
    listening, at = Listening(), 0.0
    for took in (0.3, 4.0, 12.0, 13.0, 14.0, 20.0, 26.0, 40.0, 60.0, 90.0):
        asked = T0 + at
        for second in range(int(took)):
            listening.hear(at + second, {ES1: Heard(since=asked)})
        at += took
        listening.hear(at, {ES1: Heard(since=asked, took=took)})
    silent = [event.seconds for event in listening.said if isinstance(event, FellSilent)]
    slow = [event.seconds for event in listening.said if isinstance(event, Answered)]
    assert silent == [10.0, 24.0, 52.0]
    assert slow == [12.0, 26.0, 60.0]
    assert listening.state.process.silent[ES1].took == 60.0
    listening.hear(at + 1.0, {ES1: Heard(since=T0 + at, took=0.4)})
    assert listening.state.process.silent == {}


@pytest.mark.parametrize(
    ("reasons", "groups"),
    [
        (
            {"host of es1": "no sudo on es1", "host of es2": "no sudo on es2"},
            [["host of es1", "host of es2"]],
        ),
        ({"es1": "fd00::1 is full", "es2": "fd00::2 is full"}, [["es1", "es2"]]),
        ({"es1": "disk 91% full", "es2": "disk 97% full"}, [["es1"], ["es2"]]),
        ({"es1": "es10 is gone", "es10": "es10 is gone"}, [["es1", "es10"]]),
        ({"es1": "es1 is gone", "es10": "es10 is gone"}, [["es1", "es10"]]),
        ({"es1": "es2 leads", "es2": "es1 leads"}, [["es1"], ["es2"]]),
    ],
)
def test_reasons_are_the_same_if_only_the_host_differs(
    reasons: Mapping[str, str], groups: list[list[str]]
) -> None:
    assert [list(names) for names in by_same_reason(reasons.items()).values()] == groups
    hold = Hold(
        predicate="p",
        subject=next(iter(reasons)),
        evidence=next(iter(reasons.values())),
        count=len(reasons),
        subjects=tuple(reasons),
        reasons=tuple(reasons.values()),
    )
    assert [list(names) for names in by_reason(hold).values()] == groups
