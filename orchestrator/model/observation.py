"""One reading of the cluster and its hosts. Every part is a value or `Unknown`; nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import TypeAlias

from orchestrator.model.cluster import Health, Index, Node, NodeName, ShardCopy, ShardId
from orchestrator.model.copies import ByShard, Copies
from orchestrator.model.gate import GateView
from orchestrator.model.merging import BulkView
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds, Unknown
from orchestrator.model.riak import RiakView
from orchestrator.model.tuning import HostTuning
from orchestrator.model.upgrade import HostReadiness, InstallView, UpgradeView

# Events that end a wait, so that the run continues within milliseconds ------------------------------------
# A wait does not sleep. The cluster's long polls and the ends of host jobs wake the loop. A watch is only a
# hint to read again: its content is always read afresh before it is used.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesJoined:
    """At least this many nodes are in the cluster."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesActive:
    """At least this many shard copies are active, and the master's queue is empty."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterElected:
    """A master is elected."""


ClusterWatch: TypeAlias = NodesJoined | CopiesActive | MasterElected


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to listen to, at most until `until`. With nothing to listen to, it is a plain wait."""

    until: Instant
    cluster: ClusterWatch | None = None
    services: frozenset[NodeName] = frozenset()  # nodes whose service wakes the loop when its state changes
    for_people: str = ""  # what is waited for, if that is more than the phase says


Members = Mapping[NodeName, Node]
SettingValue = str | tuple[str, ...]
"""A flat setting as the cluster returns it; a list stays a list."""


class Level(Enum):
    """Level of a cluster setting: transient overrides persistent, persistent overrides the files."""

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    PERSISTENT = "persistent"
    TRANSIENT = "transient"


@dataclass(frozen=True, kw_only=True)  # not slotted, so that derived values can be cached
class ClusterView:
    """One reading of the cluster (`_cluster/state`): consistent membership, metadata and routing."""

    name: str
    uuid: str
    version: str  # lowest version among the nodes, such as `9.1.0`
    distribution: str  # `elasticsearch` or `opensearch`
    state_version: int  # the cluster state's own counter. Two readings with the same version are the same.
    master: NodeName | None  # None while there is none
    nodes: tuple[Node, ...]
    indices: tuple[Index, ...]
    # shard by shard. A view that was `changed` has `Copies` here, which are read as a tuple is.
    copies: tuple[ShardCopy, ...]
    # node ids of the last committed voting configuration; before Elasticsearch 7, of the master-eligible
    # members. None if they are not known.
    voters: frozenset[str] | None = None
    # there is no voting configuration (before Elasticsearch 7): a master needs
    # `discovery.zen.minimum_master_nodes` of the voters
    voting_by_count: bool = False
    voting_exclusions: tuple[str, ...] = ()  # names (or ids of nodes that are gone) excluded from voting
    shutdowns: tuple[str, ...] = ()  # node ids with a node-shutdown record
    # the reading of a Riak cluster; None for any other kind. For Riak, `nodes` are the members that are up,
    # and `master` is the claimant, or the node that answered where the claimant is not known.
    riak: RiakView | None = None

    def node(self, name: NodeName) -> Node | None:
        """The member of that name; None when the master does not list it."""
        return self.members.get(name)

    @cached_property
    def members(self) -> Mapping[NodeName, Node]:
        """The nodes by name, in their order."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def metadata(self) -> Mapping[str, Index]:
        """The indices by uuid, since a name can be reused."""
        return {index.uuid: index for index in self.indices}

    @cached_property
    def routing(self) -> Copies:
        """The copies by node and by shard."""
        given: Sequence[ShardCopy] = self.copies
        return given if isinstance(given, Copies) else Copies(given)

    @property
    def not_started(self) -> tuple[ShardCopy, ...]:
        """Copies that do not serve requests; a healthy cluster has none."""
        return self.routing.not_started

    def on(self, nodes: Iterable[NodeName]) -> Iterator[ShardCopy]:
        """The copies on these nodes."""
        for name in nodes:
            yield from self.routing.on(name).values()

    @property
    def shards(self) -> ByShard:
        """The routing table by shard."""
        return self.routing.by_shard

    @property
    def moving(self) -> ByShard:
        """The shards with a copy that is moving or initializing, with all their copies."""
        return self.routing.moving

    def primary(self, shard: ShardId) -> ShardCopy | None:
        """The primary of a shard; None for a shard that is not in the routing table."""
        return next((copy for copy in self.shards.get(shard, ()) if copy.primary), None)

    @cached_property
    def recovered(self) -> ClusterView:
        """The cluster state as it will be when every initializing copy has started."""
        return self.changed(self.routing.arrived)

    def changed(self, shards: ByShard, members: Members | None = None, **fields: object) -> ClusterView:
        """This view with these copies of some shards, these members, and these values of other fields."""
        fields = {"copies": self.routing.changed(shards) if shards else self.routing, **fields}
        fields |= {} if members is None else {"nodes": tuple(members.values())}
        after: ClusterView = replace(self, **fields)  # type: ignore[arg-type]  # by keyword
        if "indices" not in fields:
            vars(after)["metadata"] = self.metadata
        if members is not None or "nodes" not in fields:
            vars(after)["members"] = self.members if members is None else members
        return after


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsView:
    """Cluster settings, flat, by level."""

    persistent: Mapping[str, SettingValue] = field(default_factory=dict)
    transient: Mapping[str, SettingValue] = field(default_factory=dict)
    # value in elasticsearch.yml or built-in default, for the keys that the program reads
    files: Mapping[str, SettingValue] = field(default_factory=dict)
    resets: bool = True  # whether a setting can be made absent again; not before Elasticsearch 5
    allocation_flags: bool = False  # whether flags disable it (`model.allocation`): before Elasticsearch 1

    @property
    def archived(self) -> tuple[str, ...]:
        """Names under `archived.` at either level, which can block every later update."""
        return tuple(
            sorted(key for key in {*self.persistent, *self.transient} if key.startswith("archived."))
        )

    def at(self, level: Level, key: str) -> SettingValue | None:
        """The value at that level; None = absent, which differs from every value."""
        return (self.persistent if level is Level.PERSISTENT else self.transient).get(key)

    def restored(self, key: str, found: SettingValue | None) -> SettingValue | None:
        """The value to write to restore a setting that was `found` before.

        Where a setting cannot be made absent again, it is the value that an absent setting has.
        """
        return found if self.resets or found is not None else self.files.get(key)

    def effective(self, key: str) -> SettingValue | None:
        """The value in force: transient, else persistent, else the files'; None if it is set at no level."""
        for layer in (self.transient, self.persistent, self.files):
            if key in layer:
                return layer[key]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """`_cluster/health` after a wait for the master's queue (`wait_for_events`), so that it is not stale."""

    status: Health
    settled: bool  # False when that wait ran out; the reading may then be old
    nodes: int
    active_shards: int
    initializing_shards: int
    relocating_shards: int
    unassigned_shards: int
    pending_tasks: int  # cluster-state updates that wait for the master
    oldest_task: Seconds  # how long the oldest of them has waited
    # the priority of the wait. `languid` is the whole queue. On a master whose queue is never empty it is a
    # higher one, so queued changes of lower priority may be missing.
    waited_for: str = "languid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A shard copy that is being recovered, from its own disk where it has no source."""

    shard: ShardId
    target: NodeName
    source: NodeName | None
    stage: str
    bytes_total: int  # with `bytes_reused`, which were on disk; `bytes_copied`: over the network so far
    bytes_reused: int
    bytes_copied: int
    operations_replayed: int
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingCopy:
    """Copies of a shard (`count` of them) that were not started when the run began, or are missing now."""

    index: str
    index_uuid: str
    number: int
    primary: bool
    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSnapshot:
    """A snapshot in progress."""

    name: str  # `repository/name`
    aborted: bool = False  # it was given up, and has not ended
    since: Instant | None = None  # when it began; None if the version does not say
    nodes: tuple[NodeName, ...] = ()  # where parts of it have not ended; of a node that has left, its id
    done: float | None = None  # share of its shards that have ended, 0 to 1; None if no shard is listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Running work that a restart would interrupt."""

    snapshots: tuple[RunningSnapshot, ...] = ()  # the running ones
    merges: frozenset[NodeName] = frozenset()  # nodes on which a force-merge runs
    # nodes on which a reindex, update-by-query or delete-by-query runs
    reindexes: frozenset[NodeName] = frozenset()
    unread: frozenset[NodeName] = frozenset()  # members that did not report their running tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A node's data paths, summed. The watermark flags are about the fullest path."""

    used_share: float  # of the fullest path, 0 to 1
    over_low: bool  # past the low watermark: no copy is allocated there any more
    over_high: bool  # past the high watermark: copies are moved away
    # bytes that can be written before the fullest path passes its high watermark (free bytes, where there is
    # no watermark); 0 past it. `stored_bytes`: of the copies there. None: not read.
    room_bytes: int | None = None
    stored_bytes: int | None = None


class ServiceState(Enum):
    """The state of the node's service, as the host's service manager reports it."""

    RUNNING = "running"
    STOPPED = "stopped"
    STARTING = "starting"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The reading of a node's host."""

    service: ServiceState  # state of the node's service
    detail: str  # the service manager's own words, for people (`failed (Result: exit-code)`)
    # changes with each boot; `machine_id`: equal for nodes of a machine. None: cannot be read.
    boot_id: str | None = None
    machine_id: str | None = None
    # whether one may stop and start the service, `may_reboot` its host; None: not read
    may_control: bool | None = None
    may_reboot: bool | None = None
    # the install step that was begun last for the node; None if none is recorded there
    install: InstallView | None = None
    at_work: tuple[str, ...] = ()  # configuration management and package managers that run there, for people
    # last lines of its manager and the server about a start that failed, without secrets
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The process that took over the lease of this run, as its record says."""

    run: str  # id of its run; our own id where another process resumed our run
    owner: str  # `user@host`
    epoch: int  # epoch of its lease; 0 where only the journal shows it
    in_hand: tuple[NodeName, ...] = ()  # the `in_hand` nodes of its record


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """The current reading of our lease."""

    held: bool  # True if this run holds the lease, by the last write or read that succeeded
    holder: str  # who holds it; if this run does not, all that is known, as a clause
    refreshed: Seconds  # seconds since that success
    # the process whose record was read in place of ours. A failed refresh or a missing record sets none.
    successor: Successor | None = None
    # the record is gone and there is no other record. The lease does not return during this run.
    gone: bool = False


class Look(Enum):
    """What to read for the next decision: no more than the decision needs.

    HOST_RIGHTS checks the account's rights on each selected host, BULK the indices that a run merges, PACE
    what limits handoff on Riak, UPGRADE the fitness for an upgrade; MODES adds the upgrade mode to SETTINGS,
    FINISHED to RECOVERIES the ended ones of nodes that this run restarted, STORED to DISKS what they hold.
    """

    __hash__ = object.__hash__  # used in many sets and dicts; Enum's own hash is a slow Python call

    CLUSTER = auto()
    SETTINGS = auto()
    HEALTH = auto()
    RECOVERIES = auto()
    ACTIVITY = auto()
    DISKS = auto()
    HOSTS = auto()
    HOST_RIGHTS = auto()
    BULK = auto()
    GATES = auto()
    PACE = auto()
    UPGRADE = auto()
    MODES = auto()
    FINISHED = auto()
    STORED = auto()


EVERYTHING = frozenset(Look) - {Look.BULK, Look.PACE, Look.UPGRADE, Look.MODES, Look.FINISHED, Look.STORED}
"""What a run reads before a stop. The indices that it merges are read separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input of a decision."""

    at: Instant  # when the reading *began*: later changes may be missing; `before`: the previous one, if any
    before: Instant | None = None
    cluster: Reading[ClusterView] = NOT_READ
    settings: Reading[SettingsView] = NOT_READ
    health: Reading[HealthView] = NOT_READ
    recoveries: Reading[tuple[Recovery, ...]] = NOT_READ
    finished: Reading[tuple[Recovery, ...]] = NOT_READ
    activity: Reading[Activity] = NOT_READ
    disks: Reading[Mapping[NodeName, Disk]] = NOT_READ
    # by node, without those that were not requested
    hosts: Mapping[NodeName, Reading[HostView]] = field(default_factory=dict)
    # by node, each host compared with the profile; `gates`: by name; `bulk`: the indices to merge
    tuning: Mapping[NodeName, Reading[HostTuning]] = field(default_factory=dict)
    bulk: Reading[BulkView] = NOT_READ
    gates: Mapping[str, Reading[GateView]] = field(default_factory=dict)
    lease: Reading[LeaseView] = NOT_READ
    # the fitness of the cluster; `readiness`: that of each node's host
    upgrade: Reading[UpgradeView] = NOT_READ
    readiness: Mapping[NodeName, Reading[HostReadiness]] = field(default_factory=dict)

    def host(self, name: NodeName) -> Reading[HostView]:
        """The host of that node; `Unknown` when it was not requested."""
        return self.hosts.get(name, Unknown(reason=f"the host of {name} was not asked"))

    def gate(self, name: str) -> Reading[GateView]:
        """The reading of the gate of that name; `Unknown` when it was not requested."""
        return self.gates.get(name, Unknown(reason="it was not asked"))
