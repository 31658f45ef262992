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
    """The first reading of the counters by which it is told whether an index is still written, by uuid."""

    counters: Mapping[str, Writes]
    event: Literal["writes_read"] = "writes_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWarned:
    """Something that the operator has to know of a merge, and that does not hold it."""

    index: str
    index_uuid: str
    what: str
    event: Literal["merge_warned"] = "merge_warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDue:
    """An index that was not to be merged when the run began is to be merged now, or may have to be.

    Attributes:
        why: a copy of it came back with too many segments, or a shard has no copy to be counted.
    """

    index: str
    index_uuid: str
    why: str
    event: Literal["merge_due"] = "merge_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBegun:
    """The merge of an index is about to be asked for, or one that runs already is taken for ours (`found`).

    Attributes:
        segments: of the copy that has most of them.
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
        segments: of the copy that has most of them by now.
        seconds: since it was begun; 0 when it was not merged by this run.
        incarnations: the lives of the nodes by then: a node is due for a restart while it lives one of them.
        why: what is to be said beside, such as that it is gone, or is written and has more segments again.
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
