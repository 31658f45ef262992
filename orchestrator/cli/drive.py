"""Drives one attempt at a run: reporter, signals, lease, loop, and the exit code at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.cli.options import Output
from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.world import World
from orchestrator.engine.fold import RunState, evolve
from orchestrator.engine.run import exit_code_of
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import Event, Record, RunStarted
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.policy import Kind
from orchestrator.model.reading import Seconds
from orchestrator.ports import Reporter
from orchestrator.runtime.asking import RequestWatch
from orchestrator.runtime.codec import encode_event
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.listener import ThreadedListener
from orchestrator.runtime.loop import Loop, Ports
from orchestrator.runtime.signals import LastWords, Signals, last_words, strongest
from orchestrator.view.jsonlines import JsonReporter, json_line
from orchestrator.view.lines import LineReporter
from orchestrator.view.listen import ListeningCluster
from orchestrator.view.live import LiveReporter, live_console, wants_live
from orchestrator.view.outlet import shown
from orchestrator.view.summary import not_put_back, refusal_object


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One process's turn at a run.

    Attributes:
        state: as replayed; changed while the run goes on.
        past: records of earlier attempts.
        first: events to be committed before anything else.
        predicted: seconds that the plan gives the run, for the view.
    """

    world: World
    lease: Lease
    journal: SqlJournal | UnwrittenJournal
    state: RunState
    past: Sequence[Record] = ()
    first: tuple[Event, ...] = ()
    predicted: Seconds | None = field(default=None)

    @property
    def repairs(self) -> bool:
        """Whether it puts back what another run left, which stands in the lease's record."""
        return any(isinstance(event, RunStarted) and event.repairs is not None for event in self.first)


def drive(attempt: Attempt, around: Surroundings) -> RunState:
    """Go on until the run has ended, for now or for good; the state that it ended in.

    Raises:
        JournalError: the very first events could not be written: nothing was changed.
    """
    listening = ListeningCluster(attempt.world.cluster, around.clock.now)
    with ExitStack() as stack:
        reporter = stack.enter_context(_reporter(attempt, around, listening))
        try:
            records = attempt.journal.append(attempt.first, around.clock.now())
        except JournalError:
            if attempt.past or attempt.repairs:
                attempt.lease.leave()  # the record says what is owed: whoever repairs it needs it
            else:
                attempt.lease.release()
            raise
        for record in records:
            attempt.state = evolve(attempt.state, record)
        reporter.events(records)
        hosts = attempt.world.hosts(attempt.state.addresses, attempt.state.data_paths)
        listener = ThreadedListener(listening, hosts, around.clock)
        stack.callback(listener.close)
        ports = Ports(
            cluster=listening,
            hosts=hosts,
            lease=attempt.lease,
            journal=attempt.journal,
            clock=around.clock,
            listener=listener,
            reporter=reporter,
            gates=attempt.world.gates(attempt.state.policy.gates if attempt.state.policy else ()),
        )
        requests = RequestWatch(attempt.journal, around.clock.wake)
        signals = stack.enter_context(Signals(around.clock.wake, lambda: _last_words(loop.state, around)))
        loop = Loop(attempt.state, ports, asked=strongest(signals.asked, requests.asked))
        attempt.lease.start()
        requests.start()
        stack.callback(requests.stop)
        try:
            loop.run()
        finally:
            attempt.state = loop.state
            if attempt.state.phase is Phase.ENDED:
                _let_go(attempt, around)
    return attempt.state


def _last_words(state: RunState, around: Surroundings) -> LastWords:
    """What is said when a second signal ends the program at once."""
    left = not_put_back(state)
    error = last_words(state.run, left)
    words = shown(error, around.err)
    if around.output is Output.TEXT:
        return LastWords(error=words)
    summary = {
        **refusal_object(error.strip(), ExitCode.NOT_RESTORED),
        "outcome": "not_restored",
        "left": left,
    }
    return LastWords(error=words, output=json_line(summary, at=around.clock.now(), run=state.run) + "\n")


def _let_go(attempt: Attempt, around: Surroundings) -> None:
    """Release the lease, unless something is left: then the record stays for whoever repairs it."""
    if attempt.state.outcome is Outcome.NOT_RESTORED:
        attempt.lease.leave()
        return
    for trouble in attempt.lease.release():
        around.warn(trouble)


@contextmanager
def _reporter(attempt: Attempt, around: Surroundings, listening: ListeningCluster) -> Iterator[Reporter]:
    now, policy = around.clock.now, attempt.state.policy
    kind = policy.kind if policy else Kind.ELASTICSEARCH
    if around.output is Output.JSON:
        yield JsonReporter(around.out, now, encode_event)
    elif wants_live(around.out, around.environment):
        console = live_console(around.out, around.environment)
        with LiveReporter(
            console,
            now,
            seen=lambda: listening.seen,
            predicted=attempt.predicted,
            past=attempt.past,
            kind=kind,
        ) as live:
            yield live
    else:
        yield LineReporter(around.out, now, kind=kind)


def exit_code(state: RunState) -> ExitCode:
    """The exit code of a run that has ended."""
    return exit_code_of(state.outcome) if state.outcome is not None else ExitCode.DEFECT
