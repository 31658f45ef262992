"""Clusters whose recoveries last, and what to ask of a run over them."""

from __future__ import annotations

from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.event import ActionSent, WaveStarted
from orchestrator.model.policy import Policy
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.world import World
from tests.simulation.play import policy
from tests.simulation.program import Simulation
from tests.simulation.zones import zoned

SLOW = 20 << 30
"""A share of it is copied when its node returns: a minute at the raised limit, four absences of a node."""


def overlapped(**changes: object) -> Policy:
    """The shipped playbook with `overlap_recovery: true`."""
    return policy(**{"overlap_recovery": True, "zone_attribute": "zone", **changes})


def slow(nodes: int = 6, *, most: int = 1, seed: int = 0) -> World:
    """Nodes in three zones; each returning copy takes a minute."""
    return slowed(zoned(nodes, most=most, seed=seed))


def slowed(world: World) -> World:
    """The world with nothing kept of what a copy missed: its files are copied, and that lasts."""
    for index, shard in shards_of(world):
        index.written, index.keeps, shard.size = True, 0.0, SLOW
    return world


def threefold() -> World:
    """Three nodes with a copy of everything: any two can be spared but for what they recover from."""
    world = World()
    for number in range(1, 4):
        world.add_node(f"es{number}", zone="abc"[number - 1])
    world.add_index("logs", shards=3, replicas=2)
    return slowed(world)


def halves() -> World:
    """Four zones of two; the copies of an index are in a and b, or in c and d."""
    world = World(allowed_down=2)
    for number in range(1, 9):
        world.add_node(f"es{number}", zone="abcd"[(number - 1) % 4])
    world.add_index("left", shards=2, places=["es1", "es2", "es5", "es6"])
    world.add_index("right", shards=2, places=["es3", "es4", "es7", "es8"])
    return slowed(world)


def stops(simulation: Simulation) -> list[tuple[float, NodeName]]:
    """When each node was asked to stop."""
    return [
        (record.at, record.event.action.node)
        for record in simulation.journal.records
        if isinstance(record.event, ActionSent) and isinstance(record.event.action, StopNode)
    ]


def waves(simulation: Simulation) -> list[tuple[str, ...]]:
    """The waves in their order."""
    return [r.event.wave.nodes for r in simulation.journal.records if isinstance(r.event, WaveStarted)]


def under_way(simulation: Simulation, at: float) -> list[tuple[ShardId, NodeName]]:
    """What recovered at that moment, and where to: of ground truth."""
    return [(one.shard, one.target) for one in simulation.world.recoveries if one.began < at < one.ends]


def on_disk(world: World, shard: ShardId) -> set[NodeName]:
    """The nodes that have a copy of the shard, which none of these runs moves."""
    return {name for _, one in shards_of(world) if one.id == shard for name in one.on_disk}
