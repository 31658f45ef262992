"""The largest safe sets, in runs left to chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from orchestrator.model.policy import Policy, Strategy


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
