"""What a node's machine saw of its turn: what the judges know without the program's word."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.cluster import ShardId
from orchestrator.model.reading import Instant, Seconds

IN_DOUBT: Seconds = 30.0
"""What was asked for and not heard of may be taken as lost after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A shard whose copy is not back on a node: how many copies serve, and how many did before the stops."""

    shard: ShardId
    serving: int
    had: int

    def __str__(self) -> str:
        return str(self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a node's machine saw.

    Attributes:
        what: `hook while_stopped 0`, `tuned vm.swappiness`, `stopped`, `began` or `booted`.
        alive: the node's process ran.
        missing: of an after_recovery hook, the shards of the node whose copies were not back.
    """

    at: Instant
    what: str
    alive: bool
    missing: tuple[Absent, ...] = ()
