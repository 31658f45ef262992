"""How far the merges of a run have come: the part of its state that the events of merging fold into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.model.merging import MergeTarget, Writes
from orchestrator.model.reading import Instant
from orchestrator.model.work_event import (
    IndexMerged,
    MergeBegun,
    MergeDue,
    MergeEvent,
    MergeWarned,
    WritesRead,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeProgress:
    """One index of the run."""

    target: MergeTarget  # the index when the run began
    due_since: bool = False  # it was not due when the run began, and became due later
    begun: Instant | None = None  # when its merge was begun; None before
    asked: int = 0  # how often the merge was sent, in all attempts at the run
    asked_at: Instant | None = None  # when this process last sent it; None if it has not
    # when the index was last refreshed, so that searches see merged segments; segments are counted only after
    # that. None if it was not refreshed since the merge was last sent.
    refreshed_at: Instant | None = None
    ended: bool = False  # every copy has few enough segments, or the index is gone
    warned: bool = False  # the operator was warned about it
    end: IndexMerged | None = None  # the result of its merge; None before

    @property
    def due(self) -> bool:
        """Whether it is to be merged: it was due at first, or a copy came back with too many segments."""
        return self.target.due or self.due_since or self.begun is not None

    @property
    def pending(self) -> bool:
        """Whether its merge is still to be begun."""
        return self.due and self.begun is None and not self.ended

    @property
    def in_progress(self) -> bool:
        """Whether its merge was begun and has not been seen to its end."""
        return self.begun is not None and not self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """The merges of a run."""

    indices: Mapping[str, MergeProgress] = field(default_factory=dict)  # by uuid, in the order of the run
    writes: Mapping[str, Writes] | None = None  # the counters as they were first read; None before
    writes_at: Instant = 0.0  # when
    settled: bool = False  # the copies have settled after the merges; what is left is the restart

    @property
    def in_progress(self) -> tuple[MergeProgress, ...]:
        """Merges under way, or to be seen to their end."""
        return tuple(one for one in self.indices.values() if one.in_progress)

    @property
    def pending(self) -> tuple[MergeProgress, ...]:
        """Those to be begun, in order."""
        return tuple(one for one in self.indices.values() if one.pending)

    @property
    def unfinished(self) -> tuple[MergeProgress, ...]:
        """Those that are due and not seen to their end, in order."""
        return tuple(one for one in self.indices.values() if one.pending or one.in_progress)

    @property
    def left_behind(self) -> str:
        """A note on merges that a run leaves in progress; empty for none."""
        names = [one.target.index for one in self.in_progress]
        if not names:
            return ""
        them = ", ".join(names)
        return f"; the merge of {them} continues in the cluster, and a resumed run looks for it"

    @property
    def begun(self) -> bool:
        """Whether the cluster was asked for any merge."""
        return any(one.begun is not None for one in self.indices.values())


def merging_of(targets: tuple[MergeTarget, ...]) -> Merging:
    """The beginning: nothing merged."""
    return Merging(indices={target.index_uuid: MergeProgress(target=target) for target in targets})


def evolve_merging(merging: Merging, event: MergeEvent, at: Instant) -> Merging:
    """The merges after one more event of theirs."""
    match event:
        case WritesRead(counters=counters):
            return replace(merging, writes=counters, writes_at=at)
        case MergeWarned(index_uuid=uuid):
            return with_index(merging, uuid, warned=True)
        case MergeDue(index_uuid=uuid):
            return with_index(merging, uuid, due_since=True)
        case MergeBegun(index_uuid=uuid):
            return with_index(merging, uuid, begun=at)
        case IndexMerged(index_uuid=uuid):
            return with_index(merging, uuid, ended=True, end=event)


def with_index(merging: Merging, uuid: str, **changes: object) -> Merging:
    """The merges with these fields of one index changed; the same for an index that is none of the run's."""
    if uuid not in merging.indices:
        return merging
    index: MergeProgress = replace(merging.indices[uuid], **changes)  # type: ignore[arg-type]  # by keyword
    return replace(merging, indices={**merging.indices, uuid: index})


def doubted(merging: Merging) -> Merging:
    """The merges at the start of a new process: it has sent none yet, and reads writes again."""
    indices = {uuid: replace(one, asked_at=None, refreshed_at=None) for uuid, one in merging.indices.items()}
    return replace(merging, indices=indices, writes=None, writes_at=0.0)
