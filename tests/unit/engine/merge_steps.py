"""For each invariant of merging, a step that breaks it and steps that do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.memory import Failing
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.state import RunState
from orchestrator.model.action import ForceMerge, SetIndexSettings, StopNode
from orchestrator.model.event import ActionFailed, ActionSent, Event, Record, RunFinished, StandingDown
from orchestrator.model.merging import LoaderSettings, MergePolicy, MergeTarget, Writes
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.work_event import IndexMerged, MergeBegun
from orchestrator.simulation.invariants import JournalStep
from tests.simulation.play import cluster, policy
from tests.states import state_with
from tests.unit.engine.asking import ES1, begun

AT: Final = 1000.0
ASKED = StandingDown(reason="asked to stop", outcome=Outcome.INTERRUPTED)
POSTS = MergeTarget(index="posts", index_uuid="posts-uuid", segments=20, bytes=1000, due=True)
LIKES = replace(POSTS, index="likes", index_uuid="likes-uuid")
IN_HAND = MergeProgress(target=POSTS, begun=AT)
_SENT = replace(IN_HAND, begun=AT - 60.0, asked=1, asked_at=AT - 60.0)
_REFRESHED = replace(_SENT, refreshed_at=AT - 1.0)
_TAKEN_UP = replace(_REFRESHED, asked_at=None)
_JUST_NOW = replace(_REFRESHED, asked_at=AT - 10.0)
ENDED = replace(_REFRESHED, ended=True)
MERGE = ActionSent(action=ForceMerge(index="posts", index_uuid="posts-uuid", max_segments=5))
STOP = ActionSent(action=StopNode(node=ES1))
WANTED = MergePolicy(patterns=("*",), at_once=1, put_right=LoaderSettings(number_of_replicas=1))
MERGED = IndexMerged(
    index="posts", index_uuid="posts-uuid", segments=5, bytes=900, seconds=60.0, incarnations={}
)
REFUSED = ActionFailed(action=MERGE.action, reason="429 rejected", in_doubt=False)
DONE = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0)
_BEGUN = MergeBegun(index="likes", index_uuid="likes-uuid", segments=20, bytes=1000)


def _state(*indices: MergeProgress, phase: Phase = Phase.MERGING, **changes: object) -> RunState:
    """A run that merges, has looked for writes long enough ago, and holds its lease."""
    state = begun(cluster(3), replace(policy(), merge=WANTED))
    counters = {one.target.index_uuid: Writes(operations=1, sequence=1) for one in indices}
    merging = Merging(
        indices={one.target.index_uuid: one for one in indices}, writes=counters, writes_at=AT - 10.0
    )
    return state_with(state, **{"phase": phase, "merging": merging, **changes})


def _step(before: RunState, event: Event, after: RunState | None = None) -> JournalStep:
    return JournalStep(
        before=before, record=Record(run="run-1", sequence=7, at=AT, event=event), after=after or before
    )


def _set(value: str, phase: Phase = Phase.MERGED) -> JournalStep:
    key = "index.number_of_replicas"
    action = SetIndexSettings(index="posts", index_uuid="posts-uuid", found={key: "0"}, wanted={key: value})
    return _step(_state(ENDED, phase=phase), ActionSent(action=action))


def _stopped(*indices: MergeProgress) -> JournalStep:
    """es1 is stopped once the merges are settled."""
    state = _state(*indices, phase=Phase.DOWN)
    return _step(replace(state, merging=replace(state.merging, settled=True)), STOP)


def _looked(writes_at: float) -> JournalStep:
    state = _state(IN_HAND)
    return _step(replace(state, merging=replace(state.merging, writes_at=writes_at)), MERGE)


def _failed_just_now(*, in_doubt: bool) -> JournalStep:
    last = replace(REFUSED, in_doubt=in_doubt)
    return _step(_state(_JUST_NOW, failing=(Failing(last=last, since=AT),)), MERGE)


_FIRST: Final = _step(_state(IN_HAND), MERGE)
MERGE_STEPS: Final[Mapping[str, tuple[JournalStep, ...]]] = {
    # the step that breaks it, then those that do not
    "an_index_is_not_asked_for_twice": (
        _step(_state(_SENT), MERGE),
        _FIRST,
        _step(_state(_REFRESHED), MERGE),
    ),
    "what_may_still_come_is_waited_for": (
        _step(_state(_TAKEN_UP, started=AT - 5.0), MERGE),
        _step(_state(_TAKEN_UP, started=AT - 31.0), MERGE),
        _failed_just_now(in_doubt=False),
    ),
    "merges_are_written_down_first": (_step(_state(MergeProgress(target=POSTS)), MERGE), _FIRST),
    "nobody_merges_without_the_lease": (_step(_state(IN_HAND, lease_lost="lost to bo"), MERGE), _FIRST),
    "no_merge_after_standing_down": (_step(_state(IN_HAND, standing_down=ASKED), MERGE), _FIRST),
    "merges_keep_to_their_number": (
        _step(_state(IN_HAND), _BEGUN, _state(IN_HAND, MergeProgress(target=LIKES, begun=AT))),
        _step(_state(MergeProgress(target=LIKES)), _BEGUN, _state(MergeProgress(target=LIKES, begun=AT))),
    ),
    "writes_are_read_twice": (_looked(AT - 1.0), _looked(AT - 5.0)),
    "what_is_merged_was_counted": (
        _step(_state(_SENT), MERGED),
        _step(_state(_REFRESHED), MERGED),
        _step(_state(_SENT), replace(MERGED, segments=0, why="it is gone")),
    ),
    "nodes_wait_for_merges": (_step(_state(ENDED), STOP), _stopped(ENDED)),
    "only_what_is_wanted_is_set": (_set("2"), _set("1")),
    "done_has_merged": (_step(_state(IN_HAND), DONE), _step(_state(ENDED), DONE)),
}

ALSO_BROKEN: Final[tuple[tuple[str, JournalStep], ...]] = (
    (
        "merges_are_written_down_first: posts is merged in gated",
        _step(_state(IN_HAND, phase=Phase.GATED), MERGE),
    ),
    (
        "posts is merged again 10.0 s after a merge of it that may still come",
        _failed_just_now(in_doubt=True),
    ),
    (
        "posts is merged again, without a check of a merge that came late",
        _step(_state(replace(_TAKEN_UP, refreshed_at=AT - 25.0), started=AT - 31.0), MERGE),
    ),
    ("merges_are_written_down_first: posts is merged, and is none of the run's", _step(_state(), MERGE)),
    (
        "what_is_merged_was_counted: posts is said to be merged and has 6 segments",
        _step(_state(_REFRESHED), replace(MERGED, segments=6)),
    ),
    (
        "what_is_merged_was_counted: posts is none of the run's, or was merged already",
        _step(_state(ENDED), MERGED),
    ),
    (
        "only_what_is_wanted_is_set: settings of index posts are set in merging",
        _set("1", Phase.MERGING),
    ),
    ("nodes_wait_for_merges: es1 goes before posts are done", _stopped(_SENT)),
)
