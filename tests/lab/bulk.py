"""A bulk load like a pipeline's, which leaves every copy of every shard in many small segments.

Each bulk request ends in a refresh, so each copy gets a new segment. A merge policy that allows a hundred
segments a tier keeps them. At the end the merge policy is restored, the indices are flushed, and the copies
are green.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tests.lab.client import LabClient

GREEN_SECONDS: Final = 180
BULK_SECONDS: Final = 120.0
AT_ONCE: Final = 3
"""Indices that are loaded at a time: two cores are then busy."""

KEEP_SEGMENTS: Final[Mapping[str, str]] = {
    "index.merge.policy.segments_per_tier": "100",
    "index.merge.policy.floor_segment": "1kb",
}
"""With these settings a copy of fewer than a hundred segments is not merged. The floor is below the segments'
own size: the policy treats all smaller segments as being of the floor's size."""
_DURABILITY: Final = "index.translog.durability"
_AS_LOADERS_DO: Final = {"index.refresh_interval": "-1", _DURABILITY: "async"}
_AS_FOUND: Final = {"index.refresh_interval": "1s", _DURABILITY: "request"}
"""The servers' own defaults, written out: 2.4 has no other way to restore them."""

_WORDS: Final = (5000, 200_000)
"""How many different words there are, and how long the text is from which documents are cut."""
_TOPICS: Final = (200, 9973)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLoad:
    """The indices and documents to load."""

    indices: tuple[str, ...]  # their names
    documents: int  # how many in all, divided evenly
    shards: int = 2  # primary shards of each
    replicas: int = 1  # copies of each beside the primary
    documents_per_request: int = 1000  # of a bulk request; each leaves one segment in each copy
    document_words: int = 20  # length of each document's text
    # further index settings by their dotted names, in force from the start
    settings: Mapping[str, str] | None = None

    @property
    def copies(self) -> int:
        """Shard copies of all its indices."""
        return len(self.indices) * self.shards * (1 + self.replicas)


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """Names with two figures: `posts-01`, `posts-02`, ..."""
    return tuple(f"{prefix}-{number:02}" for number in range(1, count + 1))


POSTS: Final = BulkLoad(indices=numbered("posts", 12), documents=300_000)
"""48 copies of 12,500 documents, each in some two dozen segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How documents are sent to a server."""

    mapping: Mapping[str, Any]  # the body's `mappings`
    bulk: str  # path of the bulk request below the index
    unset: Mapping[str, str | None]  # the value that restores a setting of `KEEP_SEGMENTS`; None removes it
    durability: bool = True  # whether an index has `index.translog.durability` (2.0)

    def known(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Those of the settings that the server has."""
        return {key: value for key, value in settings.items() if self.durability or key != _DURABILITY}


TODAY: Final = Dialect(
    mapping={
        "properties": {
            "text": {"type": "text"},
            "topic": {"type": "keyword"},
            "number": {"type": "long"},
            "score": {"type": "double"},
        }
    },
    bulk="_bulk",
    unset=dict.fromkeys(KEEP_SEGMENTS),
)
"""Elasticsearch from 7 on, and OpenSearch: no types."""


def load(client: LabClient, wanted: BulkLoad = POSTS, *, dialect: Dialect = TODAY) -> None:
    """Make the indices, load them, restore the merge policy, flush, and wait until every copy is started."""
    each = wanted.documents // len(wanted.indices)
    for name in wanted.indices:
        settings = {
            "index.number_of_shards": wanted.shards,
            "index.number_of_replicas": wanted.replicas,
            **dialect.known(_AS_LOADERS_DO),
            **KEEP_SEGMENTS,
            **(wanted.settings or {}),
        }
        client.ask("PUT", f"/{name}", {"settings": settings, "mappings": dialect.mapping})
    client.wait_green(wanted.indices, GREEN_SECONDS)  # a replica made later would get the primary's files

    def fill(name: str) -> None:
        write(client, name, range(each), wanted, dialect=dialect)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        list(pool.map(fill, wanted.indices))  # raises a thread's exception
    names = ",".join(wanted.indices)
    kept = {key: value for key, value in dialect.unset.items() if key not in (wanted.settings or {})}
    # The flush comes first: OpenSearch merges in a flush, by the policy in force.
    client.ask("POST", f"/{names}/_flush", seconds=BULK_SECONDS)
    client.ask("PUT", f"/{names}/_settings", {**kept, **dialect.known(_AS_FOUND)})
    client.wait_green(wanted.indices, GREEN_SECONDS)


def write(client: LabClient, index: str, numbers: range, wanted: BulkLoad, *, dialect: Dialect) -> None:
    """Write the documents of these numbers, with a refresh after each request."""
    for first in range(numbers.start, numbers.stop, wanted.documents_per_request):
        some = range(first, min(first + wanted.documents_per_request, numbers.stop))
        body = "\n".join([*_lines(index, some, wanted.document_words), ""])
        path = f"/{index}/{dialect.bulk}?refresh=true&filter_path=errors,items.*.error"
        client.fill(path, body, seconds=BULK_SECONDS)


def _lines(index: str, numbers: range, words: int) -> Iterator[str]:
    """The lines of a bulk request. They depend only on the index's number, and the documents'."""
    place = index.rpartition("-")[2]  # `posts-03` and `twin-03` hold the same
    dice = random.Random(f"1/{place}/{numbers.start}")  # noqa: S311  (test data, the same each time)
    text, topics = _running_text("word", *_WORDS), _running_text("topic", *_TOPICS)
    for each in numbers:
        begin = dice.randrange(len(text) - words)
        yield f'{{"index":{{"_id":"{place}-{each}"}}}}'
        yield (
            f'{{"number":{each},"topic":"{topics[begin % len(topics)]}","score":{begin % 100_000 / 1000},'
            f'"text":"{" ".join(text[begin : begin + words])}"}}'
        )


@functools.cache
def _running_text(word: str, different: int, length: int) -> tuple[str, ...]:
    """The text from which documents are cut: drawing the words of each would cost more than sending them.

    Some words are common and many are rare, as in a language: weights of 1/1, 1/2, 1/3, …
    """
    dice = random.Random(word)  # noqa: S311  (test data, the same each time)
    words = [f"{word}{each}" for each in range(different)]
    return tuple(dice.choices(words, weights=[1 / rank for rank in range(1, different + 1)], k=length))
