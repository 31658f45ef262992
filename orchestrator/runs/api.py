"""The Python API: functions that take a `Connection`, and a run as an iterator over its events.

Exceptions are those of `orchestrator.errors`. The outcome of a run is no exception: see its summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from orchestrator.config.policy import Overrides
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode, SafetyViolation, UsageError
from orchestrator.model.event import Event, Record
from orchestrator.model.observation import EVERYTHING
from orchestrator.model.phase import Outcome, Request
from orchestrator.model.plan import Plan
from orchestrator.model.work_event import TuningApplied, TuningMissed
from orchestrator.ports import Clock
from orchestrator.runs.attempt import RestoreFailed
from orchestrator.runs.connection import Connection, Watched
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.past_runs import Wanted, find_run, past_run_of
from orchestrator.runs.prepare import Preparation, prepare
from orchestrator.runs.rehearsal import Rehearsal
from orchestrator.runs.takeover import InService
from orchestrator.runs.tuning import hosts_to_tune, make
from orchestrator.runs.unfinished import NothingDriven, restore_meant, resume_run
from orchestrator.runtime.database import DatabaseUse
from orchestrator.view.progress import NOTHING_SEEN
from orchestrator.view.summary import Summary, summary

Item = Record | Summary
"""What a run yields: the records of its journal, and at the end its summary."""


def plan(connection: Connection, *, playbook: str | None = None, overrides: Overrides | None = None) -> Plan:
    """What `restart` would do. Changes nothing and takes no lease.

    Args:
        connection: from `connect`.
        playbook: name or path; None takes that of the cluster file.
        overrides: selection and policy, as the flags of the command line.

    Raises:
        OrchestratorError: files, secrets, cluster, zones or selection are wrong.
    """
    return _prepare(connection, playbook, overrides).plan()


def restart(
    connection: Connection,
    *,
    playbook: str | None = None,
    overrides: Overrides | None = None,
    planned: Plan | None = None,
) -> Run:
    """A rolling restart. The cluster is read now; nothing is changed before the first item is requested.

    Args:
        connection: from `connect`.
        playbook: name or path; None takes that of the cluster file.
        overrides: selection and policy, as the flags of the command line.
        planned: a plan that was shown or agreed to, which no wave exceeds.

    Raises:
        OrchestratorError: files, secrets, cluster, zones or selection are wrong.
    """
    prepared = _prepare(connection, playbook, overrides)

    def work(to: Connection) -> RunState | NothingDriven:
        here = replace(prepared, connection=to)
        if here.not_due or (planned is None and here.left is not None):
            try:
                here = here.restored(agreed=planned)
            except RestoreFailed as failed:
                return failed.state
        if why := here.not_due:
            return NothingDriven(code=ExitCode.DONE, message=why, cluster=here.view.name)
        return here.run(planned)

    return Run(connection, work)


def resume(
    connection: Connection,
    run: str | None = None,
    *,
    retry_failed: bool = False,
    skip: Sequence[str] = (),
    accept_alerts: Sequence[str] = (),
    accept_recorded_commands: bool = False,
) -> Run:
    """Continue a run that was stopped, paused or killed, with its original policy.

    Args:
        connection: from `connect`.
        run: an id, the beginning or the last part of one; None takes the unfinished run of the cluster.
        retry_failed: start failed nodes again.
        skip: nodes to leave out.
        accept_alerts: alerts that have closed a gate and close none from here on: each by its name, or with
            its labels as the gate shows them.
        accept_recorded_commands: run its commands even if others can write the state and they are no longer
            those of the playbook; they are shown as a warning.
    """

    def work(to: Connection) -> RunState:
        with to.state(DatabaseUse.CONTINUE) as store:
            past = past_run_of(store, find_run(store, Wanted.RESUME, run=run, cluster=to.ports.name))
            skipped, accepted = past.require_nodes(skip), past.require_alerts(accept_alerts)
            return resume_run(
                to, store, past, retry_failed=retry_failed, skip=skipped, accept_alerts=accepted
            )

    return Run(_accepting(connection, accepts=accept_recorded_commands), work)


def restore(
    connection: Connection,
    run: str | None = None,
    *,
    playbook: str | None = None,
    in_service: Sequence[str] = (),
    accept_recorded_commands: bool = False,
) -> Run:
    """Restore what a run changed and start what it left down; from the cluster's record if no run is here.

    Args:
        connection: from `connect`.
        run: as for `resume`.
        playbook: name or path of the one whose `after_recovery` hooks run by that record; None takes that of
            the cluster file.
        in_service: nodes of that record that were put into service by hand.
        accept_recorded_commands: as for `resume`.
    """
    serving = InService(playbook=playbook, by_hand=in_service)

    def work(to: Connection) -> RunState | NothingDriven:
        return restore_meant(
            to.state, lambda _past: nullcontext(to), run=run, cluster=to.ports.name, serving=serving
        )

    return Run(_accepting(connection, accepts=accept_recorded_commands), work)


def rehearse(
    connection: Connection,
    *,
    seed: int = 0,
    playbook: str | None = None,
    overrides: Overrides | None = None,
) -> Run:
    """The same restart on a simulation of the cluster. The cluster itself is only read, now.

    Args:
        connection: from `connect`.
        seed: which mishaps; 0 = none.
        playbook: name or path; None takes that of the cluster file.
        overrides: selection and policy, as the flags of the command line.

    Raises:
        OrchestratorError: files, secrets, cluster, zones or selection are wrong.
    """
    prepared = _prepare(connection, playbook, overrides)
    rehearsal = Rehearsal(prepared.started, prepared.observe(EVERYTHING), seed)

    def work(to: Connection) -> RunState:
        kind = prepared.started.policy.kind
        with to.process.reporter(Watched(kind=kind, past=(), seen=lambda: NOTHING_SEEN)) as reporter:
            return rehearsal.play(reporter)

    return Run(connection, work)


def tune(
    connection: Connection,
    *,
    profile: str | None = None,
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    zone: str | None = None,
) -> Iterator[TuningApplied | TuningMissed]:
    """Apply a tuning profile to the hosts, now and at every boot.

    Lazy: nothing is read, checked or changed before the first event is requested. Then all hosts are tuned
    before it is returned. Every error is raised by the iterator.

    Args:
        connection: from `connect`.
        profile: name or path; None takes the playbook's, or else that of the cluster's kind. Of hosts without
            a cluster: that of their file.
        only: names and globs of nodes; all when empty.
        exclude: names and globs of nodes to leave out.
        zone: only nodes of this zone, or hosts of this group.

    Raises:
        ConfigError: the profile or a secret is wrong.
        UsageError: the connection is to no cluster file, or a name or glob matches no node.
        LeaseError: a run is at work on the cluster.
        JournalError: the state cannot be written; nothing more is changed. After the events of what was.
    """
    ports = connection.ports
    if not isinstance(ports, FilePorts):
        raise UsageError("only hosts of a cluster file are tuned")
    wanted = ports.tuning_profile(profile)
    where = hosts_to_tune(connection, ports, only=tuple(only), exclude=tuple(exclude), zone=zone)
    where.check_free()
    with connection.state(DatabaseUse.WRITE) as store:
        operator = connection.process.operator
        ledger, found = store.ledger(where.cluster), where.read(wanted)
        making = make(where, wanted, ledger, found, operator=operator, stop=lambda: False)
    yield from (one.event for one in making.made)
    if making.broken is not None:
        raise making.broken


def _prepare(connection: Connection, playbook: str | None, overrides: Overrides | None) -> Preparation:
    return prepare(connection, connection.ports.policy(playbook, overrides or Overrides()))


def _accepting(connection: Connection, *, accepts: bool) -> Connection:
    """The connection, whose process agrees to what a journal would run."""
    if not accepts:
        return connection
    process = connection.process

    def agree(said: Sequence[str]) -> bool:
        for line in said:
            process.warn(line)
        return True

    return replace(connection, process=replace(process, agrees=agree))


class Run(Iterator[Item]):
    """A run: an iterator over the records of its journal, whose last item is its `Summary`.

    The run begins when the first item is requested, and works in a thread of its own: a slow reader does not
    keep a node down, and breaking out of a loop over it does not stop it. Leaving its `with` block, or its
    connection's, stops it like the first signal stops a command: the run stands down, and the block waits.

    Args:
        connection: its cluster.
        work: drives it to its end.

    Attributes:
        summary: once it has ended, also when it was not read to the end; None before, and after an error.
        error: what it ended with instead of a summary.
    """

    def __init__(
        self, connection: Connection, work: Callable[[Connection], RunState | NothingDriven]
    ) -> None:
        self._request, self._lock = Request.NONE, Lock()
        self._queue = _Queue(connection.process.clock)
        process = replace(
            connection.process,
            requests=lambda _state: nullcontext(lambda: (self._request, "the program that began it")),
            reporter=lambda _watched: nullcontext(self._queue.attempt()),
        )
        self._connection, self._work = replace(connection, process=process), work
        self._thread = Thread(target=self._run, name="run")
        self._begun = self._over = False
        self.summary: Summary | None = None
        self.error: BaseException | None = None

    def __next__(self) -> Item:
        """The next record; at the end the summary.

        Raises:
            OrchestratorError: the run was refused, or cannot continue.
        """
        if self._over:
            raise StopIteration
        if not self._begun:
            self._begun = True
            self._connection.closing.push(self)
            self._thread.start()
        item = self._queue.items.get()
        if isinstance(item, Record):
            return item
        self._over = True
        self._thread.join()
        if isinstance(item, BaseException):
            raise item
        return item

    def pause(self) -> None:
        """Ask the run to finish its current wave and then pause."""
        self._ask(Request.PAUSE)

    def stop(self) -> None:
        """Ask the run to start what is down, restore settings and end."""
        self._ask(Request.STOP)

    def close(self) -> None:
        """Stop the run, if it is under way, and wait for its end. What was not read is in the journal.

        Raises:
            OrchestratorError: the run could not continue, and the iterator has not raised that.
        """
        if self._begun and not self._over:
            self.stop()
            self._thread.join()
            self._over = True
            if self.error is not None:
                raise self.error
        self._over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException as own:
            if error is None or own is not self.error:
                raise
            error.add_note(f"the run itself ended with {type(own).__name__}: {own}")

    def _ask(self, request: Request) -> None:
        """Ask, from any thread; a weaker request does not replace a stronger one."""
        with self._lock:
            self._request = max(self._request, request)
        self._connection.process.wake()

    def _run(self) -> None:
        last: Summary | BaseException
        try:
            last = self.summary = self._summary_of(self._work(self._connection))
        except BaseException as error:  # noqa: BLE001  (raised again where the run is read or closed)
            last = self.error = error
        self._queue.items.put(last)

    def _summary_of(self, end: RunState | NothingDriven) -> Summary:
        found = self._queue.summary if isinstance(end, RunState) else _without_run(end, self._connection)
        if found is None:
            raise SafetyViolation("the run ended without an outcome")
        return found


class _Queue:
    """What a run yields.

    Attributes:
        items: not yet read.
        summary: of the last attempt that ended; a restore of what a dead run left comes before the run's own.
    """

    def __init__(self, clock: Clock) -> None:
        self.items: SimpleQueue[Record | Summary | BaseException] = SimpleQueue()
        self.summary: Summary | None = None
        self._clock, self._events = clock, list[Event]()

    def attempt(self) -> Self:
        """Itself, as the reporter of another attempt."""
        self._events = []
        return self

    def events(self, records: Sequence[Record]) -> None:
        """Queue them."""
        for record in records:
            self._events.append(record.event)
            self.items.put(record)

    def waiting(self, state: RunState, decision: Decision) -> None:
        """Waits are in the records of their holds."""

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """Keep the summary."""
        self.summary = summary(state, outcome, self._events, self._clock.now())


def _without_run(end: NothingDriven, connection: Connection) -> Summary:
    return Summary(
        run=end.run or "",
        cluster=end.cluster or connection.ports.name,
        outcome=Outcome.of(end.code),
        exit_code=end.code,
        restarted=(),
        failed=(),
        pending=(),
        seconds=0.0,
        node_seconds={},
        holds=(),
        left=end.left,
        message=end.message,
    )
