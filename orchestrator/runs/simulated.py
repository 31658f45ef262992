"""Connections to a simulated cluster: the same runs, with the real lease and journal, in virtual time.

Nothing here decides anything. Mishaps come from the fate of the world, and a `Crash` at a seam ends a process
as a kill does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sqlalchemy import Engine

from orchestrator.config.policy import Overrides
from orchestrator.config.secrets import SecretReference
from orchestrator.engine.fold import RunState
from orchestrator.errors import JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Record, RunStarted
from orchestrator.model.gate import Gate
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import Request
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Reading, Seconds
from orchestrator.model.resolution import Resolution, ResolvedIndex
from orchestrator.ports import ClusterPort, GatePort, HostPort, LeasePort, Listener, Reporter
from orchestrator.runs.connection import (
    Connection,
    DataPaths,
    NoReports,
    PolicySource,
    Process,
    RunJournal,
    Watched,
)
from orchestrator.runtime import tables
from orchestrator.runtime.database import Access, empty_engine
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.lookout import Order
from orchestrator.runtime.loop import Asked
from orchestrator.runtime.store import StateStore
from orchestrator.runtime.taking import Terms
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.parts import SimGate
from orchestrator.simulation.records import SimulatedLeasePort
from orchestrator.simulation.run import Simulation
from orchestrator.simulation.world import World


@dataclass(slots=True, kw_only=True)
class Program:
    """A program on a simulated cluster: one account on one machine, with a state database of its own.

    It can be started many times, also after a kill: `connect` is a new process.

    Attributes:
        simulation: the ports of its processes.
        leases: the lease in the cluster, which all programs on it share.
        policy: what its runs obey.
        alive: identities of processes that live, on any machine.
        suspended: its processes stand still, so that no lease is refreshed.
        order: in which cluster and hosts are read.
    """

    simulation: Simulation
    leases: SimulatedLeasePort
    policy: Policy
    order: Order = Order.CLUSTER_FIRST
    alive: set[str] = field(default_factory=set)
    suspended: bool = False
    _engine: Engine = field(default_factory=empty_engine)
    _processes: int = 0

    def __post_init__(self) -> None:
        tables.ready(self._engine, Access.WRITE)

    def elsewhere(self, host: str = "bastion2", operator: str = "ben") -> Program:
        """A program on another machine: it shares the cluster and nothing else."""
        other = Simulation(self._world, fate=self.simulation.fate, operator=(operator, host))
        return Program(simulation=other, leases=self.leases, policy=self.policy, alive=self.alive)

    @property
    def _world(self) -> World:
        return self.simulation.world

    def records(self, run: str) -> tuple[Record, ...]:
        """The journal of a run."""
        return self._store().replay(run)

    def runs(self) -> tuple[str, ...]:
        """Ids of its runs, the latest first."""
        return tuple(entry.run for entry in self._store().runs())

    def _store(self) -> StateStore:
        def journal(engine: Engine, run: str, after: int | None, process: str | None) -> SqlJournal:
            return _SeamJournal(engine, run, after=after, process=process, simulation=self.simulation)

        return _OpenStore(self._engine, where="the simulated state", journals=journal)

    @contextmanager
    def connect(
        self,
        reporter: Callable[[Watched], AbstractContextManager[Reporter]] | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> Iterator[Connection]:
        """A new process of this program. It lives until the block is left, by a `Crash` too."""
        fate, world = self.simulation.fate, self._world
        fate.request, fate.lease_holder = Request.NONE, None
        self.simulation.clock.ahead, world.program_since = fate.clock_ahead, world.agenda.now
        self._processes += 1
        identity = f"{self.simulation.host}/1/{self._processes}/1"
        self.alive.add(identity)
        process = Process(
            clock=self.simulation.clock,
            operator=self.simulation.operator,
            host=self.simulation.host,
            background=_Events(self),
            requests=_Fated(fate),
            reporter=reporter or (lambda _watched: nullcontext(NoReports())),
            tell=tell,
            identity=identity,
            gone=self._gone,
            alive=self._lives,
            randomness=random.Random(self._processes),  # noqa: S311  (a run's id, and the same each time)
            order=self.order,
            workers=1,
        )
        try:
            ports = _SimulatedPorts(self.simulation, self.leases, self.policy)
            yield Connection(ports=ports, process=process, open_state=lambda _access: self._store())
        finally:
            self.alive.discard(identity)

    def _here(self, identity: str) -> bool:
        return identity.startswith(f"{self.simulation.host}/")

    def _gone(self, identity: str) -> bool:
        """Only the same machine can prove it."""
        return self._here(identity) and identity not in self.alive

    def _lives(self, identity: str) -> bool:
        return self._here(identity) and identity in self.alive


def program(simulation: Simulation, policy: Policy, *, order: Order = Order.CLUSTER_FIRST) -> Program:
    """The first program on a simulated cluster."""
    leases = SimulatedLeasePort(world=simulation.world, fate=simulation.fate)
    return Program(simulation=simulation, leases=leases, policy=policy, order=order)


class _OpenStore(StateStore):
    """The state of a program stays in memory between its processes."""

    def close(self) -> None:
        """Keep it."""


class _SeamJournal(SqlJournal):
    """A journal whose process may be killed before or after a commit, and whose disk may be full."""

    def __init__(
        self, engine: Engine, run: str, *, after: int | None, process: str | None, simulation: Simulation
    ) -> None:
        super().__init__(engine, run, after=after, process=process)
        self._simulation = simulation

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit them all, or none.

        Raises:
            JournalError: the simulated disk is full, or another process took the run up.
            Crash: the program is killed before or after the commit.
        """
        names = ", ".join(event.event for event in events)
        seams, world = self._simulation.seams, self._simulation.world
        seams.point(f"before the commit of {names}")
        if world.agenda.now < self._simulation.fate.disk_full_until:
            raise JournalError("no space left on device")
        records = super().append(events, at)
        for event in events:
            if isinstance(event, RunStarted):
                self._simulation.note_what_is(event.policy)
        seams.point(f"after the commit of {names}")
        return records


@dataclass(frozen=True, slots=True)
class _SimulatedPorts:
    """`ClusterPorts` of a simulated cluster."""

    simulation: Simulation
    lease_port: SimulatedLeasePort
    given: Policy
    source: str = "the simulation"
    cluster_file: str = ""

    @property
    def _world(self) -> World:
        return self.simulation.world

    @property
    def name(self) -> str:
        """The name of the world."""
        return self._world.name

    @property
    def cluster(self) -> ClusterPort:
        """The simulated API."""
        return self.simulation.cluster

    @property
    def lease(self) -> LeasePort:
        """The lease in the simulated cluster."""
        return self.lease_port

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

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """The members that were read."""
        return {node.name: node.address for node in view.nodes}

    def data_paths(self, nodes: Collection[NodeName]) -> Reading[DataPaths]:
        """The simulated hosts have none."""
        del nodes
        return {}

    def hosts(self, addresses: Mapping[NodeName, str], data_paths: DataPaths | None = None) -> HostPort:
        """The simulated hosts."""
        del addresses, data_paths
        return self.simulation.hosts

    def gates(self, gates: Sequence[Gate]) -> GatePort:
        """The gates of the world, which has one of each name."""
        for gate in gates:
            self._world.gates.setdefault(gate.name, SimGate())
        return self.simulation.gates

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        """The program's policy, whatever is asked for."""
        del playbook, overrides
        return PolicySource(build=lambda _nodes: self.given)

    def require_secrets(self, references: Iterable[SecretReference]) -> None:
        """There are none."""

    def warnings_for(self, nodes: Collection[NodeName]) -> Sequence[str]:
        """There is no file that could name others."""
        del nodes
        return ()

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class _Fated:
    """Requests as the fate of the world has them."""

    fate: Fate

    @contextmanager
    def during(self, state: Callable[[], RunState | None]) -> Iterator[Asked]:
        """At any time."""
        del state
        yield lambda: (self.fate.request, "bob" if self.fate.request is not Request.NONE else "")


@dataclass(frozen=True, slots=True)
class _Events:
    """`Background` in virtual time."""

    program: Program

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Refresh the lease by events of the agenda, until the block is left."""
        beating = _Heart(self.program, lease)
        beating.begin()
        try:
            yield
        finally:
            beating.stopped = True

    @contextmanager
    def left_requests(self, journal: RunJournal) -> Iterator[Asked]:
        """Read from the state at every look."""
        yield journal.asked

    @contextmanager
    def listen(self, cluster: ClusterPort, hosts: HostPort) -> Iterator[Listener]:
        """The simulated listener."""
        del cluster, hosts
        yield self.program.simulation.listener


@dataclass(slots=True)
class _Heart:
    """Beats of a lease."""

    program: Program
    lease: Lease
    terms: Terms = field(default_factory=Terms)
    stopped: bool = False

    def begin(self) -> None:
        self._after(self.terms.heartbeat)

    def _after(self, seconds: Seconds) -> None:
        self.program.simulation.world.agenda.after(seconds, self._beat)

    def _beat(self) -> None:
        if not self.stopped:
            refreshed = not self.program.suspended and self.lease.beat()
            self._after(self.terms.heartbeat if refreshed else self.terms.retry)
