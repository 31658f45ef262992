"""Shards on the nodes of a cluster, drawn: for the number of waves of `--strategy shard-safe`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.engine.largest_safe import Bound, Unit
from orchestrator.model.cluster import NodeName

ZONES: Final = 3


def names(count: int) -> list[NodeName]:
    """So many nodes; the zone of each is its place modulo `ZONES`."""
    return [NodeName(f"es{number:04}") for number in range(count)]


def shards(
    nodes: Sequence[NodeName], copies: int, replicas: int, *, zones: bool, skewed: bool
) -> Iterator[Bound]:
    """The copies of each shard on different nodes, with zones in different zones.

    Args:
        nodes: in the order of their names.
        copies: on each node, on average.
        replicas: of each shard.
        zones: whether copies are spread over zones.
        skewed: whether a fifth of the nodes has half of the copies.
    """
    dice = random.Random(f"{len(nodes)} {copies} {replicas} {zones} {skewed}")  # noqa: S311  (repeatable)
    weights = [4.0 if skewed and place < len(nodes) // 5 else 1.0 for place in range(len(nodes))]
    for number in range(len(nodes) * copies // (replicas + 1)):
        places: dict[NodeName, int] = {}
        taken = set[int]()
        while len(places) <= min(replicas, len(nodes) - 1):
            at = dice.choices(range(len(nodes)), weights)[0]
            if nodes[at] in places or (zones and at % ZONES in taken and len(taken) < ZONES):
                continue
            places[nodes[at]] = 1
            taken.add(at % ZONES)
        yield Bound(name=f"shard {number}", counts=places, most=replicas)


def groups(units: Sequence[Unit], *, zones: bool) -> list[Sequence[Unit]]:
    """Those of each zone, or all: what one wave is chosen from."""
    return [units[at::ZONES] for at in range(ZONES)] if zones else [units]


def no_common_shard(units: Sequence[Unit], held: Sequence[Bound], others: Sequence[Bound] = ()) -> int:
    """Waves of a simple greedy in the order of names that takes no two units with a common shard.

    Args:
        units: of one zone, or all.
        held: the shards.
        others: what else bounds a wave.
    """
    holders = {
        unit: {shard.name for shard in held if any(name in shard.counts for name in unit)} for unit in units
    }
    waves: list[list[Unit]] = []
    for unit in units:
        for wave in waves:
            if all(holders[unit].isdisjoint(holders[one]) for one in wave) and all(
                _taken(each.counts, [*wave, unit])
                <= max(each.most, *(_taken(each.counts, [one]) for one in units))
                for each in others
            ):
                wave.append(unit)
                break
        else:
            waves.append([unit])
    return len(waves)


def _taken(counts: Mapping[NodeName, int], units: Sequence[Unit]) -> int:
    return sum(counts.get(name, 0) for unit in units for name in unit)
