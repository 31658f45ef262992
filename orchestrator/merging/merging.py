"""The phase in which indices are merged: begun within limits, seen to their end, counted on every copy.

A merge is sent once and then only watched. It continues in the cluster even if this program dies, so a new
process reads first. A merge that runs counts as its own, a merge that has ended is counted, and only a merge
that neither runs nor has ended is sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator.engine import limits
from orchestrator.engine.admit import let_go, overdue, unrecorded
from orchestrator.engine.beginning import cannot_finish
from orchestrator.engine.kinds.elasticsearch.recovery import missing_beyond_baseline
from orchestrator.engine.kinds.predicates import Question, hold_in_brief, holds
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    POLL_SECONDS,
    Decision,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.merging.again import WRITES_SECONDS, cannot_be_merged, may_be_sent, may_still_come, next_for
from orchestrator.merging.amounts import progress, size
from orchestrator.merging.belief import not_to_be_believed
from orchestrator.merging.rules import MERGE_RULES, NOT_WRITTEN, not_counted, written
from orchestrator.model.action import Action, ForceMerge
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Hold, run_phase
from orchestrator.model.merging import LARGEST_NATURAL_SEGMENT_BYTES, BulkIndex, BulkView, MergePolicy
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Wave
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.work_event import IndexMerged, MergeBegun, MergeDue, MergeWarned, WritesRead

_TIMES: Final = 3
"""A merge that ends without an effect is sent this often; then a copy cannot be merged."""

_HOLD_POLL_SECONDS: Final[Seconds] = 5.0

_SLOWEST_POLL_SECONDS: Final[Seconds] = 15.0
"""Seconds between readings: they list the segments of every copy, and a merge takes hours."""

_NO_WAVE: Final = Wave(number=0, nodes=())

_READY: Final = ("settings_are_writable", "no_other_maintenance", "selected_hosts_ready")
"""Predicates on stops that a restart would fail after hours of merging, and that a merge does not change:
checked before the first merge."""


def merging(situation: Situation) -> Decision:
    """Begin merges, follow them to their end, and continue with the copies when all are merged."""
    state, policy, bulk = situation.state, situation.policy.merge, situation.seen.bulk
    if policy is None:
        return note(run_phase(state.phase, Phase.MERGED))
    if not situation.fresh:
        return LOOK_AGAIN
    if isinstance(bulk, Unknown):
        return _held(
            situation, (Hold(predicate="indices_are_read", subject="indices", evidence=bulk.reason),)
        )
    if doubtful := not_to_be_believed(situation):
        return _held(situation, doubtful)
    if state.merging.writes is None:
        counters = {uuid: index.writes for uuid, index in sorted(bulk.indices.items())}
        return note(WritesRead(counters=counters))
    due, looked = tuple(_found_due(situation, bulk, policy)), situation.seen.at - state.merging.writes_at
    ended = tuple(_ended(situation, bulk))
    if ended or (due and looked >= WRITES_SECONDS):
        return note(*ended, *(due if looked >= WRITES_SECONDS else ()))
    seeing = _see_to_the_end(situation, bulk, policy)
    if seeing is not None:
        return seeing
    pending = [bulk.indices[one.target.index_uuid] for one in state.merging.pending]
    if (due or pending) and looked < WRITES_SECONDS:
        again = "a second reading of what is written"
        return wait(situation.now, again, seconds=WRITES_SECONDS - looked)
    if not pending and not state.merging.in_hand:
        return note(*let_go(situation), run_phase(state.phase, Phase.MERGED))
    return _begin(situation, bulk, policy, pending)


def _found_due(situation: Situation, bulk: BulkView, policy: MergePolicy) -> Iterator[MergeDue]:
    """Indices of which a copy has come back with too many segments, or a shard cannot be counted.

    For an uncounted shard it is unknown whether a merge is due; the predicates hold until it is known.
    """
    merging, uncounted = situation.state.merging, _uncounted(situation)
    for uuid, one in merging.indices.items():
        index = bulk.indices.get(uuid)
        if index is None or one.due or one.ended:
            continue
        if written((merging.writes or {}).get(uuid), index.writes) is not None:
            continue
        why = "a shard of it has no started copy to be counted" if uuid in uncounted else ""
        if index.segments > policy.max_segments:
            why = f"a copy of it has come back with {index.segments} segments"
        if why:
            yield MergeDue(index=index.name, index_uuid=uuid, why=why)


def _ended(situation: Situation, bulk: BulkView) -> Iterator[IndexMerged]:
    """Merges that have ended, each counted on every copy; and indices that are gone."""
    state, policy = situation.state, situation.policy.merge
    most = policy.max_segments if policy else 0
    absent = _with_absent_copies(situation)
    for uuid, one in state.merging.indices.items():
        if one.ended or not one.due:
            continue
        index = bulk.indices.get(uuid)
        if index is None:
            yield _merged(situation, one, None, why="it is closed" if uuid in bulk.closed else "it is gone")
        elif index.under_way or (one.begun is not None and one.refreshed_at is None):
            continue
        elif one.begun is None and not _known_to_be_loaded(situation, index):
            continue  # the predicates decide on it first: it may be written
        elif index.copies and index.segments <= most:
            if uuid not in absent:  # a copy that comes back later has the segments that it had when it left
                yield _merged(situation, one, index)
        elif policy is not None and may_still_come(situation, index, one, policy):
            continue  # an index that is written looks merged before the merge that was sent has begun
        elif one.begun is not None and _written_meanwhile(situation, index):
            yield _merged(situation, one, index, why="it is written, and has new segments already")


def _known_to_be_loaded(situation: Situation, index: BulkIndex) -> bool:
    """Whether two readings show that an index is not written, or may be."""
    merging, policy = situation.state.merging, situation.policy.merge
    if policy is not None and policy.allow_writes:
        return True
    looked = situation.seen.at - merging.writes_at
    return looked >= WRITES_SECONDS and written((merging.writes or {}).get(index.uuid), index.writes) is None


def _with_absent_copies(situation: Situation) -> frozenset[str]:
    """Indices of which a copy is not started that was there when the run began, or no copy of a shard."""
    view = situation.view
    absent = missing_beyond_baseline(situation.state, view) if view is not None else ()
    return frozenset(copy.shard.index_uuid for copy in absent) | _uncounted(situation)


def _uncounted(situation: Situation) -> frozenset[str]:
    """Indices of which a shard has no started copy, so that its segments are unknown."""
    view = situation.view
    red = not_counted(situation.policy, view) if view is not None else ()
    return frozenset(copy.shard.index_uuid for copy in red)


def _merged(
    situation: Situation, one: MergeProgress, index: BulkIndex | None, *, why: str = ""
) -> IndexMerged:
    # A node that is away now and comes back in the same life is due like the others.
    known = situation.state.baseline.incarnations if situation.state.baseline else {}
    present = {node.name: node.incarnation for node in situation.view.nodes} if situation.view else {}
    lives = {**known, **present}
    return IndexMerged(
        index=one.target.index,
        index_uuid=one.target.index_uuid,
        segments=index.segments if index else 0,
        bytes=index.bytes if index else 0,
        seconds=situation.now - one.begun if one.begun is not None else 0.0,
        incarnations=lives,
        why=why,
    )


def _written_meanwhile(situation: Situation, index: BulkIndex) -> bool:
    first = (situation.state.merging.writes or {}).get(index.uuid)
    allowed = situation.policy.merge is not None and situation.policy.merge.allow_writes
    return allowed and written(first, index.writes) is not None


def _see_to_the_end(situation: Situation, bulk: BulkView, policy: MergePolicy) -> Decision | None:
    """Refresh ended merges, resend lost ones, give up those that never end; None = nothing of these."""
    state = situation.state
    actions: list[Action] = []
    refused: list[Hold] = []
    in_hand = [(one, bulk.indices[one.target.index_uuid]) for one in state.merging.in_hand]
    others = [
        index
        for one, index in in_hand
        if _is_merged_now(index, policy) or may_still_come(situation, index, one, policy)
    ]
    for one, index in in_hand:
        if _is_late(situation, one):
            why = f"the merge of {index.name} has not ended within {policy.deadline:.0f} s"
            return stand_down(state, why + state.merges_left, Outcome.FAILED)
        if _is_merged_now(index, policy):
            continue
        if one.refreshed_at is not None and index.copies and index.segments <= policy.max_segments:
            continue  # merged as far as its copies are there: the run waits for the others
        action = next_for(situation, index, one, policy)
        if action is None:
            continue
        if isinstance(action, ForceMerge):
            if one.asked_at is not None and one.asked >= _TIMES:
                return stand_down(state, cannot_be_merged(situation, index, one), Outcome.FAILED)
            if against := _against(situation, index):
                refused += against
                continue
            if not _room_for_another(others, index, policy):
                continue  # a node that is back has copies of several: the limits hold for them too
        if may_be_sent(situation, action):
            actions.append(action)
            others += [index] if isinstance(action, ForceMerge) else []
    if actions:
        return act(*actions)
    return _held_again(situation, tuple(dict.fromkeys(refused))) if refused else None


def _is_merged_now(index: BulkIndex, policy: MergePolicy) -> bool:
    """A task may be lost with the node that ran it; the merges of its shards are not."""
    return index.under_way or (index.merging > 0 and index.segments > policy.max_segments)


def _is_late(situation: Situation, one: MergeProgress) -> bool:
    """Whether the merge that was sent last takes too long; the wait for a new one does not count."""
    policy, limit = situation.policy.merge, limits.merge(situation.state, one)
    if policy is None or limit is None or _waits_for_another(situation, one, policy):
        return False
    return limit.is_over(situation.now)


def _waits_for_another(situation: Situation, one: MergeProgress, policy: MergePolicy) -> bool:
    """Whether its merge ended with too many segments: the next one waits for room, or for holds to clear.

    If the index cannot be read now, its last refresh decides.
    """
    bulk = situation.seen.bulk
    index = None if isinstance(bulk, Unknown) else bulk.indices.get(one.target.index_uuid)
    if one.refreshed_at is None or index is None:
        return one.refreshed_at is not None
    if _is_merged_now(index, policy) or may_still_come(situation, index, one, policy):
        return False
    return index.segments > policy.max_segments


def _held_again(situation: Situation, refused: tuple[Hold, ...]) -> Decision:
    """A lost merge is not sent again while a predicate holds; a lasting hold needs the operator."""
    lasting = {rule.name for rule in MERGE_RULES if not rule.passes_with_time}
    first = next((hold for hold in refused if hold.predicate in lasting), None)
    over = overdue(situation, refused)
    if first is not None:
        over = f"held by {hold_in_brief(first)}"
    if over is None:
        return _held(situation, refused)
    return stand_down(
        situation.state,
        over + situation.state.merges_left,
        Outcome.HELD,
    )


def _begin(situation: Situation, bulk: BulkView, policy: MergePolicy, pending: list[BulkIndex]) -> Decision:
    """Send the next merges that limits and predicates allow. Merges that already run are counted first."""
    state = situation.state
    if state.process.request is Request.PAUSE:
        return _waiting(situation, bulk, "before it pauses, ")
    if not state.merging.begun:
        # All are checked before the first, so that a hold comes before any change.
        of_each = [hold for index in pending for hold in _against(situation, index)]
        refused = tuple(dict.fromkeys((*_not_ready(situation), *of_each, *_not_loaded(situation, bulk))))
        if refused:
            return _held(situation, refused)
    refusals: list[Hold] = []
    in_hand = [bulk.indices[one.target.index_uuid] for one in state.merging.in_hand]
    found = [index for index in pending if index.under_way]
    for index in (*found, *(index for index in pending if not index.under_way)):
        if not _room_for_another(in_hand if index.under_way else [*in_hand, *found], index, policy):
            continue
        refused = _against(situation, index)
        if not refused:
            return _ask_for(situation, index, policy)  # one a reading: the next counts its room
        refusals += refused
    return _held(situation, tuple(dict.fromkeys(refusals))) if refusals else _waiting(situation, bulk)


def _ask_for(situation: Situation, index: BulkIndex, policy: MergePolicy) -> Decision:
    """Record that the index is merged, and send the merge unless one runs already."""
    begun = MergeBegun(
        index=index.name,
        index_uuid=index.uuid,
        segments=index.segments,
        bytes=index.bytes,
        found=index.under_way,
    )
    events = (*let_go(situation), *_warnings(situation, index), begun)
    if index.under_way:
        return note(*events)
    merge = ForceMerge(index=index.name, index_uuid=index.uuid, max_segments=policy.max_segments)
    return act(merge, events=events)


def _room_for_another(others: Sequence[BulkIndex], index: BulkIndex, policy: MergePolicy) -> bool:
    """Whether one more index may be merged beside these, by the limits in all and on each node."""
    if len(others) >= policy.at_once:
        return False
    on_node = Counter[NodeName]()
    for other in others:
        on_node.update({copy.node for copy in other.copies})
    return all(on_node[node] < policy.per_node for node in {copy.node for copy in index.copies})


def _against(situation: Situation, index: BulkIndex) -> tuple[Hold, ...]:
    """The holds against merging an index by this reading."""
    return holds(MERGE_RULES, _question(situation, _NO_WAVE, index))


def _not_loaded(situation: Situation, bulk: BulkView) -> tuple[Hold, ...]:
    """Indices with few segments that are still written: the load has not ended."""
    rules = tuple(rule for rule in MERGE_RULES if rule.name == NOT_WRITTEN)
    indices = [
        index for index in bulk.indices.values() if not situation.state.merging.indices[index.uuid].pending
    ]
    return tuple(hold for index in indices for hold in holds(rules, _question(situation, _NO_WAVE, index)))


def _not_ready(situation: Situation) -> tuple[Hold, ...]:
    """What would hold the restart for good, by the predicates that merging does not change."""
    pending = tuple(node.name for node in situation.state.nodes_in(NodePhase.PENDING))
    rules = tuple(rule for rule in situation.kind.predicates if rule.name in _READY and pending)
    return holds(rules, _question(situation, Wave(number=1, nodes=pending), None))


def _question(situation: Situation, wave: Wave, index: BulkIndex | None) -> Question:
    return Question(
        state=situation.state,
        policy=situation.policy,
        observation=situation.seen,
        wave=wave,
        first_stop=index is None,
        index=index,
    )


def _warnings(situation: Situation, index: BulkIndex) -> Iterator[MergeWarned]:
    """What `--allow-writes` means for an index that is written."""
    merging, policy = situation.state.merging, situation.policy.merge
    what = written((merging.writes or {}).get(index.uuid), index.writes)
    if what is None or policy is None:
        return
    said = "new writes make new segments, so it may soon have more segments than the maximum again"
    largest = max((copy.bytes for copy in index.copies), default=0)
    if largest > LARGEST_NATURAL_SEGMENT_BYTES:
        said += (
            f"; a copy of it has {size(largest)}: the server does not merge a segment above "
            f"{size(LARGEST_NATURAL_SEGMENT_BYTES)} again until most of its documents are deleted, and the "
            "deleted documents use disk until then"
        )
    yield MergeWarned(index=index.name, index_uuid=index.uuid, what=f"it is still written ({what}): {said}")


def _waiting(situation: Situation, bulk: BulkView, before: str = "") -> Decision:
    state = situation.state
    begun = [one.begun for one in state.merging.in_hand if one.begun is not None]
    spent = situation.now - max(begun, default=situation.now)
    seconds = min(max(POLL_SECONDS, spent / 30), _SLOWEST_POLL_SECONDS)
    return wait(situation.now, f"{before}merging {progress(situation, bulk)}", seconds=seconds)


def _held(situation: Situation, refused: tuple[Hold, ...]) -> Decision:
    """Wait for holds to clear, within a limit; stand down at once if only the operator can clear them.

    Merges that run are followed to their end first, within their own limit. No new merge is begun meanwhile.
    """
    state, policy, now = situation.state, situation.policy, situation.now
    news = unrecorded(situation, refused)
    first = hold_in_brief(refused[0])
    unseen = next((one.target.index for one in state.merging.in_hand if _is_late(situation, one)), None)
    left = state.merges_left
    if unseen is not None and policy.merge is not None:
        limit = f"{policy.merge.deadline:.0f} s"
        why = f"the merge of {unseen} has not been seen to end within {limit}, held by {first}"
        return stand_down(state, why + left, Outcome.FAILED, *news)
    merge = policy.merge
    if merge is None or all(_waits_for_another(situation, one, merge) for one in state.merging.in_hand):
        lasting = {rule.name for rule in MERGE_RULES if not rule.passes_with_time}
        lasting |= {hold.predicate for hold in cannot_finish(situation)}
        if any(hold.predicate in lasting for hold in refused):
            return stand_down(state, f"held by {first}{left}", Outcome.HELD, *news)
        late = overdue(situation, refused)
        if late is not None:
            return stand_down(state, late + left, Outcome.HELD, *news)
    return wait(now, f"what holds the merge: {first}", seconds=_HOLD_POLL_SECONDS, holds=refused, events=news)
