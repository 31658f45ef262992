"""What the program may see of the world: the same readings that the real adapters make."""

from __future__ import annotations

from typing import Final

from orchestrator.model.cluster import (
    CopyState,
    Health,
    Incarnation,
    Index,
    Node,
    ShardCopy,
)
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    Disk,
    HealthView,
    HostView,
    Recovery,
    ServiceState,
    SettingsView,
)
from orchestrator.ports import ClusterReadings
from orchestrator.simulation.allocation import shards_of
from orchestrator.simulation.parts import SimCopy, SimNode
from orchestrator.simulation.world import World

_LOW_WATERMARK: Final = 0.85
_HIGH_WATERMARK: Final = 0.9


def readings(world: World, *, settled: bool = True) -> ClusterReadings:
    """Everything, as it is now."""
    return ClusterReadings(
        cluster=cluster(world),
        settings=SettingsView(
            persistent=dict(world.persistent), transient=dict(world.transient), files=dict(world.files)
        ),
        health=health(world, settled=settled),
        recoveries=recoveries(world),
        activity=Activity(snapshots=world.snapshots, merges=frozenset(world.merges)),
        disks={name: _disk(world.disks.get(name, 0.4)) for name in world.nodes},
    )


def cluster(world: World) -> ClusterView:
    """The cluster state, as the master (or, without one, any node) has it."""
    return ClusterView(
        name=world.name,
        uuid=world.uuid,
        version=min(node.version for node in world.nodes.values()),
        distribution="elasticsearch",
        state_version=world.version,
        master=world.master,
        nodes=tuple(_member(node) for node in world.nodes.values() if node.joined),
        indices=tuple(
            Index(
                name=index.name,
                uuid=index.uuid,
                replicas=index.replicas,
                in_sync={shard.id.number: frozenset(shard.in_sync) for shard in index.shards},
            )
            for index in world.indices.values()
        ),
        copies=tuple(_copy(copy) for _, shard in shards_of(world) for copy in shard.copies),
        voters=frozenset(world.nodes[name].node_id for name in world.voters),
        voting_exclusions=tuple(world.exclusions),
    )


def _disk(used: float) -> Disk:
    return Disk(used_share=used, over_low=used > _LOW_WATERMARK, over_high=used > _HIGH_WATERMARK)


def _member(node: SimNode) -> Node:
    life = node.member_life
    return Node(
        name=node.name,
        node_id=node.node_id,
        incarnation=Incarnation(ephemeral_id=f"{node.name}-life-{life}", started_at_ms=life),
        roles=node.roles,
        version=node.version,
        address=f"{node.name}.example",
        attributes={"zone": node.zone} if node.zone else {},
    )


def _copy(copy: SimCopy) -> ShardCopy:
    return ShardCopy(
        shard=copy.shard,
        primary=copy.primary,
        state=copy.state,
        node=copy.node,
        relocating_to=copy.relocating_to,
        allocation_id=copy.allocation_id,
        unassigned_reason=copy.reason if copy.state is CopyState.UNASSIGNED else None,
        failed_attempts=copy.failed_attempts,
    )


def health(world: World, *, settled: bool) -> HealthView:
    """The cluster's own summary."""
    states = [copy.state for _, shard in shards_of(world) for copy in shard.copies]
    primaries = [shard.primary.state for _, shard in shards_of(world)]
    serving = (CopyState.STARTED, CopyState.RELOCATING)
    if any(state not in serving for state in primaries):
        status = Health.RED
    elif any(state not in serving for state in states):
        status = Health.YELLOW
    else:
        status = Health.GREEN
    return HealthView(
        status=status,
        settled=settled and world.master is not None,
        nodes=sum(node.joined for node in world.nodes.values()),
        active_shards=sum(state in serving for state in states),
        initializing_shards=states.count(CopyState.INITIALIZING),
        relocating_shards=states.count(CopyState.RELOCATING),
        unassigned_shards=states.count(CopyState.UNASSIGNED),
        pending_tasks=len(world.late_writes),
        oldest_task=world.oldest_task,
    )


def recoveries(world: World) -> tuple[Recovery, ...]:
    """The latest recovery of each copy; one under way has copied its share of the time passed."""
    now = world.agenda.now
    found = []
    for recovery in world.recoveries:
        passed = (now - recovery.began) / max(recovery.ends - recovery.began, 0.001)
        to_copy = recovery.total - recovery.reused
        found.append(
            Recovery(
                shard=recovery.shard,
                target=recovery.target,
                source=recovery.source,
                stage="DONE" if recovery.done else "INDEX",
                bytes_total=recovery.total,
                bytes_reused=recovery.reused,
                bytes_copied=to_copy if recovery.done else int(to_copy * min(1.0, passed)),
                operations_replayed=0,
                done=recovery.done,
            )
        )
    return tuple(found)


def host(node: SimNode, *, rights: bool) -> HostView:
    """What the machine's service manager and kernel say."""
    failed = node.service is ServiceState.FAILED
    return HostView(
        service=node.service,
        detail="failed (Result: exit-code)" if failed else node.service.value,
        boot_id=f"{node.name}-boot-{node.boot}",
        machine_id=f"{node.name}-machine",
        may_control=True if rights else None,
    )
