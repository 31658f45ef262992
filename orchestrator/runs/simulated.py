"""A program on a simulated cluster: the same runs, with the real lease, journal and state, in virtual time.

It can be started many times, also after a kill. `begin_as` and `resume` take the lease and commit the first
events in a new process, and `drive` does the rest. Its ports, requests, lease, journal and state decide
nothing: faults come from the fate of the world, and a `Crash` at a seam ends a process as a kill does.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar, cast

from sqlalchemy import Engine, StaticPool, create_engine

from orchestrator.config.policy import Overrides
from orchestrator.elasticsearch.dialect import family_of
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    AlertsAtStart,
    BaselineRecorded,
    Event,
    Record,
    RunResumed,
    RunStarted,
)
from orchestrator.model.gate import Gate
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merging import Resolution, ResolvedIndex
from orchestrator.model.phase import Request
from orchestrator.model.policy import LeasePlace, Policy
from orchestrator.model.reading import Instant, Reading, Seconds
from orchestrator.ports import ClusterPort, GatePort, HostPort, LeasePort, Listener, Reporter
from orchestrator.runs import attempt as attempts
from orchestrator.runs.attempt import Attempt, RestoreFailed
from orchestrator.runs.connection import (
    ClusterPorts,
    Connection,
    DataPaths,
    PolicySource,
    Process,
    RunJournal,
    Watched,
)
from orchestrator.runs.past_runs import PastRun, past_run_of
from orchestrator.runs.takeover import new_run
from orchestrator.runs.unfinished import next_attempt
from orchestrator.runtime import tables
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Lease, Terms
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.runtime.sampling import Sampling, no_samples
from orchestrator.runtime.store import StateStore
from orchestrator.runtime.waiting import Asked
from orchestrator.simulation import turns, views
from orchestrator.simulation.beginning import do_without, note_unassigned, note_what_is
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.gates import SimulatedGates, accept_alerts, add_gates, note_alerts
from orchestrator.simulation.hosts import SimulatedHosts
from orchestrator.simulation.mishaps import Mishap, Seams, Trip
from orchestrator.simulation.records import (
    MemoryLeasePort,
    SimulatedClock,
    SimulatedLeasePort,
    SimulatedListener,
)
from orchestrator.simulation.world import World
from orchestrator.view.reporters import Reporters

_T = TypeVar("_T")


def _there(found: _T | None, otherwise: str) -> _T:
    if found is None:
        raise LookupError(otherwise)
    return found


@dataclass(slots=True, kw_only=True)
class Common:
    """What the programs on one cluster share."""

    records: dict[int, LeaseRecord] = field(default_factory=dict)  # the lease in the cluster, by epoch
    alive: set[str] = field(default_factory=set)  # identities of processes that live
    machines: int = 1  # how many there are
    # a journal is read back from its text; otherwise its records are those that were committed
    reads_text: bool = True


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
        order: ReadingOrder = ReadingOrder.CLUSTER_FIRST,
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
        self._name, self._runs, self._processes = run, 0, 0
        self.journals: list[SeamJournal] = []
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

    def process(self) -> turns.SimulatedProcess:
        """This process of the program, for the judge."""
        return turns.SimulatedProcess(run=self.run, epoch=self.leases.claim, blind=self.leases.silent)

    def written(self, run: str) -> list[Record]:
        """What processes of this program have committed to the journal of a run."""
        return self._written.setdefault(run, [])

    def _store(self) -> OpenStore:
        if self._state is None:
            self._state = self._empty_state()
        self.flush()
        return OpenStore(self._state, self)

    def _empty_state(self) -> Engine:
        return empty_state()

    # Processes ------------------------------------------------------------------------------------------

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
            requests=self._requests,
            reporter=reporter or (lambda _watched: nullcontext(Reporters())),
            tell=tell,
            identity=self._identity,
            gone=self._gone,
            alive=self._lives,
            run_id=lambda _now: self._new_run(),
            order=self.order,
            workers=1,
            sampler=self.sampler,
        )
        return Connection(ports=SimulatedPorts(self), process=process, state=lambda _access: self._store())

    @contextmanager
    def _requests(self, _state: Callable[[], RunState | None]) -> Iterator[Asked]:
        """At any time, by the fate of the world."""
        fate = self.fate
        yield lambda: (fate.request, "bob" if fate.request is not Request.NONE else "")

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

    def begin_as(self, started: RunStarted) -> RunState:
        """Begin this exact run, as it would begin on the real cluster.

        Raises:
            LeaseError: another program holds the cluster, or the lease cannot be read.
            JournalError: the first events cannot be written.
        """
        self._policy = started.policy
        connection = self._started()
        return self._begun(lambda: new_run(connection, self._store(), started, again=lambda: started))

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

    def drive(
        self, state: RunState, reporter: Reporter, *, order: ReadingOrder = ReadingOrder.CLUSTER_FIRST
    ) -> RunState:
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

    @property
    def began(self) -> Instant:
        """When the current run began: a restore before a resume is a run of its own."""
        return self._began[self.run]

    def note_what_is(self, policy: Policy, run: str, *, repairs: bool = False) -> None:
        """A run begins: what it finds is not its fault."""
        note_what_is(self.world, policy, repairs=repairs)
        self._began[run] = self.world.agenda.now


def simulated_cluster(world: World, fate: Fate, seams: Seams) -> SimulatedCluster:
    """The port of a simulated cluster, which reads snapshots by the program's table of versions."""

    def reads_state_for_snapshots() -> bool:
        view = views.cluster(world)
        dialect = family_of(view.distribution, view.version)
        return dialect is None or dialect.snapshots_in_state

    return SimulatedCluster(
        world=world, fate=fate, seams=seams, reads_state_for_snapshots=reads_state_for_snapshots
    )


def empty_state() -> Engine:
    """An empty state database in memory.

    Each statement is a transaction: no process is killed or reads the state between two of them.
    """
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "isolation_level": None},
    )
    atexit.register(engine.dispose)
    tables.ready(engine, DatabaseUse.WRITE)
    return engine


class OpenStore(StateStore):
    """The state of a program, which stays in memory between its processes.

    If the policy keeps the lease in the state only, it is the simulated cluster's: machines share that state.
    """

    def __init__(self, engine: Engine, simulation: Simulation) -> None:
        def journal(engine: Engine, run: str, after: int | None, process: str | None) -> SqlJournal:
            made = SeamJournal(engine, run, after=after, process=process, simulation=simulation)
            simulation.journals.append(made)
            return made

        super().__init__(engine, where="the simulated state", journals=journal)
        self._simulation = simulation

    def replay(self, run: str, *, after: int = 0) -> tuple[Record, ...]:
        """The journal of a run from the event after `after` on."""
        if self._simulation.common.reads_text:
            return super().replay(run, after=after)
        return tuple(self._simulation.written(run)[after:])

    def lease(self, cluster: str) -> LeasePort:
        """The lease in this state."""
        del cluster
        in_cluster = self._simulation.policy.lease is LeasePlace.CLUSTER
        return self._simulation.own_lease if in_cluster else self._simulation.leases

    def leave_request(self, run: str, request: Request, *, by: str, at: Instant) -> None:
        """Leave a message for a run under way, which looks when one was left."""
        super().leave_request(run, request, by=by, at=at)
        self._simulation.requests_left += 1

    def close(self) -> None:
        """Keep it."""


class SeamJournal(SqlJournal):
    """A journal whose process may be killed before or after a commit, and whose disk may be full.

    Committed records go into the database when it is next opened: a hundred steps in one transaction,
    since it is not read in between. Into a state that programs share they go at once.
    """

    def __init__(
        self, engine: Engine, run: str, *, after: int | None, process: str | None, simulation: Simulation
    ) -> None:
        super().__init__(engine, run, after=after, process=process)
        self._simulation = simulation
        self._held: list[Record] = []

    @property
    def records(self) -> list[Record]:
        """All that was committed of this run, by any process of the program."""
        return self._simulation.written(self.run)

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit all of them, or none.

        Raises:
            JournalError: the simulated disk is full, or another process took the run up.
            Crash: the program is killed before or after the commit.
        """
        names = ", ".join(event.event for event in events)
        seams, world, fate = self._simulation.seams, self._simulation.world, self._simulation.fate
        seams.point(f"before the commit of {names}")
        if world.agenda.now < fate.disk_full_until:
            raise JournalError(fate.journal_says)
        if self._simulation.shares_state:
            records = super().append(events, at)
        else:
            records = self._records(events, at)
            self._last += len(records)
            self._held += records
        self.records.extend(records)
        for event in events:
            if isinstance(event, RunStarted):
                repairs = event.repairs is not None
                self._simulation.note_what_is(event.policy, self.run, repairs=repairs)
            if isinstance(event, AlertsAtStart):
                note_alerts(world, event)
            if isinstance(event, RunResumed):
                accept_alerts(world, event.accept_alerts)
            if isinstance(event, BaselineRecorded):
                note_unassigned(world)
        seams.point(f"after the commit of {names}")
        return records

    def asked(self) -> tuple[Request, str]:
        """The strongest request left, and its author; a resume has swept requests of an earlier attempt."""
        self.flush()
        return super().asked()

    def flush(self) -> None:
        """Write what was committed into the database."""
        if self._held:
            held, self._held = self._held, []
            self._commit(held)


@dataclass(frozen=True, slots=True)
class SimulatedPorts(ClusterPorts):
    """`ClusterPorts` of a simulated cluster."""

    simulation: Simulation

    @property
    def _world(self) -> World:
        return self.simulation.world

    @property
    def name(self) -> str:
        """The name of the world."""
        return self._world.name

    @property
    def source(self) -> str:
        """There is no file."""
        return "the simulation"

    @property
    def cluster(self) -> ClusterPort:
        """The simulated API."""
        return self.simulation.cluster

    @property
    def lease(self) -> LeasePort:
        """The lease in the simulated cluster."""
        return self.simulation.leases

    def resolve(self, patterns: Sequence[str]) -> Reading[Resolution]:
        """The indices of the world that match."""
        indices = sorted(self._world.indices.values(), key=lambda index: index.name)
        found = [each for each in indices if any(fnmatchcase(each.name, one) for one in patterns)]

        def of(*, closed: bool) -> tuple[ResolvedIndex, ...]:
            return tuple(
                ResolvedIndex(name=each.name, uuid=each.uuid) for each in found if each.closed is closed
            )

        unmatched = [one for one in patterns if not any(fnmatchcase(each.name, one) for each in found)]
        return Resolution(open=of(closed=False), closed=of(closed=True), unmatched=tuple(unmatched))

    def hosts(self, addresses: Mapping[NodeName, str], data_paths: DataPaths | None = None) -> HostPort:
        """The simulated hosts."""
        del addresses, data_paths
        return self.simulation.hosts

    def gates(self, gates: Sequence[Gate]) -> GatePort:
        """The gates of the world, which has one of each name."""
        add_gates(self._world, gates)
        return self.simulation.gates

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        """The program's policy; playbook and overrides are ignored."""
        del playbook, overrides
        return PolicySource(build=lambda _nodes: self.simulation.policy)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class Events:
    """`Background` in virtual time."""

    simulation: Simulation

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Refresh the lease by events of the agenda, until the block is left."""
        heart = self.simulation.heart_of(lease)
        try:
            yield
        finally:
            heart.stopped = True

    @contextmanager
    def left_requests(self, journal: RunJournal) -> Iterator[Asked]:
        """Read from the state whenever one was left."""
        simulation, read, asked = self.simulation, 0, (Request.NONE, "")

        def look() -> tuple[Request, str]:
            nonlocal read, asked
            if read != simulation.requests_left:
                read, asked = simulation.requests_left, journal.asked()
            return asked

        yield look

    @contextmanager
    def listen(self, cluster: ClusterPort, hosts: HostPort) -> Iterator[Listener]:
        """The simulated listener."""
        del cluster, hosts
        yield self.simulation.listener


@dataclass(slots=True, kw_only=True)
class Heart:
    """Refreshes a lease by events of the agenda. A suspended machine refreshes it late."""

    world: World
    fate: Fate
    lease: Lease
    terms: Terms = field(default_factory=Terms)
    stopped: bool = False

    def begin(self) -> None:
        """From now on."""
        self._after(self.terms.heartbeat)

    def _after(self, seconds: Seconds) -> None:
        self.world.agenda.after(seconds, self._beat)

    def _beat(self) -> None:
        if self.stopped:
            return
        asleep = self.fate.asleep_until - self.world.agenda.now
        if asleep >= 0.0:
            self._after(asleep + self.terms.retry)
        else:
            beaten = self.lease.beat()
            self.world.agenda.happened -= beaten  # as long as the lease is held, nothing happens
            self._after(self.terms.heartbeat if beaten else self.terms.retry)
