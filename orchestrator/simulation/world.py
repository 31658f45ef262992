"""The ground truth of one simulated cluster.

`views.py` builds what the program may read. The program acts through the ports, and `judge.py` records its
mistakes. Only tests and faults read this directly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from random import Random
from typing import Protocol

from orchestrator.model.action import InDoubt, Refused, SettingChange
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName, Role, ShardId
from orchestrator.model.observation import ClusterView, Level, SettingValue
from orchestrator.model.policy import Hooks
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.upgrade import UpgradeView
from orchestrator.ports import Clock
from orchestrator.simulation import allocation, machines, membership, segments
from orchestrator.simulation.agenda import Agenda
from orchestrator.simulation.deciders import OF_PLACES, shards_of
from orchestrator.simulation.facts import FIT, Fact
from orchestrator.simulation.parts import (
    Meddled,
    SimCopy,
    SimForced,
    SimGate,
    SimIndex,
    SimNode,
    SimOwner,
    SimShard,
)
from orchestrator.simulation.placement import Placement
from orchestrator.simulation.recoveries import Recoveries
from orchestrator.simulation.ways import Ways

DEFAULTS: dict[str, SettingValue] = {
    ALLOCATION: "all",
    "cluster.routing.rebalance.enable": "all",
    "cluster.routing.allocation.node_initial_primaries_recoveries": "4",
    "cluster.routing.allocation.node_concurrent_recoveries": "2",
    "indices.recovery.max_bytes_per_sec": "40mb",
}
"""Built-in defaults of the settings that a run reads."""


class Way(Protocol):
    """How the requests of one process get to the cluster."""

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """As `ClusterPort.avoid`."""
        ...

    def read(self) -> Unknown | None:
        """What a read fails with; None if it gets to a node."""
        ...

    def write(self) -> Refused | InDoubt | None:
        """The same of a write."""
        ...


class World:
    """One cluster with its machines.

    Args:
        seed: seed of all random choices; the same seed gives the same world.
        allowed_down: number of nodes that the program may have down at once, all of one zone, for the judge.

    Attributes:
        one_machine: nodes that are down at once must be on one machine.
        across_zones: nodes of several zones may be down at once.
        may_lose_master: its operator accepts that a stop takes the majority of the voters down.
        zone_attribute: the node attribute that names the zones.
        program_since: when the program's process began, or its machine last woke up.
        jitter: how far durations vary: 0.5 = from half to twice the duration. 0 = not at all.
        hooks: the run's hooks, for the judge; `steps`: how many install steps it has; `fitness`: for an
            upgrade.
        missing: shards with fewer started copies than at a stop by the program, and since when; `whole`: when
            that last changed between none and some.
        owner: the process that holds the lease, after a takeover.
        reindexes: nodes that are busy with a reindex; `busy_since`: since when they are busy with others'
            work.
        stalled_until: no recovery makes progress before this moment.
        ways: how its generation of servers differs from the newest.
        exempt_returning: indices whose copies may stay away, by the playbook; `ruled_at`: when the settings
            last changed that decide where copies may be.
        endpoints: makes the way of a process to the endpoints of the cluster; None: every request arrives.
        queues_starts: a start during a stop waits for its end, as with systemd. Without a service manager the
            start finds the old process and is lost.
    """

    def __init__(self, *, seed: int = 0, name: str = "prod", allowed_down: int = 1) -> None:
        self.agenda = Agenda()
        self.random = Random(seed)  # noqa: S311  (a simulation: repeatable, and not a secret)
        self.name, self.uuid = name, f"{name}-uuid"
        self.distribution, self.zone_attribute = "elasticsearch", "zone"
        self.allowed_down = allowed_down
        self.one_machine = self.may_lose_master = self.across_zones = False
        self.queues_starts, self.ways = True, Ways()
        self.nodes: dict[NodeName, SimNode] = {}
        self.indices: dict[str, SimIndex] = {}
        self.placement, self.recoveries = Placement(), Recoveries()
        self.persistent: dict[str, SettingValue] = {}
        self.transient: dict[str, SettingValue] = {}
        self.files: dict[str, SettingValue] = dict(DEFAULTS)
        self.refuse_settings: str | None = None
        self.master: NodeName | None = None
        self.voters: set[NodeName] = set()
        self.revoted: Instant = 0.0
        self.exclusions: list[NodeName] = []
        self.excluded_by_others: set[NodeName] = set()
        self.detection_seconds: Seconds = 0.0
        self.version = 1
        self.snapshots: tuple[str, ...] = ()
        self.aborted: dict[str, NodeName] = {}
        self.merges, self.reindexes = set[NodeName](), set[NodeName]()
        self.busy_since: dict[NodeName, Instant] = {}
        self.stalled_until: Instant = 0.0
        self.jitter, self.hooks, self.steps = 0.0, Hooks(), 0
        self.fitness: Reading[UpgradeView] = FIT
        self.missing: dict[ShardId, Instant] = {}
        self.whole: list[tuple[Instant, bool]] = []
        self.owner = SimOwner()
        self.forced = SimForced()
        self.disks: dict[NodeName, float] = {}
        self.gates: dict[str, SimGate] = {}
        self.oldest_task, self.stale_read = 0.0, False
        self.story: list[tuple[Instant, str]] = []
        self.violations: list[str] = []
        self.late_writes: list[tuple[Instant, tuple[SettingChange, ...]]] = []
        self.meddled: defaultdict[tuple[Level, str], list[Meddled]] = defaultdict(list)
        self.last_read = self.program_since = self.elected_at = 0.0
        self.deleted, self.replicas_before = Counter[str](), dict[str, int]()
        self.exempt_indices, self.ruled_at = set[str](), -1e9
        self.exempt_without_replicas, self.exempt_returning = tuple[str, ...](), tuple[str, ...]()
        self.endpoints: Callable[[Clock], Way] | None = None
        self.unassigned_before, self.missing_before = Counter[ShardId](), Counter[ShardId]()
        self.had, self.away_before = dict[ShardId, tuple[int, Instant]](), set[NodeName]()
        self.shown: tuple[object, ClusterView] | None = None
        self._ids = 0
        self._news: tuple[Instant, int, set[str]] = (0.0, 0, set())

    # What allocation and membership need -------------------------------------------------------

    def effective(self, key: str) -> SettingValue | None:
        """Transient over persistent over the files'."""
        for layer in (self.transient, self.persistent, self.files):
            if key in layer:
                return layer[key]
        return None

    def changed(self, what: str) -> None:
        """Count a new cluster state, and record the event for the narrator."""
        self.version += 1
        self.story.append((self.agenda.now, what))

    def jittered(self, seconds: Seconds) -> Seconds:
        """This duration, varied at random."""
        if not self.jitter or not seconds:
            return seconds
        return seconds * self.random.uniform(1.0 - self.jitter, 1.0 + 2.0 * self.jitter)

    def next_id(self) -> str:
        """A new allocation id."""
        self._ids += 1
        return f"copy-{self._ids}"

    # Building ------------------------------------------------------------------------------------

    def add_node(
        self, name: str, *, roles: frozenset[Role] | None = None, zone: str | None = None
    ) -> SimNode:
        """Add an initial member, on its own machine."""
        node = SimNode(name=NodeName(name), node_id=f"id-{name}", zone=zone, machine=name)
        if roles is not None:
            node.roles = roles
        self.nodes[node.name] = node
        self.placement.settle(node)
        if self.master is None and Role.MASTER in node.roles:
            self.master = node.name
        if Role.MASTER in node.roles:
            self.voters = {*self.voters, node.name}
            membership.reconfigure(self)
        return node

    def add_index(
        self,
        name: str,
        *,
        shards: int = 1,
        replicas: int = 1,
        size: int = 64 << 20,
        places: Sequence[str] = (),
        written: bool = True,
    ) -> SimIndex:
        """Add an index with all copies started, primaries first on `places`."""
        index = SimIndex(name=name, uuid=f"{name}-uuid", replicas=replicas, written=written)
        data = [NodeName(place) for place in places] or [n.name for n in self.nodes.values() if n.holds_data]
        for number in range(shards):
            shard = SimShard(id=ShardId(index=name, index_uuid=index.uuid, number=number), size=size)
            for copy in range(replicas + 1):
                place = data[(number + copy) % len(data)] if copy < len(data) else None
                entry = SimCopy(shard=shard.id, primary=copy == 0)
                shard.copies += (entry,)
                if place is None:
                    entry.reason = "INDEX_CREATED"
                    continue
                entry.node, entry.state, entry.allocation_id = place, CopyState.STARTED, self.next_id()
                shard.in_sync |= {entry.allocation_id}
                shard.on_disk = {**shard.on_disk, place: entry.allocation_id}
            index.shards += (shard,)
        self.put(index)
        return index

    def put(self, index: SimIndex) -> None:
        """Add an index with its shards to the cluster."""
        self.indices[index.uuid] = index
        self.placement.put(index)

    def create_index(self, name: str, *, on: NodeName | None = None, replicas: int = 1) -> None:
        """Create an index during the run, with its primary on that node. No check can exclude that race.

        With None, or a node without data, allocation chooses the node.
        """
        index = self.make_index(name, replicas=replicas, reason="INDEX_CREATED")
        shard = index.shards[0]
        primary = shard.primary
        primary.allocation_id = self.next_id()
        if on is not None and self.nodes[on].process and self.nodes[on].holds_data:
            primary.node, primary.state, primary.reason = on, CopyState.STARTED, None
            shard.in_sync |= {str(primary.allocation_id)}
            shard.on_disk = {**shard.on_disk, on: str(primary.allocation_id)}
        else:
            primary.fresh = True
        self.changed(f"index {name} is created, its primary on {primary.node}")
        allocation.reroute(self)

    def make_index(self, name: str, *, replicas: int, reason: str) -> SimIndex:
        """Add an index of one shard whose copies are all unassigned for this reason."""
        uuid = f"{name}-uuid" + (f"-{self.deleted[name]}" if self.deleted[name] else "")
        index = SimIndex(name=name, uuid=uuid, replicas=replicas, made_at=self.agenda.now, made_with=replicas)
        index.turned_at = index.made_at
        shard = SimShard(id=ShardId(index=name, index_uuid=index.uuid, number=0), size=1 << 20)
        shard.copies = tuple(
            SimCopy(shard=shard.id, primary=copy == 0, reason=reason) for copy in range(replicas + 1)
        )
        index.shards = (shard,)
        self.put(index)
        return index

    def delete_index(self, name: str) -> None:
        """Delete an index, with all work on it."""
        for index in [index for index in self.indices.values() if index.name == name]:
            for shard in index.shards:
                allocation.found_again(self, shard)
                for copy in shard.copies:
                    copy.ticket += 1
            del self.indices[index.uuid]
            self.placement.drop(index)
            self.recoveries.forget(index.uuid, ended=True)
            self.deleted[name] += 1
            self.changed(f"index {name} is deleted")

    def roll_over(self, name: str, to: str) -> None:
        """Writes go to a new index, on any node, and no longer to this one."""
        index = self.indices.get(f"{name}-uuid")
        if index is None or self.master is None:
            return
        segments.turn(self, index, written=False)
        self.create_index(to, replicas=index.replicas)

    def begin_snapshot(self, name: str) -> None:
        """A snapshot begins."""
        self.snapshots = (*self.snapshots, name)
        self.changed(f"snapshot {name} begins")

    def end_snapshot(self, name: str) -> None:
        """A snapshot is done."""
        self.snapshots = tuple(other for other in self.snapshots if other != name)

    def process_ended(self, node: SimNode, *, clean: bool) -> None:
        """The process of a node has ended, cleanly or not."""
        if node.name in self.busy_since:
            self.merges.discard(node.name)
            self.reindexes.discard(node.name)
        self.aborted = {name: on for name, on in self.aborted.items() if on != node.name}
        node.facts.append(Fact(at=self.agenda.now, what="ended", alive=False))
        membership.process_ended(self, node, clean=clean)

    def process_began(self, node: SimNode) -> None:
        """A new process of a node has started."""
        node.facts.append(Fact(at=self.agenda.now, what="began", alive=True))
        self._change(node)
        membership.process_began(self, node)
        if node.crashes > 0:
            node.crashes -= 1
            life, after, back = node.life, node.crash_after, node.crash_back

            def crashes() -> None:
                if node.life == life and node.process:
                    node.failed_starts += 1
                    machines.die(self, node)
                    if back is not None:
                        self.agenda.after(back, lambda: machines.start(self, node))

            self.agenda.after(after, crashes)

    def _change(self, node: SimNode) -> None:
        """A new life begins with the changes made on the machine meanwhile."""
        node.version, node.next_version = node.next_version or node.version, None
        node.disk.loaded = node.disk.plugins
        node.zone, node.next_zone = node.next_zone or node.zone, None
        if node.loses_disk:
            node.loses_disk, node.node_id = False, f"{node.node_id}-anew"
            for _, shard in shards_of(self):
                shard.leave(node.name)
            self.changed(f"{node.name} begins with an empty disk")

    # What is done to it -----------------------------------------------------------------------------

    def write(self, changes: Sequence[SettingChange]) -> None:
        """Apply a settings update, after the updates that wait in the master's queue."""
        self.apply_late_writes()
        self._apply(changes, self.last_read)
        allocation.reroute(self)

    def apply_late_writes(self) -> None:
        """The master processes its queue in order."""
        late, self.late_writes = self.late_writes, []
        for read, changes in late:
            self._apply(changes, read)
        if late:
            self.changed("a late settings update takes effect")
            allocation.reroute(self)

    def _apply(self, changes: Sequence[SettingChange], read: Instant) -> None:
        for change in changes:
            for meddled in self.meddled[change.level, change.key]:
                meddled.raced = meddled.raced or meddled.at >= read
            self.set(change.level, change.key, change.wanted)

    def meddle(self, level: Level, key: str, value: SettingValue | None) -> None:
        """Another operator changes a setting. The new value has to stay from then on."""
        self.meddled[level, key].append(Meddled(at=self.agenda.now, value=value))
        self.set(level, key, value)
        allocation.reroute(self)

    def may_stand(
        self, level: Level, key: str, found: SettingValue | None
    ) -> tuple[SettingValue | None, ...]:
        """Allowed values of a setting after a run that `found` this value.

        The last value of another operator is allowed. If a write of ours raced with it, the earlier value is
        allowed as well: no check can exclude that race, so it is not a violation.
        """
        values: list[SettingValue | None] = []
        for meddled in reversed(self.meddled[level, key]):
            values.append(meddled.value)
            if not meddled.raced:
                return tuple(values)
        return (*values, found)

    def set(self, level: Level, key: str, value: SettingValue | None) -> None:
        """Set one setting at one level. None removes it."""
        if key.startswith(OF_PLACES):
            self.ruled_at = self.agenda.now
        layer = self.persistent if level is Level.PERSISTENT else self.transient
        if value is None:
            layer.pop(key, None)
        else:
            layer[key] = value
        self.changed(f"{key} ({level.value}) = {value}")

    def settings(self) -> tuple[dict[str, SettingValue], dict[str, SettingValue]]:
        """Both levels of the current settings, for comparison."""
        return dict(self.persistent), dict(self.transient)

    # What the judge needs --------------------------------------------------------------------------------

    def judge_down(self) -> None:
        """Check that the program has no more nodes down than allowed."""
        ours = [node for node in self.nodes.values() if node.stopped_by_us and node.stopped_late is None]
        down = [node.name for node in ours if not node.process]
        if len(down) > self.allowed_down:
            self.violated(f"{', '.join(down)} are down by us at once")

    def news(self, of: str) -> bool:
        """Whether something happened to it since the program's last reading began."""
        since, seen_of_it, words = self._news
        if since != self.last_read or seen_of_it > len(self.story):
            recent = takewhile(lambda entry: entry[0] >= self.last_read, reversed(self.story))
            words = {word for _, what in recent for word in what.split()}
        else:
            words.update(word for _, what in self.story[seen_of_it:] for word in what.split())
        self._news = (self.last_read, len(self.story), words)
        return of in words

    def violated(self, what: str) -> None:
        """Record a mistake of the program."""
        self.violations.append(f"{self.agenda.now:.1f}: {what}")
