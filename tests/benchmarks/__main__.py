"""What a restart costs: `make bench`.

One cluster of six real nodes with the same data throughout, restarted whole, again and again: by a bare loop
of the documented procedure (a), and by the program, node by node (b), zone by zone (c), and node by node with
overlapped recovery (d). Rounds go forth and back (a b c d, d c b a), so that none has the warmer machine.
Figures, no assertions: only figures of one run on one machine can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

from orchestrator.view.text import table
from tests.lab.client import Access, LabClient
from tests.lab.distributions import DISTRIBUTIONS
from tests.lab.errors import LabError
from tests.lab.layout import LabNode
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed

SIX: Final = tuple(LabNode(name=f"es{number}", zone="abc"[number % 3]) for number in range(1, 7))
HEAP_MB: Final = 320
LONG_POLL_SECONDS: Final = 600
GREEN: Final = (
    "wait_for_status=green&wait_for_no_initializing_shards=true&wait_for_no_relocating_shards=true"
    "&wait_for_events=languid"
)
WAYS: Final = {
    "a": ("bare loop, long polls", None),
    "b": ("orchestrate restart --strategy node", {"overlap_recovery": False}),
    "c": ("orchestrate restart --strategy zone", {"overlap_recovery": False}),
    "d": ("the same as (b), with overlapped recovery", {"overlap_recovery": True}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One restart of the whole cluster, by one of the ways."""

    way: str
    seconds: float  # from the call to its end, the start of the interpreter included
    load: float  # of the machine, one minute's average at the end
    cpu_seconds: float = 0.0  # of the program; zero for the bare loop, and `peak_mb` likewise
    peak_mb: float = 0.0


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--version", default=DISTRIBUTIONS[0].version)
    parser.add_argument("--order", default="abcddcba", help="laps, in order, by letter")
    parser.add_argument("--indices", type=int, default=20, help="of six shards and one replica each")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends its nodes too
    indices = [
        SeedIndex(name=f"bench-{number:02}", shards=6, documents=400, document_bytes=2000)
        for number in range(options.indices)
    ]
    with (
        TemporaryDirectory(prefix="orchestrate-bench-") as folder,
        LabCluster.start(
            version=options.version, nodes=SIX, name="bench", heap_mb=HEAP_MB, progress=_say
        ) as lab,
    ):
        _say(f"seeding {len(indices)} indices, {sum(2 * index.shards for index in indices)} copies")
        seed(lab.client, indices)
        _say("one whole restart that does not count: files and caches are warm after it")
        _bare(lab)
        laps = []
        for way in options.order:
            laps.append(_bare(lab) if WAYS[way][1] is None else _program(lab, way, Path(folder)))
            _say(f"{laps[-1]}")
            lab.wait_ready(status="green")
    sys.stdout.write("\n".join([f"{len(SIX)} nodes of {lab.distribution.name}", "", *report(laps), ""]))
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")


def _bare(lab: LabCluster) -> Lap:
    """What a careful person types, without a pause: no gates, no journal, and only the health is read."""
    began = time.monotonic()
    for node in lab.nodes:
        others = tuple(lab.endpoint(other.name) for other in lab.nodes if other != node)
        client = LabClient(Access(endpoints=others[:1]))
        _allocation(client, "primaries")
        client.ask("POST", "/_flush")
        lab.stop_nodes([node.name])
        lab.start_nodes([node.name])
        _wait(client, f"wait_for_nodes={len(lab.nodes)}")
        _allocation(client, None)
        _wait(client, GREEN)
        client.close()
    return Lap(way="a", seconds=time.monotonic() - began, load=os.getloadavg()[0])


def _allocation(client: LabClient, value: str | None) -> None:
    client.ask("PUT", "/_cluster/settings", {"persistent": {"cluster.routing.allocation.enable": value}})


def _wait(client: LabClient, wanted: str) -> None:
    path = f"/_cluster/health?{wanted}&timeout={LONG_POLL_SECONDS}s"
    if client.ask("GET", path, seconds=LONG_POLL_SECONDS + 10)["timed_out"]:
        raise LabError(f"not {wanted} within {LONG_POLL_SECONDS} s")


def _program(lab: LabCluster, way: str, folder: Path) -> Lap:
    """The shipped playbook's defaults, but for the one key."""
    file, playbook = lab.write_cluster_file(folder / "bench.yml"), folder / "playbook.yml"
    playbook.write_text(json.dumps({"kind": "elasticsearch", **(WAYS[way][1] or {})}), encoding="utf-8")
    words = ["restart", "--cluster", file, "--playbook", playbook, "--yes", "--reason", "benchmark"]
    words += ["--strategy", "zone" if way == "c" else "node", "--state", f"sqlite:///{folder / 'state.db'}"]
    began = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        run = subprocess.Popen(  # noqa: S603  (the program under test)
            [sys.executable, "-m", "orchestrator", *map(str, words)], stdout=output
        )
        _, status, own = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode != 0:
        said = (folder / "output.txt").read_text(encoding="utf-8")
        raise LabError(f"({way}) ended with {run.returncode}: {said[-2000:]}")
    return Lap(
        way=way,
        seconds=time.monotonic() - began,
        load=os.getloadavg()[0],
        cpu_seconds=own.ru_utime + own.ru_stime,
        peak_mb=own.ru_maxrss / 1024,
    )


def report(laps: Sequence[Lap]) -> list[str]:
    """The figures as a table."""
    by_way = {way: own for way in WAYS if (own := [lap for lap in laps if lap.way == way])}
    reference = mean(lap.seconds for lap in next(iter(by_way.values())))
    rows = []
    for way, own in by_way.items():
        seconds = mean(lap.seconds for lap in own)
        rows.append(
            (
                f"({way}) {WAYS[way][0]}",
                " ".join(f"{lap.seconds:.1f}" for lap in own),
                f"{seconds / len(SIX):.1f}",
                f"{seconds / reference:.3f}",
                f"{mean(lap.cpu_seconds for lap in own):.2f}",
                f"{max(lap.peak_mb for lap in own):.0f}",
                " ".join(f"{lap.load:.1f}" for lap in own),
            )
        )
    heads = ("WAY", "SECONDS", "A NODE", f"OF ({next(iter(by_way))})", "CPU SECONDS", "MB", "LOAD")
    return table(heads, rows)


if __name__ == "__main__":
    sys.exit(main())
