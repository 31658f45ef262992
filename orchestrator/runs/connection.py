"""The input of a run: the ports of one cluster, this process, and the state database, in one value.

`Connection` is the only access of this package to the world. `connect` makes one from a cluster
file; a simulation makes one of its own, so the same code runs in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TypeVar

from orchestrator.around.ways import RunContext
from orchestrator.config.around import Around
from orchestrator.config.policy import Overrides
from orchestrator.config.secrets import SecretReference
from orchestrator.elasticsearch.access import OnlyThrough
from orchestrator.engine.plan import NO_ACCESS
from orchestrator.engine.state import RunState
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Record
from orchestrator.model.gate import Gate
from orchestrator.model.merging import Resolution
from orchestrator.model.observation import ClusterView
from orchestrator.model.phase import Request
from orchestrator.model.policy import HostChanges, Kind, Policy
from orchestrator.model.reading import Instant, Reading
from orchestrator.next_command import next_command
from orchestrator.ports import Clock, ClusterPort, GatePort, HostPort, LeasePort, Listener, Reporter
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import (
    current_process,
    new_run_id,
    provably_alive,
    provably_gone,
)
from orchestrator.runtime.journal import SqlJournal, UnwrittenJournal
from orchestrator.runtime.lease import Lease, Terms
from orchestrator.runtime.lookout import ReadingOrder
from orchestrator.runtime.sampling import Sampler, Sampling
from orchestrator.runtime.store import StateMissing, StateStore
from orchestrator.runtime.waiting import Asked, RequestWatch, SystemClock, ThreadedListener
from orchestrator.view.progress import Seen
from orchestrator.view.reporters import Reporters

_T = TypeVar("_T")

RunJournal = SqlJournal | UnwrittenJournal
Agrees = Callable[[Sequence[str]], bool]
"""Shows lines to a person, and returns whether the answer is yes."""
DataPaths = Mapping[NodeName, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySource:
    """How a cluster's policy is built."""

    # the policy for a cluster with this many nodes (None = not known yet); raises `UsageError` for a wrong
    # flag
    build: Callable[[int | None], Policy]
    secrets: tuple[SecretReference, ...] = ()  # references that its gates need


class ClusterPorts(Protocol):
    """The ports of one cluster. Connections are kept between calls and closed by `close`.

    What has a body here is that of a simulated cluster, which has no file, no endpoints and no secrets.
    """

    @property
    def name(self) -> str:
        """The name that the cluster must report."""
        ...

    @property
    def source(self) -> str:
        """Where the cluster is described: the path of its file, for messages."""
        ...

    @property
    def cluster_file(self) -> str:
        """The same, resolved, for the journal: `resume` reads the cluster file from there."""
        return ""

    @property
    def cluster(self) -> ClusterPort:
        """The cluster's API."""
        ...

    @property
    def lease(self) -> LeasePort:
        """The lease in the cluster."""
        ...

    def access(self, nodes: Collection[NodeName]) -> Mapping[str, str]:
        """How cluster and hosts are reached and services are stopped, by key; without secrets.

        It is a part of a plan's fingerprint.
        """
        del nodes
        return NO_ACCESS

    def resolve(self, patterns: Sequence[str]) -> Reading[Resolution]:
        """The indices that these names, globs, aliases and data streams match."""
        ...

    def members(self, view: ClusterView) -> Mapping[NodeName, str]:
        """The address of each member, including members that are known to be down."""
        return {node.name: node.address for node in view.nodes}

    def data_paths(self, nodes: Collection[NodeName]) -> Reading[DataPaths]:
        """Read where these nodes keep their data, unless the cluster file names it for all of them.

        Call it before `hosts`: a node that is down cannot answer.
        """
        del nodes
        return {}

    def hosts(self, addresses: Mapping[NodeName, str], data_paths: DataPaths | None = None) -> HostPort:
        """The hosts of these nodes and of all nodes of earlier calls.

        Args:
            addresses: of the members; a run that restores the changes of a dead run adds the nodes that
                the dead run left down.
            data_paths: as the journal of the run has them.
        """
        ...

    def changes(
        self, addresses: Mapping[NodeName, str], files: Sequence[str], *, reboot: bool
    ) -> Mapping[NodeName, Reading[HostChanges]]:
        """Read what has changed on the hosts of these nodes, in parallel, one round trip a host.

        Args:
            addresses: of the nodes.
            files: to look at; `{node}` is the name of the node.
            reboot: whether to look if a reboot is required.
        """
        del files, reboot
        return {node: HostChanges() for node in addresses}

    def gates(self, gates: Sequence[Gate]) -> GatePort:
        """The gates of a policy. Their secrets are resolved at the first reading."""
        ...

    def around(self, playbook: str) -> tuple[Around, RunContext] | None:
        """What surrounds a run with the playbook of this name, from the files of today; None if nothing does.

        Raises:
            OrchestratorError: a file is wrong.
        """
        del playbook
        return None

    def policy(self, playbook: str | None, overrides: Overrides) -> PolicySource:
        """Read playbook and tuning profile, and check what can be checked without the cluster."""
        ...

    def require_secrets(self, references: Iterable[SecretReference]) -> None:
        """Resolve these references, and those that the cluster's hosts need.

        Raises:
            ConfigError: one cannot be resolved; the reference and its place are named.
        """
        del references

    def dead_endpoints(self) -> Sequence[str]:
        """What is wrong with each endpoint that does not answer, if there are several."""
        return ()

    def only_through(self, together: Iterable[Collection[NodeName]]) -> OnlyThrough | None:
        """The nodes through which alone the cluster can be reached from here, if they go down `together`."""
        del together
        return None

    def warnings_for(self, nodes: Collection[NodeName]) -> Sequence[str]:
        """Entries of the cluster file that match none of these nodes."""
        del nodes
        return ()

    def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a reporter can use about the attempt that it reports."""

    kind: Kind
    past: Sequence[Record]  # records of earlier attempts at the run
    seen: Callable[[], Seen]  # the latest recoveries and health that the run has read
    before: Sequence[str] = ()  # what was restored of other runs before it began
    # when another run, whose changes it restores, stopped its nodes
    stopped: Mapping[NodeName, Instant] = field(default_factory=dict)
    page: Callable[[], str] = lambda: ""  # the file of its report, written at its end; empty if there is none


Requests = Callable[[Callable[[], RunState | None]], AbstractContextManager[Asked]]
"""Accepts requests to this process while it is entered: signals, or a caller of the Python API.

One that came after an earlier time counts too. It is called with what has the latest state of the run, which
is None at first.
"""


class Background(Protocol):
    """Work beside the loop: threads in a real process, scheduled events in a simulated one."""

    def keep(self, lease: Lease) -> AbstractContextManager[None]:
        """Refresh the lease while it is entered. Leaving it leaves the lease's record."""
        ...

    def left_requests(self, journal: RunJournal) -> AbstractContextManager[Asked]:
        """The requests that other processes left in the state for this run."""
        ...

    def listen(self, cluster: ClusterPort, hosts: HostPort) -> AbstractContextManager[Listener]:
        """A listener at these two ports."""
        ...


class Threads:
    """`Background` of a real process.

    Args:
        clock: woken by what a thread notices.
    """

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[None]:
        """Refresh the lease from a thread."""
        lease.start()
        try:
            yield
        finally:
            lease.leave()

    @contextmanager
    def left_requests(self, journal: RunJournal) -> Iterator[Asked]:
        """Read them once a second from a thread."""
        watch = RequestWatch(journal.asked, self._clock.wake)
        watch.start()
        try:
            yield watch.asked
        finally:
            watch.stop()

    @contextmanager
    def listen(self, cluster: ClusterPort, hosts: HostPort) -> Iterator[Listener]:
        """One long poll at each port, each in a thread."""
        listener = ThreadedListener(cluster, hosts, self._clock)
        try:
            yield listener
        finally:
            listener.close()


@contextmanager
def no_requests(_state: Callable[[], RunState | None]) -> Iterator[Asked]:
    """`Requests` of a process that takes none."""
    yield lambda: (Request.NONE, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The process that works on a run."""

    clock: Clock
    operator: str  # who runs it, and on which `host`
    host: str
    background: Background
    requests: Requests = no_requests
    # shows an attempt; called once for each
    reporter: Callable[[Watched], AbstractContextManager[Reporter]] = lambda _: nullcontext(Reporters())
    tell: Callable[[str], None]  # receives warnings and notes, one line each
    # shows what is read, in words, while it is entered
    reading: Callable[[str], AbstractContextManager[None]] = lambda _what: nullcontext()
    # a text that is unique to this process; part of the lease's record
    identity: str = field(default_factory=lambda: str(current_process()))
    gone: Callable[[str], bool] = provably_gone  # whether the process of an identity is provably gone
    alive: Callable[[str], bool] = provably_alive  # whether it provably runs on this machine
    # whether a person agrees to what these lines list: commands that are not this account's own
    agrees: Agrees = lambda _said: False
    wake: Callable[[], None] = lambda: None  # ends a wait of the clock, from any thread
    run_id: Callable[[Instant], str] = new_run_id  # makes the id of a run that begins then
    terms: Terms = field(default_factory=Terms)  # the times of the lease
    order: ReadingOrder = ReadingOrder.AT_ONCE  # in which cluster and hosts are read
    workers: int = 16  # hosts worked on at once
    # makes the sampling of one attempt: which readings of health are recorded
    sampler: Callable[[], Sampling] = Sampler
    # called with the id of a run when an attempt has ended, after its last event
    ended: Callable[[str], None] = lambda _run: None
    page: Callable[[str], str] = lambda _run: ""  # the file to which `ended` writes the report of this run
    names_page: bool = True  # whether `tell` is given that file; False where the view of a run shows it

    def warn(self, message: str) -> None:
        """Show a warning that does not stop the request."""
        self.tell(f"warning: {message}")

    def new_run(self) -> str:
        """The id of a new run."""
        return self.run_id(self.clock.now())

    @property
    def now(self) -> Instant:
        """The current time of this process."""
        return self.clock.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One cluster, this process, and the state database. A context manager that closes the ports."""

    ports: ClusterPorts
    process: Process
    state: Callable[[DatabaseUse], StateStore]  # opens the state database; raises `JournalError`
    kept_in: str = ""  # its place as after `--state`; empty for the usual place
    # what has to end before the ports are closed
    closing: ExitStack = field(default_factory=ExitStack, compare=False)

    def command(self, verb: str, *words: str) -> str:
        """A command that uses the same state, as it can be typed."""
        return next_command(verb, *words, state=self.kept_in)

    def on_cluster(self, verb: str, *words: str) -> str:
        """The same for a command that takes the cluster: by the path of its file."""
        return self.command(verb, "--cluster", self.ports.cluster_file or self.ports.name, *words)

    def recorded(self, read: Callable[[StateStore], _T], otherwise: _T) -> _T:
        """What the state has; `otherwise` where there is no state yet.

        Raises:
            JournalError: it cannot be read.
        """
        try:
            with self.state(DatabaseUse.READ) as store:
                return read(store)
        except StateMissing:
            return otherwise

    def close(self) -> None:
        """Close every connection to the cluster and its hosts. A run that is under way ends first."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.closing.__exit__(kind, error, trace)
        finally:
            self.ports.close()
