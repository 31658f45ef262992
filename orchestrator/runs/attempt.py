"""One process's attempt at a run: reporter, requests, lease, journal and loop, until the run has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from orchestrator.engine.fold import evolve
from orchestrator.engine.run import exit_code_of
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, JournalError
from orchestrator.model.event import Event, Record, RunStarted
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.policy import Kind, Policy
from orchestrator.runs.connection import Connection, Process, RunJournal, Watched
from orchestrator.runs.surroundings import surrounded
from orchestrator.runtime.journal import UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.loop import Loop, Ports
from orchestrator.runtime.sampling import no_samples
from orchestrator.runtime.signals import strongest
from orchestrator.view.progress import ListeningCluster
from orchestrator.view.text import counted


@dataclass(slots=True, kw_only=True)
class Attempt:
    """An attempt that holds its lease and has not begun.

    Attributes:
        state: as replayed; changes during the run.
        past: records of earlier attempts.
        first: events to commit before anything else.
        begun: their records, once they are committed.
        then: called with the last state of the run.
    """

    connection: Connection
    lease: Lease
    journal: RunJournal
    state: RunState
    past: Sequence[Record] = ()
    first: tuple[Event, ...] = ()
    begun: Sequence[Record] | None = None
    then: Callable[[RunState], None] = lambda _state: None

    @property
    def repairs(self) -> bool:
        """Whether it restores what another run left, which is in the lease's record."""
        return any(isinstance(event, RunStarted) and event.repairs is not None for event in self.first)

    @property
    def policy(self) -> Policy:
        """The policy of the run, also before its first events are committed."""
        begun = next((event for event in self.first if isinstance(event, RunStarted)), None)
        return (begun or self.state.begun).policy


def begin(attempt: Attempt) -> Sequence[Record]:
    """Commit the first events, unless that was done; their records.

    Raises:
        JournalError: they could not be written; nothing was changed, and the lease is given back.
    """
    if attempt.begun is None:
        attempt.begun = _commit_first(attempt)
    return attempt.begun


def driven(ready: Attempt | RunState) -> RunState:
    """Drive an attempt; or the end of the restore that came before it and failed."""
    return ready if isinstance(ready, RunState) else drive(ready)


def drive(attempt: Attempt) -> RunState:
    """Work on the run until it has ended; its last state.

    Raises:
        JournalError: the first events could not be written; nothing was changed.
    """
    process, ports = attempt.connection.process, attempt.connection.ports
    listening = ListeningCluster(ports.cluster, process.clock.now)
    with ExitStack() as stack:
        enter = stack.enter_context
        watched = Watched(kind=attempt.policy.kind, past=attempt.past, seen=lambda: listening.seen)
        reporter = enter(process.reporter(watched))
        around = surrounded(reporter, attempt.connection, attempt.policy, attempt.state.run, attempt.past)
        reporter = around or reporter
        reporter.events(begin(attempt))
        state = attempt.state
        hosts = ports.hosts(state.begun.addresses, state.begun.data_paths)
        listener = enter(process.background.listen(listening, hosts))
        left = enter(process.background.left_requests(attempt.journal))
        own = enter(process.requests.during(lambda: loop.state))
        loop = Loop(
            state,
            Ports(
                cluster=listening,
                hosts=hosts,
                lease=attempt.lease,
                journal=attempt.journal,
                clock=process.clock,
                listener=listener,
                reporter=reporter,
                gates=ports.gates(state.begun.policy.gates),
                sample=no_samples if attempt.policy.kind is Kind.RIAK else process.sampler(),
                around=around,
            ),
            asked=strongest(own, left),
            workers=process.workers,
            reads=process.order,
        )
        enter(process.background.keep(attempt.lease))
        try:
            loop.run()
        finally:
            attempt.state = loop.state
            if loop.unwritten:
                process.warn(_unwritten(attempt.state, loop.unwritten))
            if attempt.state.phase is Phase.ENDED:
                _let_go(attempt, process)
                if not isinstance(attempt.journal, UnwrittenJournal):
                    process.ended(attempt.journal.run)
    attempt.then(attempt.state)
    return attempt.state


def _commit_first(attempt: Attempt) -> Sequence[Record]:
    """Commit the first events. If that fails, nothing may be done, and the lease is released."""
    if attempt.past:
        # Somebody may have removed the record: from here on another machine can restore by it again, even if
        # nothing can be committed. It is written before each change too: one that is refused here bars that.
        attempt.lease.publish(attempt.state)
    try:
        records = attempt.journal.append(attempt.first, attempt.connection.process.now)
    except JournalError:
        if attempt.past or attempt.repairs:
            attempt.lease.leave()  # its record lists pending changes: a restore needs it
        else:
            attempt.lease.release()
        raise
    for record in records:
        attempt.state = evolve(attempt.state, record)
    return records


def _unwritten(state: RunState, events: int) -> str:
    """The warning that the journal ends too early, with the command that compares it with the cluster."""
    status = state.command("status")
    return (
        f"the last {counted(events, 'event')} of run {state.run} are not in its journal: the state could not "
        f"be written; `{status}` reads the cluster instead"
    )


def _let_go(attempt: Attempt, process: Process) -> None:
    """Release the lease, unless changes are pending: then the record stays for the run that restores them."""
    if attempt.state.outcome is Outcome.NOT_RESTORED:
        attempt.lease.publish(attempt.state)  # settings restored since the last action are not pending
        attempt.lease.leave()
        return
    for trouble in attempt.lease.release():
        process.warn(trouble)


def exit_code(state: RunState) -> ExitCode:
    """The exit code of a run that has ended."""
    return exit_code_of(state.outcome) if state.outcome is not None else ExitCode.DEFECT
