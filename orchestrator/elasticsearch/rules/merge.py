"""The phases of a run that merges indices after a bulk load, before its first wave.

A merge is sent once and then only watched. It continues in the cluster even if this program dies, so a new
process reads first. A merge that runs counts as its own, a merge that has ended is counted on every copy, and
only a merge that neither runs nor has ended is sent again.

The predicates are checked before an index is merged, each time, on the current reading. The fundamental ones
and the gates are the same as before a stop. The others are particular to a merge: its index is no longer
written, it needs disk space beside the segments that it replaces, and a copy that is being recovered would
arrive with the old segments.

After the merges the loader's settings are put right, and the copies settle. At the end of the run segments
are counted once more: a copy that came back has the segments that it had before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.elasticsearch.rules.due import left_behind, to_put_right
from orchestrator.elasticsearch.rules.predicates import OBSERVATION_IS_FRESH
from orchestrator.elasticsearch.rules.recovery import is_being_restored, missing_beyond_baseline
from orchestrator.engine import ending, every_kind, limits
from orchestrator.engine.admit import cannot_finish, cleared, held_too_long, of_predicates, unrecorded
from orchestrator.engine.gates import gate_news
from orchestrator.engine.kind import Row
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.predicates import Finding, Predicate, Question, hold_in_brief, holds
from orchestrator.engine.situation import (
    LOOK_AGAIN,
    POLL_SECONDS,
    RETRY_SECONDS,
    Decision,
    Retry,
    Situation,
    act,
    note,
    stand_down,
    wait,
)
from orchestrator.formats import duration, listed, size
from orchestrator.model.action import (
    Action,
    Flush,
    ForceMerge,
    RefreshIndex,
    SetIndexSettings,
    action_target,
)
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy
from orchestrator.model.event import Event, Hold, HoldsCleared, run_phase
from orchestrator.model.merging import LARGEST_NATURAL_SEGMENT_BYTES, BulkIndex, BulkView, MergePolicy
from orchestrator.model.observation import ClusterView, CopiesActive
from orchestrator.model.phase import NodePhase, Outcome, Phase, Request
from orchestrator.model.policy import Policy, Wave
from orchestrator.model.reading import Instant, Seconds, Unknown
from orchestrator.model.work_event import IndexMerged, MergeBegun, MergeDue, MergeWarned, WritesRead

_TIMES: Final = 3
"""A merge that ends without an effect is sent this often; then a copy cannot be merged."""

_WRITES_SECONDS: Final[Seconds] = 5.0
"""Seconds between the two readings that show whether an index is written: an active load writes within it."""

_HOLD_POLL_SECONDS: Final[Seconds] = 5.0

_SLOWEST_POLL_SECONDS: Final[Seconds] = 15.0
"""Seconds between readings: they list the segments of every copy, and a merge takes hours."""

_INDICES_NAMED: Final = 2
"""Indices that the line of progress names; more would hide the figures."""

_COPIES_NAMED: Final = 3
"""Copies of an index that a warning names."""

_READY: Final = ("settings_are_writable", "no_other_maintenance", "selected_hosts_ready")
"""Predicates on stops that a restart would fail after hours of merging, and that a merge does not change:
checked before the first merge."""


# What holds a merge ------------------------------------


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
            f"is still written: {what} in {duration(seconds)}; a merge is for "
            "an index that is no longer written: end the load first, or take it with `--allow-writes`"
        )
        yield f"index {index.name}", evidence


def not_counted(policy: Policy, view: ClusterView) -> Iterator[ShardCopy]:
    """Primaries of shards without a started copy: it is unknown whether these are to be merged.

    Not of an index that may be red, that is being restored, or for which the predicate is disabled.
    """
    for copy in view.not_started:
        name = copy.shard.index
        may_be_red = name in policy.accept_red or policy.disables("no_copy_on_its_way", f"index {name}")
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


NOT_WRITTEN: Final = Predicate(
    why="What is written after a merge makes new segments, and a segment above 5 GB is not merged again.",
    then="End the bulk load first, or merge with `--allow-writes`: new segments then come after the merge.",
    check=index_is_not_written,
    passes_with_time=False,
)
"""What `--allow-writes` sets aside."""

OWN_RULES: Final[tuple[Predicate, ...]] = (
    NOT_WRITTEN,
    Predicate(
        why="A copy that recovers while its primary is merged arrives with its old segments.",
        then="Wait for the copy: `GET /_cat/recovery?active_only=true` shows it. Repair a red index first.",
        check=no_copy_on_its_way,
    ),
    Predicate(
        why="A merge writes the new segments before it deletes the old: a full disk makes indices read-only.",
        then="Free disk space on the node, or leave the index out of the merge.",
        check=disk_has_room,
        passes_with_time=False,
    ),
)

MERGE_RULES: Final[tuple[Predicate, ...]] = (
    OBSERVATION_IS_FRESH,
    every_kind.CLUSTER_IS_THE_ONE_NAMED,
    every_kind.LEASE_IS_HELD,
    *OWN_RULES,
    every_kind.GATES_OPEN,
)
"""In the order in which they are checked; four are the same as before a stop."""


# What a reading shows ------------------------------------


def _question(
    situation: Situation, index: BulkIndex | None = None, *, stops: tuple[NodeName, ...] = ()
) -> Question:
    """May this index be merged, or may the nodes be stopped once the indices are merged?"""
    return Question(
        state=situation.state,
        policy=situation.policy,
        observation=situation.seen,
        wave=Wave(number=1 if stops else 0, nodes=stops),
        first_stop=bool(stops),
        index=index,
    )


def _not_to_be_believed(situation: Situation) -> tuple[Hold, ...]:
    """Why this reading proves nothing: indices were not read, there is no master, or it is another cluster.

    Another cluster has none of the run's indices, but that does not prove that they are gone. And without the
    lives of the nodes a resumed run could not decide which of them are still to be restarted.
    """
    bulk, seen = situation.seen.bulk, situation.seen.cluster
    if isinstance(bulk, Unknown):
        return (Hold(predicate="indices_are_read", subject="indices", evidence=bulk.reason),)
    if situation.view is None:
        why = seen.reason if isinstance(seen, Unknown) else "the cluster has no elected master"
        return (Hold(predicate="observation_is_fresh", subject="cluster state", evidence=why),)
    return holds([every_kind.CLUSTER_IS_THE_ONE_NAMED], _question(situation))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """A merge that was begun and has not been seen to its end, by this reading."""

    situation: Situation
    policy: MergePolicy
    one: MergeProgress
    index: BulkIndex | None  # None: not read

    @property
    def runs(self) -> bool:
        """Whether it is merged now: a task may be lost with the node that ran it; the merges are not."""
        index = self.index
        return index is not None and (index.under_way or (index.merging > 0 and self.has_many))

    @property
    def has_many(self) -> bool:
        """Whether a copy has too many segments."""
        return self.index is not None and self.index.segments > self.policy.max_segments

    @property
    def may_still_come(self) -> bool:
        """Whether a merge that was sent, and had no answer, may still begin."""
        return self.situation.seen.at < self._doubted_until

    @property
    def _doubted_until(self) -> Instant:
        """Until when the merge that was sent last may still begin: a suspended node begins it late."""
        state = self.situation.state
        if self.one.asked_at is None:
            # Its outcome is unknown, but it was sent before this process began.
            return state.process.started + limits.DOUBT_SECONDS
        target = self.one.target
        failure = state.failure_of(_merge(target.index, target.index_uuid, self.policy))
        return self.one.asked_at + (limits.DOUBT_SECONDS if failure is not None and failure.in_doubt else 0.0)

    @property
    def takes_room(self) -> bool:
        """Whether it counts for the limits of merges at a time."""
        return self.runs or self.may_still_come

    @property
    def is_to_be_repeated(self) -> bool:
        """Whether it ended with too many segments: the next one waits for room, or for holds to clear.

        If the index cannot be read now, its last refresh decides.
        """
        if self.index is None or self.one.refreshed_at is None:
            return self.one.refreshed_at is not None
        return self.has_many and not self.takes_room

    @property
    def is_late(self) -> bool:
        """Whether the merge that was sent last takes too long; the wait for a new one does not count."""
        return not self.is_to_be_repeated and self.situation.over(limits.MERGE, self.one) is not None

    @property
    def next_step(self) -> RefreshIndex | ForceMerge | None:
        """What is sent for it next, if anything.

        Its segments are counted after a refresh, so that searches see merged segments. A lost call may still
        arrive until its doubt is over, and its merge may have ended after the last refresh: without a new
        refresh, an index that does not refresh itself would look unmerged.
        """
        index, refreshed = self.index, self.one.refreshed_at
        if index is None or self.runs:
            return None
        refresh = RefreshIndex(index=index.name, index_uuid=index.uuid)
        if refreshed is None:
            return refresh
        if index.copies and not self.has_many:
            return None  # merged as far as its copies are there: the run waits for the others
        if self.may_still_come:
            return None
        if refreshed < self._doubted_until:
            return refresh
        return _merge(index.name, index.uuid, self.policy)


def _merge(name: str, uuid: str, policy: MergePolicy) -> ForceMerge:
    return ForceMerge(index=name, index_uuid=uuid, max_segments=policy.max_segments)


def _in_progress(situation: Situation, policy: MergePolicy) -> list[_Merge]:
    """The merges under way, or to be seen to their end."""
    bulk = situation.seen.bulk
    indices: Mapping[str, BulkIndex] = {} if isinstance(bulk, Unknown) else bulk.indices
    return [
        _Merge(situation=situation, policy=policy, one=one, index=indices.get(one.target.index_uuid))
        for one in situation.state.merging.in_progress
    ]


def _still_to_look(situation: Situation) -> Seconds:
    """Until the second reading that shows whether an index is written; 0 once this process has looked."""
    return max(0.0, _WRITES_SECONDS - (situation.seen.at - situation.state.merging.writes_at))


def _uncounted(situation: Situation) -> frozenset[str]:
    """Indices of which a shard has no started copy, so that its segments are unknown."""
    view = situation.view
    red = not_counted(situation.policy, view) if view is not None else ()
    return frozenset(copy.shard.index_uuid for copy in red)


# The phase of the merges ------------------------------------


def merging(situation: Situation) -> Decision:
    """Begin merges, follow them to their end, and continue with the copies when all are merged."""
    state, policy, bulk = situation.state, situation.policy.merge, situation.seen.bulk
    if policy is None:
        return note(run_phase(state.phase, Phase.MERGED))
    if not situation.fresh:
        return LOOK_AGAIN
    doubtful = _not_to_be_believed(situation)
    if isinstance(bulk, Unknown) or doubtful:
        return _held(situation, policy, doubtful)
    if state.merging.writes is None:
        counters = {uuid: index.writes for uuid, index in sorted(bulk.indices.items())}
        return note(WritesRead(counters=counters))
    due, to_look = tuple(_found_due(situation, bulk, policy)), _still_to_look(situation)
    ended = tuple(_ended(situation, bulk, policy))
    if ended or (due and not to_look):
        return note(*ended, *(() if to_look else due))
    merges = _in_progress(situation, policy)
    sent = _see_to_the_end(situation, policy, merges)
    if sent is not None:
        return sent
    pending = [bulk.indices[one.target.index_uuid] for one in state.merging.pending]
    if (due or pending) and to_look:
        return wait(situation.now, "a second reading of what is written", seconds=to_look)
    if not pending and not merges:
        return note(*cleared(situation), run_phase(state.phase, Phase.MERGED))
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
        if written(merging, index) is not None:
            continue
        why = "a shard of it has no started copy to be counted" if uuid in uncounted else ""
        if index.segments > policy.max_segments:
            why = f"a copy of it has come back with {index.segments} segments"
        if why:
            yield MergeDue(index=index.name, index_uuid=uuid, why=why)


def _ended(situation: Situation, bulk: BulkView, policy: MergePolicy) -> Iterator[IndexMerged]:
    """Merges that have ended, each counted on every copy; and indices that are gone."""
    state, view = situation.state, situation.view
    missing = missing_beyond_baseline(state, view) if view is not None else ()
    # Of these a copy is not started that was there when the run began, or no copy of a shard.
    incomplete = frozenset(copy.shard.index_uuid for copy in missing) | _uncounted(situation)
    # A node that is away now and comes back in the same life is due like the others.
    known = state.baseline.incarnations if state.baseline else {}
    present = {node.name: node.incarnation for node in view.nodes} if view else {}
    for one in state.merging.unfinished:
        uuid = one.target.index_uuid
        index = bulk.indices.get(uuid)
        if index is None:
            why: str | None = "it is closed" if uuid in bulk.closed else "it is gone"
        else:
            merge = _Merge(situation=situation, policy=policy, one=one, index=index)
            why = _why_over(merge, index, complete=uuid not in incomplete)
        if why is not None:
            yield IndexMerged(
                index=one.target.index,
                index_uuid=uuid,
                segments=index.segments if index else 0,
                bytes=index.bytes if index else 0,
                seconds=situation.now - one.begun if one.begun is not None else 0.0,
                incarnations={**known, **present},
                why=why,
            )


def _why_over(merge: _Merge, index: BulkIndex, *, complete: bool) -> str | None:
    """Why nothing of an index is left to merge, empty if every copy has few segments; None before that."""
    situation, allowed = merge.situation, merge.policy.allow_writes
    merging, begun = situation.state.merging, merge.one.begun is not None
    if index.under_way or (begun and merge.one.refreshed_at is None):
        return None  # it runs, or its segments are not counted yet
    unwritten = not _still_to_look(situation) and written(merging, index) is None
    if not begun and not (allowed or unwritten):
        return None  # it may be written: the predicates decide on it first
    if index.copies and not merge.has_many:
        # A copy that comes back later has the segments that it had when it left.
        return "" if complete else None
    # An index that is written looks merged before the merge that was sent has begun.
    written_since = begun and allowed and not merge.may_still_come and written(merging, index) is not None
    return "it is written, and has new segments already" if written_since else None


def _see_to_the_end(situation: Situation, policy: MergePolicy, merges: list[_Merge]) -> Decision | None:
    """Refresh ended merges, resend lost ones, give up those that never end; None = nothing of these."""
    state = situation.state
    actions: list[Action] = []
    refused: list[Hold] = []
    others = [merge.index for merge in merges if merge.index is not None and merge.takes_room]
    for merge in merges:
        one, index, action = merge.one, merge.index, merge.next_step
        if merge.is_late:
            why = f"the merge of {one.target.index} has not ended within {duration(policy.deadline)}"
            return stand_down(state, why + state.merges_left, limits.MERGE.ends)
        if index is None or action is None:
            continue  # nothing to send
        if isinstance(action, ForceMerge):
            if one.asked_at is not None and one.asked >= _TIMES:
                return stand_down(state, _cannot_be_merged(situation, index, one), Outcome.FAILED)
            against = _against(situation, index)
            refused += against
            # A node that is back has copies of several indices: the limits hold for them too.
            if against or not _room_for_another(others, index, policy):
                continue  # not yet
        if _may_be_sent(situation, action):
            actions.append(action)
            others += [index] if isinstance(action, ForceMerge) else []
    if actions:
        return act(*actions)
    return _held(situation, policy, tuple(dict.fromkeys(refused)), again=True) if refused else None


def _may_be_sent(situation: Situation, action: Action) -> bool:
    """Not at once after it failed, nor before it is known whether the index is written.

    Without the lease the run still follows its merges to their end, but only the lease holder sends new ones.
    """
    state = situation.state
    if isinstance(action, ForceMerge) and (state.process.lease_lost is not None or _still_to_look(situation)):
        return False
    return situation.retry(action) is Retry.NOW


def _cannot_be_merged(situation: Situation, index: BulkIndex, one: MergeProgress) -> str:
    """The message about an index that still has too many segments after its merges."""
    for failed in reversed(situation.state.in_phase.failed):
        if isinstance(failed.action, ForceMerge) and failed.action.index_uuid == index.uuid:
            return f"index {index.name} could not be merged: {failed.reason}"
    worst = max(index.copies, key=lambda copy: copy.segments, default=None)
    if worst is None:
        return f"index {index.name} has no started copy any more, so that its merge cannot be counted"
    return (
        f"index {index.name}: the copy of shard {worst.shard.number} on {worst.node} has {worst.segments} "
        f"segments after {one.asked} merges: see the log of {worst.node}"
    )


def _begin(situation: Situation, bulk: BulkView, policy: MergePolicy, pending: list[BulkIndex]) -> Decision:
    """Send the next merges that limits and predicates allow. Merges that already run are counted first."""
    state = situation.state
    if state.process.request is Request.PAUSE:
        return _waiting(situation, bulk, policy, "before it pauses, ")
    if not state.merging.begun:
        # All are checked before the first, so that a hold comes before any change.
        of_each = [hold for index in pending for hold in _against(situation, index)]
        refused = tuple(dict.fromkeys((*_not_ready(situation), *of_each, *_not_loaded(situation, bulk))))
        if refused:
            return _held(situation, policy, refused)
    refusals: list[Hold] = []
    in_progress = [bulk.indices[one.target.index_uuid] for one in state.merging.in_progress]
    found = [index for index in pending if index.under_way]
    for index in (*found, *(index for index in pending if not index.under_way)):
        if not _room_for_another(in_progress if index.under_way else [*in_progress, *found], index, policy):
            continue
        refused = _against(situation, index)
        if not refused:
            return _ask_for(situation, index, policy)  # one a reading: the next counts its room
        refusals += refused
    return (
        _held(situation, policy, tuple(dict.fromkeys(refusals)))
        if refusals
        else _waiting(situation, bulk, policy)
    )


def _ask_for(situation: Situation, index: BulkIndex, policy: MergePolicy) -> Decision:
    """Record that the index is merged, and send the merge unless one runs already."""
    begun = MergeBegun(
        index=index.name,
        index_uuid=index.uuid,
        segments=index.segments,
        bytes=index.bytes,
        found=index.under_way,
    )
    events = (*cleared(situation), *_warnings(situation, index), begun)
    if index.under_way:
        return note(*events)
    return act(_merge(index.name, index.uuid, policy), events=events)


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
    return holds(MERGE_RULES, _question(situation, index))


def _not_loaded(situation: Situation, bulk: BulkView) -> tuple[Hold, ...]:
    """Indices with few segments that are still written: the load has not ended."""
    merging = situation.state.merging.indices
    indices = [index for index in bulk.indices.values() if not merging[index.uuid].pending]
    return tuple(hold for index in indices for hold in holds([NOT_WRITTEN], _question(situation, index)))


def _not_ready(situation: Situation) -> tuple[Hold, ...]:
    """What would hold the restart for good, by the predicates that merging does not change."""
    pending = tuple(node.name for node in situation.state.nodes_in(NodePhase.PENDING))
    rules = tuple(rule for rule in situation.kind.predicates if rule.name in _READY and pending)
    return holds(rules, _question(situation, stops=pending))


def _warnings(situation: Situation, index: BulkIndex) -> Iterator[MergeWarned]:
    """What `--allow-writes` means for an index that is written."""
    merging, policy = situation.state.merging, situation.policy.merge
    what = written(merging, index)
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


def _held(
    situation: Situation, policy: MergePolicy, refused: tuple[Hold, ...], *, again: bool = False
) -> Decision:
    """Wait for holds to clear, within a limit; stand down at once if only the operator can clear them.

    Merges that run are followed to their end first, within their own limit. No new merge is begun meanwhile.
    A merge that is to be sent again (`again`) was lost while others run: what bars it does not wait for them.
    """
    state, merges, left = situation.state, _in_progress(situation, policy), situation.state.merges_left
    news = unrecorded(situation, refused)
    unseen = next((merge.one.target.index for merge in merges if merge.is_late), None)
    if unseen is not None:
        limit = duration(policy.deadline)
        why = f"the merge of {unseen} has not been seen to end within {limit}, held by "
        return stand_down(state, why + hold_in_brief(refused[0]) + left, Outcome.FAILED, *news)
    if again or all(merge.is_to_be_repeated for merge in merges):
        lasting = {rule.name for rule in MERGE_RULES if not rule.passes_with_time}
        lasting |= {hold.predicate for hold in cannot_finish(situation)}
        stays = next((hold for hold in refused if hold.predicate in lasting), None)
        over = held_too_long(situation, refused) if stays is None else f"held by {hold_in_brief(stays)}"
        if over is not None:
            # The reason of the one that was lost has the hold: it is not recorded beside it.
            news, named = () if again else news, stays is not None
            return stand_down(state, over + left, Outcome.HELD, *news, names_hold=named)
    return wait(situation.now, seconds=_HOLD_POLL_SECONDS, holds=refused, events=news)


def _waiting(situation: Situation, bulk: BulkView, policy: MergePolicy, before: str = "") -> Decision:
    begun = [one.begun for one in situation.state.merging.in_progress if one.begun is not None]
    spent = situation.now - max(begun, default=situation.now)
    seconds = min(max(POLL_SECONDS, spent / 30), _SLOWEST_POLL_SECONDS)
    what = f"{before}merging {_progress(situation, bulk, policy.max_segments)}"
    return wait(situation.now, what, seconds=seconds, events=_predicates_cleared(situation))


def _predicates_cleared(situation: Situation) -> tuple[Event, ...]:
    """Nothing holds by this reading. A merge may run for hours, and a later hold has its whole limit."""
    held = of_predicates(situation.state.in_phase.holds)
    news = gate_news(situation.state, situation.seen)
    return (*news, HoldsCleared(but_gates=True)) if held else news


def _progress(situation: Situation, bulk: BulkView, most: int) -> str:
    """The merges in progress, how far all are, and how long they should still take, in one line.

    The rate is that since the first merge that this process sent; without one no time is named.
    """
    merging = situation.state.merging
    due = [one for one in merging.indices.values() if one.due]
    in_progress = [one.target.index_uuid for one in merging.in_progress]
    named = []
    for index in (bulk.indices[uuid] for uuid in in_progress[:_INDICES_NAMED] if uuid in bulk.indices):
        few = sum(copy.segments <= most for copy in index.copies)
        named.append(f"{index.name} ({few} of {len(index.copies)} copies, {index.segments} segments at most)")
    more = len(in_progress) - len(named)
    names = ", ".join(named) + (f" and {more} more" if more > 0 and named else "")
    there = total = left = done = 0
    for one in due:
        index_there = bulk.indices.get(one.target.index_uuid)
        if index_there is None:
            continue
        merged = sum(copy.bytes for copy in index_there.copies if copy.segments <= most)
        there += merged
        total += index_there.bytes
        # One that ended is not merged again, whatever its copies have now.
        counts = index_there.bytes if one.ended else merged
        left += index_there.bytes - counts
        done += counts if one.asked_at is not None else 0
    asked = [one.asked_at for one in merging.indices.values() if one.asked_at is not None]
    spent = situation.now - min(asked, default=situation.now)
    rest = f", about {duration(left / (done / spent))} left" if done and spent > 0 else ""
    ended = sum(one.ended for one in due)
    return f"{names or 'merges'}; {ended} of {len(due)} indices merged, {size(there)} of {size(total)}{rest}"


# After the merges ------------------------------------


def settling(situation: Situation) -> Decision:
    """Set the settings, wait for every copy, refresh, flush; then the first wave, or the end.

    Replicas come after the merge: a new copy then copies the merged segments once, and is identical.
    """
    state, view, bulk, now = situation.state, situation.view, situation.seen.bulk, situation.now
    if not situation.fresh:
        return LOOK_AGAIN
    over = situation.over(limits.SETTLING) is not None
    doubtful = _not_to_be_believed(situation)
    if isinstance(bulk, Unknown) or view is None or doubtful:
        subject = "" if isinstance(bulk, Unknown) else f"{doubtful[0].subject}: "
        why = f"{subject}{doubtful[0].evidence}"
        if over:
            return stand_down(state, f"the merged indices could not be read: {why}", limits.SETTLING.ends)
        return wait(now, f"a reading of the merged indices: {why}")
    right = tuple(_put_right(situation, view, bulk))
    failed = next((failure for action in right if (failure := state.failure_of(action))), None)
    if failed is not None and (over or not failed.in_doubt):
        what = f"the settings of {action_target(failed.action)} could not be put right: {failed.reason}"
        return stand_down(state, what, Outcome.FAILED)
    if right and failed is not None and not situation.rested():
        return wait(now, "settings of the loaded indices to be put right", seconds=RETRY_SECONDS)
    if right:
        return act(*right)
    missing = [c for c in missing_beyond_baseline(state, view) if c.shard.index_uuid in bulk.indices]
    if missing:
        what = f"{len(missing)} copies of the loaded indices to start, {missing[0].shard} first"
        if over:
            return stand_down(state, f"the copies did not settle: {what}", limits.SETTLING.ends)
        started = view.routing.active
        return wait(now, what, cluster=CopiesActive(count=started + len(missing)))
    tried = (*state.in_phase.confirmed, *(failure.action for failure in state.in_phase.failed))
    # A refresh or a flush that fails costs recovery time and nothing else: it is in the journal.
    refreshes = [RefreshIndex(index=index.name, index_uuid=index.uuid) for index in bulk.indices.values()]
    ends: tuple[Action, ...] = (*refreshes, Flush())
    todo = [action for action in ends if action not in tried]
    if todo:
        return act(*todo)
    pending = state.nodes_in(NodePhase.PENDING)
    return note(run_phase(state.phase, Phase.GATED if pending else Phase.FINISHING))


def last_count(situation: Situation) -> Decision | None:
    """Copies that have too many segments are named before the end of a run that has merged."""
    state, bulk = situation.state, situation.seen.bulk
    if not state.merging.indices:
        return None
    if isinstance(bulk, Unknown) and situation.over(limits.LAST_COUNT) is None:
        return wait(situation.now, f"a last count of the segments: {bulk.reason}")
    done = ending.done(situation)
    return replace(done, events=(*_unmerged(situation), *done.events))


def _unmerged(situation: Situation) -> Iterator[MergeWarned]:
    """Indices with copies of too many segments; an index that is written has had its warning before."""
    bulk, policy, merges = situation.seen.bulk, situation.policy.merge, situation.state.merging.indices
    if isinstance(bulk, Unknown):
        first = next(iter(merges.values())).target
        others = f", nor those of {len(merges) - 1} others" if len(merges) > 1 else ""
        said = f"its segments could not be counted at the end of the run{others}: {bulk.reason}"
        yield MergeWarned(index=first.index, index_uuid=first.index_uuid, what=said)
        return
    for uuid, one in merges.items():
        index = bulk.indices.get(uuid)
        if index is None or policy is None or one.warned:
            continue
        many = [copy for copy in index.copies if copy.segments > policy.max_segments]
        if many:
            each = [f"{copy.shard} on {copy.node}: {copy.segments}" for copy in many]
            named = listed(each, _COPIES_NAMED)
            said = (
                f"too many segments at the end of the run ({named}): a copy that was away "
                "during the merge comes back with those that it had; run the same command again to merge them"
            )
            yield MergeWarned(index=index.name, index_uuid=uuid, what=said)


def _put_right(situation: Situation, view: ClusterView, bulk: BulkView) -> Iterator[SetIndexSettings]:
    """What is not yet as the playbook wants loaded indices to be."""
    policy = situation.policy.merge
    if policy is None:
        return
    for index in bulk.indices.values():
        wanted, left = to_put_right(index, policy.put_right, view), left_behind(index)
        action = SetIndexSettings(
            index=index.name,
            index_uuid=index.uuid,
            found={key: left[key] for key in wanted},
            wanted=wanted,
        )
        # Accepted, but read in another form (`1000ms` for `1s`): it is not sent forever.
        if wanted and action not in situation.state.in_phase.confirmed:
            yield action


RULES: Final[tuple[Row, ...]] = (
    ((Phase.MERGING,), merging),
    ((Phase.MERGED,), settling),
    ((Phase.FINISHING,), last_count),
)
"""The rules of the merges, and of the end of a run that has merged."""
