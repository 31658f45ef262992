"""What the simulated world is made of: machines with nodes on them, indices, shards and their copies.

These are the ground truth and change in place; what the program may see is made of them in `views.py`, which
keeps in `shown` what it has made of a part, and makes it anew only when that part has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.model.cluster import CopyState, Index, Node, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.merging import MergePolicy
from orchestrator.model.observation import Recovery, ServiceState, SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation.counted import Part
from orchestrator.simulation.facts import IN_DOUBT, Fact

ALL_ROLES = frozenset({Role.MASTER, Role.DATA, Role.INGEST})
"""What a node does that was not told otherwise."""


class GateState(Enum):
    """How a gate truly is."""

    OPEN = "open"
    CLOSED = "closed"
    UNREADABLE = "unreadable"


@dataclass(slots=True, kw_only=True)
class SimGate:
    """One gate.

    Attributes:
        since: when it came to be so.
        turns: how often that was changed.
        asked: how often the program has asked it.
    """

    state: GateState = GateState.OPEN
    since: Instant = 0.0
    turns: int = 0
    asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOwner:
    """The process that owns the cluster.

    Attributes:
        epoch: of its lease; 0 = nobody has taken anything over.
        since: when it took the cluster over; never, once it has given it back.
        in_hand: the nodes in its record now.
    """

    epoch: int = 0
    since: Instant = 0.0
    in_hand: Callable[[], Collection[NodeName]] = frozenset


@dataclass(slots=True, kw_only=True)
class Meddled:
    """What another operator set a setting to, and when.

    Attributes:
        raced: the program wrote over it on a reading from before it, which no check can rule out.
    """

    at: Instant
    value: SettingValue | None
    raced: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class SimNode(Part):
    """A node and its machine.

    Attributes:
        life: counts the starts of its process.
        process: the process runs.
        member_life: the life in which the master lists it; None while it does not.
        began: when the process of this life started, and `joins_at`, when it can join; `ended`, when the last
            one ended.
        machine: the name of its machine; nodes of one name share machine id, address and boot.
        boot: counts the boots of its machine.
        job: counts verbs of the service manager, so that a replaced one is known.
        start_queued: a start waits behind the stop under way.
        stop_hangs: the process never ends, whoever asks.
        starts_that_fail: so many starts end in a failed service.
        starts_at_boot: its service is begun with its machine.
        rises_after: seconds after a stop after which something else starts the service again; None = never.
        unreachable_until: its host does not answer before this moment.
        hangs_until: SSH to its host hangs before this moment; `hangs_and_does` tells whether what is asked
            is done all the same.
        stopped_by_us: a stop of the program took it down, and it is not back in the cluster yet.
        stopped_late: when it went down, if that stop could be taken as lost by then.
        stop_lost_at: when a stop by the program was sent that never arrived.
        restarts_by_us: stops of the program that ended a process.
        apart: its process runs, and reaches no other node.
        apart_from_peers_until: it reaches the master alone before this moment.
        paused_until: its process does nothing before this moment.
        crashes: so many of its next lives end `crash_after` seconds after they began; its service manager
            starts it again `crash_back` seconds later, None = it does not.
        loses_disk: its next life begins with an empty disk, `next_version` and `next_zone`: with these.
        refuses_until: its host refuses every verb before this moment; with `key_changed`, every read too.
        failed_starts: starts that failed since the last one that did not.
        facts: what its machine saw of the program; `ready`, when each before_stop hook ran since its last
            after_recovery hooks; `to_undo`, the after_recovery hooks that are due.
        kernel: values of tunables that are not as a profile would want them.
    """

    name: NodeName
    node_id: str
    roles: frozenset[Role] = ALL_ROLES
    zone: str | None = None
    machine: str
    version: str = "9.1.0"
    life: int = 1
    process: bool = True
    member_life: int | None = 1
    began: Instant = 0.0
    joins_at: Instant = 0.0
    ended: Instant = 0.0
    service: ServiceState = ServiceState.RUNNING
    boot: int = 1
    job: int = 0
    start_queued: bool = False
    stop_seconds: Seconds = 4.0
    start_seconds: Seconds = 8.0
    join_seconds: Seconds = 2.0
    reboot_seconds: Seconds = 60.0
    stop_hangs: bool = False
    starts_that_fail: int = 0
    starts_at_boot: bool = True
    rises_after: Seconds | None = None
    unreachable_until: Instant = 0.0
    hangs_until: Instant = 0.0
    hangs_and_does: bool = True
    stopped_by_us: bool = False
    stopped_late: Instant | None = None
    stop_lost_at: Instant = -1e9
    restarts_by_us: int = 0
    apart: bool = False
    apart_from_peers_until: Instant = 0.0
    paused_until: Instant = 0.0
    crashes: int = 0
    crash_after: Seconds = 0.0
    crash_back: Seconds | None = None
    loses_disk: bool = False
    next_version: str | None = None
    next_zone: str | None = None
    refuses_until: Instant = 0.0
    key_changed: bool = False
    failed_starts: int = 0
    facts: list[Fact] = field(default_factory=list)
    ready: dict[int, Instant] = field(default_factory=dict)
    to_undo: set[int] = field(default_factory=set)
    kernel: dict[str, str] = field(default_factory=dict)
    shown: tuple[object, Node] | None = None

    @property
    def present(self) -> bool:
        """Whether its process runs, and reaches the other nodes."""
        return self.process and not self.apart

    @property
    def joined(self) -> bool:
        """Whether the master lists it."""
        return self.member_life is not None

    @property
    def holds_data(self) -> bool:
        """Whether copies can live here."""
        return any(role is Role.DATA or role.value.startswith("data_") for role in self.roles)

    @property
    def stop_sent(self) -> Instant:
        """When the program last asked for a stop that found its process running; 0 if it never did."""
        return next((fact.at for fact in reversed(self.facts) if fact.what == "stopped"), 0.0)

    def asked_in_vain(self, now: Instant) -> bool:
        """Whether it runs on as if it had not been asked to stop: after half a minute that stop is lost."""
        runs_on = self.service is ServiceState.RUNNING and self.process and self.began < self.stop_sent
        return runs_on and now - self.stop_sent >= IN_DOUBT


@dataclass(slots=True, kw_only=True, eq=False)
class SimCopy(Part):
    """A routing entry.

    Attributes:
        fresh: of an index that was just made: nothing on any disk yet.
        from_snapshot: of a primary that a snapshot is restored into: the seconds that this takes.
        left_at: when its node left, from which the delay of its re-allocation counts; `left_alone`, when no
            stop by the program was the reason.
        relocating_to: the target while it moves; it serves at its source until then.
        ticket: counts assignments, so that the end of an abandoned recovery is known.
    """

    shard: ShardId
    primary: bool
    state: CopyState = CopyState.UNASSIGNED
    node: NodeName | None = None
    allocation_id: str | None = None
    reason: str | None = None
    fresh: bool = False
    from_snapshot: Seconds | None = None
    failed_attempts: int = 0
    left_at: Instant | None = None
    left_alone: bool = False
    relocating_to: NodeName | None = None
    ticket: int = 0
    shown: tuple[object, ShardCopy] | None = None

    @property
    def serves(self) -> bool:
        """Whether it is started: the source of a move is."""
        return self.state is CopyState.STARTED or self.state is CopyState.RELOCATING


@dataclass(slots=True, kw_only=True, eq=False)
class SimSegments:
    """The segments of one copy.

    Attributes:
        count: those that a search goes through, as of `since`.
        merged: those that they were merged to, which no search sees before a refresh; None without.
        away: its node was no member when the index was last merged, or the copy waited for a place as it did
            when the run began; it may come back with them as they were.
    """

    count: int
    since: Instant = 0.0
    merged: int | None = None
    away: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class SimMerge:
    """A force-merge of an index: one call, carried on by the nodes whoever listens.

    Attributes:
        ours: the program asked for it.
        left: copies still to be merged: shard, node and the life of the node in which it was told.
    """

    index: str
    uuid: str
    max_segments: int
    ours: bool
    began: Instant
    left: list[tuple[SimShard, NodeName, int]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class SimForced:
    """The force-merges of a cluster, and what its judge goes by.

    Attributes:
        running: calls, in the order in which they came.
        busy: the copy that a node merges now: one at a time on a node, whoever asks.
        rate: bytes that a node merges a second.
        capacity: of each node's disk, in bytes; `writing`, what merges have written there beside.
        fills: the shares of a disk that are taken: as it was found, and what fills it for a while.
        filled_at: when a disk was last filled by somebody.
        task_list: the version tells of tasks.
        policy: of the run, by which its asking is judged; None for a run that merges nothing.
        last_look: when the program last read the indices as they were.
        asked: of each index, how often the program did.
    """

    running: list[SimMerge] = field(default_factory=list)
    busy: dict[NodeName, tuple[SimMerge, SimShard, int]] = field(default_factory=dict)
    rate: int = 50 << 20
    capacity: int = 1 << 40
    writing: dict[NodeName, int] = field(default_factory=dict)
    fills: dict[NodeName, list[float]] = field(default_factory=dict)
    filled_at: dict[NodeName, Instant] = field(default_factory=dict)
    task_list: bool = True
    policy: MergePolicy | None = None
    last_look: Instant = 0.0
    asked: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True, eq=False)
class SimShard(Part):
    """A shard: its routing entries, its in-sync set, and what lies on the nodes' disks.

    Attributes:
        on_disk: allocation id of the copy that a node has on disk.
        missed_since: from when on a node's copy on disk has missed what was written.
        segments: of the copy that a node has on disk; of an index that nobody loaded, none are kept.
        failing: so many more allocations of a replica fail.
        lost_at: since when no copy is started; None while one is.
        had: started copies at the last stop by the program of a node with one of them; 0 = all are back.
        gone_alone: copies that left by themselves and were given up: replicas follow the number of nodes.
        never: allocation of the primary was refused while it was to be restored: it has failed for good.
    """

    id: ShardId
    size: int
    copies: list[SimCopy] = field(default_factory=list)
    in_sync: frozenset[str] = frozenset()
    on_disk: dict[NodeName, str] = field(default_factory=dict)
    missed_since: dict[NodeName, Instant] = field(default_factory=dict)
    segments: dict[NodeName, SimSegments] = field(default_factory=dict)
    failing: int = 0
    lost_at: Instant | None = None
    had: int = 0
    gone_alone: int = 0
    never: bool = False

    @property
    def primary(self) -> SimCopy:
        """The entry of the primary, wherever it is."""
        return next(copy for copy in self.copies if copy.primary)

    @property
    def started(self) -> list[SimCopy]:
        """Copies that serve."""
        return [copy for copy in self.copies if copy.serves]


@dataclass(slots=True, kw_only=True, eq=False)
class SimIndex(Part):
    """An index.

    Attributes:
        written: documents keep coming, so a copy that is away turns stale.
        turned_at: when they last began to come, or ended.
        operations: on all its shards until then.
        refresh_interval: as set; `-1` = searches see nothing new before they are told to.
        durability: `index.translog.durability`, as set.
        made_at: when it was created, by which the tests know a race from a mistake.
        made_with: the replicas that it was created with during the run.
        changed_at: when it was closed, opened or restored over.
        wanted_by_others: the replicas that another operator gave it during the run; None = none did.
        closed: it serves nothing and is written by nobody; its copies are allocated like others (since 7.2).
        auto_expand: `auto_expand_replicas`, such as `0-1` or `0-all`; None = off.
        allocation_enable: its own `index.routing.allocation.enable`, which goes before the cluster's.
        searchable_snapshot: its repository is its other copy.
        delay: `index.unassigned.node_left.delayed_timeout`, in seconds.
        keeps: `index.soft_deletes.retention_lease.period`, in seconds: for so long a primary has operations
            that a copy on disk has missed; after it that copy is compared file by file.
    """

    name: str
    uuid: str
    replicas: int
    written: bool = True
    turned_at: Instant = 0.0
    operations: int = 0
    refresh_interval: str | None = None
    durability: str | None = None
    made_at: Instant = 0.0
    made_with: int = 0
    changed_at: Instant = -1e9
    wanted_by_others: int | None = None
    closed: bool = False
    auto_expand: str | None = None
    allocation_enable: str | None = None
    searchable_snapshot: bool = False
    delay: Seconds = 60.0
    keeps: Seconds = 12 * 3600.0
    shards: list[SimShard] = field(default_factory=list)
    shown: tuple[object, Index] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class SimRecovery:
    """A recovery, under way or done.

    Attributes:
        operations: replayed by it, of those that the copy on disk has missed.
    """

    shard: ShardId
    target: NodeName
    source: NodeName | None
    total: int
    reused: int
    operations: int
    began: Instant
    ends: Instant
    done: bool = False
    shown: Recovery | None = None
