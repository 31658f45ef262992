"""Data for a lab cluster, so that a restart has something to recover."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lab.client import LabClient

DOCUMENTS_PER_REQUEST = 500
GREEN_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedIndex:
    """An index to create; the text of a document of `document_bytes` does not compress well."""

    name: str
    shards: int = 2
    replicas: int = 1
    documents: int = 1000
    document_bytes: int = 200


THREE_INDICES: tuple[SeedIndex, ...] = (
    SeedIndex(name="posts", shards=3, documents=3000, document_bytes=500),
    SeedIndex(name="people", shards=1, replicas=2, documents=500),
    SeedIndex(name="events", shards=2, documents=2000),
)
"""A few megabytes with one and with two replicas: seconds to write, and shards on every node."""


def seed(client: LabClient, indices: Sequence[SeedIndex] = THREE_INDICES, *, bulk: str = "_bulk") -> None:
    """Make and fill indices, flush them, and wait until every copy is started.

    `bulk` is the path of a bulk request below an index (`Distribution.bulk`).
    """
    dice = random.Random(1)  # noqa: S311  (test data, the same each time)
    for index in indices:
        settings = {"number_of_shards": index.shards, "number_of_replicas": index.replicas}
        client.ask("PUT", f"/{index.name}", {"settings": settings})
        for first in range(0, index.documents, DOCUMENTS_PER_REQUEST):
            numbers = range(first, min(first + DOCUMENTS_PER_REQUEST, index.documents))
            client.fill(f"/{index.name}/{bulk}", bulk_body(index, numbers, dice))
    names = [index.name for index in indices]
    client.ask("POST", f"/{','.join(names)}/_flush")
    client.wait_green(names, GREEN_SECONDS)


def bulk_body(index: SeedIndex, numbers: Sequence[int], dice: random.Random) -> str:
    """The text of one bulk request with the documents of these numbers."""
    lines = []
    for each in numbers:
        text = f"word{dice.randrange(12)} {dice.randbytes(index.document_bytes // 2).hex()}"
        lines.append(json.dumps({"index": {"_id": f"{index.name}-{each}"}}))
        lines.append(json.dumps({"number": each, "text": text}))
    return "\n".join([*lines, ""])
