"""The reporter for terminals: events scroll by as lines, and a panel below them shows the current state.

Rules of this module:

- **The run never waits for the terminal.** A terminal may stop taking output (Ctrl-S, a hung SSH session).
  The run's loop only leaves data; a painter thread of its own draws, at most four times a second.
- **A lost terminal ends the drawing, not the run.**
- **The terminal stays usable.** No alternate screen, and the cursor stays visible: a killed program could not
  undo such a change.
- **Resizing clears and redraws the panel**: the terminal has wrapped the old lines to an unknown number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from io import TextIOWrapper
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.event import Record
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Instant, Seconds
from orchestrator.untrusted import visible
from orchestrator.view.above import Above, AboveLine
from orchestrator.view.feed import Feed
from orchestrator.view.panel import Visible, panel
from orchestrator.view.progress import NOTHING_SEEN, Seen
from orchestrator.view.reporters import End
from orchestrator.view.screen import Screen
from orchestrator.view.signs import in_encoding, sign
from orchestrator.view.summary import summary, summary_lines
from orchestrator.view.text import time_of_day, zone_name
from orchestrator.view.turns import Meter, Turns

FRAME: Seconds = 0.25
"""Seconds between two pictures at least."""

TICK: Seconds = 1.0
"""Seconds between two pictures without news, so that the elapsed time is seen to advance."""

LAST_WORDS: Seconds = 2.0
"""Seconds for the painter at the end; a terminal that accepts nothing gets no more output."""

_REPEATED_LINES = 200
"""Lines kept to fill the terminal again after it was resized."""


def wants_live(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether this stream is a terminal that can move its cursor, and no log of a CI job."""
    ci = environ.get("CI", "").lower() not in {"", "0", "false"}
    return stream.isatty() and not ci and environ.get("TERM", "") not in {"", "dumb", "unknown"}


def live_console(stream: TextIO, environ: Mapping[str, str]) -> Console:
    """A console for the live view.

    `NO_COLOR` (set and not empty) removes every attribute, including bold. A terminal of 16 colours gets
    none: `signs` has the reason. Characters that the terminal's
    encoding lacks, as in a node's name, are escaped.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    if environ.get("NO_COLOR"):
        return Console(file=stream, force_terminal=True, color_system=None, highlight=False)
    console = Console(file=stream, force_terminal=True, highlight=False)
    console.no_color = console.color_system == "standard"
    return console


class LiveReporter:
    """A `Reporter` that draws the live view. Use it as a context manager around the run.

    Args:
        console: see `live_console`.
        now: the run's clock.
        seen: gives the latest readings of recovery, as `lambda: listening.seen`.
        past: records of earlier attempts of this run, for its pace.
        kind: kind of cluster, which has its own words.
        zone: the time zone of the reader; None for that of this machine.
        hint: whether Ctrl-C ends the run that is shown.
        end: makes the run's end of its last state, its outcome, its events and the time.

    Attributes:
        lost: why drawing has stopped; None while it works.
    """

    def __init__(
        self,
        console: Console,
        now: Callable[[], Instant],
        *,
        seen: Callable[[], Seen] = lambda: NOTHING_SEEN,
        past: Sequence[Record] = (),
        kind: Kind = Kind.ELASTICSEARCH,
        zone: tzinfo | None = None,
        hint: bool = True,
        end: End = summary,
    ) -> None:
        self._console, self._of_end = console, end
        self._now = now
        self._seen = seen
        self._feed, self._turns = Feed(kind, past), Turns(past)
        self._meter, self._zone, self._hint = Meter(), zone, hint
        self._above = Above(self._feed, self._turns, kind)
        self._latest: tuple[RunState, Decision | None] | None = None
        self._to_scroll: deque[AboveLine] = deque()
        self._scrolled: deque[AboveLine] = deque(maxlen=_REPEATED_LINES)
        self._size = console.size
        self._news, self._end = threading.Event(), threading.Event()
        self._painter = threading.Thread(target=self._paint, name="live view", daemon=True)
        self.lost: str | None = None

    def __enter__(self) -> Self:
        """Start to draw."""
        self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the panel, also after an error."""
        self._close()

    def events(self, records: Sequence[Record]) -> None:
        """Write these events as lines."""
        for record in records:
            self._turns.see(record)
        self._to_scroll.extend(self._above.lines(records))
        self._news.set()

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Show this state from now on."""
        # A decision that only acts or reads again has no wait; then the wait comes from the phase.
        says = decision.watch is not None or decision.holds
        self._latest = (state, decision if says else None)
        self._news.set()

    def follow(self, state: RunState) -> None:
        """Show this state from now on, of a run that another process works on."""
        self._latest = (state, None)
        self._news.set()

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Remove the panel and write the end below the events."""
        if not self._close():
            return
        try:
            end = self._of_end(state, outcome, self._feed.events, self._now())
            for line in summary_lines(end, self._console.width - 1):
                self._console.print(self._toned(line), soft_wrap=True)
        except (OSError, ValueError) as error:
            self.lost = f"{type(error).__name__}: {error}"

    def _toned(self, line: str) -> Text:
        """A line of the end: only its sign has a colour, and what is not restored is bold."""
        text = Text(in_encoding(visible(line), self._console.encoding))
        for mark, style in (sign("done"), sign("failed")):
            if line.startswith(mark):
                text.stylize(style, 0, 1)
        text.highlight_words(["NOT RESTORED"], "bold")
        return text

    def _close(self) -> bool:
        """Stop the painter. Returns whether the terminal still accepts output."""
        self._end.set()
        self._news.set()
        if self._painter.ident is not None:
            self._painter.join(LAST_WORDS)
        return self.lost is None and not self._painter.is_alive()

    def _paint(self) -> None:
        try:
            with Live(
                console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
            ) as live:
                self._console.show_cursor(show=True)
                while not self._end.is_set():
                    self._news.clear()
                    self._draw(live)
                    self._end.wait(FRAME)
                    self._news.wait(TICK - FRAME)
                self._scroll()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self.lost = f"{type(error).__name__}: {error}"

    def _draw(self, live: Live) -> None:
        if self._console.size != self._size:
            self._size = self._console.size
            self._console.control(Control.clear(), Control.home())
            for line in list(self._scrolled)[-self._size.height :]:
                self._write(line)
        self._scroll()
        if self._latest is None:
            return
        state, decision = self._latest
        screen = Screen(
            state,
            decision,
            now=self._now(),
            seen=self._seen(),
            turns=self._turns,
            meter=self._meter,
            zone=self._zone,
        )
        width, height = self._size
        # One column is left free: a terminal that wraps at the last one would break every line in two. The
        # cursor rests on an empty line below: there the terminal's own `^C` does not wrap, which would leave
        # the panel a line off from where it is erased.
        below = panel(screen, width - 1, height=height, hint=self._hint)
        live.update(Group(below, Text("")), refresh=True)

    def _scroll(self) -> None:
        while self._to_scroll:
            line = self._to_scroll.popleft()
            self._scrolled.append(line)
            self._write(line)

    def _write(self, line: AboveLine) -> None:
        """The time, the sign, and the text with a hanging indent; the first line has the time zone."""
        row = Table.grid(padding=(0, 1, 0, 0))
        for _ in range(2):
            row.add_column(no_wrap=True)
        row.add_column(overflow="fold")
        time = time_of_day(line.at, self._zone)
        if self._scrolled and line is self._scrolled[0]:
            time += f" {zone_name(line.at, self._zone)}"
        before = Text.assemble(sign(line.sign) if line.sign else " ")
        row.add_row(time, before, Text(visible(line.text), style="bold" if line.bad else ""))
        # The last column is left free here too: a line that fills it has no end for who copies the screen.
        self._console.print(Visible(row), width=self._size.width - 1)
