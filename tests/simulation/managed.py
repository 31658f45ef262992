"""Configuration management at work on hosts, in runs left to chance."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from orchestrator.model.cluster import NodeName
from orchestrator.simulation.mishaps import Mishap
from tests.simulation import node_mishaps


def by_chance(seed: int, names: Sequence[NodeName]) -> tuple[Mishap, ...]:
    """In one run of four, by dice of its own, so that all else of a seed stays."""
    dice = Random(f"managed {seed}")  # noqa: S311  (repeatable, and secret to nobody)
    if dice.random() >= 0.25:
        return ()
    return tuple(_mishap(dice, names) for _ in range(dice.choice((1, 1, 2, 4))))


def _mishap(dice: Random, names: Sequence[NodeName]) -> Mishap:
    runs = node_mishaps.ManagementRuns(node=dice.choice(names), seconds=dice.choice((5.0, 60.0, 600.0)))
    if dice.random() < 0.5:
        return Mishap(what=runs, after=dice.uniform(0.0, 200.0))
    verb = dice.choice(("set_allocation", "flush", "stop", "restore_allocation"))
    return Mishap(what=runs, verb=verb, nth=dice.randint(1, 4), after=dice.choice((0.0, 0.05, 2.0)))
