"""One process's attempt at a run, from its first events to its end: reporter, requests, lease, loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.kinds import kind_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ClusterSampled, Record
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.reading import Instant
from orchestrator.runs.connection import Connection, RunJournal, Watched
from orchestrator.runs.surroundings import surrounded
from orchestrator.runtime.journal import UnwrittenJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.loop import Loop, Ports
from orchestrator.runtime.sampling import no_samples
from orchestrator.runtime.waiting import strongest
from orchestrator.view.progress import NOTHING_SEEN
from orchestrator.view.reporters import Reporters
from orchestrator.view.text import counted


@dataclass(slots=True, kw_only=True)
class Attempt:
    """An attempt that holds its lease, and whose first events are committed."""

    connection: Connection
    lease: Lease
    journal: RunJournal
    state: RunState  # as the journal leads to; changes during the run
    past: Sequence[Record] = ()  # records of earlier attempts
    begun: Sequence[Record]  # those of the first events
    before: Sequence[str] = ()  # what was restored of other runs before this attempt began
    # when the run whose changes this attempt restores stopped its nodes, as far as its journal is here
    stopped: Mapping[NodeName, Instant] = field(default_factory=dict)
    then: Callable[[RunState], None] = lambda _state: None  # called with the last state of the run


class RestoreFailed(Exception):  # noqa: N818  (names what happened)
    """No attempt has begun: the changes of another run come first, and could not be restored.

    `state` is the last one of the run that was to restore them. It has shown its end.
    """

    def __init__(self, state: RunState) -> None:
        super().__init__(f"run {state.run} could not restore what another run left")
        self.state = state


def driven(begin: Callable[[], Attempt]) -> RunState:
    """Drive the attempt that this begins to its end; the end of the restore before it, where that failed."""
    try:
        attempt = begin()
    except RestoreFailed as failed:
        return failed.state
    return drive(attempt)


def drive(attempt: Attempt) -> RunState:
    """Work on the run until it has ended; its last state."""
    process, ports, begun = attempt.connection.process, attempt.connection.ports, attempt.state.begun
    kind = begun.policy.kind
    sample, seen = process.sampler() if kind_of(kind).sampled else no_samples, NOTHING_SEEN

    def read(observation: Observation) -> Sequence[ClusterSampled]:
        nonlocal seen
        seen = seen.after(observation)
        return sample(observation)

    with ExitStack() as stack:
        enter = stack.enter_context
        watched = Watched(
            kind=kind,
            past=attempt.past,
            seen=lambda: seen,
            before=attempt.before,
            stopped=attempt.stopped,
            page=lambda: process.page(attempt.state.run),
        )
        reporter = enter(process.reporter(watched))
        around = surrounded(attempt.connection, begun.policy, attempt.state.run, attempt.past)
        reporter = Reporters(reporter, around) if around else reporter
        reporter.events(attempt.begun)
        hosts = ports.hosts(begun.addresses, begun.data_paths)
        listener = enter(process.background.listen(ports.cluster, hosts))
        left = enter(process.background.left_requests(attempt.journal))
        own = enter(process.requests(lambda: loop.state))
        loop = Loop(
            attempt.state,
            Ports(
                cluster=ports.cluster,
                hosts=hosts,
                lease=attempt.lease,
                journal=attempt.journal,
                clock=process.clock,
                listener=listener,
                reporter=reporter,
                gates=ports.gates(begun.policy.gates),
                sample=read,
                around=around,
            ),
            asked=strongest(own, left),
            workers=process.workers,
            reads=process.order,
        )
        with _lease_kept(attempt):
            try:
                loop.run()
            finally:
                attempt.state = loop.state
                if loop.unwritten:
                    process.warn(_unwritten(attempt.state, loop.unwritten))
    attempt.then(attempt.state)
    return attempt.state


@contextmanager
def _lease_kept(attempt: Attempt) -> Iterator[None]:
    """Refresh the lease. Once the run has ended, release it, unless changes are pending.

    Then, and after a defect, its record stays for the run that restores them.
    """
    process, lease = attempt.connection.process, attempt.lease
    with process.background.keep(lease):
        try:
            yield
        finally:
            state = attempt.state
            if state.phase is Phase.ENDED:
                if state.outcome is Outcome.NOT_RESTORED:
                    lease.publish(state)  # settings restored since the last action are not pending
                    lease.leave()
                else:
                    for trouble in lease.release():
                        process.warn(trouble)
                if not isinstance(attempt.journal, UnwrittenJournal):
                    process.ended(state.run)


def _unwritten(state: RunState, events: int) -> str:
    """The warning that the journal ends too early, with the command that compares it with the cluster."""
    status = state.command("status")
    return (
        f"the last {counted(events, 'event')} of run {state.run} are not in its journal: the state could not "
        f"be written; `{status}` reads the cluster instead"
    )


def exit_code(state: RunState) -> ExitCode:
    """The exit code of a run that has ended."""
    return state.outcome.exit_code if state.outcome is not None else ExitCode.DEFECT
