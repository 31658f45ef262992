"""Data for a lab cluster, so that a restart has something to recover."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lab.client import LabClient
from tests.lab.errors import LabError

DOCUMENTS_PER_REQUEST = 500
GREEN_SECONDS = 120
_WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedIndex:
    """An index to create.

    Attributes:
        name: its name.
        shards: primary shards.
        replicas: copies of each beside the primary.
        documents: how many.
        document_bytes: approximate length of each document's text; it does not compress well.
    """

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


def seed(
    client: LabClient,
    indices: Sequence[SeedIndex] = THREE_INDICES,
    *,
    number: int = 1,
    bulk: str = "_bulk",
) -> None:
    """Make and fill indices, flush them, and wait until every copy is started.

    Args:
        client: of the cluster.
        indices: the indices to create.
        number: seed of the texts, so that two runs have the same data.
        bulk: path of the bulk request below an index (`Distribution.bulk`).

    Raises:
        LabError: the cluster refused something, or does not become green.
    """
    dice = random.Random(number)  # noqa: S311  (test data, the same each time)
    for index in indices:
        settings = {"number_of_shards": index.shards, "number_of_replicas": index.replicas}
        client.ask("PUT", f"/{index.name}", {"settings": settings})
        for first in range(0, index.documents, DOCUMENTS_PER_REQUEST):
            numbers = range(first, min(first + DOCUMENTS_PER_REQUEST, index.documents))
            answer = client.ask("POST", f"/{index.name}/{bulk}", bulk_body(index, numbers, dice))
            if answer.get("errors") or any("error" in item["index"] for item in answer["items"]):
                raise LabError(f"seeding {index.name}: the cluster refused documents: {str(answer)[:500]}")
    names = ",".join(index.name for index in indices)
    client.ask("POST", f"/{names}/_flush")
    path = f"/_cluster/health/{names}?wait_for_status=green&wait_for_events=languid&timeout={GREEN_SECONDS}s"
    health = client.ask("GET", path, accept=(408,), seconds=GREEN_SECONDS + 10)
    if health["timed_out"]:
        raise LabError(f"the seeded indices are not green after {GREEN_SECONDS} s: {json.dumps(health)}")


def bulk_body(index: SeedIndex, numbers: Sequence[int], dice: random.Random) -> str:
    """The text of one bulk request with the documents of these numbers."""
    lines = []
    for each in numbers:
        words = f"{dice.choice(_WORDS)} {dice.choice(_WORDS)} "
        noise = dice.randbytes(max(0, index.document_bytes - len(words)) // 2).hex()
        lines.append(json.dumps({"index": {"_id": f"{index.name}-{each}"}}))
        lines.append(json.dumps({"number": each, "text": words + noise}))
    return "\n".join([*lines, ""])
