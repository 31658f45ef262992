"""What is due after a bulk load, and what its loader left behind.

An index is due if it has too many segments, or if a merge of it was begun and its end was not seen; nothing
of that depends on a clock. A node is due while it lives the same life as when a merge of these indices ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import (
    BulkIndex,
    BulkView,
    LoaderLeftover,
    LoaderSettings,
    MergePolicy,
    MergeTarget,
)
from orchestrator.model.observation import ClusterView
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
