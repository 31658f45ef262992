"""What a rehearsal says of its mishaps: each by name, with what it led to by the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from orchestrator.model.action import StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionFailed,
    ActionSent,
    Event,
    Hold,
    HoldsCleared,
    LeaseLost,
    LeaseRegained,
    PhaseEntered,
    Record,
    Rescued,
    RunResumed,
    SecondFailure,
    SettingRestored,
    StandingDown,
    StoodStill,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome
from orchestrator.model.work_event import Answered, FellSilent, StartFailed
from orchestrator.view.rehearsed import Befallen, Rehearsed, Stories, led_to, rehearsed_lines
from tests.unit.view import samples

ES1, ES2, ES3 = samples.ES
T0: Final = samples.t0
NOTHING: Final = "no effect on the run"


def records(*events: tuple[float, Event]) -> list[Record]:
    return [
        Record(run="r", sequence=n, at=T0 + after, event=event) for n, (after, event) in enumerate(events, 1)
    ]


def told(mishaps: Sequence[Befallen], *events: tuple[float, Event]) -> list[str]:
    stories = Stories()
    for mishap in mishaps:
        stories.befell(mishap)
    stories.add(records(*events))
    return [led_to(story) for story in stories.all]


def befallen(*names: str, after: float = 0.0, kills: bool = False) -> Befallen:
    return Befallen(at=T0 + after, words="it happens", names=frozenset(names), kills=kills)


def held(subject: str) -> Hold:
    return Hold(predicate="no_running_snapshot", subject=subject, evidence="is running")


def failed(action: StopNode, *, in_doubt: bool = False) -> ActionFailed:
    return ActionFailed(action=action, reason="reset by peer", in_doubt=in_doubt)


DOWN: Final = StandingDown(reason="es2 did not stop within 10m 0s", outcome=Outcome.FAILED)
LOST: Final = LeaseLost(reason="no refresh")
SILENT: Final = FellSilent(nodes=(ES2,), seconds=5.0)
KEPT: Final = SettingRestored(
    level=Level.PERSISTENT, key="a.b", value="none", note="changed outside this run"
)


def test_a_mishap_led_to_the_gravest_of_its_events(subtests: pytest.Subtests) -> None:
    stop, start = StopNode(node=ES2), StartNode(node=ES2)
    for events, expected in (
        ([], NOTHING),
        ([(1, ActionSent(action=stop))], NOTHING),
        (
            [(1, held("es2")), (2, SecondFailure(what="es2 left")), (2, DOWN)],
            "the run stood down, as it must after a second failure",
        ),
        ([(1, failed(stop)), (2, DOWN)], "the run stood down: es2 did not stop within 10m 0s"),
        (
            [(1, PhaseEntered(node=ES2, from_="starting", to="failed", why="no start"))],
            "es2 failed: no start",
        ),
        ([(1, PhaseEntered(node=ES2, from_="starting", to="recovered"))], NOTHING),
        (
            [(1, held("es2")), (91, HoldsCleared())],
            "the run was held by no_running_snapshot for 1m 30s, then went on",
        ),
        ([(1, held("es2"))], "the run was held by no_running_snapshot to its end"),
        ([(1, failed(stop))], "stop of es2 failed once"),
        (
            [(1, failed(stop)), (2, failed(stop)), (3, ActionSent(action=stop))],
            "stop of es2 failed 2 times, and was sent again",
        ),
        (
            [(1, failed(stop, in_doubt=True))],
            "the run did not know whether stop of es2 was done, until it had read it",
        ),
        (
            [(1, StartFailed(node=ES2, why="exit 1")), (2, ActionSent(action=start))],
            "the start of es2 failed once, and was sent again",
        ),
        (
            [(1, StartFailed(node=ES2, why="exit 1")), (2, ActionSent(action=StartNode(node=ES3)))],
            "the start of es2 failed once",
        ),
        ([(1, Rescued(shards=("[made-on-es2][0]", "es2")))], "the run started its nodes at once"),
        ([(5, SILENT), (90, Answered(nodes=(ES2,), seconds=0.1))], "the run waited 1m 30s for an answer"),
        ([(5, SILENT)], "the run waited for an answer"),
        ([(5, StoodStill(nodes=(ES2,), seconds=40.0))], "limits were extended by 40s"),
    ):
        with subtests.test(expected=expected, events=[type(event).__name__ for _, event in events]):
            assert told([befallen("es2")], *events) == [expected]


def test_an_event_belongs_to_the_mishap_that_it_names(subtests: pytest.Subtests) -> None:
    """Else to the latest that befell the program or the cluster; none to one that comes later."""
    lost, held_by = (
        "the run lost its lease, and stopped no node",
        "the run was held by no_running_snapshot to its end",
    )
    resumed = RunResumed(operator="ann", host="bastion")
    for mishaps, events, expected in (
        ([befallen("es1"), befallen("es2")], [(1, held("es2"))], [NOTHING, held_by]),
        ([befallen("es1"), befallen("es10")], [(1, held("host of es10"))], [NOTHING, held_by]),
        ([befallen("es2"), befallen("es2", after=5)], [(6, held("es2"))], [NOTHING, held_by]),
        ([befallen("es2"), befallen("es2", after=9)], [(6, held("es2"))], [held_by, NOTHING]),
        ([befallen("es2"), befallen()], [(1, LOST)], [NOTHING, lost]),
        ([befallen("es2")], [(1, LOST)], [NOTHING]),
        (
            [befallen()],
            [(1, LOST), (2, LeaseRegained(holder="ann"))],
            [f"{lost} until it had the lease again"],
        ),
        ([befallen("a.b")], [(1, KEPT)], ["a.b: changed outside this run"]),
        (
            [befallen(), befallen(kills=True)],
            [(60, resumed), (61, LOST)],
            [lost, "resumed 1m 0s later, from its journal"],
        ),
        ([befallen(kills=True)], [(60, held("es2"))], ["it was not resumed"]),
    ):
        with subtests.test(mishaps=mishaps, expected=expected):
            assert told(mishaps, *events) == expected


def test_the_end_names_each_mishap() -> None:
    stories = Stories()
    stories.befell(
        Befallen(at=T0, words="the host of es2 cannot be reached for 90 s", names=frozenset({"es2"}))
    )
    killed = "the program is killed after stop of es1; a minute later: resume"
    stories.befell(Befallen(at=T0 + 5, words=killed, kills=True))
    stories.add(records((65, RunResumed(operator="ann", host="bastion"))))
    end = Rehearsed(
        seed=7,
        mishaps=("the host of es2 cannot be reached for 90 s",),
        kills=1,
        simulated_seconds=60.0,
        seconds=1.0,
        settings_not_as_found=("a.b: was 1, is 2, which is longer than what a terminal has room for",),
        nodes_down=(NodeName("es2"),),
        against_rules=("es2 is stopped",),
    )
    lines = rehearsed_lines(end, stories.all, 60)
    assert lines[:7] == [
        "Rehearsed with seed 7: 1m 0s of a simulated cluster in 1s, 2",
        "    mishaps:",
        "  08:00:00 the host of es2 cannot be reached for 90 s: no",
        "           effect on the run",
        "  08:00:05 the program is killed after stop of es1: resumed",
        "           1m 0s later, from its journal",
        "Settings: NOT RESTORED",
    ]
    assert lines[7:9] == ["  a.b: was 1, is 2, which is longer than what a terminal has", "      room for"]
    assert "Nodes down: es2" in lines
    assert "  es2 is stopped" in lines
