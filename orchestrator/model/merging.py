"""Force-merge after a bulk load: what is wanted, what is read of the indices, and the progress.

A force-merge is one call per index. The cluster continues it even if the client disconnects. So the answer to
the call proves nothing; only the running tasks and the segments of every copy show the progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.reading import Seconds

LARGEST_NATURAL_SEGMENT_BYTES = 5 * 1024**3
"""`index.merge.policy.max_merged_segment`, 5 GB by default. The usual merges leave larger segments alone,
including the deleted documents in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """Settings for the indices after they are loaded. None leaves a setting unchanged.

    Attributes:
        number_of_replicas: copies besides the primary.
        refresh_interval: in the server's format, such as `1s`; an empty text removes the setting.
        translog_durability: `request` or `async`.
    """

    number_of_replicas: int | None = None
    refresh_interval: str | None = None
    translog_durability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How indices are merged before the restart.

    Attributes:
        patterns: names or globs, as given.
        max_segments: maximum segments per copy.
        allow_writes: also merge indices that are still being written.
        at_once: maximum number of indices merged at the same time.
        per_node: maximum of these with a copy on the same node.
        put_right: settings that bulk loaders leave behind, set to these values after the merge.
        deadline: seconds for the merge of one index, counted from the last request.
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
    """An index of the run, as found at the start of the run.

    Attributes:
        segments: segments of the copy that has the most.
        bytes: of all copies together.
        due: whether it is to be merged: it has too many segments, or an earlier run began its merge and did
            not see the end.
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
        searched: number of searchable segments.
        bytes: size of these segments on disk.
        largest_bytes: size of the largest of them.
        committed: segments of the last commit, where a flush may lose a merge (before Elasticsearch 1.6);
            None elsewhere.
    """

    shard: ShardId
    node: NodeName
    primary: bool
    searched: int
    bytes: int
    largest_bytes: int
    committed: int | None = None

    @property
    def segments(self) -> int:
        """The number that counts: a restarted node has the segments of the last commit again."""
        return max(self.searched, self.committed or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """Counters of an index that change only while it is being written.

    Attributes:
        operations: indexed and deleted on its primaries since their nodes started; a restart resets it.
        sequence: sum of the primaries' highest sequence numbers; None where the version has none (before 6).
    """

    operations: int
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkIndex:
    """The reading of one index of the run.

    Attributes:
        copies: the started copies that were read.
        tasks: running force-merges of it, by any client.
        tasks_known: False where the version has no task list, so only `merging` shows it.
        merging: running merges of its shards, including automatic ones.
        replicas: the current value.
        refresh_interval: the current value; None where it is not set.
        translog_durability: the current value; None where it is not set.
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
        """Segments of the copy that has the most; 0 without a copy."""
        return max((copy.segments for copy in self.copies), default=0)

    @property
    def bytes(self) -> int:
        """Size of all copies together."""
        return sum(copy.bytes for copy in self.copies)

    @property
    def under_way(self) -> bool:
        """Whether a merge of it may be running. Without a task list, any merge counts."""
        return self.tasks > 0 or (not self.tasks_known and self.merging > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkView:
    """One reading of the indices that a run merges.

    Attributes:
        indices: by uuid, without indices that are gone or closed.
        closed: uuids of closed indices, which can be neither read nor merged until they are opened.
    """

    indices: Mapping[str, BulkIndex]
    closed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLeftover:
    """A setting that a bulk loader probably left behind.

    Attributes:
        setting: its full name, `index.…`.
        put_right: whether the playbook sets it. If so, `wanted` is the value, and None removes the setting.
    """

    index: str
    setting: str
    found: str
    put_right: bool
    wanted: str | None = None


# The concrete indices behind names, globs, aliases and data streams ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedIndex:
    """An index as found. A later index of the same name has another uuid."""

    name: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The indices that patterns resolve to, each once and sorted by name.

    Attributes:
        open: the indices to work on.
        closed: matching indices that are closed; their segments can be neither read nor merged.
        hidden: indices that match a glob but are left out, because they are hidden or their name has a
            leading dot. Give the name or the dot to have them in `open`.
        unmatched: patterns that match nothing, as given.
    """

    open: tuple[ResolvedIndex, ...] = ()
    closed: tuple[ResolvedIndex, ...] = ()
    hidden: tuple[ResolvedIndex, ...] = ()
    unmatched: tuple[str, ...] = ()
