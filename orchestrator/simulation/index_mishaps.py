"""What other people do to indices during a run, as data; `index_changes.py` applies it to the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollovers:
    """An index is rolled over again and again.

    Attributes:
        index: the first one that is no longer written.
        every: seconds between two rollovers.
        times: how many rollovers.
        crowded: the place in each group of three rollovers whose new index has more replicas than the cluster
            has data nodes, so that one copy stays unassigned (0, 1 or 2). None for none.
    """

    index: str
    every: Seconds = 20.0
    times: int = 6
    crowded: int | None = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRestored:
    """A snapshot is restored into a new index, as a follower index (CCR) is bootstrapped.

    Attributes:
        seconds: duration of the primary's restore from the repository.
    """

    name: str
    seconds: Seconds = 60.0
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRestoredOver:
    """An index is closed, and a snapshot is restored over it; it keeps its uuid."""

    index: str
    seconds: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReopened:
    """An index is closed, and opened again after this many seconds."""

    index: str
    seconds: Seconds = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMounted:
    """A snapshot is mounted as a searchable index without replicas."""

    name: str
    seconds: Seconds = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasSet:
    """Another operator sets the number of replicas of an index."""

    index: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBegun:
    """Another person's force-merge or reindex keeps a node busy for a while."""

    node: NodeName
    seconds: Seconds = 600.0
    reindex: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveriesStall:
    """No recovery makes progress for a while."""

    seconds: Seconds


OfOthers: TypeAlias = (
    Rollovers
    | IndexRestored
    | IndexRestoredOver
    | IndexReopened
    | IndexMounted
    | ReplicasSet
    | WorkBegun
    | RecoveriesStall
)
