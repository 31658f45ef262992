"""A request as data. The same value is sent and described, so the two cannot differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

ONE_BYTES: Final = 1024 * 1024
"""Of an answer about one node or the cluster as a whole: a version, a count."""
NODES_BYTES: Final = 32 * 1024 * 1024
"""Of an answer that grows with the nodes or the settings."""
SHARDS_BYTES: Final = 512 * 1024 * 1024
"""Of an answer that grows with the shards: 100,000 take about 100 MB unfiltered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to the cluster.

    Attributes:
        path: without a query; names in it are quoted already (`quoted`).
        params: the query; values are quoted when sent.
        body: JSON, None for no body.
        accept: statuses of 300 and above that are an answer, not an error, to this request.
        reshape: turns the answer of an old version into the form of later versions.
        silence: seconds until the server must answer; None for the client's own limit.
        most_bytes: of the answer.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Any | None = None
    accept: frozenset[int] = frozenset()
    reshape: Callable[[Any], Any] | None = None
    silence: float | None = None
    most_bytes: int = NODES_BYTES

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        query = "&".join(f"{key}={quote(value, safe=',*:_-.')}" for key, value in self.params.items())
        return f"{self.path}?{query}" if query else self.path

    def __str__(self) -> str:
        body = "" if self.body is None else f" {json.dumps(self.body, ensure_ascii=False)}"
        return f"{self.method} {self.target}{body}"


def get(path: str, **more: Any) -> Request:
    """A read."""
    return Request(method="GET", path=path, **more)


def quoted(name: str) -> str:
    """Quote a name as one part of a path, with any characters in it."""
    return quote(name, safe="")


def filtered(*fields: str) -> dict[str, str]:
    """The query for an answer with only these fields."""
    return {"filter_path": ",".join(fields)}
