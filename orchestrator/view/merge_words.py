"""Events of merges as plain lines for people; a part of `words.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from orchestrator.model.action import ForceMerge, RefreshIndex, SetIndexSettings
from orchestrator.model.event import RunStarted
from orchestrator.model.merge_event import (
    IndexMerged,
    MergeBegun,
    MergeDue,
    MergeEvent,
    MergeWarned,
    WritesRead,
)
from orchestrator.view.units import counted, duration, listed, one_line, size

MergeAction: TypeAlias = ForceMerge | RefreshIndex | SetIndexSettings


def merge_sentence(event: MergeEvent) -> str:
    """An event of merging as one line."""
    match event:
        case WritesRead(counters=counters):
            return f"counters of writes read for {_indices(len(counters))}: a later reading shows who writes"
        case MergeWarned(index=index, what=what):
            return f"index {index}: WARNING: {one_line(what)}"
        case MergeDue(index=index, why=why):
            return f"index {index}: to be merged too: {one_line(why)}"
        case MergeBegun(index=index, found=True):
            return f"index {index}: a merge of it runs already ({_amount(event)}): watched as ours"
        case MergeBegun(index=index):
            return f"index {index}: merge begun ({_amount(event)})"
        case IndexMerged(index=index, why=why):
            how = f"merged after {duration(event.seconds)}" if event.seconds else "nothing left to merge"
            amount = f", {_amount(event)}" if event.segments else ""
            said = f": {one_line(why)}" if why else ""
            return f"index {index}: {how}{amount}{said}"
        case _:
            assert_never(event)


def merge_action(action: MergeAction) -> str:
    """A verb on an index, in the imperative."""
    match action:
        case ForceMerge(index=index, max_segments=most):
            return f"index {index}: merge every copy to at most {counted(most, 'segment')}"
        case RefreshIndex(index=index):
            return f"index {index}: refresh"
        case SetIndexSettings(index=index, found=found, wanted=wanted):
            return f"index {index}: set {_settings(found, wanted)}"
        case _:
            assert_never(action)


def what_is_begun(event: RunStarted) -> str:
    """The work of a run, for its first line."""
    cluster, policy = event.cluster, event.policy
    if policy.merge is None:
        return f"rolling {'host reboot' if policy.reboot else 'restart'} of {cluster}"
    due = sum(target.due for target in event.indices)
    of_them = f"{due} of {_indices(len(event.indices))}" if due < len(event.indices) else _indices(due)
    merge = f"merge of {of_them} to at most {counted(policy.merge.max_segments, 'segment')} on {cluster}"
    if not event.nodes:
        return merge
    return f"{merge}, then a rolling {'host reboot' if policy.reboot else 'restart'}"


def _amount(event: MergeBegun | IndexMerged) -> str:
    return f"up to {counted(event.segments, 'segment')} a copy, {size(event.bytes)} in all"


def _indices(count: int) -> str:
    return counted(count, "index", "indices")


def _settings(found: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> str:
    return listed(
        [
            f"{key.removeprefix('index.')} to {_value(value)} (found {_value(found.get(key))})"
            for key, value in wanted.items()
        ]
    )


def _value(value: str | None) -> str:
    return "the default" if value is None else value
