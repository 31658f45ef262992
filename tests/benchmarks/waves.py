"""How many waves `shard-safe` needs: `python -m tests.benchmarks.waves 30x20 300x50`.

Nodes, and copies on each. For one to three replicas, with and without zones, copies spread evenly or with a
fifth of the nodes holding half of them. Beside it the lower bound that the plan states, the exact optimum up
to 30 nodes (`>=` where the solver did not find a plan with so many), and a greedy that puts no two nodes with
a common shard into one wave. The time is that of the search and the lower bound. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Final

from orchestrator.engine.largest_safe import Sets, Unit
from orchestrator.view.text import table
from tests import layouts
from tests.benchmarks.large_cluster import Size, size
from tests.optimum import optimum, total

SIZES: Final = ("10x20", "10x50", "30x20", "30x50", "100x50", "300x50", "1000x20")
EXACT: Final = 30
"""Up to so many nodes the solver is asked."""
HEAD: Final = (
    *("nodes x copies on each", "replicas", "cluster", "waves", "at least", "optimum", "no common shard"),
    "CPU s",
)


def _row(wanted: Size, replicas: int, *, zones: bool, skewed: bool) -> tuple[str, ...]:
    names = layouts.names(wanted.nodes)
    units: list[Unit] = [(name,) for name in names]
    shards = list(layouts.shards(names, wanted.copies, replicas, zones=zones, skewed=skewed))
    groups = layouts.groups(units, zones=zones)
    began = time.process_time()
    found = [Sets(group, shards) for group in groups]
    waves, least = sum(len(each.fewest()) for each in found), sum(each.at_least()[0] for each in found)
    spent = time.process_time() - began
    best = f"{total(optimum(group, shards) for group in groups)}" if wanted.nodes <= EXACT else "-"
    simple = sum(layouts.no_common_shard(group, shards) for group in groups)
    kind = f"{'zones' if zones else 'no zones'}, {'skewed' if skewed else 'even'}"
    return f"{wanted}", f"{replicas}", kind, f"{waves}", f"{least}", best, f"{simple}", f"{spent:.2f}"


def main(words: Sequence[str] | None = None) -> None:
    """Print a row for each size and kind of cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, help="such as 100x50: nodes, and copies on each")
    rows = []
    for wanted in map(size, parser.parse_args(words).sizes):
        for replicas in (1, 2, 3):
            for zones in (False, True):
                for skewed in (False, True):
                    rows.append(_row(wanted, replicas, zones=zones, skewed=skewed))
                    print(*rows[-1], flush=True)  # noqa: T201  (a program's output)
    print("", *table(HEAD, rows, numbers=(1, *range(3, len(HEAD)))), sep="\n")  # noqa: T201  (the same)


if __name__ == "__main__":
    main()
