"""What is due after a bulk load, what its loader left behind, and the predicates on each merge.

An index is due if it has too many segments, or if a merge of it was begun and its end was not seen; nothing
of that depends on a clock. A node is due while it lives the same life as when a merge of these indices ended.

The predicates are checked before an index is merged, each time, on the current reading. The fundamental ones
and the gates are the same as before a stop. The others are particular to a merge: its index is no longer
written, it needs disk space beside the segments that it replaces, and a copy that is being recovered would
arrive with the old segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.elasticsearch.rules.recovery import is_being_restored
from orchestrator.engine.merge_state import Merging
from orchestrator.engine.predicates import Finding, Predicate, Question
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy
from orchestrator.model.merging import (
    BulkIndex,
    BulkView,
    LoaderLeftover,
    LoaderSettings,
    MergePolicy,
    MergeTarget,
)
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.model.work_event import IndexMerged

# What is due ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMerges:
    """What the journals of a cluster say about its indices."""

    # uuids of indices whose merge was begun and whose end was not seen: the program was killed
    unfinished: frozenset[str] = frozenset()
    ended: Mapping[str, IndexMerged] = field(default_factory=dict)  # by uuid, the last merge that ended


def merge_targets(bulk: BulkView, policy: MergePolicy, past: PastMerges) -> tuple[MergeTarget, ...]:
    """The indices of a run in its order, the largest first.

    So the longest merge does not begin last and then run alone.
    """
    targets = [
        MergeTarget(
            index=index.name,
            index_uuid=uuid,
            segments=index.segments,
            bytes=index.bytes,
            due=index.segments > policy.max_segments or uuid in past.unfinished,
        )
        for uuid, index in bulk.indices.items()
    ]
    return tuple(sorted(targets, key=lambda target: (-target.bytes, target.index)))


def nodes_due(
    selected: Iterable[NodeName],
    view: ClusterView,
    targets: Iterable[MergeTarget],
    past: PastMerges,
    left: Iterable[LoaderLeftover] = (),
) -> tuple[NodeName, ...]:
    """The selected nodes that are to be restarted, in their order.

    All of them when a merge is about to change the disks. Else those not restarted since the last merge: a
    kill between a merge and the restart after it loses nothing, and a node that joined later is not due.
    """
    targets = tuple(targets)
    if any(target.due for target in targets) or any(one.put_right for one in left):
        return tuple(selected)
    lives = {node.name: node.incarnation for node in view.nodes}
    ends = [past.ended[target.index_uuid] for target in targets if target.index_uuid in past.ended]
    return tuple(
        name
        for name in selected
        if any(
            name in end.incarnations and not lives[name].differs_from(end.incarnations[name]) for end in ends
        )
    )


# What a loader left behind ------------------------------------

REPLICAS, REFRESH, DURABILITY = (
    "index.number_of_replicas",
    "index.refresh_interval",
    "index.translog.durability",
)


def leftovers(bulk: BulkView, right: LoaderSettings, view: ClusterView) -> tuple[LoaderLeftover, ...]:
    """What loaders seem to have left behind, index by index."""
    found = []
    for index in sorted(bulk.indices.values(), key=lambda index: index.name):
        wanted = to_put_right(index, right, view)
        found += [
            LoaderLeftover(
                index=index.name,
                setting=setting,
                found=value,
                put_right=setting in wanted,
                wanted=wanted.get(setting),
            )
            for setting, value in left_behind(index).items()
        ]
    return tuple(found)


def left_behind(index: BulkIndex) -> dict[str, str]:
    """What a bulk loader seems to have left: settings with values that only suit a load."""
    found = {}
    if index.replicas == 0:
        found[REPLICAS] = "0"
    if index.refresh_interval is not None and index.refresh_interval.startswith("-1"):
        found[REFRESH] = index.refresh_interval
    if index.translog_durability == "async":
        found[DURABILITY] = "async"
    return found


def to_put_right(index: BulkIndex, right: LoaderSettings, view: ClusterView) -> dict[str, str | None]:
    """The settings to change on an index; empty when all are right. None removes a setting.

    Only values that a loader seems to have left are changed: an index with two replicas, or with a refresh
    interval of its own, has them on purpose. Where `auto_expand_replicas` sets the number of replicas, a
    value has no effect.
    """
    meta = view.metadata.get(index.uuid)
    expands = meta is not None and meta.auto_expand is not None
    wanted: dict[str, str | None] = {}
    if right.number_of_replicas is not None and not expands:
        wanted[REPLICAS] = str(right.number_of_replicas)
    if right.refresh_interval is not None:
        wanted[REFRESH] = right.refresh_interval or None
    if right.translog_durability is not None:
        wanted[DURABILITY] = right.translog_durability
    left = left_behind(index)
    return {key: value for key, value in wanted.items() if key in left and left[key] != value}


# What holds a merge ------------------------------------

NOT_WRITTEN: Final = "index_is_not_written"
"""The predicate that `--allow-writes` sets aside."""

_IN_PLACE: Final = "no_copy_on_its_way"

_SHARED: Final = ("observation_is_fresh", "cluster_is_the_one_named", "lease_is_held", "gates_open")
"""The predicates on stops that a merge has to pass as well."""

_THOUSAND: Final = 1000


def size(count: int) -> str:
    """Bytes in decimal units, as in evidence: `512 B`, `1.2 GB`."""
    amount, units = float(count), ["B", "kB", "MB", "GB"]
    while amount >= _THOUSAND and len(units) > 1:
        amount /= _THOUSAND
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def written(merging: Merging, index: BulkIndex) -> str | None:
    """What shows that an index was written since the run's first reading; None when nothing does.

    The count of operations begins at zero with each node process, so a lower count proves nothing.
    """
    first, now = (merging.writes or {}).get(index.uuid), index.writes
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
    if index.uuid not in (merging.writes or {}):
        yield f"index {index.name}", "whether it is written is not known: it was not there at the first look"
    elif what := written(merging, index):
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
    under_way = {one.target.index_uuid for one in question.state.merging.in_progress} - {index.uuid}
    beside = _bytes_by_node(bulk.indices[uuid] for uuid in under_way if uuid in bulk.indices)
    for node, need in sorted(_bytes_by_node([index]).items()):
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


def _bytes_by_node(indices: Iterable[BulkIndex]) -> Counter[NodeName]:
    """Bytes of the indices' copies on each node."""
    found = Counter[NodeName]()
    for index in indices:
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

IDENTITY: Final = tuple(rule for rule in PREDICATES if rule.name == "cluster_is_the_one_named")
"""What has to hold before anything is concluded from a reading."""

MERGE_RULES: Final[tuple[Predicate, ...]] = (
    *(rule for rule in PREDICATES if rule.name in _SHARED and not rule.may_be_disabled),
    *OWN_RULES,
    *(rule for rule in PREDICATES if rule.name in _SHARED and rule.may_be_disabled),
)
"""In the order in which they are checked."""
