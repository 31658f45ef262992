"""Events of merging indices; a part of the union in `event.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.merging import Writes
from orchestrator.model.reading import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesRead:
    """The first reading of the counters that show whether an index is still being written, by uuid."""

    counters: Mapping[str, Writes]
    event: Literal["writes_read"] = "writes_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWarned:
    """A warning about a merge for the operator. It does not hold the merge."""

    index: str
    index_uuid: str
    what: str
    event: Literal["merge_warned"] = "merge_warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDue:
    """An index that needed no merge at the start of the run is to be merged now, or may have to be.

    Attributes:
        why: a copy returned with too many segments, or a shard has no copy to count.
    """

    index: str
    index_uuid: str
    why: str
    event: Literal["merge_due"] = "merge_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBegun:
    """The merge of an index is about to be requested, or a running merge is adopted (`found`).

    Attributes:
        segments: segments of the copy that has the most.
        bytes: of all copies together.
    """

    index: str
    index_uuid: str
    segments: int
    bytes: int
    found: bool = False
    event: Literal["merge_begun"] = "merge_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMerged:
    """Every started copy of an index has few enough segments, counted on each, and no merge of it runs.

    Attributes:
        segments: segments of the copy that has the most now.
        seconds: since the merge began; 0 when this run did not merge it.
        incarnations: incarnations of the nodes at this time. A node is due for a restart while its
            incarnation is one of them.
        why: a remark, such as that the index is gone, or is being written and has more segments again.
    """

    index: str
    index_uuid: str
    segments: int
    bytes: int
    seconds: Seconds
    incarnations: Mapping[NodeName, Incarnation]
    why: str = ""
    event: Literal["index_merged"] = "index_merged"


MergeEvent: TypeAlias = WritesRead | MergeWarned | MergeDue | MergeBegun | IndexMerged
