"""What whole runs on Riak print, by every view: nothing that only Elasticsearch has."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from orchestrator.engine.kinds.riak.catalogue import PREDICATES
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.policy import Kind
from orchestrator.runs.simulated import Simulation
from orchestrator.simulation.mishaps import Asked, How, Mishap, NodeDies, Trip, Unreadable
from orchestrator.view.live import LiveReporter
from orchestrator.view.plan import plan_text
from orchestrator.view.reporters import LineReporter, Pace
from orchestrator.view.status import status_text
from tests.simulation.play import plan_of
from tests.simulation.ringed import FOUR, TWO, down, riak_policy, ringed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.engine.situation import Decision
    from orchestrator.engine.state import RunState
    from orchestrator.model.event import Record

_OTHERS = re.compile(
    r"\b(?:cop(?:y|ies)|shards?|allocation|allocated|indices|index|master|reroute|segments?)\b",
    re.IGNORECASE,
)
"""What Riak has none of. Its words: vnodes, partitions, handoff, transfers, preference lists."""


@dataclass(slots=True)
class Everything:
    """A reporter that prints by every view, and asks for the status after each event."""

    simulation: Simulation
    text: io.StringIO = field(default_factory=io.StringIO)
    views: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        def now() -> float:
            return self.simulation.world.agenda.now

        console = Console(file=self.text, force_terminal=True, width=160)
        self.views = [
            LineReporter(self.text, now, kind=Kind.RIAK, pace=Pace(0.0)),
            LiveReporter(console, now, kind=Kind.RIAK),
        ]

    def events(self, records: Sequence[Record]) -> None:
        for view in self.views:
            view.events(records)

    def waiting(self, state: RunState, decision: Decision) -> None:
        for view in self.views:
            view.waiting(state, decision)
        now, records = self.simulation.world.agenda.now, self.simulation.journal.records
        self.text.write(status_text(state, records[-3:], now=now))

    def finished(self, state: RunState, outcome: Outcome) -> None:
        for view in self.views:
            view.finished(state, outcome)
        now, records = self.simulation.world.agenda.now, self.simulation.journal.records
        self.text.write(status_text(state, records, now=now))


def printed(plan: list[Mishap] | None = None, trips: list[Trip] | None = None, **changes: object) -> str:
    simulation = Simulation(ringed(), plan=plan or [], trips=trips or [])
    watcher = Everything(simulation)
    simulation.drive(simulation.begin(riak_policy(**changes)), watcher)
    return watcher.text.getvalue()


RUNS: dict[str, tuple[list[Mishap], list[Trip], Outcome]] = {
    "undisturbed": ([], [], Outcome.DONE),
    "a second failure": (
        [Mishap(what=NodeDies(node=FOUR), verb="start", target=TWO, after=3.0)],
        [],
        Outcome.FAILED,
    ),
    "stopped by the operator": (
        [Mishap(what=Asked(request=Request.STOP), verb="start", target=TWO, after=3.0)],
        [],
        Outcome.INTERRUPTED,
    ),
    "cannot be read for a while": (
        [Mishap(what=Unreadable(seconds=60.0), verb="start", target=TWO, after=20.0)],
        [],
        Outcome.DONE,
    ),
    "a start that is refused": ([], [Trip(how=How.REFUSED, verb="start", target=TWO)], Outcome.DONE),
}


def test_a_run_prints_nothing_that_riak_does_not_have(subtests: pytest.Subtests) -> None:
    for name, (plan, trips, outcome) in RUNS.items():
        with subtests.test(name=name):
            text = printed(plan, trips)
            assert outcome.value in text
            assert "handoff" in text
            found = [line for line in text.splitlines() if _OTHERS.search(line)]
            assert found == []


def test_plans_holds_and_what_predicates_are_for_do_not_either() -> None:
    texts = [
        plan_text(plan_of(ringed(), riak_policy())),
        plan_text(plan_of(down(ringed(), TWO), riak_policy())),
    ]
    texts += [f"{rule.name}: {rule.why}" for rule in PREDICATES]
    found = [line for text in texts for line in text.splitlines() if _OTHERS.search(line)]
    assert found == []
