"""What to do about a merge that was sent and does not run: refresh, send it again, or wait."""

from __future__ import annotations

from typing import Final

from orchestrator.engine.limits import DOUBT_SECONDS
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.situation import RETRY_SECONDS, Situation
from orchestrator.engine.state import RunState
from orchestrator.model.action import Action, ForceMerge, RefreshIndex
from orchestrator.model.merging import BulkIndex, MergePolicy
from orchestrator.model.reading import Instant, Seconds

WRITES_SECONDS: Final[Seconds] = 5.0
"""Seconds between the two readings that show whether an index is written: an active load writes within it."""


def next_for(
    situation: Situation, index: BulkIndex, one: MergeProgress, policy: MergePolicy
) -> RefreshIndex | ForceMerge | None:
    """Refresh first, so that searches see merged segments; then count segments and send merges again.

    A lost call may still arrive until its doubt is over (None: wait for that). Its merge may have ended after
    the last refresh: without a new refresh, an index that does not refresh itself would look unmerged.
    """
    merge = _merge_of(index, policy)
    doubted = _doubted_until(situation.state, one, merge)
    if one.refreshed_at is not None and situation.seen.at < doubted:
        return None
    if one.refreshed_at is None or one.refreshed_at < doubted:
        return RefreshIndex(index=index.name, index_uuid=index.uuid)
    return merge


def may_still_come(situation: Situation, index: BulkIndex, one: MergeProgress, policy: MergePolicy) -> bool:
    """Whether a merge that was sent, and had no answer, may still begin."""
    return situation.seen.at < _doubted_until(situation.state, one, _merge_of(index, policy))


def _merge_of(index: BulkIndex, policy: MergePolicy) -> ForceMerge:
    return ForceMerge(index=index.name, index_uuid=index.uuid, max_segments=policy.max_segments)


def _doubted_until(state: RunState, one: MergeProgress, merge: ForceMerge) -> Instant:
    """Until when the merge that was sent last may still begin: a suspended node begins it late."""
    if one.asked_at is None:
        # Its outcome is unknown, but it was sent before this process began.
        return state.process.started + DOUBT_SECONDS
    failure = state.failure_of(merge)
    return one.asked_at + (DOUBT_SECONDS if failure is not None and failure.in_doubt else 0.0)


def may_be_sent(situation: Situation, action: Action) -> bool:
    """Not at once after it failed, nor before it is known whether the index is written.

    Without the lease the run still follows its merges to their end, but only the lease holder sends new ones.
    """
    state, now = situation.state, situation.now
    if isinstance(action, ForceMerge) and state.process.lease_lost is not None:
        return False
    if isinstance(action, ForceMerge) and situation.seen.at - state.merging.writes_at < WRITES_SECONDS:
        return False  # by this process, which has just begun
    return state.failure_of(action) is None or now - state.process.acted_at >= RETRY_SECONDS


def cannot_be_merged(situation: Situation, index: BulkIndex, one: MergeProgress) -> str:
    """The message about an index that still has too many segments after its merges."""
    refused = next(
        (
            f
            for f in reversed(situation.state.in_phase.failed)
            if isinstance(f.action, ForceMerge) and f.action.index_uuid == index.uuid
        ),
        None,
    )
    if refused is not None:
        return f"index {index.name} could not be merged: {refused.reason}"
    worst = max(index.copies, key=lambda copy: copy.segments, default=None)
    if worst is None:
        return f"index {index.name} has no started copy any more, so that its merge cannot be counted"
    return (
        f"index {index.name}: the copy of shard {worst.shard.number} on {worst.node} has {worst.segments} "
        f"segments after {one.asked} merges: see the log of {worst.node}, then "
        f"`{situation.state.command('resume')}`"
    )
