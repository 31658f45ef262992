"""The optimistic world that plans are made in: every action succeeds at once.

It begins with a real observation and answers the same decisions as a real cluster, so a plan shows the exact
steps of a run. It has no durations: `estimate.py` adds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from orchestrator.engine.kinds.riak.optimism import at_rest, just_back
from orchestrator.model.action import (
    Action,
    ClearVotingExclusions,
    ExcludeFromVoting,
    Flush,
    ForceHandoff,
    ForceMerge,
    ProbeSettings,
    RebootHost,
    RefreshIndex,
    RetryFailed,
    RunHook,
    RunInstall,
    SetIndexSettings,
    SetReplicas,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
)
from orchestrator.model.cluster import CopyState, Incarnation, Node, NodeName, ShardCopy, ShardId
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import (
    ClusterView,
    HostView,
    LeaseView,
    Level,
    Observation,
    ServiceState,
    SettingValue,
)
from orchestrator.model.reading import Instant, Unknown
from orchestrator.model.upgrade import InstallState, InstallView


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisticWorld:
    """What would be observed after the actions so far.

    Attributes:
        seen: the last observation, changed by what was done.
        asleep: members that are down, as they will come back.
        lives: counts the lives that this world has given out.
        installed: the last install step of each node for which one was begun.
    """

    seen: Observation
    asleep: Mapping[NodeName, Node] = field(default_factory=dict)
    lives: int = 0
    installed: Mapping[NodeName, RunInstall] = field(default_factory=dict)

    def at(self, now: Instant) -> Observation:
        """The current observation. The lease counts as ours: a plan takes none."""
        return replace(self.seen, at=now, lease=LeaseView(held=True, holder="this plan", refreshed=0.0))

    def after(self, action: Action) -> OptimisticWorld:
        """The world in which the action has succeeded, at once."""
        view = self.seen.cluster
        if isinstance(view, Unknown):
            return self
        match action:
            case StopNode(node=name):
                return self._stopped(view, name)
            case StartNode(node=name):
                return self._started(view, name)
            case RebootHost():
                return self._booted(action)
            case WriteSettings():
                return self._settings(action)
            case SetReplicas():
                return self._replicas(view, action)
            case ExcludeFromVoting(node=name):
                master = next((n.name for n in view.nodes if n.master_eligible and n.name != name), None)
                return self._with(view, master=master, voting_exclusions=(*view.voting_exclusions, name))
            case ClearVotingExclusions():
                return self._with(view, voting_exclusions=())
            case ForceMerge() | SetIndexSettings():
                return self._bulk(action)
            case ForceHandoff():
                return self._with(view, riak=at_rest(view))
            case ProbeSettings() | Flush() | RetryFailed() | RefreshIndex():
                return self
            case RunInstall():
                return self._installs(action)
            case RunHook() | TuneHost():
                return self
            case _:
                assert_never(action)

    def _with(self, view: ClusterView, **changes: object) -> OptimisticWorld:
        return replace(self, seen=replace(self.seen, cluster=view.changed({}, None, **changes)))

    def in_reach(self) -> OptimisticWorld:
        """The world in which every host answers and reports its boot."""
        unread, hosts = HostView(service=ServiceState.RUNNING, detail="running"), dict(self.seen.hosts)
        for name in hosts:
            host = self.seen.host(name)
            known = unread if isinstance(host, Unknown) else host
            hosts[name] = replace(known, boot_id=known.boot_id or f"unread-{name}")
        return replace(self, seen=replace(self.seen, hosts=hosts))

    def with_lives(self, names: Collection[NodeName]) -> OptimisticWorld:
        """The world in which these members report their processes."""
        view = self.seen.cluster
        if isinstance(view, Unknown):
            return self
        nodes = tuple(
            replace(node, incarnation=Incarnation(ephemeral_id=f"untold-{node.name}"))
            if node.name in names and node.incarnation == Incarnation()
            else node
            for node in view.nodes
        )
        return self._with(view, nodes=nodes)

    def service(self, name: NodeName, state: ServiceState) -> OptimisticWorld:
        """The world in which the node's service is in that state."""
        host = self.seen.host(name)
        if isinstance(host, Unknown):
            return self
        hosts = {**self.seen.hosts, name: replace(host, service=state, detail=state.value)}
        return replace(self, seen=replace(self.seen, hosts=hosts))

    def _installs(self, action: RunInstall) -> OptimisticWorld:
        """The world in which the step has ended well."""
        name, host = action.node, self.seen.host(action.node)
        if isinstance(host, Unknown):
            return self
        done = InstallView(ticket=action.ticket, state=InstallState.DONE)
        seen = replace(self.seen, hosts={**self.seen.hosts, name: replace(host, install=done)})
        return replace(self, seen=seen, installed={**self.installed, name: action})

    def _booted(self, reboot: RebootHost) -> OptimisticWorld:
        """The world in which the machine has another boot id, and its nodes are up again."""
        world = self
        for name in reboot.nodes:
            world = world.after(StartNode(node=name))
            host = world.seen.host(name)
            if not isinstance(host, Unknown):
                hosts = {**world.seen.hosts, name: replace(host, boot_id=f"planned-{self.lives}")}
                world = replace(world, seen=replace(world.seen, hosts=hosts))
        return world

    def _stopped(self, view: ClusterView, name: NodeName) -> OptimisticWorld:
        member = view.node(name)
        if member is None:
            return self
        members, master = dict(view.members), view.master
        del members[name]
        if master == name:  # each of Riak's nodes can be the claimant
            eligible = (node.name for node in members.values() if node.master_eligible or view.riak)
            master = next(eligible, None)
        after = view.changed(_without(view, name), members, master=master)
        world = replace(self, seen=replace(self.seen, cluster=after))
        return replace(world, asleep={**self.asleep, name: member}).service(name, ServiceState.STOPPED)

    def _started(self, view: ClusterView, name: NodeName) -> OptimisticWorld:
        member = self.asleep.get(name)
        if member is None:
            return self.service(name, ServiceState.RUNNING)
        lives, step = self.lives + 1, self.installed.get(name)
        reborn = replace(
            member,
            incarnation=Incarnation(ephemeral_id=f"planned-{lives}", started_at_ms=lives),
            version=step.target if step else member.version,
            plugins=(member.plugins or frozenset()).union(step.plugins) if step else member.plugins,
        )
        table = view.routing.table
        back = {
            shard: tuple(
                [
                    _in_state(copy, CopyState.STARTED, primary=copy.primary) if copy.node == name else copy
                    for copy in table[shard]
                ]
            )
            for shard in view.routing.on(name)
        }
        members = {**view.members, name: reborn}
        after = view.changed(back, members)
        if view.riak is not None:
            after = after.changed({}, riak=just_back(after, name, self.seen.settings))
        world = replace(self, seen=replace(self.seen, cluster=after))
        asleep = {other: node for other, node in self.asleep.items() if other != name}
        return replace(world, asleep=asleep, lives=lives).service(name, ServiceState.RUNNING)

    def _settings(self, action: WriteSettings) -> OptimisticWorld:
        settings = self.seen.settings
        if isinstance(settings, Unknown):
            return self
        layers: dict[Level, dict[str, SettingValue]] = {
            Level.PERSISTENT: dict(settings.persistent),
            Level.TRANSIENT: dict(settings.transient),
        }
        for change in action.changes:
            if change.wanted is None:
                layers[change.level].pop(change.key, None)
            else:
                layers[change.level][change.key] = change.wanted
        changed = replace(settings, persistent=layers[Level.PERSISTENT], transient=layers[Level.TRANSIENT])
        return replace(self, seen=replace(self.seen, settings=changed))

    def _replicas(self, view: ClusterView, action: SetReplicas) -> OptimisticWorld:
        indices = tuple(
            replace(index, replicas=action.wanted) if index.uuid == action.index_uuid else index
            for index in view.indices
        )
        made = {
            shard: tuple(
                each
                for copy in copies
                if copy.primary
                for each in (copy, *_replicas(view, copy, action.wanted))
            )
            for shard, copies in view.shards.items()
            if shard.index_uuid == action.index_uuid
        }
        return replace(self, seen=replace(self.seen, cluster=view.changed(made, indices=indices)))

    def _bulk(self, action: ForceMerge | SetIndexSettings) -> OptimisticWorld:
        """The world in which the index is merged, or has its settings for after the load."""
        bulk = self.seen.bulk
        found = None if isinstance(bulk, Unknown) else bulk.indices.get(action.index_uuid)
        if found is None or isinstance(bulk, Unknown):
            return self
        if isinstance(action, ForceMerge):
            changed = merged(found, action.max_segments)
        else:
            changed = put_right(found, action.wanted)
        world = replace(bulk, indices={**bulk.indices, action.index_uuid: changed})
        after = replace(self, seen=replace(self.seen, bulk=world))
        if changed.replicas == found.replicas:
            return after
        uuid, found_so, wanted = action.index_uuid, found.replicas, changed.replicas
        return after.after(SetReplicas(index=action.index, index_uuid=uuid, found=found_so, wanted=wanted))


def merged(index: BulkIndex, max_segments: int) -> BulkIndex:
    """The index with no copy of more segments than that."""
    copies = tuple(
        replace(copy, searched=min(copy.searched, max_segments), committed=None) for copy in index.copies
    )
    return replace(index, copies=copies)


def put_right(index: BulkIndex, wanted: Mapping[str, str | None]) -> BulkIndex:
    """The index with these settings."""
    replicas = wanted.get("index.number_of_replicas")
    return replace(
        index,
        replicas=index.replicas if replicas is None else int(replicas),
        refresh_interval=wanted.get("index.refresh_interval", index.refresh_interval),
        translog_durability=wanted.get("index.translog.durability", index.translog_durability),
    )


def _replicas(view: ClusterView, primary: ShardCopy, count: int) -> tuple[ShardCopy, ...]:
    places = [node.name for node in view.nodes if node.holds_data and node.name != primary.node]
    return tuple(
        ShardCopy(shard=primary.shard, primary=False, state=CopyState.STARTED, node=place)
        for place in places[:count]
    )


def _without(view: ClusterView, name: NodeName) -> dict[ShardId, tuple[ShardCopy, ...]]:
    """The shards of a node after it has left: a replica elsewhere is promoted for each primary it had.

    The copies stay assigned to the sleeping node as unassigned ones do in effect: not started, and back
    with it.
    """
    changed, table = {}, view.routing.table
    for shard, gone in view.routing.on(name).items():
        copies = table[shard]
        others = (copy for copy in reversed(copies) if copy.node != name and copy.started)
        heir = next(others, None) if gone.primary else None
        changed[shard] = tuple(
            [
                _in_state(copy, copy.state, primary=True)
                if copy is heir
                else _in_state(copy, CopyState.UNASSIGNED, primary=copy.primary and heir is None)
                if copy.node == name
                else copy
                for copy in copies
            ]
        )
    return changed


def _in_state(copy: ShardCopy, state: CopyState, *, primary: bool) -> ShardCopy:
    """The copy in this state; one that has started moves nowhere. `replace` would take twice as long."""
    return ShardCopy(
        shard=copy.shard,
        primary=primary,
        state=state,
        node=copy.node,
        relocating_to=None if state is CopyState.STARTED else copy.relocating_to,
        allocation_id=copy.allocation_id,
        unassigned_reason=copy.unassigned_reason,
        failed_attempts=copy.failed_attempts,
        from_snapshot=copy.from_snapshot,
    )
