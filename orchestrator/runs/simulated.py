"""A program on a simulated cluster: the same runs, with the real lease, journal and state, in virtual time.

It can be started many times, also after a kill. `connect` is a new process for the functions of this package.
`begin`, `resume` and the like do the first half of those functions (the lease is held, the first events are
committed), and `drive` does the rest, so that a test can check, and change the world, in between.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar, cast

from sqlalchemy import Engine

from orchestrator.engine.fold import replay
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Record, RestoreBegun, RunResumed, RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.phase import Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant
from orchestrator.ports import Reporter
from orchestrator.runs import attempt as attempts
from orchestrator.runs.attempt import Attempt, RestoreFailed
from orchestrator.runs.connection import Connection, NoReports, Process, Watched
from orchestrator.runs.recorded import PastRun, past_run_of
from orchestrator.runs.simulated_ports import (
    Common,
    Events,
    FatedRequests,
    Heart,
    OpenStore,
    SeamJournal,
    SimulatedPorts,
    empty_state,
    give_back,
    simulated_cluster,
)
from orchestrator.runs.takeover import LeaseHeld, new_run, repair
from orchestrator.runs.unfinished import next_attempt
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.sampling import Sampling, no_samples
from orchestrator.simulation import turns
from orchestrator.simulation.beginning import do_without, note_what_is, start_of
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.gates import SimulatedGates
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Mishap, Seams, Trip
from orchestrator.simulation.records import (
    MemoryLeasePort,
    SimulatedClock,
    SimulatedLeasePort,
    SimulatedListener,
)
from orchestrator.simulation.world import World

_T = TypeVar("_T")


def _there(found: _T | None, otherwise: str) -> _T:
    if found is None:
        raise LookupError(otherwise)
    return found


class Simulation:
    """A program on a simulated cluster: one account on one machine, with a state of its own.

    Args:
        world: the cluster.
        plan: what happens to it.
        trips: verbs that go wrong.
        run: the id of its first run.
        fate: what still happens to a world that had a run before; instead of `plan` and `trips`.
        operator: who runs it, and on which host.
        policy: of runs that are not given one.
        order: in which cluster and hosts are read.
        common: what it shares with other programs on this cluster.
        state: its state database; None is one in memory.
        sampler: which readings of health its runs record.
    """

    def __init__(
        self,
        world: World,
        *,
        plan: Sequence[Mishap] = (),
        trips: Sequence[Trip] = (),
        run: str = "run-1",
        fate: Fate | None = None,
        operator: tuple[str, str] = ("ann", "bastion"),
        policy: Policy | None = None,
        order: Order = Order.CLUSTER_FIRST,
        common: Common | None = None,
        state: Engine | None = None,
        sampler: Callable[[], Sampling] = lambda: no_samples,
    ) -> None:
        self.world = world
        self.seams = Seams()
        self.fate = fate or Fate(world, plan=plan, trips=trips)
        self.clock = SimulatedClock(world=world, fate=self.fate, ahead=self.fate.clock_ahead)
        self.cluster = simulated_cluster(world, self.fate, self.seams)
        self.hosts = SimulatedHosts(world=world, fate=self.fate, seams=self.seams)
        self.gates = SimulatedGates(world=world)
        self.listener = SimulatedListener(
            world=world,
            fate=self.fate,
            clock=self.clock,
            cluster=self.cluster,
            hosts=self.hosts,
            written=lambda: len(self.written(self.run)),
        )
        self.common = common or Common()
        self.leases = SimulatedLeasePort(world=world, fate=self.fate, records=self.common.records)
        self.own_lease = MemoryLeasePort()
        self.cluster.process = self.hosts.process = self.process
        self.run, (self.operator, self.host) = run, operator
        self._began: dict[str, Instant] = {run: world.agenda.now}
        self.order, self.sampler = order, sampler
        self.requests_left = 0
        self._policy, self._state, self.shares_state = policy, state, state is not None
        self._given_back: weakref.finalize[[Engine], Simulation] | None = None
        self._name, self._runs, self._processes = run, 0, 0
        self.journals: list[SeamJournal] = []
        self.own_runs: list[str] = []
        self._written: dict[str, list[Record]] = {}
        self._identity: str | None = None
        self._attempt: Attempt | None = None
        self._heart: Heart | None = None

    @property
    def policy(self) -> Policy:
        """The policy of its runs."""
        return _there(self._policy, "no policy was given, and no run has begun")

    @property
    def attempt(self) -> Attempt:
        """The latest attempt."""
        return _there(self._attempt, "no run has begun")

    @property
    def journal(self) -> SeamJournal:
        """The journal of the current run: that of the attempt, unless a restore came instead of it."""
        of_run = [journal for journal in self.journals if journal.run == self.run]
        return of_run[-1] if of_run else cast("SeamJournal", self.attempt.journal)

    @property
    def record(self) -> LeaseRecord:
        """The record that another machine would read in the cluster."""
        return _there(self.leases.stands, "there is no lease in the cluster")

    @property
    def deposed(self) -> bool:
        """Whether another program owns the cluster now."""
        return 0 < self.leases.claim < self.world.owner.epoch

    def process(self) -> turns.Process:
        """This process of the program, for the judge."""
        return turns.Process(run=self.run, epoch=self.leases.claim, blind=self.leases.silent)

    def written(self, run: str) -> list[Record]:
        """What processes of this program have committed to the journal of a run."""
        return self._written.setdefault(run, [])

    def records(self, run: str) -> tuple[Record, ...]:
        """The journal of a run, as its state has it."""
        return self._store().replay(run)

    def runs(self) -> tuple[str, ...]:
        """Ids of its runs, the latest first."""
        return tuple(entry.run for entry in self._store().runs())

    def _store(self) -> OpenStore:
        if self._state is None:
            self._state = empty_state()
            self._given_back = weakref.finalize(self, give_back, self._state)
            self._given_back.atexit = False
        self.flush()
        return OpenStore(self._state, self)

    def close(self) -> None:
        """Close the state, if it is in memory; committed records can still be read from `written`."""
        self._over()
        if self._given_back is not None:
            self._given_back()
            self._given_back = self._state = None

    # Processes ------------------------------------------------------------------------------------------

    @contextmanager
    def connect(
        self,
        reporter: Callable[[Watched], AbstractContextManager[Reporter]] | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> Iterator[Connection]:
        """A new process of this program. It lives until the block is left, also by a `Crash`."""
        try:
            with self._started(reporter, tell) as connection:
                yield connection
        finally:
            self._over()

    def _started(
        self,
        reporter: Callable[[Watched], AbstractContextManager[Reporter]] | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> Connection:
        """A new process. A process that still lives ends, as by a kill."""
        self._over()
        fate, world = self.fate, self.world
        fate.request, fate.lease_holder = Request.NONE, None
        self.clock.ahead, world.program_since = fate.clock_ahead, world.agenda.now
        self.cluster.way = world.endpoints(self.clock) if world.endpoints is not None else None
        self._processes += 1
        self._identity = f"{self.host}/1/{self._processes}/1"
        self.common.alive.add(self._identity)
        process = Process(
            clock=self.clock,
            operator=self.operator,
            host=self.host,
            background=Events(self),
            requests=FatedRequests(fate),
            reporter=reporter or (lambda _watched: nullcontext(NoReports())),
            tell=tell,
            identity=self._identity,
            gone=self._gone,
            alive=self._lives,
            randomness=random.Random(self._processes),  # noqa: S311  (nothing is secret here)
            run_id=lambda _now, _dice: self._new_run(),
            order=self.order,
            workers=1,
            sampler=self.sampler,
        )
        return Connection(
            ports=SimulatedPorts(self), process=process, open_state=lambda _access: self._store()
        )

    def _over(self) -> None:
        """The process ends, in any way."""
        if self._heart is not None:
            self._heart.stopped = True
        if self._identity is not None:
            self.common.alive.discard(self._identity)
        if self.shares_state:
            self.flush()

    def _new_run(self) -> str:
        self._runs += 1
        self.run = self._name if self._runs == 1 else f"{self._name}-{self._runs}"
        return self.run

    def _here(self, identity: str) -> bool:
        return identity.startswith(f"{self.host}/")

    def _gone(self, identity: str) -> bool:
        """Only the same machine can prove it."""
        return self._here(identity) and identity not in self.common.alive

    def _lives(self, identity: str) -> bool:
        return self._here(identity) and identity in self.common.alive

    def flush(self) -> None:
        """Write the committed records to the state."""
        for journal in self.journals:
            journal.flush()

    def heart_of(self, lease: Lease) -> Heart:
        """The heartbeat of this lease."""
        if self._heart is None or self._heart.lease is not lease or self._heart.stopped:
            self._heart = Heart(world=self.world, fate=self.fate, lease=lease)
            self._heart.begin()
        return self._heart

    # Attempts -------------------------------------------------------------------------------------------

    def begin(self, policy: Policy, *, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunState:
        """Begin a run over the nodes that the policy selects, in planned waves if any."""
        return self.begin_as(self.start_of(policy, planned))

    def begin_as(self, started: RunStarted) -> RunState:
        """Begin this exact run, as it would begin on the real cluster.

        Raises:
            LeaseError: another program holds the cluster, or the lease cannot be read.
            JournalError: the first events cannot be written.
        """
        self._policy = started.policy
        connection = self._started()
        return self._begun(lambda: new_run(connection, self._store(), started, again=lambda: started))

    def take_over(self, policy: Policy) -> RunState | None:
        """Begin a run that only restores what the record in the cluster lists; None if it lists nothing.

        Raises:
            LeaseError: the program that left it lives, or the lease cannot be read.
            JournalError: the first events cannot be written.
        """
        self._policy = policy
        connection, started = self._started(), self.start_of(policy)
        run, store = connection.process.new_run(), self._store()
        with LeaseHeld(connection, store, run, replace(started, state=store.state)) as held:
            if held.left is not None:
                return self._begun(lambda: repair(held, run, started))
        self._over()
        return None

    def resume(
        self, *, retry_failed: bool = False, skip: Sequence[NodeName] = (), accept_alerts: Sequence[str] = ()
    ) -> RunState:
        """A new process continues the run."""
        connection, past = self._started(), self._past()
        event = RunResumed(
            operator=self.operator,
            host=self.host,
            retry_failed=retry_failed,
            skip=tuple(skip),
            state=self._store().state,
            accept_alerts=past.require_alerts(accept_alerts),
        )
        state = self._begun(lambda: next_attempt(connection, self._store(), past, event))
        do_without(self.world, state.done_without)
        return state

    def restore(self) -> RunState:
        """A new process only restores what the run changed."""
        connection, past = self._started(), self._past()
        event = RestoreBegun(operator=self.operator, host=self.host, state=self._store().state)
        return self._begun(lambda: next_attempt(connection, self._store(), past, event))

    def start_of(self, policy: Policy, planned: tuple[tuple[NodeName, ...], ...] = ()) -> RunStarted:
        """How a run would begin over the nodes that the policy selects; no time passes."""
        return start_of(self.world, policy, planned, operator=(self.operator, self.host))

    def _past(self) -> PastRun:
        entries = self._store().runs()  # the latest first: it continues where one after it could not begin
        return past_run_of(self._store(), next((e for e in entries if e.run == self.run), entries[0]))

    def _begun(self, begin: Callable[[], Attempt]) -> RunState:
        try:
            attempt = begin()
        except RestoreFailed as failed:
            self._over()
            return failed.state
        self._attempt, self.run = attempt, attempt.journal.run
        self.heart_of(attempt.lease)
        return attempt.state

    def drive(self, state: RunState, reporter: Reporter, *, order: Order = Order.CLUSTER_FIRST) -> RunState:
        """Drive the attempt that was begun to its end.

        Args:
            state: as begun, or as a test wants it.
            reporter: shows the run.
            order: in which the world is read: a real run reads at once, and either may come first.

        Raises:
            Crash: the program is killed.
        """
        if self._attempt is None or state.run != self.attempt.journal.run:
            # What another run left had to be restored first, and that failed: no attempt was begun.
            reporter.events(self.written(state.run))
            return state
        attempt = self.attempt
        reports = nullcontext(reporter)
        process = replace(attempt.connection.process, reporter=lambda _watched: reports, order=order)
        attempt.state, attempt.connection = state, replace(attempt.connection, process=process)
        try:
            return attempts.drive(attempt)
        finally:
            if attempt is self._attempt:
                self._over()

    def journalled(self, *events: Event) -> RunState:
        """Commit these events as the process would; the state that they lead to."""
        self.attempt.journal.append(events, self.clock.now())
        self.attempt.state = replay(self.run, self.journal.records)
        return self.attempt.state

    # Other programs -------------------------------------------------------------------------------------

    def elsewhere(self, run: str, *, policy: Policy | None = None) -> Simulation:
        """A program on another machine, after this one: it shares only the cluster and its fate."""
        self._over()
        other = self._other(run, self.fate, policy)
        other.fate.request, other.fate.lease_holder = Request.NONE, None
        other.fate.disk_full_until, other.fate.torn = 0.0, False  # its journal is on a disk of its own
        return other

    def successor(self, run: str) -> Simulation:
        """A program on another machine beside this one, which lives on.

        Each has reads, requests and a disk of its own. `take_over` and `begin` make the cluster its own.
        """
        return self._other(run, None, None)

    def _other(self, run: str, fate: Fate | None, policy: Policy | None) -> Simulation:
        self.common.machines += 1
        return Simulation(
            self.world,
            run=run,
            fate=fate,
            operator=("ben", f"bastion{self.common.machines}"),
            policy=policy or self._policy,
            order=self.order,
            common=self.common,
        )

    @property
    def began(self) -> Instant:
        """When the current run began: a restore before a resume is a run of its own."""
        return self._began[self.run]

    def note_what_is(self, policy: Policy, run: str, *, repairs: bool = False) -> None:
        """A run begins: what it finds is not its fault."""
        note_what_is(self.world, policy, repairs=repairs)
        self._began[run] = self.world.agenda.now
