"""What is missing, and whether that is more than was missing when the run began.

Recovery is relative to a baseline: a cluster that is yellow for a reason of its own is as healthy after the
restart as it was before, and a run that waited for green would wait for ever.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator

from orchestrator.engine.state import RunState
from orchestrator.model.cluster import CopyState, Index, NodeName, ShardCopy, ShardId
from orchestrator.model.event import BaselineRecorded
from orchestrator.model.observation import ClusterView, MissingCopy
from orchestrator.model.policy import Policy, ZeroReplicas

FRESH_INDEX = "INDEX_CREATED"
"""Reason of copies of an index that was just made: for a moment it has no started copy, by nobody's fault."""


def baseline_of(view: ClusterView, boots: dict[NodeName, str]) -> BaselineRecorded:
    """What is missing now. Copies that are on their way are not: they are expected to arrive."""
    counts = Counter(
        (copy.shard, copy.primary, copy.unassigned_reason or "")
        for copy in view.copies
        if copy.state is CopyState.UNASSIGNED
    )
    missing = tuple(
        MissingCopy(
            index=shard.index,
            index_uuid=shard.index_uuid,
            number=shard.number,
            primary=primary,
            reason=reason,
            count=count,
        )
        for (shard, primary, reason), count in sorted(counts.items(), key=str)
    )
    lives = {node.name: node.incarnation for node in view.nodes}
    return BaselineRecorded(missing=missing, incarnations=lives, boots=boots)


def missing_beyond_baseline(state: RunState, view: ClusterView) -> tuple[ShardCopy, ...]:
    """Copies that are not started, less those missing at the start; copies of new indices count too.

    The routing table is what is counted, so indices that were deleted drop out, and `auto_expand_replicas`
    is what the cluster makes of it with the nodes that are present.
    """
    allowed: Counter[tuple[str, int, bool]] = Counter()
    for gone in state.baseline.missing if state.baseline else ():
        allowed[(gone.index_uuid, gone.number, gone.primary)] += gone.count
    beyond = []
    for copy in view.not_started:
        key = (copy.shard.index_uuid, copy.shard.number, copy.primary)
        if copy.state is CopyState.UNASSIGNED and allowed[key] > 0:
            allowed[key] -= 1
            continue
        beyond.append(copy)
    return tuple(beyond)


def counts_as_safe(index: Index | None, copy: ShardCopy) -> bool:
    """Started, and in the in-sync set where the version tells it: a stale copy never becomes primary."""
    if not copy.started:
        return False
    in_sync = index.in_sync.get(copy.shard.number) if index and index.in_sync is not None else None
    return in_sync is None or copy.allocation_id is None or copy.allocation_id in in_sync


def red_shards(state: RunState, view: ClusterView) -> Iterator[ShardId]:
    """Shards without a started copy that were not red before, not accepted, and not just being made."""
    accepted = state.policy.accept_red if state.policy else frozenset()
    before = {
        (m.index_uuid, m.number) for m in (state.baseline.missing if state.baseline else ()) if m.primary
    }
    for shard in dict.fromkeys(copy.shard for copy in view.not_started):
        copies = view.shards[shard]
        if shard.index in accepted or (shard.index_uuid, shard.number) in before:
            continue
        if any(copy.started for copy in copies):
            continue
        if any(copy.primary and copy.unassigned_reason == FRESH_INDEX for copy in copies):
            continue
        yield shard


def exempt_from_copies_rule(index: Index | None) -> bool:
    """Indices that another rule decides on: without replicas (policy), or backed by a repository.

    None: of one without metadata nothing is known, so no other rule would look at it.
    """
    return index is not None and (index.searchable_snapshot or index.replicas == 0)


def unaccepted_red(state: RunState, view: ClusterView) -> tuple[ShardId, ...]:
    """Red shards that nobody said may be red: what the rescue and the second failure are about."""
    policy, metadata = state.policy, view.metadata
    found = []
    for shard in red_shards(state, view):
        index, subject = metadata.get(shard.index_uuid), f"index {shard.index}"
        if policy is None or index is None:
            found.append(shard)
            continue
        if index.searchable_snapshot:
            continue  # its repository is its other copy, and it comes back with its node
        without_replicas = index.replicas == 0 and (
            accepts_without_replicas(policy, index) or policy.disables("zero_replica_indices", subject)
        )
        if not without_replicas and not policy.disables("every_shard_keeps_started_copies", subject):
            found.append(shard)
    return tuple(found)


def accepts_without_replicas(policy: Policy, index: Index) -> bool:
    """Whether the playbook accepts that this index is away while its node is."""
    return policy.zero_replicas is ZeroReplicas.ACCEPT and any(
        fnmatch.fnmatchcase(index.name, glob) for glob in policy.zero_replicas_accepted
    )
