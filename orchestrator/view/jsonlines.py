"""The reporter for `--output json`: standard output has only objects, one per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.event import Event, Record
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Instant
from orchestrator.view.outlet import Outlet
from orchestrator.view.summary import hold_object, refusal_object, summary, summary_object
from orchestrator.view.units import stamp
from orchestrator.view.waits import Pace, Wait, wait_of

Encode = Callable[[Event], Mapping[str, object]]
"""Encodes an event as in the journal: JSON-ready, with `event`."""


def json_line(payload: Mapping[str, object], *, at: Instant, run: str | None) -> str:
    """An object as a line of output: `ts` and `run` first, then the payload. Printable ASCII only."""
    line = json.dumps({"ts": stamp(at), "run": run, **payload}, separators=(", ", ": "), allow_nan=False)
    return line.replace("\x7f", "\\u007f")  # the only control character that JSON does not escape


def waiting_object(state: RunState, wait: Wait, now: Instant) -> dict[str, object]:
    """The current wait. It is not a journal event, so its name differs from all events."""
    return {
        "event": "waiting",
        "phase": state.phase.value,
        "wave": state.wave.number if state.wave else None,
        "nodes": list(state.wave.nodes) if state.wave else [],
        "for": wait.awaited,
        "seconds": round(max(0.0, now - wait.since), 3),
        "seconds_at_most": None if wait.until is None else round(max(0.0, wait.until - now), 3),
        "holds": [hold_object(hold) for hold in wait.holds],
    }


class JsonReporter:
    """A `Reporter` that writes JSON lines.

    Args:
        stream: standard output.
        now: the run's clock.
        encode: the journal's encoder of events, so that both use the same names.
        pace: decides which waits are worth a line.
    """

    def __init__(
        self, stream: TextIO, now: Callable[[], Instant], encode: Encode, *, pace: Pace | None = None
    ) -> None:
        self._out = Outlet(stream)
        self._now = now
        self._encode = encode
        self._pace = pace or Pace()
        self._events: list[Event] = []

    def events(self, records: Sequence[Record]) -> None:
        """Write one object per event; `sequence` is its place in the journal."""
        for record in records:
            self._events.append(record.event)
            payload = {"sequence": record.sequence, **self._encode(record.event)}
            self._out.line(json_line(payload, at=record.at, run=record.run))

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Write the current wait if it has changed, or as a sign of life."""
        now = self._now()
        wait = wait_of(state, decision, now)
        if wait is not None and self._pace.due(state, wait, now):
            self._out.line(json_line(waiting_object(state, wait, now), at=now, run=state.run or None))

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Write the summary, which is the last line."""
        now = self._now()
        end = summary(state, outcome, self._events, now)
        self._out.line(json_line(summary_object(end), at=now, run=state.run or None))

    def refused(self, message: str, exit_code: ExitCode) -> None:
        """Write the summary of a command that was refused before a run began."""
        self._out.line(json_line(refusal_object(message, exit_code), at=self._now(), run=None))
