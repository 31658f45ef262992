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
    """Settings for the indices after they are loaded. None leaves a setting unchanged."""

    number_of_replicas: int | None = None  # copies besides the primary
    # in the server's format, such as `1s`; an empty text removes the setting
    refresh_interval: str | None = None
    translog_durability: str | None = None  # `request` or `async`


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How indices are merged before the restart."""

    patterns: tuple[str, ...]  # names or globs, as given
    max_segments: int = 5  # maximum segments per copy
    allow_writes: bool = False  # also merge indices that are still being written
    at_once: int = 2  # maximum number of indices merged at the same time
    per_node: int = 1  # maximum of these with a copy on the same node
    # settings that bulk loaders leave behind, set to these values after the merge
    put_right: LoaderSettings = field(default_factory=LoaderSettings)
    deadline: Seconds = 8 * 3600.0  # seconds for the merge of one index, counted from the last request


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """An index of the run, as found at the start of the run."""

    index: str
    index_uuid: str
    segments: int  # segments of the copy that has the most
    bytes: int  # of all copies together
    # whether it is to be merged: it has too many segments, or an earlier run began its merge and did not see
    # the end
    due: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySegments:
    """The segments of one started copy."""

    shard: ShardId
    node: NodeName
    primary: bool
    searched: int  # number of searchable segments
    bytes: int  # size of these segments on disk
    largest_bytes: int  # size of the largest of them
    # segments of the last commit, where a flush may lose a merge (before Elasticsearch 1.6); None elsewhere
    committed: int | None = None

    @property
    def segments(self) -> int:
        """The number that counts: a restarted node has the segments of the last commit again."""
        return max(self.searched, self.committed or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """Counters of an index that change only while it is being written."""

    operations: int  # indexed and deleted on its primaries since their nodes started; a restart resets it
    # sum of the primaries' highest sequence numbers; None where the version has none (before 6)
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkIndex:
    """The reading of one index of the run."""

    name: str
    uuid: str
    copies: tuple[CopySegments, ...]  # the started copies that were read
    writes: Writes
    tasks: int = 0  # running force-merges of it, by any client
    tasks_known: bool = True  # False where the version has no task list, so only `merging` shows it
    merging: int = 0  # running merges of its shards, including automatic ones
    replicas: int = 1  # the current value
    refresh_interval: str | None = None  # the current value; None where it is not set
    translog_durability: str | None = None  # the current value; None where it is not set

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
    """One reading of the indices that a run merges."""

    indices: Mapping[str, BulkIndex]  # by uuid, without indices that are gone or closed
    # uuids of closed indices, which can be neither read nor merged until they are opened
    closed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLeftover:
    """A setting that a bulk loader probably left behind."""

    index: str
    setting: str  # its full name, `index.…`
    found: str
    # whether the playbook sets it. If so, `wanted` is the value, and None removes the setting.
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
    """The indices that patterns resolve to, each once and sorted by name."""

    open: tuple[ResolvedIndex, ...] = ()  # the indices to work on
    # matching indices that are closed; their segments can be neither read nor merged
    closed: tuple[ResolvedIndex, ...] = ()
    # indices that match a glob but are left out, because they are hidden or their name has a leading dot.
    # Give the name or the dot to have them in `open`.
    hidden: tuple[ResolvedIndex, ...] = ()
    unmatched: tuple[str, ...] = ()  # patterns that match nothing, as given
