"""The optimistic world that plans are made in: every action succeeds at once.

It begins with a real observation and answers the same decisions as a real cluster, so a plan shows the exact
steps of a run. It has no durations: `estimate.py` adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from orchestrator.engine.kind import KindOfCluster
from orchestrator.model.action import (
    Action,
    RebootHost,
    RunInstall,
    StartNode,
    StopNode,
    WriteSettings,
)
from orchestrator.model.cluster import CopyState, Incarnation, Node, NodeName, ShardCopy, ShardId
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisticWorld:
    """What would be observed after the actions so far."""

    kind: KindOfCluster
    seen: Observation  # the last observation, changed by what was done
    # members that are down, as they will come back
    down: Mapping[NodeName, Node] = field(default_factory=dict)
    lives: int = 0  # counts the lives that this world has given out
    # the last install step of each node for which one was begun
    installed: Mapping[NodeName, RunInstall] = field(default_factory=dict)

    def at(self, now: Instant) -> Observation:
        """The current observation. The lease counts as ours: a plan takes none."""
        return replace(self.seen, at=now, lease=LeaseView(held=True, holder="this plan", refreshed=0.0))

    def after(self, *actions: Action) -> OptimisticWorld:
        """The world in which these actions have succeeded. Many nodes stop and start at the cost of one."""
        world = self
        for _, together in groupby(actions, key=type):
            same, view = list(together), world.seen.cluster
            if isinstance(view, Unknown):
                return world
            match same[0]:
                case StopNode():
                    world = world.stopped(view, [one.node for one in same if isinstance(one, StopNode)])
                case StartNode():
                    world = world.started(view, [one.node for one in same if isinstance(one, StartNode)])
                case RebootHost():
                    world = world.booted(view, [one for one in same if isinstance(one, RebootHost)])
                case _:
                    for one in same:
                        world = world.done(one)
        return world

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
        return replace(self, seen=replace(self.seen, cluster=view.changed({}, nodes=nodes)))

    def without(self, lost: Iterable[MissingCopy]) -> OptimisticWorld:
        """The world in which so many copies of these shards do not come back with the nodes that are down."""
        view = self.seen.cluster
        if isinstance(view, Unknown):
            return self
        changed: dict[ShardId, _Copies] = {}
        for one in lost:
            shard, left = ShardId(one.index, one.index_uuid, one.number), one.count
            copies = list(changed.get(shard) or view.shards[shard])
            for at, copy in enumerate(copies):
                if left and copy.node in self.down:
                    copies[at], left = copy._replace(node=None), left - 1
            changed[shard] = tuple(copies)
        return replace(self, seen=replace(self.seen, cluster=view.changed(changed))) if changed else self

    # What the actions do ------------------------------------

    def done(self, action: Action) -> OptimisticWorld:
        """The world in which this one has succeeded. Most change nothing that a plan reads."""
        match action:
            case WriteSettings():
                return self._written(action)
            case RunInstall(node=name, ticket=ticket):
                world = self.on_hosts([name], install=InstallView(ticket=ticket, state=InstallState.DONE))
                return replace(world, installed={**self.installed, name: action})
            case _:
                return replace(self, seen=self.kind.played(self.seen, action))

    def stopped(self, view: ClusterView, names: Iterable[NodeName]) -> OptimisticWorld:
        """The world in which these nodes are down, one after the other."""
        members, master, stopped = dict(view.members), view.master, dict[NodeName, Node]()
        for name in names:
            member = members.pop(name, None)
            if member is None:
                continue
            if master == name:
                master = next((node.name for node in members.values() if self.kind.may_lead(node)), None)
            stopped[name] = member
        if not stopped:
            return self
        view = view.changed(_of_nodes(view, stopped, _left_behind), members, master=master)
        world = self.on_hosts(stopped, service=ServiceState.STOPPED, detail=ServiceState.STOPPED.value)
        return replace(world, seen=replace(world.seen, cluster=view), down={**self.down, **stopped})

    def started(self, view: ClusterView, names: Iterable[NodeName]) -> OptimisticWorld:
        """The world in which these nodes are up again, one after the other."""
        members, down, started = dict(view.members), dict(self.down), list[NodeName]()
        for name in names:
            member = down.pop(name, None)
            if member is None:
                continue
            started.append(name)
            life, step = self.lives + len(started), self.installed.get(name)
            members[name] = replace(
                member,
                incarnation=Incarnation(ephemeral_id=f"planned-{life}", started_at_ms=life),
                version=step.target if step else member.version,
                plugins=(member.plugins or frozenset()).union(step.plugins) if step else member.plugins,
            )
        if started:
            view = view.changed(_of_nodes(view, started, _back_again), members)
        world = self.on_hosts(names, service=ServiceState.RUNNING, detail=ServiceState.RUNNING.value)
        seen = replace(world.seen, cluster=view)
        if started:
            seen = self.kind.played(seen, StartNode(node=started[-1]))
        return replace(world, seen=seen, down=down, lives=self.lives + len(started))

    def booted(self, view: ClusterView, reboots: Sequence[RebootHost]) -> OptimisticWorld:
        """The world in which these machines have other boot ids, and their nodes are up again."""
        world = self.started(view, [name for reboot in reboots for name in reboot.nodes])
        for number, reboot in enumerate(reboots, self.lives):
            world = world.on_hosts(reboot.nodes, boot_id=f"planned-{number}")
        return world

    def on_hosts(self, names: Iterable[NodeName], **changes: Any) -> OptimisticWorld:
        """The world in which the readings of these nodes' hosts are changed so."""
        hosts = dict(self.seen.hosts)
        for name in names:
            host = hosts.get(name)
            if isinstance(host, HostView):
                hosts[name] = replace(host, **changes)
        return replace(self, seen=replace(self.seen, hosts=hosts))

    def _written(self, action: WriteSettings) -> OptimisticWorld:
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


_Copies = tuple[ShardCopy, ...]


def _of_nodes(
    view: ClusterView, names: Iterable[NodeName], change: Callable[[_Copies, NodeName], _Copies]
) -> dict[ShardId, _Copies]:
    """The shards of these nodes after a change for each node in turn; the shards of the last one last."""
    changed: dict[ShardId, _Copies] = {}
    for name in names:
        for shard in view.routing.by_node.get(name, ()):
            changed[shard] = change(changed.pop(shard, ()) or view.shards[shard], name)
    return changed


def _left_behind(copies: _Copies, name: NodeName) -> _Copies:
    """The copies of a shard after their node has left: a replica elsewhere is promoted if it had the primary.

    The copies stay assigned to the node that is down as unassigned ones do in effect: not started, and back
    with it.
    """
    heirs = [at for at, copy in enumerate(copies) if copy.started and copy.node != name]
    heir = heirs[-1] if heirs and any(copy.primary for copy in copies if copy.node == name) else None
    after = [
        copy._replace(state=CopyState.UNASSIGNED, primary=copy.primary and heir is None)
        if copy.node == name
        else copy
        for copy in copies
    ]
    if heir is not None:
        after[heir] = after[heir]._replace(primary=True)
    return tuple(after)


def _back_again(copies: _Copies, name: NodeName) -> _Copies:
    """The copies of a shard after their node has come back with its copy: started, they move nowhere."""
    return tuple(
        copy._replace(state=CopyState.STARTED, relocating_to=None) if copy.node == name else copy
        for copy in copies
    )
