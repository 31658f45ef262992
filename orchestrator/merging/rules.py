"""The predicates that are checked before an index is merged, each time, on the current reading.

The fundamental predicates and the gates are the same as before a stop. The others are particular to a merge:
its index is no longer written, it needs disk space beside the segments that it replaces, and a copy that is
being recovered would arrive with the old segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.elasticsearch.recovery import is_being_restored
from orchestrator.engine.kinds.predicates import Finding, Predicate, Question
from orchestrator.merging.amounts import size
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy
from orchestrator.model.merging import BulkIndex, Writes
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown

NOT_WRITTEN: Final = "index_is_not_written"
"""The predicate that `--allow-writes` sets aside."""

_IN_PLACE: Final = "no_copy_on_its_way"

_SHARED: Final = ("observation_is_fresh", "cluster_is_the_one_named", "lease_is_held", "gates_open")
"""The predicates on stops that a merge has to pass as well."""


def written(first: Writes | None, now: Writes) -> str | None:
    """What shows that an index was written between two readings; None when nothing does.

    The count of operations begins at zero with each node process, so a lower count proves nothing.
    """
    if first is None:
        return None
    if first.sequence is not None and now.sequence is not None and now.sequence > first.sequence:
        return f"sequence numbers went from {first.sequence} to {now.sequence}"
    if now.operations > first.operations:
        return f"{now.operations - first.operations} documents were indexed or deleted"
    return None


def index_is_not_written(question: Question) -> Iterator[Finding]:
    """No document was written since the run's first reading, unless `--allow-writes` is given."""
    merging, index, policy = question.state.merging, question.index, question.policy
    if index is None or (policy.merge is not None and policy.merge.allow_writes):
        return
    first = (merging.writes or {}).get(index.uuid)
    if first is None:
        yield f"index {index.name}", "whether it is written is not known: it was not there at the first look"
        return
    what = written(first, index.writes)
    if what is not None:
        seconds = question.observation.at - merging.writes_at
        evidence = (
            f"is still written: {what} in {seconds:.0f} s; a merge is for "
            "an index that is no longer written: end the load first, or take it with `--allow-writes`"
        )
        yield f"index {index.name}", evidence


def not_counted(policy: Policy, view: ClusterView) -> Iterator[ShardCopy]:
    """Primaries of shards without a started copy: it is unknown whether these are to be merged.

    Not of an index that may be red, that is being restored, or for which the predicate is disabled.
    """
    for copy in view.not_started:
        name = copy.shard.index
        may_be_red = name in policy.accept_red or policy.disables(_IN_PLACE, f"index {name}")
        if copy.primary and not (may_be_red or is_being_restored(view, copy)):
            yield copy


def no_copy_on_its_way(question: Question) -> Iterator[Finding]:
    """Every copy of the index is started and not moving, and each shard has at least one."""
    view, index = question.observation.cluster, question.index
    if index is None or isinstance(view, Unknown):
        return
    if not index.copies:
        yield f"index {index.name}", "no copy of it is started: a red index needs repair, not a merge"
    of_index = (copy for copy in not_counted(question.policy, view) if copy.shard.index_uuid == index.uuid)
    red = [copy for copy in of_index if copy.state is CopyState.UNASSIGNED]
    if index.copies and red:
        evidence = f"no copy of {red[0].shard} is started: a red index needs repair, not a merge"
        yield f"index {index.name}", evidence
    on_its_way = (CopyState.INITIALIZING, CopyState.RELOCATING)
    moving = [c for c in view.copies if c.shard.index_uuid == index.uuid and c.state in on_its_way]
    if moving:
        first = moving[0]
        where = f"{first.shard} is {first.state.value} on {first.node}"
        yield f"index {index.name}", where + (f", and {len(moving) - 1} more" if len(moving) > 1 else "")


def disk_has_room(question: Question) -> Iterator[Finding]:
    """Each node has room for the merged segments beside the old ones, below its high watermark.

    Old segments are deleted when no search uses them any more. On an index that is not refreshed that is
    after the whole merge, so every copy on the node counts, not only the copy that is being merged. The space
    that other indices may still need for their merges counts as well.
    """
    disks, index, bulk = question.observation.disks, question.index, question.observation.bulk
    if index is None or isinstance(disks, Unknown) or isinstance(bulk, Unknown):
        return
    others = [
        bulk.indices[one.target.index_uuid]
        for one in question.state.merging.in_hand
        if one.target.index_uuid in bulk.indices and one.target.index_uuid != index.uuid
    ]
    beside = Counter[NodeName]()
    for other in others:
        beside.update(bytes_by_node(other))
    for node, need in sorted(bytes_by_node(index).items()):
        disk = disks.get(node)
        room = None if disk is None else disk.room_bytes
        if room is None:
            yield f"index {index.name}", f"the room on {node}'s disk is not known"
            continue
        if need + beside[node] > room:
            taken = f" and the merges under way {size(beside[node])}" if beside[node] else ""
            evidence = (
                f"merging its copies on {node} may take {size(need)} more for a while (as much as they have)"
                f"{taken}, and {node} has room for {size(room)} below its high watermark: "
                f"{size(need + beside[node] - room)} too little"
            )
            yield f"index {index.name}", evidence


def bytes_by_node(index: BulkIndex) -> Counter[NodeName]:
    """Bytes of the index's copies on each node."""
    found = Counter[NodeName]()
    for copy in index.copies:
        found[copy.node] += copy.bytes
    return found


OWN_RULES: Final[tuple[Predicate, ...]] = (
    Predicate(
        name=NOT_WRITTEN,
        why="What is written after a merge makes new segments, and a segment above 5 GB is not merged again.",
        check=index_is_not_written,
        passes_with_time=False,
    ),
    Predicate(
        name=_IN_PLACE,
        why="A copy that recovers while its primary is merged arrives with its old segments.",
        check=no_copy_on_its_way,
    ),
    Predicate(
        name="disk_has_room",
        why="A merge writes the new segments before it deletes the old: a full disk makes indices read-only.",
        check=disk_has_room,
        passes_with_time=False,
    ),
)

MERGE_RULES: Final[tuple[Predicate, ...]] = (
    *(rule for rule in PREDICATES if rule.name in _SHARED and not rule.may_be_disabled),
    *OWN_RULES,
    *(rule for rule in PREDICATES if rule.name in _SHARED and rule.may_be_disabled),
)
"""In the order in which they are checked."""
