"""The optimistic world that plans are made in: every action succeeds at once.

It begins with a real observation and answers the same decisions as a real cluster, so a plan shows the exact
steps of a run. It has no durations: `estimate.py` adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, assert_never

from orchestrator.engine.kinds.elasticsearch.settings import awareness_of
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
from orchestrator.model.cluster import SERVING, CopyState, Incarnation, Node, NodeName, ShardCopy, ShardId
from orchestrator.model.merging import BulkIndex
from orchestrator.model.observation import (
    ClusterView,
    HostView,
    LeaseView,
    Level,
    MissingCopy,
    Observation,
    ServiceState,
    SettingValue,
)
from orchestrator.model.reading import Instant, Unknown
from orchestrator.model.upgrade import InstallState, InstallView

_STARTED: Final = CopyState.STARTED
_UNASSIGNED: Final = CopyState.UNASSIGNED


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

    def after_all(self, actions: Iterable[Action]) -> OptimisticWorld:
        """The world in which these actions have succeeded. Many nodes stop and start at the cost of one."""
        world = self
        for kind, same in groupby(actions, key=type):
            view, group = world.seen.cluster, tuple(same)
            names = [action.node for action in group if isinstance(action, (StopNode, StartNode))]
            if names and not isinstance(view, Unknown) and view.riak is None:
                world = world.stopped(view, names) if kind is StopNode else world.started(view, names)
            else:
                for action in group:
                    world = world.after(action)
        return world

    def after(self, action: Action) -> OptimisticWorld:
        """The world in which the action has succeeded, at once."""
        view = self.seen.cluster
        if isinstance(view, Unknown):
            return self
        match action:
            case StopNode(node=name):
                return self.stopped(view, [name])
            case StartNode(node=name):
                return self.started(view, [name])
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

    def service(self, names: Iterable[NodeName], state: ServiceState) -> OptimisticWorld:
        """The world in which the services of these nodes are in that state."""
        hosts = dict(self.seen.hosts)
        for name in names:
            host = hosts.get(name)
            if isinstance(host, HostView):
                hosts[name] = replace(host, service=state, detail=state.value)
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

    def stopped(self, view: ClusterView, names: Iterable[NodeName]) -> OptimisticWorld:
        """The world in which these nodes are down, one after the other."""
        members, asleep, master = dict(view.members), dict(self.asleep), view.master
        changed, stopped = dict[ShardId, tuple[ShardCopy, ...]](), list[NodeName]()
        for name in names:
            member = members.pop(name, None)
            if member is None:
                continue
            if master == name:  # each of Riak's nodes can be the claimant
                eligible = (node.name for node in members.values() if node.master_eligible or view.riak)
                master = next(eligible, None)
            _change(changed, view, name, _left_behind)
            asleep[name] = member
            stopped.append(name)
        if stopped:
            view = view.changed(changed, members, master=master)
        world = replace(self, seen=replace(self.seen, cluster=view), asleep=asleep)
        return world.service(stopped, ServiceState.STOPPED)

    def started(self, view: ClusterView, names: Sequence[NodeName]) -> OptimisticWorld:
        """The world in which these nodes are up again, one after the other, of Riak's only one."""
        members, asleep, lives = dict(view.members), dict(self.asleep), self.lives
        changed = dict[ShardId, tuple[ShardCopy, ...]]()
        for name in names:
            member = asleep.pop(name, None)
            if member is None:
                continue
            lives, step = lives + 1, self.installed.get(name)
            members[name] = replace(
                member,
                incarnation=Incarnation(ephemeral_id=f"planned-{lives}", started_at_ms=lives),
                version=step.target if step else member.version,
                plugins=(member.plugins or frozenset()).union(step.plugins) if step else member.plugins,
            )
            _change(changed, view, name, _back_again)
            if view.riak is not None:
                view = view.changed(changed, members)
                view = view.changed({}, riak=just_back(view, name, self.seen.settings))
        if lives > self.lives and view.riak is None:
            view = view.changed(changed, members)
        world = replace(self, seen=replace(self.seen, cluster=view), asleep=asleep, lives=lives)
        return world.service(names, ServiceState.RUNNING)

    def without(self, lost: Iterable[MissingCopy]) -> OptimisticWorld:
        """The world in which so many copies of these shards do not come back with the nodes that are down."""
        view = self.seen.cluster
        if isinstance(view, Unknown):
            return self
        changed: dict[ShardId, tuple[ShardCopy, ...]] = {}
        for one in lost:
            shard, left = ShardId(one.index, one.index_uuid, one.number), one.count
            copies = list(changed.get(shard) or view.shards[shard])
            for at, copy in enumerate(copies):
                if left and copy.node in self.asleep:
                    copies[at], left = copy._replace(node=None), left - 1
            changed[shard] = tuple(copies)
        return replace(self, seen=replace(self.seen, cluster=view.changed(changed))) if changed else self

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
                for each in (copy, *_replicas(self.seen, view, copy, action.wanted))
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


def _replicas(seen: Observation, view: ClusterView, primary: ShardCopy, count: int) -> tuple[ShardCopy, ...]:
    """New replicas, as awareness places them: first where no copy has the same value of an attribute."""
    settings = seen.settings
    attributes = () if isinstance(settings, Unknown) else awareness_of(settings)[1].attributes
    used = [node for node in view.nodes if node.name == primary.node]

    def alike(node: Node) -> int:
        return sum(
            node.attributes.get(each) == other.attributes.get(each) for each in attributes for other in used
        )

    free, places = [n for n in view.nodes if n.holds_data and n.name != primary.node], list[NodeName]()
    while free and len(places) < count:
        used.append(free.pop(free.index(min(free, key=alike))))
        places.append(used[-1].name)
    return tuple(
        ShardCopy(shard=primary.shard, primary=False, state=CopyState.STARTED, node=place) for place in places
    )


_Copies = tuple[ShardCopy, ...]


def _change(
    changed: dict[ShardId, _Copies],
    view: ClusterView,
    name: NodeName,
    change: Callable[[_Copies, NodeName], _Copies],
) -> None:
    """Add this change of the shards of a node to earlier ones; the latest change is the last."""
    table = view.shards
    for shard in view.routing.by_node.get(name, ()):
        before = changed.pop(shard, None)
        changed[shard] = change(table[shard] if before is None else before, name)


def _left_behind(copies: _Copies, name: NodeName) -> _Copies:
    """The copies of a shard after their node has left: a replica elsewhere is promoted if it had the primary.

    The copies stay assigned to the sleeping node as unassigned ones do in effect: not started, and back
    with it.
    """
    after, heir = list(copies), None
    for at, copy in enumerate(copies):
        if copy.node != name:
            continue
        primary = copy.primary
        if primary:
            heir = _heir(copies, name) if heir is None else heir
            primary = heir is None
        after[at] = _in_state(copy, _UNASSIGNED, primary=primary)
    if heir is not None:
        after[heir] = _in_state(copies[heir], copies[heir].state, primary=True)
    return tuple(after)


def _heir(copies: _Copies, name: NodeName) -> int | None:
    """The place of the copy that becomes the primary without this node; None when none can."""
    for at in range(len(copies) - 1, -1, -1):
        if copies[at].state in SERVING and copies[at].node != name:
            return at
    return None


def _back_again(copies: _Copies, name: NodeName) -> _Copies:
    """The copies of a shard after their node has come back with its copy."""
    return tuple(
        [_in_state(copy, _STARTED, primary=copy.primary) if copy.node == name else copy for copy in copies]
    )


def _in_state(copy: ShardCopy, state: CopyState, *, primary: bool) -> ShardCopy:
    """The copy in this state; one that has started moves nowhere.

    Made as the tuple that it is: a plan makes several of each copy of a cluster.
    """
    shard, _, _, node, to, allocation, reason, attempts, snapshot = copy
    to = None if state is _STARTED else to
    made = (shard, primary, state, node, to, allocation, reason, attempts, snapshot)
    return tuple.__new__(ShardCopy, made)
