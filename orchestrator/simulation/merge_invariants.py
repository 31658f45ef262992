"""Invariants of merges; independent of `merging`, as all invariants are of the code that they check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.engine.merge_state import MergeProgress
from orchestrator.model.action import ForceMerge, RebootHost, SetIndexSettings, StopNode
from orchestrator.model.event import PhaseEntered, RunFinished, WaveStarted
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.reading import Seconds
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.simulation import invariants
from orchestrator.simulation.invariants import Invariant, JournalStep

_TWO_READINGS_SECONDS: Final[Seconds] = 4.0
"""Less than the time between the two readings that show whether an index is written."""

_DOUBT_SECONDS: Final[Seconds] = 29.0
"""Less than the time that the run waits for a call without an answer."""


def _asked(step: JournalStep) -> tuple[ForceMerge, MergeProgress | None] | None:
    action = step.sent
    if not isinstance(action, ForceMerge):
        return None
    return action, step.before.merging.indices.get(action.index_uuid)


def _an_index_is_not_asked_for_twice(step: JournalStep) -> Iterator[str]:
    """Again only when a reading showed that it had ended, and a refresh had made its result visible."""
    asked = _asked(step)
    action, one = asked if asked is not None else (None, None)
    if action is None or one is None:
        return
    first = one.asked == 0 and one.begun == step.record.at
    if not first and one.refreshed_at is None:
        yield f"{action.index} is merged again, without a check of the merge before"


def _what_may_still_come_is_waited_for(step: JournalStep) -> Iterator[str]:
    """A merge call without an answer, of this or an earlier process, may begin late: the run waits for it.

    Then the index is refreshed and checked once more: searches may not have seen the result before.
    """
    asked = _asked(step)
    action, one = asked if asked is not None else (None, None)
    if action is None or one is None or one.asked == 0:
        return
    failure = step.before.failure_of(action)
    if one.asked_at is not None and (failure is None or not failure.in_doubt):
        return
    since = one.asked_at if one.asked_at is not None else step.before.process.started
    if step.record.at - since < _DOUBT_SECONDS:
        waited = f"{step.record.at - since:.1f} s"
        yield f"{action.index} is merged again {waited} after a merge of it that may still come"
    elif (one.refreshed_at or 0.0) - since < _DOUBT_SECONDS:
        yield f"{action.index} is merged again, without a check of a merge that came late"


def _merges_are_written_down_first(step: JournalStep) -> Iterator[str]:
    asked = _asked(step)
    if asked is None:
        return
    action, one = asked
    if one is None:
        yield f"{action.index} is merged, and is none of the run's"
    elif not one.in_progress:
        yield f"{action.index} is merged, and its merge was not begun, or has ended"
    if step.before.phase is not Phase.MERGING:
        yield f"{action.index} is merged in {step.before.phase.value}"


def _no_merge_without_the_lease(step: JournalStep) -> Iterator[str]:
    asked = _asked(step)
    if asked is not None and step.before.process.lease_lost is not None:
        yield f"{asked[0].index} is merged: {step.before.process.lease_lost}"


def _no_merge_after_standing_down(step: JournalStep) -> Iterator[str]:
    asked = _asked(step)
    if asked is not None and step.before.process.standing_down is not None:
        yield f"{asked[0].index} is merged after: {step.before.process.standing_down.reason}"


def _merges_keep_to_their_number(step: JournalStep) -> Iterator[str]:
    policy, event = step.after.begun.policy, step.record.event
    if policy.merge is None or not (isinstance(event, MergeBegun) or step.sent):
        return
    hand = sorted(one.target.index for one in step.after.merging.in_progress)
    if len(hand) > policy.merge.at_once:
        yield f"{', '.join(hand)} are merged at a time, {policy.merge.at_once} allowed"


def _writes_are_read_twice(step: JournalStep) -> Iterator[str]:
    """By this process: what an earlier process read proves nothing now."""
    asked, policy = _asked(step), step.before.begun.policy
    if asked is None or policy.merge is None or policy.merge.allow_writes:
        return
    merging, index = step.before.merging, asked[0]
    if merging.writes is None or index.index_uuid not in merging.writes:
        yield f"{index.index} is merged, and it is unknown whether it is written"
    elif step.record.at - merging.writes_at < _TWO_READINGS_SECONDS:
        yield f"{index.index} is merged after {step.record.at - merging.writes_at:.1f} s of looking at it"


def _what_is_merged_was_counted(step: JournalStep) -> Iterator[str]:
    event, state = step.record.event, step.before
    if not isinstance(event, IndexMerged) or state.begun.policy.merge is None:
        return
    one = state.merging.indices.get(event.index_uuid)
    if one is None or one.ended:
        yield f"{event.index} is none of the run's, or was merged already"
    elif event.segments > state.begun.policy.merge.max_segments and not event.why:
        yield f"{event.index} is said to be merged and has {event.segments} segments"
    elif one.begun is not None and one.refreshed_at is None and not event.why:
        yield f"{event.index} is said to be merged, and no search sees that yet"


def _nodes_wait_for_merges(step: JournalStep) -> Iterator[str]:
    state, action, event = step.before, step.sent, step.record.event
    if state.begun.policy.merge is None:
        return
    left = [one.target.index for one in (*state.merging.in_progress, *state.merging.pending)]
    goes = isinstance(action, StopNode | RebootHost) or isinstance(event, WaveStarted)
    if goes and (left or not state.merging.settled):
        what = action.node if isinstance(action, StopNode | RebootHost) else "a wave"
        yield f"{what} goes before {', '.join(left) or 'the copies of merged indices'} are done"
    if isinstance(event, PhaseEntered) and event.to == Phase.MERGED.value and left:
        yield f"merging is left, and {', '.join(left)} is not merged"


def _only_what_is_wanted_is_set(step: JournalStep) -> Iterator[str]:
    action, state = step.sent, step.before
    if not isinstance(action, SetIndexSettings):
        return
    merge = state.begun.policy.merge
    right = merge.put_right if merge else None
    replicas = None if right is None or right.number_of_replicas is None else str(right.number_of_replicas)
    asked = {
        "index.number_of_replicas": replicas,
        "index.refresh_interval": right.refresh_interval if right else None,
        "index.translog.durability": right.translog_durability if right else None,
    }
    for key, value in action.wanted.items():
        if asked.get(key) is None or (value or "") != asked[key]:
            yield f"{key} of {action.index} is set to {value}, and the playbook does not say so"
    if state.phase is not Phase.MERGED:
        yield f"settings of index {action.index} are set in {state.phase.value}"


def _done_has_merged(step: JournalStep) -> Iterator[str]:
    event, state = step.record.event, step.after
    if not isinstance(event, RunFinished) or event.outcome is not Outcome.DONE:
        return
    left = [one.target.index for one in state.merging.indices.values() if one.due and not one.ended]
    if left:
        yield f"done, and not merged: {', '.join(left)}"


MERGE_INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        name="an_index_is_not_asked_for_twice",
        why="A second merge of an index queues behind the first on every node, and does its work again.",
        check=_an_index_is_not_asked_for_twice,
        at=("action_sent",),
    ),
    Invariant(
        name="what_may_still_come_is_waited_for",
        why="A node that stood still takes up a call that its caller has given up: two merges then run.",
        check=_what_may_still_come_is_waited_for,
        at=("action_sent",),
    ),
    Invariant(
        name="merges_are_written_down_first",
        why="A merge without a record is started again after a crash.",
        check=_merges_are_written_down_first,
        at=("action_sent",),
    ),
    Invariant(
        name="nobody_merges_without_the_lease",
        why="Two runs would merge the same indices, and restart nodes that merge.",
        check=_no_merge_without_the_lease,
        at=("action_sent",),
    ),
    Invariant(
        name="no_merge_after_standing_down",
        why="A merge cannot be taken back: a run that gives up begins none.",
        check=_no_merge_after_standing_down,
        at=("action_sent",),
    ),
    Invariant(
        name="merges_keep_to_their_number",
        why="The operator said how many indices are merged at a time, for the disks' sake.",
        check=_merges_keep_to_their_number,
        at=("merge_begun", "action_sent"),
    ),
    Invariant(
        name="writes_are_read_twice",
        why="One reading of a counter does not show whether it moves.",
        check=_writes_are_read_twice,
        at=("action_sent",),
    ),
    Invariant(
        name="what_is_merged_was_counted",
        why="An index that is reported as merged is not checked again.",
        check=_what_is_merged_was_counted,
        at=("index_merged",),
    ),
    Invariant(
        name="nodes_wait_for_merges",
        why="A node that is restarted in the middle of a merge throws its work away.",
        check=_nodes_wait_for_merges,
        at=("action_sent", "wave_started", "phase_entered"),
    ),
    Invariant(
        name="only_what_is_wanted_is_set",
        why="A setting of an index is not restored: it must be one that the playbook names.",
        check=_only_what_is_wanted_is_set,
        at=("action_sent",),
    ),
    Invariant(
        name="done_has_merged",
        why="Exit 0 says that every index of the step is merged.",
        check=_done_has_merged,
        at=("run_finished",),
    ),
)

ALL_INVARIANTS: tuple[Invariant, ...] = (*invariants.INVARIANTS, *MERGE_INVARIANTS)
"""Invariants of a run that may merge indices first."""


def broken(step: JournalStep) -> tuple[str, ...]:
    """Everything that is wrong with a step of such a run; empty when all holds."""
    return invariants.broken(step, ALL_INVARIANTS)
