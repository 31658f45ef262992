"""Clusters for `--strategy zone`, and the policy that restarts them zone by zone."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.elasticsearch.rules.settings import AWARENESS, FORCED_AWARENESS
from orchestrator.model.cluster import Role
from orchestrator.model.observation import Level
from orchestrator.model.policy import Policy, Strategy
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, policy

ZONED: Mapping[str, object] = {
    "strategy": Strategy.ZONE,
    "max_unavailable": None,
    "zone_attribute": "zone",
}


def by_zone(**changes: object) -> Policy:
    """The shipped playbook with `--strategy zone`."""
    return policy(**{**ZONED, **changes})


def zoned(nodes: int = 6, *, most: int = 2, seed: int = 0) -> World:
    """Nodes in the zones a, b and c in turn; copies of a shard are on neighbours, so in different zones."""
    world = cluster(nodes, seed=seed)
    world.allowed_down = most
    return world


def lopsided() -> World:
    """A zone of three, two of them without a vote, beside two zones of one."""
    world = World(allowed_down=2)
    for name, zone in (("es1", "a"), ("es2", "b"), ("es3", "b"), ("es4", "b"), ("es5", "c")):
        world.add_node(name, zone=zone, roles=frozenset({Role.DATA}) if name in ("es3", "es4") else None)
    world.add_index("logs", places=["es2", "es1"])
    world.add_index("posts", places=["es3", "es5"])
    world.add_index("users", places=["es4", "es1"])
    return world


def paired() -> World:
    """Six nodes; one index has both its copies in zone b."""
    world = zoned()
    world.add_index("pair", places=["es2", "es5"])
    return world


def forced() -> World:
    """Awareness that is forced, with copies in every zone: those of one that is away stay away."""
    world = World(allowed_down=2)
    for number in range(1, 7):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    world.add_index("logs", shards=3, replicas=2)
    world.set(Level.PERSISTENT, AWARENESS, "zone")
    world.files = {**world.files, f"{FORCED_AWARENESS}zone.values": ("a", "b", "c")}
    return world
