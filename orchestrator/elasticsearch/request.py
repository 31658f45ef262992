"""A request as data. The same value is sent and described, so the two cannot differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from urllib.parse import quote


class AnswerBytes(IntEnum):
    """The maximum size of an answer by its kind. It is far above what a real cluster sends."""

    SMALL = 4 * 1024 * 1024
    """A version, health, settings, the lease, and what follows a change."""
    BY_NODE = 64 * 1024 * 1024
    """Some kilobytes for each node."""
    BY_COPY = 512 * 1024 * 1024
    """Some hundred bytes for each index, shard copy or segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request to the cluster."""

    method: str
    path: str  # without a query; names in it are quoted already (`quoted`)
    params: Mapping[str, str] = field(default_factory=dict)  # the query; values are quoted when sent
    body: Any | None = None  # JSON, None for no body
    # statuses of 300 and above that are an answer, not an error, to this request
    accept: frozenset[int] = frozenset()
    # turns the answer of an old version into the form of later versions
    reshape: Callable[[Any], Any] | None = None
    silence: float | None = None  # seconds until the server must answer; None for the client's own limit
    answer_bytes: AnswerBytes = AnswerBytes.SMALL  # maximum size of the answer

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        query = "&".join(f"{key}={quote(value, safe=',*:_-.')}" for key, value in self.params.items())
        return f"{self.path}?{query}" if query else self.path

    def __str__(self) -> str:
        body = "" if self.body is None else f" {json.dumps(self.body, ensure_ascii=False)}"
        return f"{self.method} {self.target}{body}"


def get(path: str, **more: Any) -> HttpRequest:
    """A read with a small answer."""
    return HttpRequest(method="GET", path=path, **more)


def by_node(path: str, **more: Any) -> HttpRequest:
    """A read whose answer has a part for each node."""
    return get(path, answer_bytes=AnswerBytes.BY_NODE, **more)


def by_copy(path: str, **more: Any) -> HttpRequest:
    """A read whose answer has a part for each index, shard copy, task or snapshot."""
    return get(path, answer_bytes=AnswerBytes.BY_COPY, **more)


def quoted(name: str) -> str:
    """Quote a name as one part of a path, with any characters in it."""
    return quote(name, safe="")


def filtered(*fields: str) -> dict[str, str]:
    """The query for an answer with only these fields."""
    return {"filter_path": ",".join(fields)}
