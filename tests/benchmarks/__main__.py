"""What a restart costs: `make bench`.

One cluster of six real nodes with the same data throughout, restarted whole, again and again: by a bare loop
of the documented procedure with long polls (a), by the same loop with polls of 10 s (b), and by the program,
node by node (c), zone by zone (d), and node by node with overlapped recovery (e). Rounds go forth and back
(a b c d e, e d c b a), so that none has the warmer machine. At the end one node is started alone, and two at
once: how far zones can be faster depends on how the machine carries two that boot. Figures, no assertions: a
shared machine has no right or wrong here, and only figures of one run can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

from orchestrator.view.text import table
from tests.benchmarks.procedure import Await, Boot, boot, by_long_poll, by_polls, restart_all
from tests.lab.client import LabClient
from tests.lab.distributions import DISTRIBUTIONS
from tests.lab.errors import LabError
from tests.lab.layout import LabNode
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed

SIX: Final = tuple(LabNode(name=f"es{number}", zone="abc"[number % 3]) for number in range(1, 7))
HEAP_MB: Final = 320
POLL_SECONDS: Final = 10.0
ZONES: Final = len({node.zone for node in SIX})
AT_ONCE: Final = tuple(tuple(node.name for node in SIX if node.zone == zone) for zone in "ab")
BOOTS: Final = (AT_ONCE[0], AT_ONCE[0][:1], AT_ONCE[1][:1], AT_ONCE[1])
"""Two nodes of a zone at once and one of them alone, forth and back."""
ZONE_SHARE: Final = 0.6
FEW_CORES: Final = 1.2
"""Where two nodes at once take longer than this many times one, a zone's gain is bounded by the machine."""
BULK: Final = "bulk"
BULK_DOCUMENTS: Final = 128
BULK_SECONDS: Final = 120.0
DOCUMENT_BYTES: Final = 64 * 1024
NAMES: Final = {
    "a": "bare loop, long polls",
    "b": f"bare loop, polls of {POLL_SECONDS:.0f} s",
    "c": "orchestrate restart --strategy node",
    "d": "orchestrate restart --strategy zone",
    "e": "the same as (c), with overlapped recovery",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One restart of the whole cluster, by one of the ways.

    Attributes:
        seconds: from the call to its end, the start of the interpreter included.
        load: of the machine, one minute's average at the end.
        cost: requests and bytes; of (c), (d) and (e) also CPU seconds and memory.
    """

    way: str
    seconds: float
    load: float
    cost: dict[str, float]


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends its nodes too
    folder = Path(options.keep) if options.keep else None
    indices = [
        SeedIndex(name=f"bench-{number:02}", shards=6, documents=400, document_bytes=2000)
        for number in range(options.indices)
    ]
    with (
        TemporaryDirectory(prefix="orchestrate-bench-") as temporary,
        LabCluster.start(
            version=options.version, nodes=SIX, name="bench", heap_mb=HEAP_MB, progress=_say
        ) as lab,
    ):
        _say(f"seeding {len(indices)} indices, {sum(2 * index.shards for index in indices)} copies")
        seed(lab.client, indices)
        if options.mb:
            _say(f"filling each node with {options.mb} MB that are stored and not indexed")
            fill(lab.client, options.mb * len(SIX))
        folder = folder or Path(temporary)
        file = lab.write_cluster_file(folder / "bench.yml")
        ways: dict[str, Callable[[int], Lap]] = {
            "a": lambda _lap: _bare(lab, "a", by_long_poll),
            "b": lambda _lap: _bare(lab, "b", by_polls(POLL_SECONDS)),
            "c": lambda lap: _program("c", "node", file, folder, lap, overlap=False),
            "d": lambda lap: _program("d", "zone", file, folder, lap, overlap=False),
            "e": lambda lap: _program("e", "node", file, folder, lap, overlap=True),
        }
        _say("one whole restart that does not count: files and caches are warm after it")
        restart_all(lab, by_long_poll)
        laps = []
        for lap, way in enumerate(options.order):
            laps.append(ways[way](lap))
            _say(f"{laps[-1]}")
            lab.wait_ready(status="green")
        boots = []
        for names in BOOTS:
            boots.append(boot(lab, names))
            _say(f"{boots[-1]}")
            lab.wait_ready(status="green")
    lines = [*report(laps, nodes=len(SIX), server=lab.distribution.name), "", *of_boots(boots, laps)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--version", default=DISTRIBUTIONS[0].version)
    parser.add_argument("--order", default="abcdeedcba", help="laps, in order, by letter")
    parser.add_argument("--indices", type=int, default=20, help="of six shards and one replica each")
    parser.add_argument("--mb", type=int, default=0, help="more data on each node, in one index")
    parser.add_argument("--keep", help="a folder for the program's state and output")
    return parser.parse_args()


def fill(client: LabClient, megabytes: int) -> None:
    """An index that holds so much with its replicas: text that hardly compresses, cheap to write."""
    settings = {"number_of_shards": len(SIX), "number_of_replicas": 1, "refresh_interval": "-1"}
    client.ask("PUT", f"/{BULK}", {"settings": settings, "mappings": {"enabled": False}})
    dice = random.Random(1)  # noqa: S311  (test data, the same each time)
    noise = b64encode(dice.randbytes(1 << 20)).decode()
    for _ in range(megabytes * 1024**2 // 2 // (BULK_DOCUMENTS * DOCUMENT_BYTES)):
        starts = [dice.randrange(len(noise) - DOCUMENT_BYTES) for _ in range(BULK_DOCUMENTS)]
        lines = [f'{{"index":{{}}}}\n{{"noise":"{noise[at : at + DOCUMENT_BYTES]}"}}\n' for at in starts]
        answer = client.ask("POST", f"/{BULK}/_bulk", "".join(lines), seconds=BULK_SECONDS)
        if answer["errors"]:
            raise LabError(f"filling {BULK}: {str(answer)[:500]}")
    client.ask("POST", f"/{BULK}/_flush", seconds=BULK_SECONDS)
    stored = client.ask("GET", f"/{BULK}/_stats/store")["_all"]["total"]["store"]["size_in_bytes"]
    _say(f"{stored / 1024**2 / len(SIX):.0f} MB of it on a node")


def _say(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")


def _bare(lab: LabCluster, way: str, wait: Await) -> Lap:
    began = time.monotonic()
    wires = restart_all(lab, wait)
    seconds = time.monotonic() - began
    keys = ("requests", "bytes_sent", "bytes_received")
    cost = {key: float(sum(getattr(wire, key) for wire in wires)) for key in keys}
    return Lap(way=way, seconds=seconds, load=os.getloadavg()[0], cost=cost)


def _program(way: str, strategy: str, file: Path, folder: Path, lap: int, *, overlap: bool) -> Lap:
    """The shipped playbook's defaults, but for the one key."""
    playbook = folder / f"playbook-{lap}.yml"
    playbook.write_text(json.dumps({"kind": "elasticsearch", "overlap_recovery": overlap}), encoding="utf-8")
    result = folder / f"result-{lap}.json"
    command = [sys.executable, "-m", "tests.benchmarks.program", strategy, str(file)]
    began = time.monotonic()
    with (folder / f"output-{lap}.txt").open("wb") as output:
        subprocess.run(  # noqa: S603  (the program under test)
            [*command, str(folder / f"state-{lap}.db"), str(result), str(playbook)],
            check=True,
            stdout=output,
        )
    seconds = time.monotonic() - began
    cost = json.loads(result.read_text(encoding="utf-8"))
    return Lap(way=way, seconds=seconds, load=os.getloadavg()[0], cost=cost)


def report(laps: Sequence[Lap], *, nodes: int, server: str) -> list[str]:
    """The figures as a table, and what they come to."""
    ways = sorted({lap.way for lap in laps})
    by_way = {way: [lap for lap in laps if lap.way == way] for way in ways}
    reference = mean(lap.seconds for lap in by_way[ways[0]])
    rows = []
    for way in ways:
        own = by_way[way]
        seconds = mean(lap.seconds for lap in own)
        rows.append(
            (
                f"({way}) {NAMES[way]}",
                " ".join(f"{lap.seconds:.1f}" for lap in own),
                f"{seconds / nodes:.1f}",
                f"{seconds / reference:.3f}",
                f"{_mean(own, 'requests') / nodes:.0f}",
                f"{_mean(own, 'bytes_sent') / nodes / 1024:.1f}",
                f"{_mean(own, 'bytes_received') / nodes / 1024:.1f}",
                " ".join(f"{lap.load:.1f}" for lap in own),
            )
        )
    heads = ("WAY", "SECONDS", "A NODE", f"OF ({ways[0]})", "REQUESTS", "KB SENT", "KB READ", "LOAD")
    lines = [f"{nodes} nodes of {server}; requests and bytes are those of one node's restart", ""]
    lines += table(heads, rows)
    for way in sorted({"c", "d", "e"} & set(by_way)):
        own = by_way[way]
        lines += [
            "",
            (
                f"the program itself, ({way}): {_mean(own, 'cpu_seconds'):.2f} s of CPU and "
                f"{max(lap.cost['peak_mb'] for lap in own):.0f} MB at the most, for the whole run"
            ),
        ]
    return lines


def of_boots(boots: Sequence[Boot], laps: Sequence[Lap]) -> list[str]:
    """What one node's start takes and what two take at once, and what by that a restart by zones may take."""
    alone, both = ([each for each in boots if len(each.nodes) == count] for count in (1, 2))
    ratio = mean(each.joined for each in both) / mean(each.joined for each in alone)
    lines = [
        f"started and joined: one node {_seconds(alone)} s, two at once {_seconds(both)} s, {ratio:.2f} of it"
    ]
    bare, zones = ([lap.seconds for lap in laps if lap.way == way] for way in "ad")
    if not bare or not zones:
        return lines
    if ratio > FEW_CORES:
        wave = mean(each.joined + each.recovered for each in both)
        most, by = ZONES * wave * 1.1, f"{ZONES} waves of {wave:.1f} s (two boot, all recover), and a tenth"
    else:
        most, by = ZONE_SHARE * mean(bare), f"{ZONE_SHARE} of (a)"
    return [*lines, f"(d) took {mean(zones):.1f} s, and aims at {most:.1f} s at most: {by}"]


def _seconds(boots: Sequence[Boot]) -> str:
    return " ".join(f"{each.joined:.1f}" for each in boots)


def _mean(laps: Sequence[Lap], key: str) -> float:
    return mean(lap.cost[key] for lap in laps)


if __name__ == "__main__":
    sys.exit(main())
