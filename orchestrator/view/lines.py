"""The reporter for output that is not a terminal: one plain line per event, with its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, Record
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant
from orchestrator.view.outlet import Outlet
from orchestrator.view.summary import summary, summary_lines
from orchestrator.view.units import duration, stamp_seconds
from orchestrator.view.waits import Pace, Wait, holds_in_words, wait_of
from orchestrator.view.words import hold_sentence, sentence


def record_line(record: Record, kind: Kind = Kind.ELASTICSEARCH) -> str:
    """A journal record as one line: RFC 3339 time in UTC, then what happened."""
    return f"{stamp_seconds(record.at)} {sentence(record.event, kind)}"


def waiting_lines(state: RunState, wait: Wait, now: Instant) -> list[str]:
    """The current wait and its duration; each hold with its evidence on a separate line."""
    at = stamp_seconds(now)
    left = f", at most {duration(wait.until - now)} more" if wait.until is not None else ""
    where = f"wave {state.wave.number}, {state.phase.value}" if state.wave else state.phase.value
    held = f"; {holds_in_words(wait.holds)}" if wait.holds else ""
    head = f"{at} waiting ({where}) for {wait.awaited}: {duration(now - wait.since)} so far{left}{held}"
    return [head, *(f"{at}   held by {hold_sentence(hold)}" for hold in wait.holds)]


class LineReporter:
    """A `Reporter` that writes plain lines.

    Args:
        stream: the output, usually standard output.
        now: the run's clock.
        kind: kind of cluster, which has its own words.
        simulated: the run is a rehearsal, which cannot be resumed.
        pace: decides which waits are worth a line.
    """

    def __init__(
        self,
        stream: TextIO,
        now: Callable[[], Instant],
        *,
        kind: Kind = Kind.ELASTICSEARCH,
        simulated: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self._out = Outlet(stream)
        self._kind, self._simulated = kind, simulated
        self._now = now
        self._pace = pace or Pace()
        self._events: list[Event] = []

    def events(self, records: Sequence[Record]) -> None:
        """Write one line per event."""
        for record in records:
            self._events.append(record.event)
            self._out.line(record_line(record, self._kind))
        if records:
            self._pace.reset(self._now())

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Write the current wait if it has changed, or as a sign of life."""
        now = self._now()
        wait = wait_of(state, decision, now)
        if wait is not None and self._pace.due(state, wait, now):
            for line in waiting_lines(state, wait, now):
                self._out.line(line)

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Write the end."""
        end = replace(summary(state, outcome, self._events, self._now()), simulated=self._simulated)
        for line in summary_lines(end):
            self._out.line(line)
