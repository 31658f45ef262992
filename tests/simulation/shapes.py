"""Clusters left to chance: 3 to 60 nodes in zones and roles, with indices of many shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from orchestrator.elasticsearch.rules.settings import AWARENESS, BANDWIDTH, FORCED_AWARENESS
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, Role
from orchestrator.model.observation import Level
from orchestrator.simulation import allocation, deciders, segments
from orchestrator.simulation.world import World

_SIZES = ((0.6, 3, 5), (0.88, 6, 9), (0.97, 10, 20), (1.0, 21, 60))
"""Share of clusters up to there, and their nodes: large ones take long, and few nodes meet more."""

_DATA = frozenset({Role.DATA, Role.INGEST})
_VOTER = frozenset({Role.MASTER})
_HOT = frozenset({Role.DATA_HOT, Role.DATA_CONTENT})
_WARM = frozenset({Role.DATA_WARM})
_BIG = 4 << 30
_SMALL = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """A node; no roles = all of the usual ones, no machine = one of its own."""

    name: str
    zone: str | None = None
    roles: frozenset[Role] | None = None
    machine: str | None = None

    @property
    def holds_data(self) -> bool:
        return self.roles is None or any(role.value.startswith("data") for role in self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """An index and where its copies begin; `segments` of each copy where a bulk load has left them."""

    name: str
    shards: int = 1
    replicas: int = 1
    size: int = 64 << 20
    written: bool = True
    closed: bool = False
    auto_expand: str | None = None
    allocation_enable: str | None = None
    searchable: bool = False
    delay: float = 60.0
    keeps: float = 12 * 3600.0
    places: tuple[str, ...] = ()
    segments: int = 0
    refresh: str | None = None
    durability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A cluster as it is before the run."""

    nodes: tuple[NodeShape, ...]
    indices: tuple[IndexShape, ...]
    detection: float = 0.0  # seconds until the master misses a node that died
    awareness: str | None = None  # None, `spread` or `forced`
    found: tuple[tuple[Level, str, str], ...] = ()  # settings that stand there already: level, key and value

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(sorted({node.zone for node in self.nodes if node.zone is not None}))


def shape(dice: Random) -> Shape:
    """A cluster."""
    share = dice.random()
    least, most = next((low, high) for below, low, high in _SIZES if share <= below)
    nodes = _nodes(dice, dice.randint(least, most))
    zoned = len({node.zone for node in nodes}) > 1
    return Shape(
        nodes=nodes,
        indices=_indices(dice, [node.name for node in nodes if node.holds_data]),
        detection=dice.choice((0.0, 0.0, 3.0, 30.0)),
        awareness=dice.choice((None, None, "spread", "forced")) if zoned else None,
        found=_found(dice),
    )


def _nodes(dice: Random, count: int) -> tuple[NodeShape, ...]:
    zones = "abcd"[: dice.choice((1, 2, 3, 3, 3, 4))]
    lopsided, unlabelled = dice.random() < 0.25, dice.random() < 0.1
    style = dice.choice(("all", "all", "all", "dedicated", "tiers", "few voters")) if count > 5 else "all"
    nodes = []
    for number in range(1, count + 1):
        zone = None if unlabelled else dice.choice(zones) if lopsided else zones[(number - 1) % len(zones)]
        nodes.append(NodeShape(name=f"es{number}", zone=zone, roles=_roles(style, number)))
    if count > 6 and dice.random() < 0.2:
        nodes[-1] = replace(nodes[-1], roles=frozenset({Role.COORDINATING}))
    return tuple(nodes)


def in_pairs(drawn: Shape) -> Shape:
    """The same cluster with two nodes on each machine; one is left over in a zone of an odd number.

    Two of one zone, and of it two that are far apart, since copies of a shard begin on neighbours.
    """
    machines: dict[str, str] = {}
    for zone in (None, *drawn.zones):
        here = [node.name for node in drawn.nodes if node.zone == zone]
        half = len(here) // 2
        for one, other in zip(here[:half], here[half : 2 * half], strict=True):
            machines[one] = machines[other] = f"host-{one}"
    nodes = tuple(replace(node, machine=machines.get(node.name)) for node in drawn.nodes)
    return replace(drawn, nodes=nodes)


def _roles(style: str, number: int) -> frozenset[Role] | None:
    voter = number <= 3
    match style:
        case "dedicated":
            return _VOTER if voter else _DATA
        case "tiers":
            return _VOTER | _HOT if voter else (_HOT if number % 2 else _WARM)
        case "few voters":
            return None if voter else _DATA
        case _:
            return None


def _indices(dice: Random, data: list[str]) -> tuple[IndexShape, ...]:
    def places() -> tuple[str, ...]:
        if dice.random() < 0.6:
            return tuple(data)
        return tuple(dice.sample(data, len(data)))

    most = len(data) - 1
    found = [
        IndexShape(
            name="logs",
            shards=dice.randint(1, min(len(data), 12)),
            replicas=min(most, dice.choice((1, 1, 2))),
            places=places(),
        ),
        IndexShape(
            name="archive", shards=2, written=False, size=dice.choice((_SMALL, _BIG)), places=places()
        ),
    ]
    others = (
        (0.25, IndexShape(name="bare", replicas=0, places=places())),
        (0.25, IndexShape(name=".security", auto_expand="0-1", places=places())),
        (0.1, IndexShape(name=".tasks", auto_expand="0-all", replicas=most, size=_SMALL, places=tuple(data))),
        (0.2, IndexShape(name="closed", closed=True, written=False, places=places())),
        (0.2, IndexShape(name="mounted", searchable=True, replicas=0, written=False, places=places())),
        (0.15, IndexShape(name="forgetful", keeps=5.0, size=_BIG, places=places())),
        (0.15, IndexShape(name="hurried", delay=0.0, places=places())),
        (0.15, IndexShape(name="yellow", replicas=len(data), size=_SMALL, places=tuple(data))),
        (0.1, IndexShape(name="stubborn", allocation_enable="all", places=places())),
    )
    found += [index for share, index in others if dice.random() < share]
    return tuple(found)


def _found(dice: Random) -> tuple[tuple[Level, str, str], ...]:
    possible = (
        (0.5, (Level.PERSISTENT, ALLOCATION, "all")),
        (0.3, (Level.TRANSIENT, ALLOCATION, "all")),
        (0.3, (Level.TRANSIENT, BANDWIDTH, "20mb")),
        (0.2, (Level.PERSISTENT, BANDWIDTH, "60mb")),
        (0.2, (Level.PERSISTENT, "cluster.routing.rebalance.enable", "replicas")),
    )
    return tuple(setting for share, setting in possible if dice.random() < share)


def build(drawn: Shape, *, seed: int) -> World:
    """The world of that shape."""
    world = World(seed=seed)
    world.detection_seconds = drawn.detection
    for node in drawn.nodes:
        added = world.add_node(node.name, zone=node.zone, roles=node.roles)
        added.machine = node.machine or added.machine
    for wanted in drawn.indices:
        index = world.add_index(
            wanted.name,
            shards=wanted.shards,
            replicas=wanted.replicas,
            size=wanted.size,
            places=wanted.places,
            written=wanted.written,
        )
        index.closed, index.auto_expand = wanted.closed, wanted.auto_expand
        index.allocation_enable, index.searchable_snapshot = wanted.allocation_enable, wanted.searchable
        index.delay, index.keeps = wanted.delay, wanted.keeps
        index.refresh_interval, index.durability = wanted.refresh, wanted.durability
        if wanted.segments:
            segments.load(world, index, wanted.segments)
    if drawn.awareness is not None:
        world.set(Level.PERSISTENT, AWARENESS, "zone")
        if drawn.awareness == "forced":
            world.files = {**world.files, f"{FORCED_AWARENESS}zone.values": drawn.zones}
        _spread(world)
    for level, key, value in drawn.found:
        world.set(level, key, value)
    return world


def _spread(world: World) -> None:
    """Let awareness have its way: copies that it would not have put where they are go where it would."""
    for index, shard in deciders.shards_of(world):
        share = deciders.share_of_a_zone(world, index, shard)
        for copy in [copy for copy in shard.copies if not copy.primary and copy.node is not None]:
            zone = world.nodes[copy.node].zone
            if share is not None and deciders.copies_in(world, shard, zone) > share:
                shard.leave(copy.node)
                shard.in_sync -= {copy.allocation_id}
                copy.state, copy.node, copy.allocation_id = CopyState.UNASSIGNED, None, None
                copy.reason = "INDEX_CREATED"
    allocation.reroute(world)
    world.agenda.advance(3600.0)
