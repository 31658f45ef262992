"""The largest safe sets: a cluster for them, and runs left to chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from orchestrator.model.policy import Policy, Strategy
from orchestrator.simulation.world import World

NODES = [f"es{number}" for number in range(1, 9)]


def neighbours(replicas: int = 1) -> World:
    """Eight nodes in no zone, and 24 indices of one shard: each with copies on neighbours."""
    world = World(allowed_down=len(NODES))
    world.across_zones = True
    for name in NODES:
        world.add_node(name)
    for number in range(24):
        places = [NODES[(number + step) % len(NODES)] for step in range(replicas + 1)]
        world.add_index(f"logs-{number}", places=places)
    return world


def by_chance(seed: int, wanted: Policy) -> Policy:
    """In one run of six, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"sets {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= 1 / 6:
        return wanted
    budget = dice.choice((None, None, 2, 3, 5))
    return replace(wanted, strategy=Strategy.SHARD_SAFE, max_unavailable=budget)


def across_zones(wanted: Policy) -> bool:
    """Whether nodes of several zones may be down at once: only where the playbook knows of no zones."""
    return wanted.strategy is Strategy.SHARD_SAFE and wanted.zone_attribute is None
