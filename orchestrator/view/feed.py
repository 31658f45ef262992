"""The feed of a run's events under every reporter: what was before, and which of them get a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.action import WriteSettings
from orchestrator.model.event import (
    ActionConfirmed,
    ActionFailed,
    ActionSent,
    ClusterSampled,
    Event,
    LeaseEvent,
    PhaseEntered,
    Record,
    Requested,
    RestoreBegun,
    RunStarted,
    StandingDown,
    asked_to_stop,
)
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Seconds
from orchestrator.view.host_words import AboutNode, node_of, said_lines, together
from orchestrator.view.progress import Wait, wait_of
from orchestrator.view.text import stamp_seconds
from orchestrator.view.words import sentence

LISTED: Final = "listed in the record of run"
"""How the sentence of an event begins that another run has left to be restored."""

SIGN_OF_LIFE: Seconds = 30.0
"""Minimum interval between two lines of an unchanged wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An event for people."""

    record: Record  # nodes on which the same failed are one event, with all their names
    text: str  # its sentence
    below: tuple[str, ...] = ()  # what was said of a start that failed

    def __str__(self) -> str:
        """The line with its time: RFC 3339, in UTC."""
        return f"{stamp_seconds(self.record.at)} {self.text}"


class Feed:
    """The events of a run, one after the other.

    Args:
        kind: kind of cluster, which has its own words.
        past: records of earlier attempts at the run, for its summary and its pace.
        every: seconds between two signs of life of a wait.
    """

    def __init__(
        self, kind: Kind = Kind.ELASTICSEARCH, past: Sequence[Record] = (), *, every: Seconds = SIGN_OF_LIFE
    ) -> None:
        self._kind, self._every = kind, every
        self._events: list[Event] = [record.event for record in past]
        self._listed_of: str | None = None
        self._asked_by = ""
        self._actions: list[Event] = []
        self._shown: tuple[object, ...] | None = None
        self._at: Instant = 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, those of earlier attempts first. Another thread may ask for them."""
        return tuple(self._events)

    def add(self, records: Sequence[Record]) -> None:
        """These were committed."""
        self._events += [record.event for record in records]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """These were committed, in one step of the run: the lines of those events that no other line has."""
        self.add(records)
        found = []
        for record in said_once(records):
            event = record.event
            text = self.sentence(event)
            if self._is_news(event):
                below = tuple(said_lines(event))
                found.append(Line(record=record, text=text, below=below))
        return found

    def sentence(self, event: Event) -> str:
        """The sentence of the next event.

        A run that restores the changes of another one begins with what that run's record lists. None of it
        is done now, and the sentences show that.
        """
        if isinstance(event, RunStarted):
            self._listed_of = event.repairs
        elif isinstance(event, RestoreBegun):
            self._listed_of = None
        elif self._listed_of is not None and not isinstance(event, LeaseEvent):
            return f"{LISTED} {self._listed_of}: {sentence(event, self._kind)}"
        return sentence(event, self._kind)

    def _is_news(self, event: Event) -> bool:
        """Whether an event gets a line: no other line says the same, and it is not for the report alone.

        An action is not said again that is only sent again, as every few seconds while a stop does not end.
        """
        match event:
            case ClusterSampled() | PhaseEntered(node=None, to=Phase.STANDING_DOWN.value):
                return False
            case ActionSent(action=WriteSettings()) | ActionConfirmed(action=WriteSettings(), output=""):
                return False
            case StandingDown() if repeats_request(event, self._asked_by):
                return False
            case ActionSent() | ActionConfirmed() | ActionFailed():
                again = event in self._actions
                self._actions.append(event)
                return not again
            case Requested(by=by):
                self._asked_by = by
            case _:
                pass
        self._actions.clear()
        return True

    def wait(self, state: RunState, decision: Decision, now: Instant) -> Wait | None:
        """The current wait if it is worth a line: when its kind has changed, else as a sign of life.

        Different numbers are the same wait: "28 of 30 nodes" after "27 of 30".
        """
        wait = wait_of(state, decision, now)
        if wait is None:
            return None
        shown = (
            state.phase,
            state.wave.number if state.wave else 0,
            re.sub(r"\d+", "#", wait.awaited),
            tuple(hold.predicate for hold in wait.holds),
        )
        if shown == self._shown and now - self._at < self._every:
            return None
        self._shown, self._at = shown, now
        return wait

    def alive(self, now: Instant) -> None:
        """Lines of events were shown, which is a sign of life too."""
        self._at = now


def repeats_request(down: StandingDown, asked_by: str) -> bool:
    """Whether a stand-down says no more than its request: merges that continue are named there alone."""
    return down.outcome is Outcome.INTERRUPTED and down.reason == asked_to_stop(asked_by)


def said_once(records: Sequence[Record]) -> list[Record]:
    """Records of one step for people: nodes on which the same failed are one record, with all their names."""
    about = [one.event for one in records if isinstance(one.event, AboutNode) and node_of(one.event)]
    merged = {id(first): event for first, event in together(about)}
    left_out = {id(event) for event in about} - merged.keys()
    return [
        replace(record, event=merged.get(id(record.event), record.event))
        for record in records
        if id(record.event) not in left_out
    ]
