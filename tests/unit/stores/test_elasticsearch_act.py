"""What answers to each verb mean, and the upgrade mode of machine learning as a setting.

The packages of the lab have no machine learning: its answers are those of Elastic's documentation, and of its
sources for a licence without it.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.action import (
    ClearVotingExclusions,
    Done,
    Flush,
    ForceMerge,
    InDoubt,
    Purpose,
    RefreshIndex,
    Refused,
    SetIndexSettings,
    SetReplicas,
    WriteSettings,
)
from orchestrator.stores.elasticsearch.act import outcome_of
from orchestrator.stores.elasticsearch.faults import Answer, Fault

OF = {"index": "a", "index_uuid": "u"}
WRITE = WriteSettings(changes=(), purpose=Purpose.PUT_BACK)
REPLICAS, REFRESH = SetReplicas(**OF, found=0, wanted=1), RefreshIndex(**OF)
MERGE, LOADED = ForceMerge(**OF, max_segments=5), SetIndexSettings(**OF, found={}, wanted={})


def fault(*, nothing_done: bool, error_type: str | None = None) -> Fault:
    return Fault(reason="why", nothing_done=nothing_done, error_type=error_type)


GONE = fault(nothing_done=True, error_type="index_not_found_exception")
SHARDS = {"_shards": {"total": 4, "successful": 4, "failed": 0}}
OUTCOMES: tuple[tuple[Any, Any, type], ...] = (
    (WRITE, {"acknowledged": True, "persistent": {}}, Done),
    (WRITE, {"acknowledged": False}, InDoubt),
    (WRITE, {}, InDoubt),
    (WRITE, "ok", InDoubt),
    (WRITE, {"acknowledged": "true"}, InDoubt),
    (WRITE, fault(nothing_done=True), Refused),
    (WRITE, fault(nothing_done=False), InDoubt),
    (WRITE, GONE, Refused),
    (Flush(), {}, InDoubt),
    (ClearVotingExclusions(), "", Done),
    (LOADED, {"acknowledged": True}, Done),
    (LOADED, {"acknowledged": False}, InDoubt),
    (LOADED, fault(nothing_done=True), Refused),
    (LOADED, GONE, Done),
    (REFRESH, SHARDS, Done),
    (REFRESH, {}, InDoubt),
    (REFRESH, GONE, Done),
    (MERGE, {"task": "n:1"}, Done),
    (MERGE, SHARDS, Done),
    (MERGE, {"task": ""}, InDoubt),
    (MERGE, {}, InDoubt),
    (MERGE, fault(nothing_done=False), InDoubt),
    (REPLICAS, GONE, Done),
)


def test_outcome_of_each_answer(subtests: pytest.Subtests) -> None:
    for action, answer, result in OUTCOMES:
        with subtests.test(action=action, answer=answer):
            outcome = answer if isinstance(answer, Fault) else Answer(status=200, body=answer)
            assert isinstance(outcome_of(action, outcome), result)
    for status, failed in ((200, 1), (409, 2)):  # a synced flush that missed copies is done too
        answer = Answer(status=status, body={"_shards": {"total": 4, "successful": 2, "failed": failed}})
        said = f"2 of 4 copies flushed, {failed} failed"
        assert outcome_of(Flush(), answer) == Done(output=said)
