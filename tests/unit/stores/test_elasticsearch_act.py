"""Each verb as its call, and what answers to it mean."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import (
    ActionResult,
    ClearVotingExclusions,
    ClusterAction,
    Done,
    ExcludeFromVoting,
    Flush,
    InDoubt,
    ProbeSettings,
    Purpose,
    Refused,
    RetryFailed,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.watch import CopiesActive, MasterElected, NodesJoined
from orchestrator.stores.elasticsearch.act import outcome_of, request_for
from orchestrator.stores.elasticsearch.dialect import Flush as FlushKind
from orchestrator.stores.elasticsearch.dialect import VotingExclusions, dialect_for, family_of
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.watch import watch_request

ES, OS = dialect_for("elasticsearch", "9.1.0"), dialect_for("opensearch", "2.19.0")


def change(level: Level, key: str, wanted: Any) -> SettingChange:
    return SettingChange(level=level, key=key, found="before", wanted=wanted)


WRITE = WriteSettings(
    purpose=Purpose.PUT_BACK,
    changes=(
        change(Level.TRANSIENT, "a", "1"),
        change(Level.PERSISTENT, "b", None),
        change(Level.PERSISTENT, "c", ("x", "y")),
    ),
)
REPLICAS = SetReplicas(index="a/b <c>", index_uuid="u", found=0, wanted=1)


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (
            ProbeSettings(),
            (
                "PUT /_cluster/settings?master_timeout=30s&timeout=30s "
                '{"persistent": {"logger.orchestrate.settings-probe": null}}'
            ),
        ),
        (
            WRITE,
            (
                "PUT /_cluster/settings?master_timeout=30s&timeout=30s "
                '{"persistent": {"b": null, "c": ["x", "y"]}, "transient": {"a": "1"}}'
            ),
        ),
        (Flush(), "POST /_flush?wait_if_ongoing=true&ignore_unavailable=true&expand_wildcards=open,hidden"),
        (
            RetryFailed(),
            "POST /_cluster/reroute?retry_failed=true&metric=none&master_timeout=30s&timeout=30s",
        ),
        (
            REPLICAS,
            (
                "PUT /a%2Fb%20%3Cc%3E/_settings?expand_wildcards=none&master_timeout=30s&timeout=30s "
                '{"index": {"number_of_replicas": 1}}'
            ),
        ),
        (
            ExcludeFromVoting(node=NodeName("es 1&x")),
            "POST /_cluster/voting_config_exclusions?node_names=es%201%26x&timeout=30s",
        ),
        (ClearVotingExclusions(), "DELETE /_cluster/voting_config_exclusions?wait_for_removal=false"),
    ],
)
def test_calls(action: ClusterAction, call: str) -> None:
    assert str(request_for(action, ES)) == call
    assert str(request_for(action, OS)) == call.replace("master_timeout", "cluster_manager_timeout")
    assert "\n" not in call


def answer(body: Any, status: int = 200) -> Answer:
    return Answer(status=status, body=body)


def fault(*, nothing_done: bool, error_type: str | None = None) -> Fault:
    return Fault(reason="why", nothing_done=nothing_done, error_type=error_type)


@pytest.mark.parametrize(
    ("action", "outcome", "result"),
    [
        (WRITE, answer({"acknowledged": True, "persistent": {}}), Done),
        (WRITE, answer({"acknowledged": False}), InDoubt),
        (WRITE, answer({}), InDoubt),
        (WRITE, answer("ok"), InDoubt),
        (WRITE, answer({"acknowledged": "true"}), InDoubt),
        (WRITE, fault(nothing_done=True), Refused),
        (WRITE, fault(nothing_done=False), InDoubt),
        (Flush(), answer({"_shards": {"total": 4, "successful": 2, "failed": 1}}), Done),
        (Flush(), answer({}), InDoubt),
        (ClearVotingExclusions(), answer(""), Done),
        (REPLICAS, fault(nothing_done=True, error_type="index_not_found_exception"), Done),
        (WRITE, fault(nothing_done=True, error_type="index_not_found_exception"), Refused),
    ],
)
def test_results(action: ClusterAction, outcome: Answer | Fault, result: type[ActionResult]) -> None:
    assert isinstance(outcome_of(action, outcome), result)


def test_a_flush_says_what_it_missed() -> None:
    done = outcome_of(Flush(), answer({"_shards": {"total": 4, "successful": 2, "failed": 1}}))
    assert done == Done(output="2 of 4 copies flushed, 1 failed")


def test_long_polls() -> None:
    assert str(watch_request(NodesJoined(count=3), 1.5, ES)) == (
        "GET /_cluster/health?wait_for_nodes=ge%283%29"
        "&wait_for_events=languid&timeout=1500ms&master_timeout=1500ms"
    )
    assert "wait_for_active_shards=7&" in str(watch_request(CopiesActive(count=7), 5, ES))
    assert "cluster_manager_timeout=5s" in str(watch_request(MasterElected(), 5, OS))
    silence = watch_request(MasterElected(), 5, ES).silence
    assert silence is not None
    assert silence > 5, "the server's own time-out comes first"


@pytest.mark.parametrize(
    ("version", "flush", "voting", "null", "streams", "lease"),
    [
        ("0.90.13", FlushKind.PLAIN, VotingExclusions.NONE, False, True, "_template"),
        ("1.5.2", FlushKind.PLAIN, VotingExclusions.NONE, False, True, "_template"),
        ("1.7.6", FlushKind.SYNCED, VotingExclusions.NONE, False, True, "_template"),
        ("2.4.6", FlushKind.SYNCED, VotingExclusions.NONE, False, True, "_template"),
        ("5.6.16", FlushKind.SYNCED, VotingExclusions.NONE, True, False, "_template"),
        ("7.0.0", FlushKind.SYNCED, VotingExclusions.PATH, True, False, "_template"),
        ("7.6.0", FlushKind.PLAIN, VotingExclusions.PATH, True, False, "_template"),
        ("7.8.0", FlushKind.PLAIN, VotingExclusions.QUERY, True, False, "_index_template"),
        ("7.17.28", FlushKind.PLAIN, VotingExclusions.QUERY, True, False, "_index_template"),
        ("9.1.0", FlushKind.PLAIN, VotingExclusions.QUERY, True, False, "_index_template"),
    ],
)
def test_families(
    version: str, flush: FlushKind, voting: VotingExclusions, *, null: bool, streams: bool, lease: str
) -> None:
    dialect = family_of("elasticsearch", version)
    assert dialect is not None
    assert (dialect.flush, dialect.voting, dialect.null_resets, dialect.streams, dialect.lease_template) == (
        flush,
        voting,
        null,
        streams,
        lease,
    )


@pytest.mark.parametrize(
    ("distribution", "version", "accepted"),
    [
        ("elasticsearch", "9.1.0", True),
        ("elasticsearch", "9.0.0-SNAPSHOT", True),
        ("elasticsearch", "8.0.0", True),
        ("elasticsearch", "7.17.28", False),
        ("elasticsearch", "10.0.0", False),
        ("opensearch", "2.0.0", True),
        ("opensearch", "1.3.20", False),
        ("opensearch", "3.1.0", False),
        ("opensearch", "4.0.0", False),
        ("couchbase", "7.0.0", False),
    ],
)
def test_what_is_accepted(distribution: str, version: str, *, accepted: bool) -> None:
    if accepted:
        assert dialect_for(distribution, version).accepted
    else:
        with pytest.raises(NotInThisVersion, match="not in this version"):
            dialect_for(distribution, version)
