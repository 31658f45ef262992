"""The environment of a command: variables, home, standard streams and printing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from orchestrator.cli.interrupts import EARLY
from orchestrator.cli.options import Output
from orchestrator.cli.reading_line import ReadingLine
from orchestrator.config.cluster import ClusterFile, HostsFile
from orchestrator.engine.left_over import texts
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.event import Event
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Instant
from orchestrator.next_command import next_command
from orchestrator.ports import Reporter
from orchestrator.runs.attempt import exit_code
from orchestrator.runs.connection import Agrees, Connection, Process, Threads, Watched
from orchestrator.runs.from_file import FilePorts, Files, connection_to
from orchestrator.runs.unfinished import NothingDriven
from orchestrator.runtime.database import DatabaseUse, named_state, require_writable
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.signals import FinalTexts, HeardSignal, Signals, last_words
from orchestrator.runtime.store import StateStore, open_store
from orchestrator.runtime.waiting import Asked, SystemClock
from orchestrator.view.live import LiveReporter, live_console, wants_live
from orchestrator.view.progress import not_restored
from orchestrator.view.reporters import JsonReporter, LineReporter, Reporters, json_line
from orchestrator.view.summary import VERDICTS, Summary, refusal_object, summary
from orchestrator.view.text import noted, printed
from orchestrator.view.unit_status import SOCKET, UnitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that a command uses of its process."""

    environment: Mapping[str, str]
    home: Path
    clock: SystemClock  # the one clock of the process
    output: Output  # text for people or JSON lines
    out: TextIO  # stream of results
    err: TextIO  # stream of warnings and errors
    # the first signal that the command received, over all its connections
    heard: HeardSignal = field(default_factory=HeardSignal, compare=False)
    line: ReadingLine = field(default_factory=ReadingLine, compare=False)

    @property
    def columns(self) -> int | None:
        """The width of the terminal for results; None where they go elsewhere, and lines are not wrapped."""
        return shutil.get_terminal_size().columns if self.out.isatty() else None

    def warn(self, message: str) -> None:
        """Print a warning that does not stop the command; never on standard output."""
        self.note(f"warning: {message}")

    def say(self, *lines: str) -> None:
        """Write lines of results. Control characters are escaped, so they cannot control the terminal."""
        with self.line.aside():
            self.out.write(printed(lines, self.out))

    def note(self, *lines: str) -> None:
        """Write lines that are no result; never on standard output. A terminal's are wrapped."""
        with self.line.aside():
            self.err.write(noted(lines, self.err))

    def reading(self, what: str) -> AbstractContextManager[None]:
        """Show on a terminal, in a block, what is read; not in plain text or JSON."""
        text = self.output is Output.TEXT
        return self.line.during(f"reading {what}", self.err, self.environment) if text else nullcontext()

    def say_json(self, payload: Mapping[str, object], *, run: str | None = None) -> None:
        """Write one line of `--output json`."""
        self.out.write(json_line(payload, at=self.clock.now(), run=run) + "\n")

    def end(self, code: ExitCode, *, run: str | None = None, **more: object) -> ExitCode:
        """Print the JSON summary of a command without a run, if JSON is requested. Returns the exit code."""
        if self.output is Output.JSON:
            outcome = {"event": "summary", "outcome": Outcome.of(code).value, "exit_code": int(code)}
            self.say_json({**outcome, **more}, run=run)
        return code

    def ended(self, end: RunState | NothingDriven) -> int:
        """Return the exit code. A run has printed its summary; without a run, print the message."""
        if isinstance(end, RunState):
            return int(exit_code(end))
        self.note(f"{VERDICTS[end.code is ExitCode.DONE]} {end.message}")
        code = self.end(end.code, run=end.run, cluster=end.cluster, left=list(end.left), message=end.message)
        return int(code)

    @property
    def files(self) -> Files:
        """Where cluster files, playbooks and tuning profiles are searched."""
        return Files(environment=self.environment, home=self.home, warn=self.warn)

    def cluster(self, name: str) -> ClusterFile:
        """Read the file of a cluster, of that name or path, and print its warnings.

        Raises:
            ConfigError: it cannot be found or is invalid.
            UsageError: it names hosts without a cluster.
        """
        return self.files.cluster(name)

    def hosts(self, name: str) -> HostsFile:
        """The same for a command that needs no cluster: a file of hosts without one is as good."""
        return self.files.hosts(name)

    @property
    def operator(self) -> str:
        """The account that runs the command."""
        return operator_name(self.environment)

    def open_state(self, url: str | None, access: DatabaseUse) -> StateStore:
        """Open the state database. The caller closes it.

        Raises:
            JournalError: it cannot be opened.
        """
        return open_store(url, self.environment, access=access, home=self.home)

    def state(self, url: str | None, access: DatabaseUse) -> AbstractContextManager[StateStore]:
        """The same for the duration of a block."""
        return closing(self.open_state(url, access))

    def require_state(self, url: str | None) -> None:
        """Refuse a state file that a run could not write, before a question; nothing is created.

        Raises:
            JournalError: it, or its folder, is missing or not writable.
        """
        require_writable(url, self.environment, home=self.home)

    def command(self, verb: str, *words: str, state: str | None) -> str:
        """A command as it can be typed; `state` is this command's own `--state`."""
        return next_command(verb, *words, state=named_state(state, self.environment))

    def ports(self, file: HostsFile) -> FilePorts:
        """The ports of a cluster file. The caller closes them."""
        return FilePorts(file, self.files, self.clock)

    def connect(
        self, ports: FilePorts, state: str | None, agrees: Agrees = lambda _said: False
    ) -> Connection:
        """The connection to a cluster, with the process's signals. The caller closes it, and so the ports."""
        requests = _SignalRequests(self)
        process = Process(
            clock=self.clock,
            operator=self.operator,
            host=host_name(),
            background=Threads(self.clock),
            requests=requests.during,
            reporter=partial(_reporter, self),
            tell=self.note,
            reading=self.reading,
            agrees=agrees,
            names_page=not self.output.for_people,
        )
        connection = connection_to(ports, self.files, process, state)
        connection.closing.callback(requests.close)
        return connection


def context_of(output: Output) -> Context:
    """The context of this process. All modules are loaded, so from now on a signal ends the command."""
    EARLY.heed()
    return Context(
        environment=os.environ,
        home=Path.home(),
        clock=SystemClock(),
        output=output,
        out=sys.stdout,
        err=sys.stderr,
    )


class _SignalRequests:
    """SIGINT, SIGTERM and SIGHUP as requests, from the first `during` until `close`.

    They are also caught between two `during` blocks, because a lease taken in the first is still held.
    """

    def __init__(self, context: Context) -> None:
        self._state: Callable[[], RunState | None] = lambda: None
        self._caught = ExitStack()
        self._signals = Signals(
            context.clock.wake, lambda: left_at_once(self._state(), context), context.heard
        )
        self._entered = False

    @contextmanager
    def during(self, state: Callable[[], RunState | None]) -> Iterator[Asked]:
        """The first signal since the beginning is the request. A second one leaves at once."""
        if not self._entered:
            EARLY.overtaken()
            self._caught.enter_context(self._signals)
            self._entered = True
        self._state = state
        yield self._signals.asked

    def close(self) -> None:
        """Stop catching signals."""
        self._caught.close()
        self._entered = False


def left_at_once(state: RunState | None, context: Context) -> FinalTexts:
    """The message when a second signal ends the program at once."""
    if state is None:
        return FinalTexts(error=printed(last_words(None, ()), context.err))
    left = texts(not_restored(state))
    lines = last_words(state.run, left, state.process.state)
    words = noted(lines, context.err)
    if context.output.for_people:
        return FinalTexts(error=words)
    summary = {
        **refusal_object("\n".join(lines), ExitCode.NOT_RESTORED),
        "outcome": "not_restored",
        "left": left,
    }
    line = json_line(summary, at=context.clock.now(), run=state.run)
    return FinalTexts(error=words, output=line + "\n")


@contextmanager
def _reporter(context: Context, watched: Watched) -> Iterator[Reporter]:
    unit = context.environment.get(SOCKET)
    with _shown(context, watched) as shown:
        yield Reporters(shown, UnitStatus(unit, context.clock.now)) if unit else shown


@contextmanager
def _shown(context: Context, watched: Watched) -> Iterator[Reporter]:
    now = context.clock.now

    def end(state: RunState, outcome: Outcome, events: Sequence[Event], at: Instant) -> Summary:
        before, stopped = watched.before, watched.stopped
        return summary(state, outcome, events, at, before=before, stopped=stopped, page=watched.page())

    if context.output is Output.JSON:
        yield JsonReporter(context.out, now, past=watched.past)
    elif context.output is Output.TEXT and wants_live(context.out, context.environment):
        console = live_console(context.out, context.environment)
        with LiveReporter(
            console, now, seen=watched.seen, past=watched.past, kind=watched.kind, end=end
        ) as live:
            yield live
    else:
        yield LineReporter(
            context.out, now, kind=watched.kind, past=watched.past, end=end, width=context.columns
        )
