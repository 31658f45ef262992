"""What viewers of `serve` cost a run: `python -m tests.benchmarks.viewers 0 50`.

A run of many events is written into SQLite, two commits a second and a heartbeat every half second (a real
run has one every 15 s), while so many viewers follow it as pages do, and one more is suspended in the middle
of an answer. Milliseconds of commits and heartbeats, and the medians by those of the first row. Figures, no
assertions: only figures of one run on one machine can be compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final

from orchestrator.view.text import table
from tests.cli.console import Console
from tests.cli.runs import events_of
from tests.cli.serving import serving
from tests.cli.viewing import viewers, writing

NODES: Final = 30
BEGUN: Final = 200
"""Events before anybody looks: there is a page to be made."""
COMMITS: Final = 120
PAUSE_SECONDS: Final = 0.5
HEADINGS: Final = ("viewers", "of", "number", "median ms", "99 % ms", "most ms", "ratio")


def measured(count: int) -> dict[str, list[float]]:
    """Seconds of the commits and of the heartbeats of one run."""
    events = events_of("lab", NODES)[: BEGUN + COMMITS]
    with TemporaryDirectory(prefix="orchestrate-viewers-") as folder:
        console = Console(home=Path(folder), folder=Path(folder))
        with writing(console, heartbeat=PAUSE_SECONDS) as run:
            for event in events[:BEGUN]:
                run.commit(event)
            with serving(console) as server, viewers(server.at, count, suspended=int(count > 0)):
                run.commits.clear()
                run.heartbeats.clear()
                for event in events[BEGUN:]:
                    run.commit(event)
                    time.sleep(PAUSE_SECONDS)
                return {"commits": list(run.commits), "heartbeats": list(run.heartbeats)}


def main(counts: Sequence[str]) -> None:
    """Measure with each number of viewers."""
    rows, first = [], dict[str, float]()
    for count in [int(count) for count in counts] or [0, 50]:
        for of, seconds in measured(count).items():
            usual = median(seconds)
            figures = (usual, quantiles(seconds, n=100)[-1], max(seconds))
            ratio = usual / first.setdefault(of, usual)
            who = f"{count} and one suspended" if count else "none"
            rows.append(
                (who, of, str(len(seconds)), *(f"{1000 * one:.1f}" for one in figures), f"{ratio:.2f}")
            )
    sys.stdout.write("\n".join([*table(HEADINGS, rows, numbers=range(2, len(HEADINGS))), ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
