"""Simulated clusters of old generations."""

from __future__ import annotations

from typing import Final

from orchestrator.elasticsearch.rules.settings import MINIMUM_MASTERS
from orchestrator.model.allocation import ALLOCATION, DISABLE_NEW, FLAGS
from orchestrator.simulation import membership
from orchestrator.simulation.ways import Ways
from orchestrator.simulation.world import World

OF_1_7: Final = Ways(resets=False, voting_by_count=True, in_sync=False, snapshots_in_state=False)
OF_1_4: Final = Ways(
    resets=False,
    voting_by_count=True,
    in_sync=False,
    delays=False,
    snapshots_in_state=False,
    keeps_merges=False,
)
OF_0_90: Final = Ways(
    resets=False,
    allocation_flags=True,
    voting_by_count=True,
    in_sync=False,
    delays=False,
    keeps_merges=False,
)


def aged(world: World, ways: Ways, version: str, *, quorum: str = "2") -> World:
    """The same cluster, of that generation."""
    world.ways = ways
    for node in world.nodes.values():
        node.version = version
    if ways.allocation_flags:
        del world.files[ALLOCATION]
        world.files |= dict.fromkeys((DISABLE_NEW, *FLAGS.values()), "false")
    world.files[MINIMUM_MASTERS] = quorum
    membership.reconfigure(world)
    return world
