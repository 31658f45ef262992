"""The ways of a simulated run that are killed at every point, and the clusters that they are on."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.model.observation import Level
from orchestrator.model.policy import Policy
from orchestrator.simulation.world import World
from tests.simulation.loaded import RIGHT, left_behind, loaded, merged_policy, merging
from tests.simulation.overlapping import overlapped, slow
from tests.simulation.play import cluster, policy
from tests.simulation.sharing import always, sharing
from tests.simulation.tuned import detune, profile
from tests.simulation.zones import by_zone, zoned

WAYS: dict[str, tuple[Callable[[], World], Policy]] = {
    "node": (lambda: cluster(3), policy()),
    "zone": (lambda: zoned(6), by_zone()),
    "overlap": (slow, overlapped()),
    "machines": (sharing, always()),
    "tuned": (lambda: detune(cluster(3)), policy(tune=profile())),
    "merged": (lambda: left_behind(loaded(indices=2)), merged_policy(merging(put_right=RIGHT))),
}
"""How the run goes that is killed, and on what cluster."""


def world_of(way: str) -> World:
    """The cluster of this way, with a setting of its operator's on each level."""
    world = WAYS[way][0]()
    world.set(Level.PERSISTENT, "cluster.routing.allocation.enable", "all")
    world.set(Level.TRANSIENT, "indices.recovery.max_bytes_per_sec", "20mb")
    return world
