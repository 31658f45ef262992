"""Query times on two sets of indices that hold the same documents, side by side.

Each round asks every shape of query once of each set, the sets in turn the first; what is compared is the two
answers' times within a round, so that what else the machine does falls on both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, Final

from orchestrator.lab.client import LabClient

NO_CACHES: Final = {"index.queries.cache.enabled": "false"}
"""Of the index: the query cache keeps results by segment, and takes large ones alone (10,000 documents and
more), so that it would stand for the merge. Requests are sent with `request_cache=false`."""

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
    """One shape of query on two sets.

    Attributes:
        shape: its name.
        first: milliseconds on the first set, round by round.
        second: on the second.
    """

    shape: str
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Second over first, round by round."""
        return tuple(b / a for a, b in zip(self.first, self.second, strict=True))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compare(
    client: LabClient, first: str, second: str, *, rounds: int, warm_up: int, number: int
) -> tuple[Compared, ...]:
    """Ask every shape of both patterns, so many rounds, after so many that do not count.

    Raises:
        RuntimeError: the sets gave different counts of hits, so that there is nothing to compare.
    """
    times: dict[tuple[str, str], list[float]] = {
        (shape, pattern): [] for shape in SHAPES for pattern in (first, second)
    }
    dice = random.Random(number)  # noqa: S311  (the same questions each time)
    for turn in range(warm_up + rounds):
        for shape, make in SHAPES.items():
            body = make(dice)
            hits = set()
            for pattern in (first, second) if turn % 2 else (second, first):
                seconds, found = _ask(client, pattern, body)
                hits.add(found)
                if turn >= warm_up:
                    times[shape, pattern].append(1000 * seconds)
            if len(hits) != 1:
                raise RuntimeError(f"{shape} found {hits} in {first} and {second}: {body}")
    return tuple(
        Compared(shape=shape, first=tuple(times[shape, first]), second=tuple(times[shape, second]))
        for shape in SHAPES
    )


def _ask(client: LabClient, pattern: str, body: Mapping[str, Any]) -> tuple[float, int]:
    path = f"/{pattern}/_search?request_cache=false&preference=bench"  # the same copies each time
    began = time.perf_counter()
    answer = client.send(client.access.endpoints[0], "POST", path, body)
    seconds = time.perf_counter() - began
    if not answer.ok or answer.body["_shards"]["failed"] or answer.body["timed_out"]:
        raise RuntimeError(f"{path}: {answer}")
    total = answer.body["hits"]["total"]
    return seconds, int(total if isinstance(total, int) else total["value"])
