"""The parts of the simulated world: machines with nodes on them, indices, shards and their copies.

The parts are the ground truth and change in place. `views.py` builds what the program may read from them. It
caches the view of a part in `shown`, and builds it again only when the part has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.model.cluster import CopyState, Index, Node, NodeName, Role, ShardCopy, ShardId
from orchestrator.model.gate import Since
from orchestrator.model.merging import MergePolicy
from orchestrator.model.observation import ServiceState, SettingValue
from orchestrator.model.reading import Instant, Seconds
from orchestrator.simulation.facts import IN_DOUBT, Fact, SimDisk
from orchestrator.simulation.watched import TruthPart

ALL_ROLES = frozenset({Role.MASTER, Role.DATA, Role.INGEST})
"""Roles of a node without configured roles."""


class GateState(Enum):
    """The true state of a gate."""

    OPEN = "open"
    CLOSED = "closed"
    UNREADABLE = "unreadable"


@dataclass(slots=True, kw_only=True)
class SimGate:
    """One gate."""

    state: GateState = GateState.OPEN
    # of an Alertmanager, those that the run counts: an alert closes it. Where the run counts those since its
    # start, another one has fired since long before.
    alerts: Since | None = None
    # the alerts of the start of the run, as first recorded
    known: Mapping[str, Instant] = field(default_factory=dict)
    since: Instant = 0.0  # when it got its current state
    turns: int = 0  # how often the state changed
    asked: int = 0  # how often the program has read it


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOwner:
    """The process that holds the cluster's lease."""

    epoch: int = 0  # epoch of its lease; 0 = there was no takeover
    since: Instant = 0.0  # when it took over the cluster; never, once it has released it
    in_hand: Callable[[], Collection[NodeName]] = frozenset  # the nodes in its record now


@dataclass(slots=True, kw_only=True)
class Meddled:
    """The value to which another operator set a setting, and when."""

    at: Instant
    value: SettingValue | None
    raced: bool = False  # the program overwrote it after an earlier reading, which no check can rule out


@dataclass(slots=True, kw_only=True, eq=False)
class SimNode(TruthPart):
    """A node and its machine."""

    name: NodeName
    node_id: str
    roles: frozenset[Role] = ALL_ROLES
    zone: str | None = None
    machine: str  # the name of its machine. Nodes with the same name share machine id, address and boot.
    version: str = "9.1.0"
    life: int = 1  # counts the starts of its process
    process: bool = True  # the process runs
    member_life: int | None = 1  # the life in which the master lists it; None while it does not
    # when the process of this life started; `joins_at`: when it can join; `ended`: when the last process
    # ended
    began: Instant = 0.0
    joins_at: Instant = 0.0
    ended: Instant = 0.0
    service: ServiceState = ServiceState.RUNNING
    boot: int = 1  # counts the boots of its machine
    job: int = 0  # counts verbs of the service manager, to detect a replaced one
    start_queued: bool = False  # a start waits for the stop in progress
    stop_seconds: Seconds = 4.0
    start_seconds: Seconds = 8.0
    join_seconds: Seconds = 2.0
    reboot_seconds: Seconds = 60.0
    stop_hangs: bool = False  # the process never ends, on any request
    starts_that_fail: int = 0  # number of starts that end in a failed service
    starts_at_boot: bool = True  # its service starts when its machine boots
    may_reboot: bool = True  # whether the account may reboot its machine
    # seconds from a stop until something else starts the service again; None = never
    rises_after: Seconds | None = None
    unreachable_until: Instant = 0.0  # its host does not answer before this moment
    # SSH to its host hangs before this moment; `hangs_and_does`: commands are carried out anyway
    hangs_until: Instant = 0.0
    hangs_and_does: bool = True
    late_until: Instant = 0.0  # each reading of its host takes `answer_takes` before this moment
    answer_takes: Seconds = 0.0
    stopped_by_us: bool = False  # a stop of the program took it down, and it is not back in the cluster yet
    stopped_late: Instant | None = None  # when it went down, if that stop could already count as lost then
    host_read: Instant = -math.inf  # when the program read its host last
    stop_lost_at: Instant = -1e9  # when a stop by the program was sent that never arrived
    restarts_by_us: int = 0  # number of stops by the program that ended a process
    apart: bool = False  # its process runs but reaches no other node
    apart_from_peers_until: Instant = 0.0  # it reaches only the master before this moment
    paused_until: Instant = 0.0  # its process is paused before this moment
    # this many of its next lives end `crash_after` seconds after they began. Its service manager starts it
    # again `crash_back` seconds later, None = it does not.
    crashes: int = 0
    crash_after: Seconds = 0.0
    crash_back: Seconds | None = None
    address: str = ""  # of its machine, where one is given; `host`: the name that the server has of it
    host: str = ""
    # its next life begins with an empty disk; `next_version` and `next_zone`: with these values
    loses_disk: bool = False
    next_version: str | None = None
    next_zone: str | None = None
    # its host refuses every verb before this moment; with `key_changed`, every read too
    refuses_until: Instant = 0.0
    key_changed: bool = False
    failed_starts: int = 0  # failed starts since the last successful one
    # what its machine recorded of the program; `ready`: when each before_stop hook ran since its last
    # after_recovery hooks; `to_undo`: the after_recovery hooks that are due
    facts: list[Fact] = field(default_factory=list)
    ready: dict[int, Instant] = field(default_factory=dict)
    to_undo: set[int] = field(default_factory=set)
    # values of tunables that differ from the profile; `disk`: what is installed
    kernel: dict[str, str] = field(default_factory=dict)
    disk: SimDisk = field(default_factory=SimDisk)
    shown: tuple[object, Node] | None = None

    @property
    def present(self) -> bool:
        """Whether its process runs and reaches the other nodes."""
        return self.process and not self.apart

    @property
    def joined(self) -> bool:
        """Whether the master lists it."""
        return self.member_life is not None

    @property
    def place(self) -> str:
        """The address of its machine."""
        return self.address or f"{self.machine}.example"

    @property
    def holds_data(self) -> bool:
        """Whether the node can hold copies."""
        return any(role is Role.DATA or role.value.startswith("data_") for role in self.roles)

    @property
    def stop_sent(self) -> Instant:
        """When the program last requested a stop while its process ran; 0 if it never did."""
        return next((fact.at for fact in reversed(self.facts) if fact.what == "stopped"), 0.0)

    def asked_in_vain(self, now: Instant) -> bool:
        """Whether it still runs half a minute after a stop request, so that the stop counts as lost."""
        runs_on = self.service is ServiceState.RUNNING and self.process and self.began < self.stop_sent
        return runs_on and now - self.stop_sent >= IN_DOUBT


@dataclass(slots=True, kw_only=True, eq=False)
class SimCopy(TruthPart):
    """A routing entry."""

    shard: ShardId
    primary: bool
    state: CopyState = CopyState.UNASSIGNED
    node: NodeName | None = None
    allocation_id: str | None = None
    reason: str | None = None
    fresh: bool = False  # its index was just created, so it is on no disk yet
    # for a primary that is being restored from a snapshot: the duration in seconds
    from_snapshot: Seconds | None = None
    failed_attempts: int = 0
    # when its node left; the delay of its re-allocation starts then. `left_alone`: not by a stop of the
    # program.
    left_at: Instant | None = None
    left_alone: bool = False
    relocating_to: NodeName | None = None  # the target while it moves. It serves at its source until then.
    ticket: int = 0  # counts assignments, to detect the end of an abandoned recovery
    shown: tuple[object, ShardCopy] | None = None

    @property
    def serves(self) -> bool:
        """Whether it serves requests. The source of a move does."""
        return self.state is CopyState.STARTED or self.state is CopyState.RELOCATING


@dataclass(slots=True, kw_only=True, eq=False)
class SimSegments:
    """The segments of one copy."""

    count: int  # searchable segments, as of `since`
    since: Instant = 0.0
    merged: int | None = None  # segments after a merge, not searchable before a refresh; None without a merge
    # segments of the last commit, if a merge followed it that no commit has; else None
    committed: int | None = None
    # its node was no member at the index's last merge, or the copy was unassigned then and when the run
    # began. It may return with its old segments.
    away: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class SimMerge:
    """A force-merge of an index: one call that the nodes continue even if the client disconnects."""

    index: str
    uuid: str
    max_segments: int
    ours: bool  # the program requested it
    began: Instant
    # copies still to be merged: shard, node, and the node's life when it received the call
    left: list[tuple[SimShard, NodeName, int]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class SimForced:
    """The force-merges of a cluster, and the data that its judge uses."""

    running: list[SimMerge] = field(default_factory=list)  # calls, in the order of arrival
    # the copy that a node merges now; one at a time per node, for all clients
    busy: dict[NodeName, tuple[SimMerge, SimShard, int]] = field(default_factory=dict)
    rate: int = 50 << 20  # bytes that a node merges a second
    capacity: int = 1 << 40  # bytes of each node's disk; `writing`: additional bytes written there by merges
    writing: dict[NodeName, int] = field(default_factory=dict)
    # used shares of a disk: the original one, and temporary ones
    fills: dict[NodeName, list[float]] = field(default_factory=dict)
    # when a disk was last filled by a person
    filled_at: dict[NodeName, Instant] = field(default_factory=dict)
    task_list: bool = True  # the version has a task list
    # the run's policy, by which its requests are judged; None for a run that merges nothing
    policy: MergePolicy | None = None
    last_look: Instant = 0.0  # when the program last read the current state of the indices
    asked: Counter[str] = field(default_factory=Counter)  # by index, how often the program requested a merge


@dataclass(slots=True, kw_only=True, eq=False)
class SimShard(TruthPart):
    """A shard: its routing entries, its in-sync set, and the copies on the nodes' disks.

    A collection of which an index is kept (`placement.py`) is replaced, never changed in place.
    """

    id: ShardId
    size: int
    copies: tuple[SimCopy, ...] = ()
    in_sync: frozenset[str] = frozenset()
    # allocation id of the copy on each node's disk
    on_disk: Mapping[NodeName, str] = field(default_factory=dict)
    # since when the copy on a node's disk has missed writes
    missed_since: dict[NodeName, Instant] = field(default_factory=dict)
    # segments of the copy on each node's disk; not kept for an index without a bulk load
    segments: dict[NodeName, SimSegments] = field(default_factory=dict)
    failing: int = 0  # this many more allocations of a replica fail
    lost_at: Instant | None = None  # since when no copy is started; None while one is
    had: int = 0  # started copies when the program last stopped a node with one of them; 0 = all are back
    # copies that left by themselves and were removed: replicas follow the number of nodes
    gone_alone: int = 0
    # allocation of the primary was refused while it was to be restored; it failed permanently
    never: bool = False

    @property
    def primary(self) -> SimCopy:
        """The entry of the primary, wherever it is."""
        return next(copy for copy in self.copies if copy.primary)

    @property
    def taken(self) -> set[NodeName | None]:
        """Nodes that have a copy, or get one that moves: no other copy may be there."""
        return {place for copy in self.copies for place in (copy.node, copy.relocating_to)}

    @property
    def started(self) -> list[SimCopy]:
        """Copies that serve."""
        return [copy for copy in self.copies if copy.serves]

    def leave(self, place: NodeName | None) -> None:
        """Remove the copy on that node's disk, if there is one."""
        if place in self.on_disk:
            self.on_disk = {name: copy for name, copy in self.on_disk.items() if name != place}


@dataclass(slots=True, kw_only=True, eq=False)
class SimIndex(TruthPart):
    """An index."""

    name: str
    uuid: str
    replicas: int
    written: bool = True  # documents keep arriving, so an absent copy becomes stale
    turned_at: Instant = 0.0  # when writing last began or ended
    operations: int = 0  # on all its shards until then
    # the setting's value; `-1` = new documents become searchable only after a manual refresh
    refresh_interval: str | None = None
    durability: str | None = None  # `index.translog.durability`, the setting's value
    made_at: Instant = 0.0  # when it was created; the tests use it to distinguish a race from a mistake
    made_with: int = 0  # its number of replicas when it was created during the run
    changed_at: Instant = -1e9  # when it was closed, opened or restored over
    # number of replicas that another operator set during the run; None = unchanged
    wanted_by_others: int | None = None
    # it serves nothing and is not written; its copies are allocated like others (since 7.2)
    closed: bool = False
    auto_expand: str | None = None  # `auto_expand_replicas`, such as `0-1` or `0-all`; None = off
    # its own `index.routing.allocation.enable`, which overrides the cluster's
    allocation_enable: str | None = None
    # its own `index.routing.allocation.*` besides, by what follows: `require._name`. `ruled_at`: when they
    # were last changed.
    rules: Mapping[str, str] = field(default_factory=dict)
    ruled_at: Instant = -1e9
    shrinks: bool = False  # ILM shrinks it
    searchable_snapshot: bool = False  # the snapshot repository serves as its second copy
    delay: Seconds = 60.0  # `index.unassigned.node_left.delayed_timeout`, in seconds
    # `index.soft_deletes.retention_lease.period`, in seconds: how long a primary keeps operations that a copy
    # on disk has missed. After that, the copy is compared file by file.
    keeps: Seconds = 12 * 3600.0
    shards: tuple[SimShard, ...] = ()
    shown: tuple[object, Index] | None = None
