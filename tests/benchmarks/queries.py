"""Query times on two sets of indices that hold the same documents, side by side.

Each round asks a group of queries of each shape of both sets, the sets in turn the first; what is compared is
the two groups' times within a round, so that what else the machine does falls on both. Beside the time that a
client waits stands the processor time of the nodes, which a busy machine changes less.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from tests.lab.client import LabClient
from tests.lab.nodes import LabCluster

NO_CACHES: Final = {"index.queries.cache.enabled": "false"}
"""Of the index: the query cache keeps results by segment, and takes large ones alone (10,000 documents and
more), so that it would stand for the merge. Requests are sent with `request_cache=false`."""

GROUP: Final = 5
"""Queries of one shape in a round: the processes' clocks tick a hundred times a second."""

Query = Callable[[random.Random], Mapping[str, Any]]


def _word(dice: random.Random, low: int, high: int) -> str:
    return f"word{dice.randrange(low, high)}"


SHAPES: Final[Mapping[str, Query]] = {
    "two words": lambda dice: {
        "query": {"match": {"text": f"{_word(dice, 50, 500)} {_word(dice, 50, 500)}"}}
    },
    "a rare word": lambda dice: {"query": {"term": {"text": _word(dice, 3000, 5000)}}},
    "a phrase": lambda dice: {
        "query": {"match_phrase": {"text": f"{_word(dice, 0, 8)} {_word(dice, 0, 8)}"}}
    },
    "a prefix": lambda dice: {"query": {"prefix": {"text": f"word{dice.randrange(10, 50)}"}}},
    "50 ids": lambda dice: {
        "size": 50,
        "query": {
            "ids": {"values": [f"{dice.randrange(1, 13):02}-{dice.randrange(25_000)}" for _ in range(50)]}
        },
    },
    "sorted range": lambda dice: {
        "query": {"range": {"number": {"gte": dice.randrange(20_000)}}},
        "sort": [{"score": "desc"}],
    },
    "aggregation": lambda dice: {
        "size": 0,
        "query": {"range": {"number": {"gte": dice.randrange(5_000)}}},
        "aggs": {"topics": {"terms": {"field": "topic"}, "aggs": {"mean": {"avg": {"field": "score"}}}}},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One shape of query on two sets, round by round.

    Attributes:
        shape: its name.
        first: milliseconds of a query on the first set, the mean of the round's.
        second: on the second.
        first_cpu: milliseconds of all nodes' processors for a query on the first set.
        second_cpu: on the second.
    """

    shape: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    first_cpu: tuple[float, ...]
    second_cpu: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Time on the second over time on the first, round by round."""
        return tuple(b / a for a, b in zip(self.first, self.second, strict=True))

    @property
    def cpu_ratios(self) -> tuple[float, ...]:
        """The same of processor time."""
        return tuple(b / a for a, b in zip(self.first_cpu, self.second_cpu, strict=True))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compare(
    lab: LabCluster, first: str, second: str, *, rounds: int, warm_up: int, number: int
) -> tuple[Compared, ...]:
    """Ask every shape of both patterns, so many rounds, after so many that do not count.

    Raises:
        RuntimeError: the sets gave different counts of hits, so that there is nothing to compare.
    """
    times: dict[tuple[str, str], list[tuple[float, float]]] = {
        (shape, pattern): [] for shape in SHAPES for pattern in (first, second)
    }
    dice = random.Random(number)  # noqa: S311  (the same questions each time)
    client, clocks = lab.client, [Path(f"/proc/{pid}/stat") for pid in lab.pids().values()]
    for turn in range(warm_up + rounds):
        for shape, make in SHAPES.items():
            bodies = [make(dice) for _ in range(GROUP)]
            hits = set()
            for pattern in (first, second) if turn % 2 else (second, first):
                ticks, began = _ticks(clocks), time.perf_counter()
                hits.add(tuple(_ask(client, pattern, body) for body in bodies))
                seconds = time.perf_counter() - began
                if turn >= warm_up:
                    cpu = (_ticks(clocks) - ticks) / os.sysconf("SC_CLK_TCK")
                    times[shape, pattern].append((1000 * seconds / GROUP, 1000 * cpu / GROUP))
            if len(hits) != 1:
                raise RuntimeError(f"{shape} found {hits} in {first} and {second}: {bodies}")
    client.close()
    return tuple(
        Compared(
            shape=shape,
            first=tuple(wall for wall, _ in times[shape, first]),
            second=tuple(wall for wall, _ in times[shape, second]),
            first_cpu=tuple(cpu for _, cpu in times[shape, first]),
            second_cpu=tuple(cpu for _, cpu in times[shape, second]),
        )
        for shape in SHAPES
    )


def _ticks(clocks: Sequence[Path]) -> int:
    """What the processes have had of the processors, all their threads together, in clock ticks (proc(5))."""
    spent = 0
    for clock in clocks:
        fields = clock.read_text(encoding="utf-8").rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent


def _ask(client: LabClient, pattern: str, body: Mapping[str, Any]) -> int:
    """Ask once; the number of hits."""
    path = f"/{pattern}/_search?request_cache=false&preference=bench"  # the same copies each time
    answer = client.send(client.access.endpoints[0], "POST", path, body)
    if not answer.ok or answer.body["_shards"]["failed"] or answer.body["timed_out"]:
        raise RuntimeError(f"{path}: {answer}")
    total = answer.body["hits"]["total"]
    return int(total if isinstance(total, int) else total["value"])
