"""The program's view of a simulated Riak cluster: the same readings that the real adapter makes.

`transfers` reports the same as recorded, including its traps: while a node is down no transfer is active.
"""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.model.cluster import Health, Incarnation, Node, NodeName
from orchestrator.model.observation import Activity, ClusterView, HealthView, Look, SettingsView
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.model.riak import (
    HASH_SPACE,
    ActiveTransfer,
    Availability,
    ClusterMember,
    ClusterStatus,
    Membership,
    NodeStats,
    PartitionCount,
    RiakView,
    RingReady,
    ServiceWait,
    SignsOfLife,
    Transfers,
    is_limit,
)
from orchestrator.ports import ClusterReadings
from orchestrator.riak.rules.recovery import impossible
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.riak import RiakWorld
from orchestrator.simulation.riak_parts import SimVnodes

_ASKED = 2
"""Number of nodes that are read for their transfers."""


def readings(world: RiakWorld, look: Collection[Look], *, settled: bool = True) -> ClusterReadings:
    """The requested parts, as they are now; Unknown if no node of the cluster answers."""
    if not world.up:
        gone = Unknown(reason="no node answers: Node did not respond to ping!")
        return ClusterReadings(cluster=gone, settings=gone, health=gone, activity=gone)
    return ClusterReadings(
        cluster=cluster(world, look) if Look.CLUSTER in look else NOT_READ,
        settings=_settings(world, look) if Look.SETTINGS in look else NOT_READ,
        health=_health(world, settled=settled) if Look.HEALTH in look else NOT_READ,
        recoveries=() if Look.RECOVERIES in look else NOT_READ,
        activity=Activity() if Look.ACTIVITY in look else NOT_READ,
        disks={} if Look.DISKS in look else NOT_READ,
    )


def _settings(world: RiakWorld, look: Collection[Look]) -> SettingsView:
    limits = {key: value for key, value in world.settings()[1].items() if is_limit(key)}
    return SettingsView(transient=world.paced() if Look.PACE in look and _paced(world) else limits)


def _health(world: RiakWorld, *, settled: bool) -> HealthView:
    return HealthView(
        status=Health.GREEN,
        settled=settled,
        nodes=len(world.up),
        active_shards=0,
        initializing_shards=0,
        relocating_shards=0,
        unassigned_shards=0,
        pending_tasks=0,
        oldest_task=0.0,
    )


def cluster(world: RiakWorld, look: Collection[Look]) -> ClusterView:
    """The members that are up, and their ring; built again only when something has changed."""
    made_of = (world.version, world.asked_after, frozenset(look))
    if made_of not in world.views:
        world.views = {key: view for key, view in world.views.items() if key[0] == world.version}
        world.views[made_of] = _cluster(world, look)
    return world.views[made_of]


def _cluster(world: RiakWorld, look: Collection[Look]) -> ClusterView:
    return ClusterView(
        name=world.name,
        uuid=world.uuid,
        version=_version(world),
        distribution="riak",
        state_version=world.version,
        master=world.master,
        nodes=tuple(_node(world.nodes[name]) for name in world.up),
        indices=(),
        copies=(),
        riak=_riak(world, look),
    )


def _node(node: SimNode) -> Node:
    return Node(
        name=node.name,
        node_id=node.name,
        incarnation=Incarnation(ephemeral_id=f"{node.machine}-boot-{node.boot}-pid-{4000 + node.life}"),
        roles=node.roles,
        version=node.version,
        address=node.name.partition("@")[2],
        attributes={"location": node.zone} if node.zone else {},
    )


def _riak(world: RiakWorld, look: Collection[Look]) -> RiakView:
    asked = world.up[:_ASKED]
    transfers: Reading[dict[NodeName, Reading[Transfers]]] = NOT_READ
    if Look.ACTIVITY in look or Look.RECOVERIES in look:
        transfers = dict.fromkeys(asked, _transfers(world))
    health, activity = Look.HEALTH in look, Look.ACTIVITY in look
    return RiakView(
        cluster=_cluster_status(world),
        ring_ready=_ring_ready(world) if health else NOT_READ,
        signs={name: _signs(world, name) for name in world.up} if health else {},
        transfers=transfers,
        waiting=NOT_READ if isinstance(transfers, Unknown) else _waiting(world),
        ring=world.ring if activity else NOT_READ,
        n_vals=world.n_vals if activity else NOT_READ,
        unstarted={name: _unstarted(world.vnodes[name]) for name in world.up}
        if Look.PACE in look and Look.RECOVERIES in look and not activity and _paced(world)
        else {},
    )


def _paced(world: RiakWorld) -> bool:
    """Whether this version reports its timers and the vnodes that it has not started."""
    return impossible(_version(world)) is None


def _version(world: RiakWorld) -> str:
    return min(node.version for node in world.nodes.values())


def _unstarted(vnodes: SimVnodes) -> Reading[int]:
    if vnodes.mute is not None:
        return Unknown(reason=vnodes.mute)
    return vnodes.unstarted if vnodes.listed else Unknown(reason="not listed yet", passes=True)


def _down(world: RiakWorld) -> tuple[NodeName, ...]:
    up = world.up
    return tuple(name for name in world.vnodes if name not in up)


def _share(world: RiakWorld, name: NodeName) -> float:
    return round(100 * len(world.vnodes[name].owned) / world.ring.size, 1)


def _pending(world: RiakWorld, name: NodeName) -> float | None:
    """The member's future share, if it differs from the current one."""
    if not world.moves:
        return None
    owners = list(world.ring.owners)
    for move in world.moves:
        owners[move.partition] = move.to
    return round(100 * owners.count(name) / world.ring.size, 1)


def _membership(world: RiakWorld, name: NodeName) -> Membership:
    """The member's state in the ring. A stopped member is valid, too."""
    return Membership.JOINING if name in world.joining else Membership.VALID


def _cluster_status(world: RiakWorld) -> ClusterStatus:
    """`cluster status`: the ring is ready even while a node is down, if the claimant is up."""
    up = world.up
    members = tuple(
        ClusterMember(
            node=name,
            membership=_membership(world, name),
            availability=Availability.UP if name in up else Availability.DOWN,
            claimant=name == world.master,
            ring_share=_share(world, name),
            pending_share=_pending(world, name),
            location=world.nodes[name].zone,
        )
        for name in world.vnodes
    )
    return ClusterStatus(ring_ready=_heard(world) if world.master in up else None, members=members)


def _heard(world: RiakWorld) -> bool:
    return world.agenda.now >= world.unheard_until


def _ring_ready(world: RiakWorld) -> RingReady:
    down = _down(world)
    return RingReady(agreed=not down, nodes=() if down else tuple(world.vnodes), down=down)


def _signs(world: RiakWorld, name: NodeName) -> SignsOfLife:
    vnodes = world.vnodes[name]
    fallbacks = sum(each.holder == name for each in world.fallbacks)
    runs = vnodes.running > 0 and vnodes.seen
    service = ServiceWait(
        service="riak_kv", up=runs, last="riak_kv is up" if runs else "riak_kv is not up: []"
    )
    return SignsOfLife(
        ping=True,  # even while no vnode runs
        stats=NodeStats(
            node=name,
            kv_vnodes=vnodes.running + fallbacks * (vnodes.running == len(vnodes.owned)),
            connected=frozenset(world.up) - {name},
            members=frozenset(world.vnodes),
            ring_size=world.ring.size,
            ownership=world.ring.ownership,
        ),
        service=service if name in world.asked_after else NOT_READ,
    )


def _waiting(world: RiakWorld) -> dict[NodeName, frozenset[int]]:
    """`cluster partitions`: the partitions of others on each node that is up."""
    held = {name: frozenset(f.partition for f in world.fallbacks if f.holder == name) for name in world.up}
    return {name: numbers for name, numbers in held.items() if numbers}


def _transfers(world: RiakWorld) -> Transfers:
    """`transfers`: of nodes that are down it has only the names, not their waiting data."""
    down, up = _down(world), world.up
    waiting = {name: sum(each.holder == name for each in world.fallbacks) for name in up}
    halting = {name: len(world.vnodes[name].owned) - world.vnodes[name].running for name in up}
    owners = world.ring.owners
    moving = [(move.partition, owners[move.partition], move.to) for move in world.moves if move.active]
    hinted = [
        (each.partition, each.holder, each.owner) for each in world.fallbacks if each.active or each.tried
    ]
    return Transfers(
        down=down,
        waiting=tuple(PartitionCount(node=n, partitions=count) for n, count in waiting.items() if count),
        not_running=tuple(PartitionCount(node=n, partitions=count) for n, count in halting.items() if count),
        active=tuple(
            ActiveTransfer(
                kind=kind,
                vnode="riak_kv_vnode",
                index=partition * (HASH_SPACE // world.ring.size),
                source=source,
                target=target,
            )
            for kind, found in (("hinted", hinted), ("ownership", moving))
            for partition, source, target in found
        ),
        uncontacted=down,
    )
