"""How many waves `shard-safe` needs: `python -m tests.benchmarks.waves 30x20 300x50`.

Nodes, and copies on each. For one to three replicas, with and without zones, copies spread evenly or with a
fifth of the nodes holding half of them. Beside it the lower bound that the plan states, and a greedy that
puts no two nodes with a common shard into one wave. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator.engine.largest_safe import Bound, Sets, Unit
from orchestrator.model.cluster import NodeName
from orchestrator.view.text import table
from tests.benchmarks.plan_size import size

SIZES: Final = ("10x20", "30x50", "100x50", "300x50", "1000x20")
ZONES: Final = 3


def _shards(
    names: Sequence[NodeName], copies: int, replicas: int, *, zones: bool, skewed: bool
) -> Iterator[Bound]:
    """The copies of each shard on different nodes, with zones in different zones."""
    dice = random.Random(f"{len(names)} {copies} {replicas} {zones} {skewed}")  # noqa: S311  (repeatable)
    weights = [4.0 if skewed and place < len(names) // 5 else 1.0 for place in range(len(names))]
    for number in range(len(names) * copies // (replicas + 1)):
        places: dict[NodeName, int] = {}
        taken = set[int]()
        while len(places) <= min(replicas, len(names) - 1):
            at = dice.choices(range(len(names)), weights)[0]
            if names[at] in places or (zones and at % ZONES in taken and len(taken) < ZONES):
                continue
            places[names[at]] = 1
            taken.add(at % ZONES)
        yield Bound(name=f"shard {number}", counts=places, most=replicas)


def _no_common_shard(units: Sequence[Unit], shards: Sequence[Bound]) -> int:
    """Waves of a greedy in the order of names that takes no two nodes with a common shard."""
    shares: dict[NodeName, int] = {}
    place = {unit[0]: number for number, unit in enumerate(units)}
    for shard in shards:
        holders = sum(1 << place[name] for name in shard.counts)
        for name in shard.counts:
            shares[name] = shares.get(name, 0) | holders
    waves: list[int] = []
    for number, (name,) in enumerate(units):
        others = shares.get(name, 0) & ~(1 << number)
        for at, wave in enumerate(waves):
            if not wave & others:
                waves[at] |= 1 << number
                break
        else:
            waves.append(1 << number)
    return len(waves)


def main(words: Sequence[str] | None = None) -> None:
    """Print a row for each size and kind of cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="such as 100x50: nodes, and copies on each")
    rows = []
    for wanted in map(size, parser.parse_args(words).sizes):
        names = [NodeName(f"es{number:04}") for number in range(wanted.nodes)]
        units: list[Unit] = [(name,) for name in names]
        for replicas in (1, 2, 3):
            for zones in (False, True):
                for skewed in (False, True):
                    shards = list(_shards(names, wanted.copies, replicas, zones=zones, skewed=skewed))
                    groups = [units[at::ZONES] for at in range(ZONES)] if zones else [units]
                    began = time.process_time()
                    found = [Sets(group, shards) for group in groups]
                    waves, least = (
                        sum(each)
                        for each in ([len(s.fewest()) for s in found], [s.at_least()[0] for s in found])
                    )
                    spent = time.process_time() - began
                    simple = sum(_no_common_shard(group, _within(group, shards)) for group in groups)
                    kind = f"{'zones' if zones else 'no zones'}, {'skewed' if skewed else 'even'}"
                    rows.append(
                        (
                            f"{wanted}",
                            f"{replicas}",
                            kind,
                            f"{waves}",
                            f"{least}",
                            f"{simple}",
                            f"{spent:.2f}",
                        )
                    )
                    print(*rows[-1], flush=True)  # noqa: T201  (a program's output)
    head = ("nodes x copies on each", "replicas", "cluster", "waves", "at least", "no common shard", "CPU s")
    print("", *table(head, rows, numbers=(1, *range(3, len(head)))), sep="\n")  # noqa: T201  (the same)


def _within(group: Sequence[Unit], shards: Sequence[Bound]) -> list[Bound]:
    here = {name for unit in group for name in unit}
    return [
        Bound(name=one.name, counts={name: 1 for name in one.counts if name in here}, most=one.most)
        for one in shards
    ]


if __name__ == "__main__":
    main()
