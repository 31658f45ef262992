"""The reporters for plain lines and for JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.encoding import public_record
from orchestrator.model.event import Event, Record
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import Reporter
from orchestrator.view.feed import SIGN_OF_LIFE, Feed
from orchestrator.view.phrases import hold_object, hold_sentence, holds_in_words
from orchestrator.view.progress import Wait
from orchestrator.view.summary import Summary, refusal_object, summary, summary_lines, summary_object
from orchestrator.view.text import duration, printed, stamp, stamp_seconds
from orchestrator.view.turns import run_in_words


class Reporters:
    """A `Reporter` that passes everything to each of these, in order; to none, and nothing is shown."""

    def __init__(self, *each: Reporter) -> None:
        self._each = each

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        for reporter in self._each:
            reporter.events(records)

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made."""
        for reporter in self._each:
            reporter.waiting(state, decision)

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        for reporter in self._each:
            reporter.finished(state, outcome)


class Outlet:
    """Writes whole lines to a text stream and flushes each.

    A node may be down when the reader goes away (`| head`, a lost SSH session). That must not raise an
    exception in the run's loop, so the outlet stops writing, and `lost` says why; the journal has everything.

    Args:
        stream: where to.
        mark: what every line begins with.

    Attributes:
        lost: why writing has stopped; None while it works.
    """

    def __init__(self, stream: TextIO, mark: str = "") -> None:
        self._stream, self._mark = stream, mark
        self.lost: str | None = None

    def line(self, text: str) -> None:
        """Write one line; a newline inside it is made visible too."""
        if self.lost is not None:
            return
        try:
            self._stream.write(printed([f"{self._mark}{text}".rstrip(" ")], self._stream))
            self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self.lost = f"{type(error).__name__}: {error}"


def wait_in_words(state: RunState, wait: Wait, now: Instant, *, of: int = 0) -> str:
    """The current wait and its duration on one line; `of`: waves of the plan, 0 if that is not shown."""
    left = f", {limit}" if (limit := wait.stands_down(now)) else ""
    all_of_them = f" of {of}" if of else ""
    step = run_in_words(state)
    where = f"wave {state.wave.number}{all_of_them}, {step}" if state.wave else step
    held = f"; {holds_in_words(wait.holds)}" if wait.holds else ""
    return f"waiting ({where}) for {wait.awaited}: {duration(now - wait.since)} so far{left}{held}"


def waiting_lines(state: RunState, wait: Wait, now: Instant) -> list[str]:
    """The current wait and its duration; each hold with its evidence on a separate line."""
    at = stamp_seconds(now)
    head = f"{at} {wait_in_words(state, wait, now)}"
    below = [*wait.troubles]
    below += [f"held by {hold_sentence(hold)}" for hold in wait.holds]
    return [head, *(f"{at}   {line}" for line in below)]


End = Callable[[RunState, Outcome, Sequence[Event], Instant], Summary]
"""Makes the end of a run, as `summary` does."""


class LineReporter:
    """A `Reporter` that writes plain lines.

    Args:
        stream: the output, usually standard output.
        now: the run's clock.
        kind: kind of cluster, which has its own words.
        past: records of earlier attempts at the run, for its summary.
        end: makes the run's end of its last state, its outcome, its events and the time.
        width: columns of the terminal, for the end; None where lines are not broken.
        every: seconds between two signs of life of a wait.
        log: whether there are lines before the summary.
        mark: what every line begins with.
    """

    def __init__(
        self,
        stream: TextIO,
        now: Callable[[], Instant],
        *,
        kind: Kind = Kind.ELASTICSEARCH,
        past: Sequence[Record] = (),
        end: End = summary,
        width: int | None = None,
        every: Seconds = SIGN_OF_LIFE,
        log: bool = True,
        mark: str = "",
    ) -> None:
        self._out, self._feed = Outlet(stream, mark), Feed(kind, past, every=every)
        self._now, self._end, self._width, self._log = now, end, width, log

    def events(self, records: Sequence[Record]) -> None:
        """Write one line per event, unless another event says the same."""
        if not self._log:
            self._feed.add(records)
            return
        for line in self._feed.lines(records):
            self._out.line(str(line))
            for said in line.below:
                self._out.line(f"{stamp_seconds(line.record.at)} {said}")
        if records:
            self._feed.alive(self._now())

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Write the current wait if it has changed, or as a sign of life."""
        now = self._now()
        wait = self._feed.wait(state, decision, now) if self._log else None
        if wait is not None:
            for line in waiting_lines(state, wait, now):
                self._out.line(line)

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Write the end."""
        end = self._end(state, outcome, self._feed.events, self._now())
        for line in summary_lines(end, self._width):
            self._out.line(line)


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
        **wait.trouble_objects,
    }


class JsonReporter:
    """A `Reporter` that writes JSON lines.

    Args:
        stream: standard output.
        now: the run's clock.
        past: records of earlier attempts at the run, for its summary.
        every: seconds between two signs of life of a wait.
    """

    def __init__(
        self,
        stream: TextIO,
        now: Callable[[], Instant],
        *,
        past: Sequence[Record] = (),
        every: Seconds = SIGN_OF_LIFE,
    ) -> None:
        self._out, self._feed = Outlet(stream), Feed(past=past, every=every)
        self._now = now

    def events(self, records: Sequence[Record]) -> None:
        """Write one object per event; `sequence` is its place in the journal."""
        self._feed.add(records)
        for record in records:
            self._out.line(json_line(public_record(record), at=record.at, run=record.run))

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Write the current wait if it has changed, or as a sign of life."""
        now = self._now()
        wait = self._feed.wait(state, decision, now)
        if wait is not None:
            self._out.line(json_line(waiting_object(state, wait, now), at=now, run=state.run or None))

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Write the summary, which is the last line."""
        now = self._now()
        end = summary(state, outcome, self._feed.events, now)
        self._out.line(json_line(summary_object(end), at=now, run=state.run or None))

    def refused(self, message: str, exit_code: ExitCode) -> None:
        """Write the summary of a command that was refused before a run began."""
        self._out.line(json_line(refusal_object(message, exit_code), at=self._now(), run=None))
