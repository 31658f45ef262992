"""The input of a run on a simulated cluster: ports, requests, lease, journal and state, in virtual time.

Nothing here decides anything. Faults come from the fate of the world, and a `Crash` at a seam ends a process
as a kill does.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine, StaticPool, create_engine

from orchestrator.config.policy import Overrides
from orchestrator.config.secrets import SecretReference
from orchestrator.engine.plan import NO_ACCESS
from orchestrator.engine.state import RunState
from orchestrator.errors import JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import AlertsAtStart, BaselineRecorded, Event, Record, RunResumed, RunStarted
from orchestrator.model.gate import Gate
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merging import Resolution, ResolvedIndex
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import Request
from orchestrator.model.policy import HostChanges, LeasePlace
from orchestrator.model.reading import Instant, Reading, Seconds
from orchestrator.ports import ClusterPort, GatePort, HostPort, LeasePort, Listener
from orchestrator.runs.connection import DataPaths, PolicySource, RunJournal
from orchestrator.runtime import tables
from orchestrator.runtime.database import Access
from orchestrator.runtime.journal import SqlJournal
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.signals import Asked
from orchestrator.runtime.store import RunEntry, StateStore
from orchestrator.runtime.taking import Terms
from orchestrator.simulation import views
from orchestrator.simulation.beginning import note_unassigned
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.gates import accept_alerts, add_gates, note_alerts
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.world import World
from orchestrator.stores.elasticsearch.dialect import STATE, family_of

if TYPE_CHECKING:
    from orchestrator.runs.simulated import Simulation

_SPARE: Final[list[Engine]] = []


def simulated_cluster(world: World, fate: Fate, seams: Seams) -> SimulatedCluster:
    """The port of a simulated cluster, which reads snapshots by the program's table of versions."""

    def reads_state_for_snapshots() -> bool:
        view = views.cluster(world)
        dialect = family_of(view.distribution, view.version)
        return dialect is None or dialect.snapshot_call == STATE

    return SimulatedCluster(
        world=world, fate=fate, seams=seams, reads_state_for_snapshots=reads_state_for_snapshots
    )


def empty_state() -> Engine:
    """An empty state database in memory; a kept one, if there is one.

    Making the tables, and SQLAlchemy's statements for a new engine, takes as long as a hundred commits.
    Each statement is a transaction: no process is killed or reads the state between two of them.
    """
    if not _SPARE:
        engine = create_engine(
            "sqlite://",
            poolclass=StaticPool,
            connect_args={"check_same_thread": False, "isolation_level": None},
        )
        atexit.register(engine.dispose)  # until then it is in use, or kept for another simulation
        tables.ready(engine, Access.WRITE)
        return engine
    engine = _SPARE.pop()
    with engine.begin() as connection:
        for table in _WIPED:
            connection.execute(table.delete())
    return engine


def give_back(engine: Engine) -> None:
    """Keep a state database that nothing uses any more, for another simulation."""
    _SPARE.append(engine)


_WIPED: Final = tuple(table for table in reversed(tables.METADATA.sorted_tables) if table is not tables.meta)


@dataclass(slots=True, kw_only=True)
class Common:
    """What the programs on one cluster share.

    Attributes:
        records: the lease in the cluster, by epoch.
        alive: identities of processes that live.
        machines: how many there are.
        reads_text: a journal is read back from its text; otherwise its records are those that were committed.
    """

    records: dict[int, LeaseRecord] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    machines: int = 1
    reads_text: bool = True


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

    def create_run(self, entry: RunEntry) -> SqlJournal:
        """Begin a run's line and its journal."""
        self._simulation.own_runs.append(entry.run)
        return super().create_run(entry)

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
class SimulatedPorts:
    """`ClusterPorts` of a simulated cluster."""

    simulation: Simulation
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
        return self.simulation.leases

    def access(self, nodes: Collection[NodeName]) -> Mapping[str, str]:
        """Nothing has to be reached."""
        del nodes
        return NO_ACCESS

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

    def changes(
        self, addresses: Mapping[NodeName, str], files: Sequence[str], *, reboot: bool
    ) -> Mapping[NodeName, Reading[HostChanges]]:
        """Nothing changes on a simulated host."""
        del files, reboot
        return {node: HostChanges() for node in addresses}

    def gates(self, gates: Sequence[Gate]) -> GatePort:
        """The gates of the world, which has one of each name."""
        add_gates(self._world, gates)
        return self.simulation.gates

    def around(self, playbook: str) -> None:
        """Nothing surrounds a rehearsal."""
        del playbook

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        """The program's policy; playbook and overrides are ignored."""
        del playbook, overrides
        return PolicySource(build=lambda _nodes: self.simulation.policy)

    def require_secrets(self, references: Iterable[SecretReference]) -> None:
        """There are none."""

    def dead_endpoints(self) -> Sequence[str]:
        """A simulation has no endpoints."""
        return ()

    def only_through(self, together: Iterable[Collection[NodeName]]) -> None:
        """A simulation has no endpoints."""

    def warnings_for(self, nodes: Collection[NodeName]) -> Sequence[str]:
        """There is no file that could name others."""
        del nodes
        return ()

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class FatedRequests:
    """Requests, by the fate of the world."""

    fate: Fate

    @contextmanager
    def during(self, state: Callable[[], RunState | None]) -> Iterator[Asked]:
        """At any time."""
        del state
        yield lambda: (self.fate.request, "bob" if self.fate.request is not Request.NONE else "")


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
