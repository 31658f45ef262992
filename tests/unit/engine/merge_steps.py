"""For each invariant of merging, a step that breaks it and steps that do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.invariant import Step
from orchestrator.engine.merge_state import MergeProgress, Merging
from orchestrator.engine.state import Failing, RunState
from orchestrator.model.action import ForceMerge, SetIndexSettings, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, ActionSent, Event, Record, RunFinished, StandingDown
from orchestrator.model.merge_event import IndexMerged, MergeBegun
from orchestrator.model.merging import LoaderSettings, MergePolicy, MergeTarget, Writes
from orchestrator.model.phase import Outcome, Phase
from orchestrator.runs.simulated import Simulation
from tests.simulation.play import cluster, policy
from tests.states import state_with

AT: Final = 1000.0
ASKED = StandingDown(reason="asked to stop", outcome=Outcome.INTERRUPTED)
POSTS = MergeTarget(index="posts", index_uuid="posts-uuid", segments=20, bytes=1000, due=True)
LIKES = replace(POSTS, index="likes", index_uuid="likes-uuid")
IN_HAND = MergeProgress(target=POSTS, begun=AT)
ENDED = MergeProgress(
    target=POSTS, begun=AT - 60.0, asked=1, asked_at=AT - 60.0, refreshed_at=AT - 1.0, ended=True
)
MERGE = ActionSent(action=ForceMerge(index="posts", index_uuid="posts-uuid", max_segments=5))
STOP = ActionSent(action=StopNode(node=NodeName("es1")))
WANTED = MergePolicy(patterns=("*",), at_once=1, put_right=LoaderSettings(number_of_replicas=1))
MERGED = IndexMerged(
    index="posts", index_uuid="posts-uuid", segments=5, bytes=900, seconds=60.0, incarnations={}
)
REFUSED = ActionFailed(action=MERGE.action, reason="429 rejected", in_doubt=False)
DONE = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=1.0)


def _state(*indices: MergeProgress, phase: Phase = Phase.MERGING, **changes: object) -> RunState:
    """A run that merges, has looked for writes long enough ago, and holds its lease."""
    state = Simulation(cluster(3)).begin(replace(policy(), merge=WANTED))
    counters = {one.target.index_uuid: Writes(operations=1, sequence=1) for one in indices}
    merging = Merging(
        indices={one.target.index_uuid: one for one in indices}, writes=counters, writes_at=AT - 10.0
    )
    return state_with(state, **{"phase": phase, "merging": merging, **changes})


def _step(before: RunState, event: Event, after: RunState | None = None) -> Step:
    return Step(
        before=before, record=Record(run="run-1", sequence=7, at=AT, event=event), after=after or before
    )


def _set(value: str, phase: Phase = Phase.MERGED) -> Step:
    key = "index.number_of_replicas"
    action = SetIndexSettings(index="posts", index_uuid="posts-uuid", found={key: "0"}, wanted={key: value})
    return _step(_state(ENDED, phase=phase), ActionSent(action=action))


def _settled(*indices: MergeProgress) -> RunState:
    state = _state(*indices, phase=Phase.DOWN)
    return replace(state, merging=replace(state.merging, settled=True))


def _looked(writes_at: float) -> RunState:
    state = _state(IN_HAND)
    return replace(state, merging=replace(state.merging, writes_at=writes_at))


_BEGUN = MergeBegun(index="likes", index_uuid="likes-uuid", segments=20, bytes=1000)
_BOTH = _state(IN_HAND, MergeProgress(target=LIKES, begun=AT))
_ASKED = replace(IN_HAND, begun=AT - 60.0, asked=1, asked_at=AT - 60.0)
_TAKEN_UP = replace(_ASKED, asked_at=None, refreshed_at=AT - 1.0)
_JUST_NOW = replace(_ASKED, asked_at=AT - 10.0, refreshed_at=AT - 1.0)
_MAY_COME: Final = "what_may_still_come_is_waited_for"

MERGE_BREAKS: Final[Mapping[str, Callable[[], Step]]] = {
    "an_index_is_not_asked_for_twice": lambda: _step(_state(_ASKED), MERGE),
    _MAY_COME: lambda: _step(_state(_TAKEN_UP, started=AT - 5.0), MERGE),
    "merges_are_written_down_first": lambda: _step(_state(MergeProgress(target=POSTS)), MERGE),
    "nobody_merges_without_the_lease": lambda: _step(_state(IN_HAND, lease_lost="lost to bo"), MERGE),
    "no_merge_after_standing_down": lambda: _step(_state(IN_HAND, standing_down=ASKED), MERGE),
    "merges_keep_to_their_number": lambda: _step(_state(IN_HAND), _BEGUN, _BOTH),
    "writes_are_read_twice": lambda: _step(_looked(AT - 1.0), MERGE),
    "what_is_merged_was_counted": lambda: _step(_state(_ASKED), MERGED),
    "nodes_wait_for_merges": lambda: _step(_state(ENDED), STOP),
    "only_what_is_wanted_is_set": lambda: _set("2"),
    "done_has_merged": lambda: _step(_state(IN_HAND), DONE),
}

MERGE_HOLDS: Final[Mapping[str, Callable[[], tuple[Step, ...]]]] = {
    "an_index_is_not_asked_for_twice": lambda: (
        _step(_state(IN_HAND), MERGE),
        _step(_state(replace(_ASKED, refreshed_at=AT - 1.0)), MERGE),
    ),
    _MAY_COME: lambda: (
        _step(_state(_TAKEN_UP, started=AT - 31.0), MERGE),
        _step(_state(_JUST_NOW, failing=(Failing(last=REFUSED, since=AT),)), MERGE),
    ),
    "merges_are_written_down_first": lambda: (_step(_state(IN_HAND), MERGE),),
    "nobody_merges_without_the_lease": lambda: (_step(_state(IN_HAND), MERGE),),
    "no_merge_after_standing_down": lambda: (_step(_state(IN_HAND), MERGE),),
    "merges_keep_to_their_number": lambda: (
        _step(_state(MergeProgress(target=LIKES)), _BEGUN, _state(MergeProgress(target=LIKES, begun=AT))),
    ),
    "writes_are_read_twice": lambda: (_step(_looked(AT - 5.0), MERGE),),
    "what_is_merged_was_counted": lambda: (
        _step(_state(replace(_ASKED, refreshed_at=AT - 1.0)), MERGED),
        _step(_state(_ASKED), replace(MERGED, segments=0, why="it is gone")),
    ),
    "nodes_wait_for_merges": lambda: (_step(_settled(ENDED), STOP),),
    "only_what_is_wanted_is_set": lambda: (_set("1"),),
    "done_has_merged": lambda: (_step(_state(ENDED), DONE),),
}

ALSO_BROKEN: Final[Mapping[str, tuple[Step, str]]] = {
    "merged in another phase": (
        _step(_state(IN_HAND, phase=Phase.GATED), MERGE),
        "merges_are_written_down_first: posts is merged in gated",
    ),
    "lost on its way": (
        _step(_state(_JUST_NOW, failing=(Failing(last=replace(REFUSED, in_doubt=True), since=AT),)), MERGE),
        f"{_MAY_COME}: posts is merged again 10.0 s after a merge of it that may still come",
    ),
    "not looked for": (
        _step(_state(replace(_TAKEN_UP, refreshed_at=AT - 25.0), started=AT - 31.0), MERGE),
        f"{_MAY_COME}: posts is merged again, without a check of a merge that came late",
    ),
    "none of the run's": (
        _step(_state(), MERGE),
        "merges_are_written_down_first: posts is merged, and is none of the run's",
    ),
    "too many segments": (
        _step(_state(replace(_ASKED, refreshed_at=AT - 1.0)), replace(MERGED, segments=6)),
        "what_is_merged_was_counted: posts is said to be merged and has 6 segments",
    ),
    "merged twice": (
        _step(_state(ENDED), MERGED),
        "what_is_merged_was_counted: posts is none of the run's, or was merged already",
    ),
    "set while others merge": (
        _set("1", Phase.MERGING),
        "only_what_is_wanted_is_set: settings of index posts are set in merging",
    ),
    "stopped beside a merge": (
        _step(_settled(_ASKED), STOP),
        "nodes_wait_for_merges: es1 goes before posts are done",
    ),
}
