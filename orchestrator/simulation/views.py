"""The program's view of the world: the same readings that the real adapters make."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, Final

from orchestrator.model.cluster import (
    CopyState,
    Health,
    Incarnation,
    Index,
    Node,
    NodeName,
    ShardCopy,
    ShardId,
)
from orchestrator.model.observation import (
    EVERYTHING,
    Activity,
    ClusterView,
    Disk,
    HealthView,
    HostView,
    Look,
    Recovery,
    RunningSnapshot,
    ServiceState,
    SettingsView,
)
from orchestrator.model.reading import NOT_READ, Instant
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import installs, merges, riak_views
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.merges import HIGH_WATERMARK
from orchestrator.simulation.parts import SimCopy, SimIndex, SimNode
from orchestrator.simulation.placement import News
from orchestrator.simulation.recoveries import SimRecovery
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.ways import Ways
from orchestrator.simulation.world import World

_LOW_WATERMARK: Final = 0.85

_OF_NODE: Final = attrgetter("member_life", "roles", "version", "zone", "node_id")
_OF_INDEX: Final = attrgetter(
    "closed", "replicas", "auto_expand", "allocation_enable", "searchable_snapshot", "rules", "shrinks"
)
_OF_COPY: Final = attrgetter(
    "primary", "state", "node", "relocating_to", "allocation_id", "reason", "failed_attempts", "from_snapshot"
)
"""The inputs of the views of a node, an index and a copy."""


def readings(world: World, look: Collection[Look] = EVERYTHING, *, settled: bool = True) -> ClusterReadings:
    """The requested parts, as they are now."""
    if isinstance(world, RiakWorld):
        return riak_views.readings(world, look, settled=settled)
    return ClusterReadings(
        cluster=cluster(world) if Look.CLUSTER in look else NOT_READ,
        settings=_settings(world) if Look.SETTINGS in look else NOT_READ,
        health=health(world, settled=settled) if Look.HEALTH in look else NOT_READ,
        recoveries=recoveries(world, done=False) if Look.RECOVERIES in look else NOT_READ,
        finished=recoveries(world, done=True) if Look.FINISHED in look else NOT_READ,
        activity=_activity(world) if Look.ACTIVITY in look else NOT_READ,
        disks=_disks(world, stored=Look.STORED in look) if Look.DISKS in look else NOT_READ,
        upgrade=world.fitness if Look.UPGRADE in look else NOT_READ,
    )


def kept(world: World) -> ClusterReadings:
    """What an endpoint answers whose state has stood still: every part as it is now, whenever it is asked."""
    return readings(world, EVERYTHING | {Look.UPGRADE, Look.FINISHED}, settled=False)


def _settings(world: World) -> SettingsView:
    return SettingsView(
        persistent=dict(world.persistent),
        transient=dict(world.transient),
        files=dict(world.files),
        resets=world.ways.resets,
        allocation_flags=world.ways.allocation_flags,
    )


def _activity(world: World) -> Activity:
    return Activity(
        snapshots=(
            *(RunningSnapshot(name=name) for name in world.snapshots),
            *(
                RunningSnapshot(name=name, aborted=True, since=0.0, nodes=(node,))
                for name, node in world.aborted.items()
            ),
        ),
        merges=frozenset(world.merges.union(merges.at_work(world))),
        reindexes=frozenset(world.reindexes),
        unread=frozenset(_silent(world)),
    )


def _disks(world: World, *, stored: bool) -> dict[NodeName, Disk]:
    answering, held = world.nodes.keys() - _silent(world), Counter[NodeName]()
    for _, shard in shards_of(world) if stored else ():
        for copy in shard.copies:
            if copy.node is not None:
                held[copy.node] += shard.size
    return {
        name: _disk(merges.used(world, name), merges.room(world, name), held[name] if stored else None)
        for name in world.nodes
        if name in answering
    }


def _silent(world: World) -> set[NodeName]:
    """Paused members: they do not answer any request."""
    return {
        name for name, node in world.nodes.items() if node.joined and world.agenda.now < node.paused_until
    }


def _disk(used: float, room: int, stored: int | None) -> Disk:
    return Disk(
        used_share=used,
        over_low=used > _LOW_WATERMARK,
        over_high=used > HIGH_WATERMARK,
        room_bytes=room,
        stored_bytes=stored,
    )


def cluster(world: World) -> ClusterView:
    """The cluster state of the master (or, without one, of any node).

    Unchanged views are reused, because whole runs make some hundred readings.
    """
    if isinstance(world, RiakWorld):
        return riak_views.cluster(world, EVERYTHING)
    news, made_of = world.placement.news(), _made_of(world)
    if world.shown is None or news.whole:
        world.shown = (made_of, _whole(world))
    elif news or world.shown[0] != made_of:
        world.shown = (made_of, _carried(world, *world.shown, news))
    return world.shown[1]


def _made_of(world: World) -> tuple[object, ...]:
    """The inputs of the view of a cluster besides its parts."""
    return (world.version, world.master, frozenset(world.voters), tuple(world.exclusions))


def _whole(world: World) -> ClusterView:
    """The view made of every part."""
    return ClusterView(
        name=world.name,
        uuid=world.uuid,
        version=min(node.version for node in world.nodes.values()),
        distribution=world.distribution,
        state_version=world.version,
        master=world.master,
        nodes=tuple([_member(node, world.zone_attribute) for node in world.placement.members.nodes]),
        indices=tuple([_index(index, world.ways) for index in world.indices.values()]),
        copies=tuple([_copy(copy, world.ways) for _, shard in shards_of(world) for copy in shard.copies]),
        voters=frozenset(world.nodes[name].node_id for name in _voters(world)),
        voting_by_count=world.ways.voting_by_count,
        voting_exclusions=tuple(world.exclusions),
    )


def _carried(world: World, made_of: object, before: ClusterView, news: News) -> ClusterView:
    """The earlier view with what changed since. It shares everything else, with what was derived from it."""
    shards: dict[ShardId, tuple[ShardCopy, ...]] = {}
    for _, shard in news.shards:
        copies = tuple([_copy(copy, world.ways) for copy in shard.copies])
        if copies != before.shards.get(shard.id):
            shards[shard.id] = copies
    fields: dict[str, object] = {}
    made = [_index(index, world.ways) for index in news.indices]
    if any(index is not before.metadata.get(index.uuid) for index in made):
        fields["indices"] = tuple([_index_as_shown(index, world.ways) for index in world.indices.values()])
    members = None
    if news.nodes:
        shown = [_member(node, world.zone_attribute) for node in world.placement.members.nodes]
        members = {member.name: member for member in shown}
        fields["version"] = min(node.version for node in world.nodes.values())
    if not shards and not fields and made_of == _made_of(world):
        return before
    return before.changed(
        shards,
        members,
        state_version=world.version,
        master=world.master,
        voters=frozenset(world.nodes[name].node_id for name in _voters(world)),
        voting_exclusions=tuple(world.exclusions),
        **fields,
    )


def _voters(world: World) -> Collection[NodeName]:
    """The voters that are listed: without a voting configuration only members are."""
    if not world.ways.voting_by_count:
        return world.voters
    return [name for name in world.voters if world.nodes[name].joined]


def _member(node: SimNode, zone_attribute: str) -> Node:
    made_of = _OF_NODE(node)
    if node.shown is None or node.shown[0] != made_of:
        life = node.member_life
        member = Node(
            name=node.name,
            node_id=node.node_id,
            incarnation=Incarnation(ephemeral_id=f"{node.name}-life-{life}", started_at_ms=life),
            roles=node.roles,
            version=node.version,
            plugins=node.disk.loaded,
            address=node.place,
            host=node.host,
            attributes={zone_attribute: node.zone} if node.zone else {},
        )
        node.shown = (made_of, member)
    return node.shown[1]


def _index(index: SimIndex, ways: Ways) -> Index:
    in_sync = tuple([frozenset(shard.in_sync) for shard in index.shards])
    made_of = (*_OF_INDEX(index), in_sync)
    if index.shown is None or index.shown[0] != made_of:
        metadata = Index(
            name=index.name,
            uuid=index.uuid,
            open=not index.closed,
            replicas=index.replicas,
            auto_expand=index.auto_expand,
            allocation_enable=index.allocation_enable,
            searchable_snapshot=index.searchable_snapshot,
            filters=_filters(index.rules),
            shrinks=index.shrinks,
            in_sync={shard.id.number: ids for shard, ids in zip(index.shards, in_sync, strict=True)}
            if ways.in_sync
            else None,
        )
        index.shown = (made_of, metadata)
    return index.shown[1]


def _filters(rules: Mapping[str, str]) -> str:
    """Rules of an index in the form of the cluster state."""
    found: dict[str, Any] = {}
    for key, value in sorted(rules.items()):
        kind, _, attribute = key.partition(".")
        found.setdefault(kind, {}).update({attribute: value}) if attribute else found.update({kind: value})
    return json.dumps(found, sort_keys=True) if found else ""


def _index_as_shown(index: SimIndex, ways: Ways) -> Index:
    """The view of an index that has not changed since it was made, if it was."""
    return index.shown[1] if index.shown is not None else _index(index, ways)


def _copy(copy: SimCopy, ways: Ways) -> ShardCopy:
    made_of = _OF_COPY(copy)
    if copy.shown is None or copy.shown[0] != made_of:
        entry = ShardCopy(
            shard=copy.shard,
            primary=copy.primary,
            state=copy.state,
            node=copy.node,
            relocating_to=copy.relocating_to,
            allocation_id=copy.allocation_id,
            unassigned_reason=copy.reason if ways.delays and not copy.serves else None,
            failed_attempts=copy.failed_attempts,
            from_snapshot=copy.from_snapshot is not None,
        )
        copy.shown = (made_of, entry)
    return copy.shown[1]


def health(world: World, *, settled: bool) -> HealthView:
    """The cluster's own summary."""
    counts, status = world.placement.states, Health.GREEN
    if counts[CopyState.INITIALIZING] or counts[CopyState.UNASSIGNED]:
        status = Health.RED if world.placement.red else Health.YELLOW
    relocating = counts[CopyState.RELOCATING]
    return HealthView(
        status=status,
        settled=settled and world.master is not None,
        nodes=len(world.placement.members.nodes),
        active_shards=counts[CopyState.STARTED] + relocating,
        initializing_shards=counts[CopyState.INITIALIZING],
        relocating_shards=relocating,
        unassigned_shards=counts[CopyState.UNASSIGNED],
        pending_tasks=len(world.late_writes),
        oldest_task=world.oldest_task,
    )


def active(world: World) -> int:
    """Number of copies that serve requests."""
    counts = world.placement.states
    return counts[CopyState.STARTED] + counts[CopyState.RELOCATING]


def recoveries(world: World, *, done: bool) -> tuple[Recovery, ...]:
    """The latest recoveries that have ended, or those that run: they have copied by the time passed."""
    now = world.agenda.now
    found = [one for one in world.recoveries if one.done] if done else world.recoveries.running
    return tuple([_recovery(recovery, now) for recovery in found])


def _recovery(recovery: SimRecovery, now: Instant) -> Recovery:
    if recovery.shown is not None:
        return recovery.shown
    passed = (now - recovery.began) / max(recovery.ends - recovery.began, 0.001)
    to_copy = recovery.total - recovery.reused
    shown = Recovery(
        shard=recovery.shard,
        target=recovery.target,
        source=recovery.source,
        stage="DONE" if recovery.done else "INDEX",
        bytes_total=recovery.total,
        bytes_reused=recovery.reused,
        bytes_copied=to_copy if recovery.done else int(to_copy * min(1.0, passed)),
        operations_replayed=recovery.operations,
        done=recovery.done,
    )
    recovery.shown = shown if recovery.done else None
    return shown


def host(
    node: SimNode, *, rights: bool, reboot: bool = False, may: bool = True, now: Instant = 0.0
) -> HostView:
    """The state from the machine's service manager and kernel; `may`: whether sudo is allowed."""
    failed = node.service is ServiceState.FAILED
    return HostView(
        service=node.service,
        detail="failed (Result: exit-code)" if failed else node.service.value,
        boot_id=f"{node.machine}-boot-{node.boot}",
        machine_id=f"{node.machine}-machine",
        may_control=may if rights else None,
        may_reboot=(may and node.may_reboot) if rights and reboot else None,
        install=installs.view(node),
        said=("unknown setting [indices.breaker.totl.limit]",) if failed and node.failed_starts else (),
        at_work=("puppet (process 812)",) if node.disk.managed[0] <= now < node.disk.managed[1] else (),
    )
