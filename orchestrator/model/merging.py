"""Force-merging after a bulk load: what is wanted, what is read of the indices, and how far it has come.

A force-merge is one call an index; the cluster carries it on whoever has asked for it and whoever listens. So
it is never known by its answer, only by what is read: the tasks that run, and the segments of every copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.reading import Seconds

LARGEST_NATURAL_SEGMENT_BYTES = 5 * 1024**3
"""`index.merge.policy.max_merged_segment`, 5 GB by default: the usual merges leave a larger segment alone,
with whatever is deleted in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """What indices are to have once they are loaded; None leaves a setting as the loader left it.

    Attributes:
        number_of_replicas: copies beside the primary.
        refresh_interval: as the server takes it, such as `1s`; an empty text takes the setting away.
        translog_durability: `request` or `async`.
    """

    number_of_replicas: int | None = None
    refresh_interval: str | None = None
    translog_durability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How indices are merged before the restart.

    Attributes:
        patterns: names or globs, as they were given.
        max_segments: most segments that a copy may have afterwards.
        allow_writes: go on with indices that are still being written.
        at_once: indices that are merged at a time, in all.
        per_node: of these, so many with a copy on the same node.
        put_right: what bulk loaders leave behind, set to these values after the merge.
        deadline: seconds within which the merge of one index has ended, from when it was last asked for.
    """

    patterns: tuple[str, ...]
    max_segments: int = 5
    allow_writes: bool = False
    at_once: int = 2
    per_node: int = 1
    put_right: LoaderSettings = field(default_factory=LoaderSettings)
    deadline: Seconds = 8 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """An index of the run, as it was found when the run began.

    Attributes:
        segments: of the copy that has most of them.
        bytes: of all copies together.
        due: whether it is to be merged: it has too many segments, or a merge of it was begun by an earlier
            run that did not see its end.
    """

    index: str
    index_uuid: str
    segments: int
    bytes: int
    due: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySegments:
    """The segments of one started copy.

    Attributes:
        segments: those that a search goes through.
        bytes: of them, on disk.
        largest_bytes: of the largest of them.
    """

    shard: ShardId
    node: NodeName
    primary: bool
    segments: int
    bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """Counters of an index that only move while it is written.

    Attributes:
        operations: indexed and deleted on its primaries since their nodes started; a restart sets it back.
        sequence: sum of the primaries' highest sequence numbers; None where the version has none (before 6).
    """

    operations: int
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkIndex:
    """What was read of one index of the run.

    Attributes:
        copies: the started ones; a copy that is not in it was not read.
        tasks: force-merges of it that run, whoever asked for them.
        tasks_known: False where the version has no task list, so that only `merging` tells.
        merging: merges of its shards that run now, those of the cluster's own accord included.
        replicas: as set.
        refresh_interval: as set; None where it is not.
        translog_durability: as set; None where it is not.
    """

    name: str
    uuid: str
    copies: tuple[CopySegments, ...]
    writes: Writes
    tasks: int = 0
    tasks_known: bool = True
    merging: int = 0
    replicas: int = 1
    refresh_interval: str | None = None
    translog_durability: str | None = None

    @property
    def segments(self) -> int:
        """Of the copy that has most of them; 0 without a copy."""
        return max((copy.segments for copy in self.copies), default=0)

    @property
    def bytes(self) -> int:
        """Of all its copies together."""
        return sum(copy.bytes for copy in self.copies)

    @property
    def under_way(self) -> bool:
        """Whether a merge of it may be running: where there is no task list, any merge counts."""
        return self.tasks > 0 or (not self.tasks_known and self.merging > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkView:
    """One reading of the indices that a run merges.

    Attributes:
        indices: by uuid; one that is gone or closed is not in it.
        closed: uuids of those that are closed: they can be neither read nor merged until they are opened.
    """

    indices: Mapping[str, BulkIndex]
    closed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLeftover:
    """A setting that a bulk loader seems to have left behind.

    Attributes:
        setting: its full name, `index.…`.
        put_right: whether the playbook says to what it is set; to `wanted` then, None takes it away.
    """

    index: str
    setting: str
    found: str
    put_right: bool
    wanted: str | None = None
