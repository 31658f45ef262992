"""A cluster after a bulk load: indices of many small segments, and the settings that loaders leave."""

from __future__ import annotations

from orchestrator.model.merging import LoaderSettings, MergePolicy
from orchestrator.model.policy import Policy
from orchestrator.simulation import segments
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.world import World
from tests.simulation.play import policy

SIZE = 1 << 30


def loaded(nodes: int = 3, *, indices: int = 3, replicas: int = 1, many: int = 20) -> World:
    """Nodes in zones, and indices `posts-1` … that nobody writes any more; the log of the day is written."""
    world = World()
    for number in range(1, nodes + 1):
        world.add_node(f"es{number}", zone="abc"[(number - 1) % 3])
    for number in range(1, indices + 1):
        index = world.add_index(f"posts-{number}", shards=2, replicas=replicas, written=False, size=SIZE)
        segments.load(world, index, many)
    world.add_index("logs", shards=nodes, replicas=1)
    return world


def index_of(world: World, name: str) -> SimIndex:
    """That of the name."""
    return next(index for index in world.indices.values() if index.name == name)


def left_behind(world: World) -> World:
    """The same with what loaders leave: no replicas, no refresh, a translog that is not synced."""
    for index in world.indices.values():
        if index.name.startswith("posts"):
            index.refresh_interval, index.durability = "-1", "async"
    return world


def merging(**changes: object) -> MergePolicy:
    """Of `posts-*`, as shipped but for what is changed."""
    return MergePolicy(**{"patterns": ("posts-*",), **changes})


def merged_policy(merge: MergePolicy | None = None, **changes: object) -> Policy:
    """A restart after merging."""
    return policy(merge=merge or merging(), **changes)


RIGHT = LoaderSettings(number_of_replicas=1, refresh_interval="1s", translog_durability="request")
"""What a playbook wants loaded indices to have."""
