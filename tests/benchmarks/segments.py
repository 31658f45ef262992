"""What merging after a bulk load does for queries and for restarts, on a server of today and on an old one.

    python -m tests.benchmarks.segments [--versions 8.19.0 2.4.6] [--rounds 15]

300,000 documents in 12 indices of two shards and one replica, loaded so that each copy has some two dozen
small segments, on three real nodes in three zones. First the same documents are loaded a second time, and
query times of both sets are compared, before the second one is merged to at most 5 segments and after. Then
that one is deleted, and all nodes are restarted one after the other, five times: with many segments, with
more documents since, right after the merge, once more, and with more documents since. While a node is down,
documents are written. What each copy reused and copied is read from `_recovery`. 8.19 is restarted by
`orchestrate restart`, 2.4 by a plain procedure. Figures, no assertions: a shared machine has no right or
wrong here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from orchestrator.view.text import table
from tests.benchmarks.old_server import DIALECT, OLD, OldCluster
from tests.benchmarks.procedure import by_long_poll, restart_all
from tests.benchmarks.queries import GROUP, NO_CACHES, Compared, compare, quartiles
from tests.benchmarks.recoveries import Recovery, Watch, Writer, totals
from tests.integration.restarting import restart
from tests.lab.bulk import POSTS, TODAY, BulkLoad, Dialect, load, numbered, wait_green, write
from tests.lab.client import LabClient
from tests.lab.layout import THREE_ZONES
from tests.lab.nodes import LabCluster
from tests.lab.segments import count_segments, told

HEAP_MB: Final = 448
MOST: Final = 5
TWIN: Final = "twin"
WARM_UP: Final = 3
WHILE_DOWN: Final = 50
"""Documents written into each index while a node is down."""
BETWEEN: Final = 1500
"""Documents written into each index between two restarts: six per cent more, each time."""
BETWEEN_EACH: Final = 150
MERGE_SECONDS: Final = 600.0
FLOOR: Final = {"index.merge.policy.floor_segment": "64kb"}
"""By default every segment below 2 MB (16 MB in 9) is merged with what comes in. Here a merged one has half a
megabyte, so the floor is set as far below it as 2 MB are below a merged segment of a shard of tens of MB."""
WHOLE: Final = 0.9
"""A copy of which more than this share of the bytes was sent counts as copied whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One rolling restart of the whole cluster.

    Attributes:
        title: what went before it.
        segments: of a copy, the median, when it began.
        bytes: of all copies, then.
        seconds: that it took.
        written: documents that were written while nodes were down.
        recoveries: of copies from their primaries, all that there were.
    """

    title: str
    segments: float
    bytes: int
    seconds: float
    written: int
    recoveries: tuple[Recovery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was measured on one server."""

    server: str
    apart: tuple[Compared, ...]
    merged: tuple[Compared, ...]
    stages: tuple[Stage, ...]


def main() -> int:
    options = _options()
    figures = []
    for version in options.versions:
        figures.append(_measure(version, options))
        sys.stdout.write("\n".join(["", *report(figures[-1]), ""]))
        sys.stdout.flush()
        if options.keep:
            path = Path(options.keep) / f"segments-{version}.json"
            path.write_text(json.dumps(asdict(figures[-1])), encoding="utf-8")
    return 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.segments", description=__doc__)
    parser.add_argument("--versions", nargs="+", default=["8.19.0", OLD.version])
    parser.add_argument("--documents", type=int, default=POSTS.documents)
    parser.add_argument("--rounds", type=int, default=15, help="of queries")
    parser.add_argument("--keep", help="a folder for the figures as JSON")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stderr.write(f"segments {time.strftime('%H:%M:%S')}: {line}\n")


def _measure(version: str, options: Any) -> Figures:
    old = version == OLD.version
    dialect = DIALECT if old else TODAY
    wanted = replace(POSTS, documents=options.documents, settings=NO_CACHES)
    start: Callable[..., LabCluster] = OldCluster.boot if old else partial(LabCluster.start, version=version)
    with (
        TemporaryDirectory(prefix="orchestrate-bench-") as temporary,
        start(nodes=THREE_ZONES, name="bench", heap_mb=HEAP_MB, progress=_say) as lab,
    ):
        client = lab.client
        load(client, wanted, dialect=dialect)
        _say(told(count_segments(client, "posts-*")))
        apart, merged = _queries(lab, wanted, dialect, options.rounds)
        by: Callable[[], None] = (
            (lambda: _by_hand(lab)) if old else (lambda: _by_the_program(lab, Path(temporary)))
        )
        stages = _Restarts(lab=lab, load=wanted, dialect=dialect, by=by).all()
    return Figures(server=lab.distribution.name, apart=apart, merged=merged, stages=stages)


def _queries(
    lab: LabCluster, wanted: BulkLoad, dialect: Dialect, rounds: int
) -> tuple[tuple[Compared, ...], tuple[Compared, ...]]:
    """Both sets with many segments, then the second one merged; the second one is deleted after that."""
    client = lab.client
    twin = replace(wanted, indices=numbered(TWIN, len(wanted.indices)))
    load(client, twin, dialect=dialect)
    _say(f"{TWIN}: {told(count_segments(client, f'{TWIN}-*'))}")
    measured = []
    for number in (1, 2):
        measured.append(compare(lab, "posts-*", f"{TWIN}-*", rounds=rounds, warm_up=WARM_UP, number=number))
        for each in measured[-1]:
            _say(f"{each.shape}: {_spread(each.ratios)}, processors {_spread(each.cpu_ratios)}")
        if number == 1:
            _merge(client, twin)
    for name in twin.indices:
        client.ask("DELETE", f"/{name}")
    return measured[0], measured[1]


def _merge(client: LabClient, wanted: BulkLoad) -> None:
    names = ",".join(wanted.indices)
    client.ask("POST", f"/{names}/_forcemerge?max_num_segments={MOST}", seconds=MERGE_SECONDS)
    # 2.4 commits a merge only when told to: a plain flush there asks whether anything was written.
    client.ask("POST", f"/{names}/_flush?force=true&wait_if_ongoing=true", seconds=MERGE_SECONDS)
    copies = count_segments(client, names)
    _say(f"merged: {told(copies)}")
    if len(copies) != wanted.copies or max(each.most for each in copies) > MOST:
        raise RuntimeError(f"not all {wanted.copies} copies have at most {MOST} segments: {told(copies)}")


def _by_hand(lab: LabCluster) -> None:
    restart_all(lab, by_long_poll, back="all")


def _by_the_program(lab: LabCluster, folder: Path) -> None:
    home = folder / f"{time.monotonic_ns()}"
    home.mkdir()
    code, lines = restart(lab, home, playbook={"deadlines": {"hold": "5m"}}, seconds=900.0)
    if code != 0:
        raise RuntimeError(f"the restart ended with {code}: {lines[-3:]}")


@dataclass(slots=True, kw_only=True)
class _Restarts:
    """The five restarts of one cluster."""

    lab: LabCluster
    load: BulkLoad
    dialect: Dialect
    by: Callable[[], None]
    next_number: int = 0

    def all(self) -> tuple[Stage, ...]:
        client = self.lab.client
        self.next_number = self.load.documents // len(self.load.indices)
        client.ask("PUT", f"/{','.join(self.load.indices)}/_settings", FLOOR)
        stages = [self._restart(client, "many segments, as loaded")]
        self._write_more(client)
        stages.append(self._restart(client, "many segments, restarted, written to"))
        _merge(client, self.load)
        stages.append(self._restart(client, "right after the merge"))
        stages.append(self._restart(client, "merged, restarted"))
        self._write_more(client)
        stages.append(self._restart(client, "merged, restarted, written to"))
        return tuple(stages)

    def _restart(self, client: LabClient, title: str) -> Stage:
        wait_green(client, self.load.indices)
        copies = count_segments(client, ",".join(self.load.indices))
        _say(f"{title}: {told(copies)}")
        watch = Watch(client=self.lab.client, pattern="posts-*", since=int(1000 * time.time()))
        writer = Writer(
            lab=self.lab,
            load=replace(self.load, documents_per_request=WHILE_DOWN),
            dialect=self.dialect,
            each=WHILE_DOWN,
            next_number=self.next_number,
            watch=watch,
        )
        began = time.monotonic()
        with writer.at_work():
            self.by()
        seconds = time.monotonic() - began
        watch.look()
        self.next_number = writer.next_number
        recoveries = tuple(watch.found.values())
        _say(
            f"{title}: {seconds:.0f} s, {len(recoveries)} recoveries, {totals(recoveries)}, "
            f"{sum(not each.copied and not each.reused for each in recoveries)} without a comparison"
        )
        return Stage(
            title=title,
            segments=median(each.searched for each in copies),
            bytes=sum(each.bytes for each in copies),
            seconds=seconds,
            written=writer.written,
            recoveries=recoveries,
        )

    def _write_more(self, client: LabClient) -> None:
        """More documents in small requests, merged as the server sees fit, until nothing merges any more."""
        numbers = range(self.next_number, self.next_number + BETWEEN)
        some = replace(self.load, documents_per_request=BETWEEN_EACH)
        for index in self.load.indices:
            write(client, index, numbers, some, dialect=self.dialect)
        self.next_number = numbers.stop
        names = ",".join(self.load.indices)
        client.ask("POST", f"/{names}/_flush", seconds=MERGE_SECONDS)
        while client.ask("GET", f"/{names}/_stats/merge")["_all"]["total"]["merges"]["current"]:
            time.sleep(0.5)  # no server tells when its last merge has ended


def report(figures: Figures) -> list[str]:
    """The figures as two tables."""
    rounds = len(figures.apart[0].first)
    return [
        f"{figures.server}; load of the machine {os.getloadavg()[0]:.1f}",
        "",
        f"queries, the second set over the first, {rounds} rounds of {GROUP} each: median (quartiles)",
        "",
        *_query_table(figures),
        "",
        "rolling restarts, recoveries of copies from their primaries",
        "",
        *_restart_table(figures.stages),
    ]


def _query_table(figures: Figures) -> list[str]:
    rows = [
        (
            after.shape,
            _spread(before.ratios),
            _spread(after.ratios),
            _spread(before.cpu_ratios),
            _spread(after.cpu_ratios),
            f"{median(after.first_cpu):.1f}",
            f"{median(after.second_cpu):.1f}",
        )
        for before, after in zip(figures.apart, figures.merged, strict=True)
    ]
    heads = (
        "QUERY",
        "TIME, BOTH UNMERGED",
        "TIME, ONE MERGED",
        "CPU, BOTH UNMERGED",
        "CPU, ONE MERGED",
        "CPU MS",
        "MERGED",
    )
    return table(heads, rows, numbers=(5, 6))


def _spread(values: Sequence[float]) -> str:
    low, middle, high = quartiles(values)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _restart_table(stages: Sequence[Stage]) -> list[str]:
    rows = []
    for stage in stages:
        reused, copied, operations = totals(stage.recoveries)
        shares = [each.share for each in stage.recoveries]
        whole = sum(share > WHOLE for share in shares)
        rows.append(
            (
                stage.title,
                f"{stage.segments:.0f}",
                f"{stage.bytes / 2**20:.1f}",
                f"{len(shares)}",
                f"{whole}",
                f"{reused / 2**20:.1f}",
                f"{copied / 2**20:.1f}",
                f"{operations}",
                _spread(shares) if len(shares) > 1 else "-",
                f"{stage.seconds:.0f}",
            )
        )
    heads = (
        *("RESTART", "SEGMENTS", "MIB OF COPIES", "RECOVERIES", "COPIED WHOLE"),
        *("MIB REUSED", "MIB COPIED", "OPERATIONS", "SHARE COPIED", "SECONDS"),
    )
    return table(heads, rows, numbers=(1, 2, 3, 4, 5, 6, 7, 9))


if __name__ == "__main__":
    sys.exit(main())
