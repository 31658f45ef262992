"""What a node's machine recorded of its turn: the judges use it instead of the program's statements."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.cluster import ShardId
from orchestrator.model.reading import Instant, Seconds

IN_DOUBT: Seconds = 30.0
"""A request without an answer may count as lost after this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A shard whose copy is not back on a node: number of copies that serve now, and before the stops."""

    shard: ShardId
    serving: int
    had: int

    def __str__(self) -> str:
        return str(self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a node's machine recorded.

    Attributes:
        what: `hook while_stopped 0`, `tuned vm.swappiness`, `stopped`, `began` or `booted`.
        alive: the node's process ran.
        missing: for an after_recovery hook, the shards of the node whose copies were not back.
    """

    at: Instant
    what: str
    alive: bool
    missing: tuple[Absent, ...] = ()
