"""What answers to each verb mean, and the upgrade mode of machine learning as a setting.

The packages of the lab have no machine learning: its answers are those of Elastic's documentation, and of its
sources for a licence without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
    SettingChange,
    WriteSettings,
)
from orchestrator.model.observation import Level, SettingsView
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.stores.elasticsearch.act import outcome_of, perform
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import dialect_for
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.upgrade import with_modes
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.unit.stores.cases import why
from tests.unit.stores.scripted import ACKNOWLEDGED, SETTINGS, sent

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


# The upgrade mode of machine learning ----------------------------------------------------------------------

MODE = SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true")
ALLOCATION = replace(MODE, key="cluster.routing.allocation.enable", found="before", wanted="primaries")
BOTH = WriteSettings(changes=(ALLOCATION, MODE), purpose=Purpose.WITHHOLD)
SET, INFO = "/_ml/set_upgrade_mode", "/_ml/info"
FORBIDDEN = reply({"error": {"type": "x", "reason": "no"}, "status": 403}, status=403)


def test_a_half_written_update_is_in_doubt(
    server: ScriptedServer, client: Callable[..., ElasticsearchClient]
) -> None:
    for mode, settings, result, paths in [
        (ACKNOWLEDGED, ACKNOWLEDGED, Done, [SET, SETTINGS]),
        (FORBIDDEN, ACKNOWLEDGED, Refused, [SET]),  # nothing is written
        (ACKNOWLEDGED, FORBIDDEN, InDoubt, [SET, SETTINGS]),  # a reading shows which half
    ]:
        server.asked.clear()
        server.on(SET, mode)
        server.on(SETTINGS, settings)
        assert isinstance(perform(client(server.url), BOTH), result)
        assert [target.partition("?")[0] for target in sent(server, "POST", "PUT")] == paths


def test_the_mode_is_read_beside_the_settings(
    server: ScriptedServer, client: Callable[..., ElasticsearchClient]
) -> None:
    def mode(status: int = 200, version: str = "9.1.0", **said: Any) -> Any:
        error = {"error": {"type": "security_exception", "reason": said.get("why")}}
        server.on(INFO, reply(error if "why" in said else said, status=status))
        settings = SettingsView(persistent={"a": "b"})
        read = with_modes(client(server.url), dialect_for("elasticsearch", version), settings)
        return read if isinstance(read, Unknown) else dict(read.persistent)

    for on in (True, False):
        assert mode(upgrade_mode=on) == {"a": "b", ML_UPGRADE_MODE: str(on).lower()}
    for status, reason in (
        (400, "no handler found for uri [/_ml/info] and method [GET]"),
        (404, "not found"),
        (403, "current license is non-compliant for [ml]"),
    ):
        assert mode(status, why=reason) == {"a": "b"}, "a cluster without machine learning has none"
    reason = "action [cluster:monitor/xpack/ml/info/get] is unauthorized for user [ops]"
    refused = why(mode(403, why=reason))
    assert reason in refused
    assert "docs/reference/elasticsearch-role.yml" in refused
    assert isinstance(mode(defaults={}), Unknown), "an answer without it says nothing"
    server.asked.clear()
    assert mode(version="6.6.2", upgrade_mode=True) == {"a": "b"}
    assert server.asked == [], "before 6.7 it is not asked for"
    assert mode(version="6.7.0", upgrade_mode=True) != {"a": "b"}
