"""Each verb as its call, and what answers to it mean."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import (
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    InDoubt,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    Refused,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level
from orchestrator.model.watch import CopiesActive, MasterElected, NodesJoined
from orchestrator.stores.elasticsearch import dialect as dialect_module
from orchestrator.stores.elasticsearch.act import outcome_of, request_for
from orchestrator.stores.elasticsearch.dialect import Dialect, dialect_for, family_of
from orchestrator.stores.elasticsearch.faults import Answer, Fault
from orchestrator.stores.elasticsearch.watch import watch_request

OLD_PROBE = '{"persistent": {"orchestrate.settings-probe": "1"}}'
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
MERGE = ForceMerge(index="a/b", index_uuid="u", max_segments=5)
REFRESH = RefreshIndex(index="a/b", index_uuid="u")
LOADED = SetIndexSettings(
    index="a/b",
    index_uuid="u",
    found={"index.refresh_interval": "-1", "index.translog.durability": "async"},
    wanted={"index.refresh_interval": "5s", "index.translog.durability": None},
)


def test_calls(subtests: pytest.Subtests) -> None:
    for action, call in [
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
            MERGE,
            "POST /a%2Fb/_forcemerge?max_num_segments=5&expand_wildcards=none&wait_for_completion=false",
        ),
        (REFRESH, "POST /a%2Fb/_refresh?expand_wildcards=none"),
        (
            LOADED,
            (
                "PUT /a%2Fb/_settings?expand_wildcards=none&master_timeout=30s&timeout=30s "
                '{"index.refresh_interval": "5s", "index.translog.durability": null}'
            ),
        ),
        (
            ExcludeFromVoting(node=NodeName("es 1&x")),
            "POST /_cluster/voting_config_exclusions?node_names=es%201%26x&timeout=30s",
        ),
        (ClearVotingExclusions(), "DELETE /_cluster/voting_config_exclusions?wait_for_removal=false"),
    ]:
        with subtests.test(action=action, call=call):
            assert str(request_for(action, ES)) == call
            assert str(request_for(action, OS)) == call.replace("master_timeout", "cluster_manager_timeout")
            assert "\n" not in call


def answer(body: Any, status: int = 200) -> Answer:
    return Answer(status=status, body=body)


def fault(*, nothing_done: bool, error_type: str | None = None) -> Fault:
    return Fault(reason="why", nothing_done=nothing_done, error_type=error_type)


def test_results(subtests: pytest.Subtests) -> None:
    for action, outcome, result in [
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
        (LOADED, answer({"acknowledged": True}), Done),
        (LOADED, answer({"acknowledged": False}), InDoubt),
        (LOADED, fault(nothing_done=True), Refused),
        (LOADED, fault(nothing_done=True, error_type="index_not_found_exception"), Done),
        (REFRESH, answer({"_shards": {"total": 4, "successful": 4, "failed": 0}}), Done),
        (REFRESH, answer({}), InDoubt),
        (REFRESH, fault(nothing_done=True, error_type="index_not_found_exception"), Done),
        (MERGE, answer({"task": "n:1"}), Done),
        (MERGE, answer({"_shards": {"total": 4, "successful": 4, "failed": 0}}), Done),
        (MERGE, answer({"task": ""}), InDoubt),
        (MERGE, answer({}), InDoubt),
        (MERGE, fault(nothing_done=False), InDoubt),
        (REPLICAS, fault(nothing_done=True, error_type="index_not_found_exception"), Done),
        (WRITE, fault(nothing_done=True, error_type="index_not_found_exception"), Refused),
    ]:
        with subtests.test(action=action, outcome=outcome, result=result):
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


def test_every_column_of_the_table_is_read() -> None:
    folder = Path(dialect_module.__file__).parent
    read = {
        node.attr
        for path in folder.glob("*.py")
        if path.name != "dialect.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dialect"
    }
    # The table itself decides on these two.
    unread = {field.name for field in fields(Dialect)} - read - {"family", "accepted"}
    assert not unread, "a column that changes nothing is a claim that nobody checks"


def test_old_versions_are_asked_in_their_own_words(subtests: pytest.Subtests) -> None:
    old = {version: family_of("elasticsearch", version) for version in ("2.4.6", "5.6.16", "6.8.23", "7.5.2")}
    for version, action, said in [
        (
            "7.5.2",
            ExcludeFromVoting(node=NodeName("es1")),
            "POST /_cluster/voting_config_exclusions/es1?timeout=30s",
        ),
        ("7.5.2", Flush(), "POST /_flush/synced?ignore_unavailable=true&expand_wildcards=open"),
        ("6.8.23", Flush(), "POST /_flush/synced?ignore_unavailable=true&expand_wildcards=open"),
        (
            "2.4.6",
            ProbeSettings(),
            f"PUT /_cluster/settings?master_timeout=30s&timeout=30s {OLD_PROBE}",
        ),
    ]:
        with subtests.test(version=version, action=action):
            dialect = old[version]
            assert dialect is not None
            assert str(request_for(action, dialect)) == said
    six = old["6.8.23"]
    assert six is not None
    assert 409 in request_for(Flush(), six).accept


def test_how_each_family_merges(subtests: pytest.Subtests) -> None:
    for distribution, version, merge_call, merge_task, task_list, sequence_numbers in [
        ("elasticsearch", "2.0.2", "_optimize", False, False, False),
        ("elasticsearch", "2.2.0", "_forcemerge", False, False, False),
        ("elasticsearch", "2.4.6", "_forcemerge", False, True, False),
        ("elasticsearch", "5.6.16", "_forcemerge", False, True, False),
        ("elasticsearch", "6.8.23", "_forcemerge", False, True, True),
        ("elasticsearch", "7.17.28", "_forcemerge", False, True, True),
        ("elasticsearch", "8.0.1", "_forcemerge", False, True, True),
        ("elasticsearch", "8.1.0", "_forcemerge", True, True, True),
        ("elasticsearch", "9.1.0", "_forcemerge", True, True, True),
        ("opensearch", "1.3.20", "_forcemerge", False, True, True),
        ("opensearch", "2.6.0", "_forcemerge", False, True, True),
        ("opensearch", "2.7.0", "_forcemerge", True, True, True),
        ("opensearch", "3.3.0", "_forcemerge", True, True, True),
    ]:
        with subtests.test(distribution=distribution, version=version):
            dialect = family_of(distribution, version)
            assert dialect is not None
            assert (dialect.merge_call, dialect.merge_task) == (merge_call, merge_task)
            assert (dialect.task_list, dialect.sequence_numbers) == (task_list, sequence_numbers)
            request = request_for(MERGE, dialect)
            assert ("wait_for_completion" in request.params) is merge_task
            assert (request.silence is None) is merge_task, "a call that waits for the end is hung up on"


def test_what_is_accepted(subtests: pytest.Subtests) -> None:
    for distribution, version, accepted in [
        ("elasticsearch", "9.1.0", True),
        ("elasticsearch", "9.0.0-SNAPSHOT", True),
        ("elasticsearch", "8.0.0", True),
        ("elasticsearch", "8.19.0", True),
        ("opensearch", "2.19.0", True),
        ("elasticsearch", "7.17.28", True),
        ("elasticsearch", "7.8.0", True),
        ("elasticsearch", "7.0.0", True),
        ("elasticsearch", "6.8.23", True),
        ("elasticsearch", "5.6.16", True),
        ("elasticsearch", "2.4.6", True),
        ("elasticsearch", "2.2.0", False),
        ("elasticsearch", "1.7.6", True),
        ("elasticsearch", "1.5.2", True),
        ("elasticsearch", "1.1.0", True),
        ("elasticsearch", "1.0.3", False),
        ("elasticsearch", "0.90.13", True),
        ("elasticsearch", "10.0.0", False),
        ("opensearch", "2.0.0", True),
        ("opensearch", "1.3.20", True),
        ("opensearch", "3.1.0", True),
        ("opensearch", "4.0.0", False),
        ("couchbase", "7.0.0", False),
    ]:
        with subtests.test(distribution=distribution, version=version, accepted=accepted):
            if accepted:
                assert dialect_for(distribution, version).accepted
            else:
                with pytest.raises(NotInThisVersion, match="not in this version"):
                    dialect_for(distribution, version)
