"""The indices to merge and the nodes to restart after a bulk load; none of them when it is run again.

Nothing here depends on a clock. An index is due if it has too many segments, or if a merge of it was begun
and its end was not seen. A node is due while it lives the same life as when a merge of these indices ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.merging.settling import changes, left_behind
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMerges:
    """What the journals of a cluster say about its indices.

    Attributes:
        unfinished: uuids of indices whose merge was begun and whose end was not seen: the program was killed.
        ended: by uuid, the last merge that ended.
    """

    unfinished: frozenset[str] = frozenset()
    ended: Mapping[str, IndexMerged] = field(default_factory=dict)


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


def leftovers(bulk: BulkView, right: LoaderSettings, view: ClusterView) -> tuple[LoaderLeftover, ...]:
    """What loaders seem to have left behind, index by index."""
    indices = sorted(bulk.indices.values(), key=lambda index: index.name)
    return tuple(found for index in indices for found in _of_index(index, right, view))


def _of_index(index: BulkIndex, right: LoaderSettings, view: ClusterView) -> Iterable[LoaderLeftover]:
    meta = view.metadata.get(index.uuid)
    wanted = changes(index, right, expands=meta is not None and meta.auto_expand is not None)
    for setting, found in left_behind(index):
        yield LoaderLeftover(
            index=index.name,
            setting=setting,
            found=found,
            put_right=setting in wanted,
            wanted=wanted.get(setting),
        )


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
