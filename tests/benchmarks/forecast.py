"""Predicted against actual: `python -m tests.benchmarks.forecast`.

One cluster of real nodes is restarted again and again, under a load. Each run is predicted by earlier ones,
the first one by published times. Figures, no assertions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from orchestrator.view.text import table
from tests.lab.distributions import DISTRIBUTIONS
from tests.lab.layout import LabNode
from tests.lab.load import Load, LoadProfile
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed

HEAP_MB: Final = 320
HEAD: Final = ("run", "low", "likely", "high", "actual", "off", "within", "predicted from")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="9.1.0", choices=sorted(each.version for each in DISTRIBUTIONS))
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--strategy", default="node", choices=["node", "zone", "shard-safe"])
    options = parser.parse_args()
    nodes = tuple(LabNode(name=f"es{n + 1}", zone="abc"[n % 3]) for n in range(options.nodes))
    indices = [
        SeedIndex(name=f"bench-{number:02}", shards=3, documents=2000, document_bytes=2000)
        for number in range(12)
    ]
    rows: list[tuple[str, ...]] = []
    with (
        TemporaryDirectory(prefix="orchestrate-forecast-") as temporary,
        LabCluster.start(version=options.version, nodes=nodes, name="bench", heap_mb=HEAP_MB) as lab,
    ):
        folder = Path(temporary)
        seed(lab.client, indices)
        file = lab.write_cluster_file(folder / "bench.yml")
        with Load(lab.access, LoadProfile(documents_per_second=20)) as load:
            load.wait_acknowledged(20)
            for number in range(options.runs):
                rows.append((str(number + 1), *_run(file, folder, options.strategy)))
                sys.stderr.write(f"{rows[-1]}\n")
    sys.stdout.write("\n".join([*table(HEAD, rows, numbers=range(1, 6)), ""]))
    return 0


def _run(file: Path, folder: Path, strategy: str) -> tuple[str, ...]:
    """One run: its prediction, and what it took."""
    plan = _orchestrate(folder, "plan", file)[0]
    said = _orchestrate(folder, "restart", file, "--yes", "--strategy", strategy, "--reason", "benchmark")
    end = next(line for line in said if line["event"] == "summary")
    if end["outcome"] != "done":
        raise RuntimeError(f"not done: {end}")
    predicted, actual = end["predicted_seconds"], end["seconds"]
    off = (actual - predicted["likely"]) / predicted["likely"]
    within = "yes" if predicted["low"] <= actual <= predicted["high"] else "NO"
    figures = (f"{seconds:.0f} s" for seconds in (*(predicted[k] for k in ("low", "likely", "high")), actual))
    return (*figures, f"{off:+.0%}", within, plan["predicted_from"][:60])


def _orchestrate(folder: Path, verb: str, file: Path, *more: str) -> list[Mapping[str, Any]]:
    """Run a command; the objects that it prints."""
    own = Path(sys.executable).with_name("orchestrate")
    program = [str(own), verb, "--cluster", str(file), *more]
    state = f"sqlite:///{folder / 'state.db'}"
    done = subprocess.run(  # noqa: S603  (our own program)
        [*program, "--output", "json", "--state", state], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{verb}: {done.returncode} {done.stdout[-800:]} {done.stderr[-800:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
