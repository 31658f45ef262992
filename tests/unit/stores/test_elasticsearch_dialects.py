"""From which version on each difference between servers holds, said once more and apart from the table.

The sources are in the docstring of `Dialect`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from orchestrator.stores.elasticsearch import before_one, calls
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.stores.elasticsearch.dialect import COMPONENT_TEMPLATE as NEW
from orchestrator.stores.elasticsearch.dialect import (
    ELASTICSEARCH,
    NONE,
    OPENSEARCH,
    STATE,
    ClusterUuid,
    Dialect,
    VotingExclusions,
    family_of,
)
from orchestrator.stores.elasticsearch.dialect import LEGACY_TEMPLATE as OLD
from orchestrator.stores.elasticsearch.dialect import Flush as FlushKind

ALWAYS = "0.90"
ELASTICSEARCHES = (
    *(f"0.{minor}" for minor in (90,)),
    *(f"1.{minor}" for minor in range(8)),
    *(f"2.{minor}" for minor in range(5)),
    *(f"5.{minor}" for minor in range(7)),
    *(f"6.{minor}" for minor in range(9)),
    *(f"7.{minor}" for minor in range(18)),
    *(f"8.{minor}" for minor in range(20)),
    *(f"9.{minor}" for minor in range(4)),
)
OPENSEARCHES = tuple(f"{major}.{minor}" for major in (1, 2, 3) for minor in range(20))
SINCE: dict[str, dict[str, Any]] = {
    "accepted": {ALWAYS: True, "1.0": False, "1.1": True, "2.0": False, "2.3": True},
    "master_timeout": {ALWAYS: "master_timeout"},
    "settings_wait": {ALWAYS: False, "7.0": True},
    "null_resets": {ALWAYS: False, "5.0": True},
    "flush": {ALWAYS: FlushKind.PLAIN, "1.6": FlushKind.SYNCED, "7.6": FlushKind.PLAIN},
    "hidden_wildcard": {ALWAYS: False, "7.7": True},
    "voting": {
        ALWAYS: VotingExclusions.NONE,
        "7.0": VotingExclusions.PATH,
        "7.8": VotingExclusions.QUERY,
    },
    "retry_failed": {ALWAYS: False, "5.0": True},
    "lease_forms": {ALWAYS: (OLD,), "6.0": (OLD, NEW), "7.8": (NEW, OLD)},
    "lease_pattern": {ALWAYS: "template", "6.0": "index_patterns"},
    "cluster_uuid": {ALWAYS: ClusterUuid.NONE, "2.0": ClusterUuid.METADATA, "7.0": ClusterUuid.TOP},
    "queue_times": {ALWAYS: False, "2.0": True},
    "snapshot_call": {ALWAYS: STATE, "1.0": NONE, "1.1": "_snapshot/_status", "2.0": STATE},
    "ephemeral_ids": {ALWAYS: False, "5.0": True},
    "in_sync": {ALWAYS: False, "5.0": True},
    "roles_in_nodes": {ALWAYS: False, "5.0": True},
    "roles_in_state": {ALWAYS: False, "8.0": True},
    "merge_call": {ALWAYS: "_optimize", "2.1": "_forcemerge"},
    "merge_committed": {ALWAYS: False, "1.6": True},
    "merge_task": {ALWAYS: False, "8.1": True},
    "task_list": {ALWAYS: False, "2.3": True},
    "path_parts": {ALWAYS: False, "1.0": True},
    "expand_none": {ALWAYS: False, "1.6": True},
    "allocation_enable": {ALWAYS: False, "1.0": True},
    "recovery_call": {ALWAYS: "_status", "1.1": "_recovery"},
    "lease_in_alias": {ALWAYS: False, "1.1": True},
    "sequence_numbers": {ALWAYS: False, "6.0": True},
    "deprecations": {ALWAYS: NONE, "5.0": "_xpack/migration/deprecations", "7.0": "_migration/deprecations"},
    "ml_mode": {ALWAYS: False, "6.7": True},
    "snapshot_pages": {ALWAYS: False, "7.16": True},
}
"""By column: each first version of Elasticsearch with what holds from it on."""
OF_OPENSEARCH: dict[str, dict[str, Any]] = {
    "master_timeout": {ALWAYS: "master_timeout", "2.0": "cluster_manager_timeout"},
    "merge_task": {ALWAYS: False, "2.7": True},
    "roles_in_state": {ALWAYS: False},
    "deprecations": {ALWAYS: NONE},
    "ml_mode": {ALWAYS: False},
    "snapshot_pages": {ALWAYS: False},
}
"""The same for OpenSearch; every other column is as in the newest Elasticsearch."""


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _at(since: dict[str, Any], version: str) -> Any:
    return [value for first, value in since.items() if _minor(first) <= _minor(version)][-1]


@pytest.mark.parametrize("column", [one.name for one in fields(Dialect) if one.name != "family"])
def test_each_difference_begins_with_its_version(column: str) -> None:
    newest = _at(SINCE[column], "9.3")
    expected = {(ELASTICSEARCH, version): _at(SINCE[column], version) for version in ELASTICSEARCHES}
    of_opensearch = OF_OPENSEARCH.get(column, {ALWAYS: newest})
    expected |= {(OPENSEARCH, version): _at(of_opensearch, version) for version in OPENSEARCHES}
    for (distribution, version), value in expected.items():
        dialect = family_of(distribution, f"{version}.1")
        assert dialect is not None
        assert getattr(dialect, column) == value, f"{distribution} {version}"


def _dialect(version: str, distribution: str = ELASTICSEARCH) -> Dialect:
    dialect = family_of(distribution, version)
    assert dialect is not None
    return dialect


@pytest.mark.parametrize(("version", "asked"), [("2.4.6", True), ("5.0.0", False)])
def test_before_five_roles_are_asked_for_as_attributes(version: str, *, asked: bool) -> None:
    assert ("nodes.*.attributes" in str(calls.lives(["_all"], _dialect(version)))) is asked


def test_opensearch_1_is_asked_with_its_own_limit() -> None:
    for version, limit in (("1.3.20", "master_timeout"), ("2.0.0", "cluster_manager_timeout")):
        dialect = _dialect(version, OPENSEARCH)
        for request in (
            calls.settings(dialect, Limits()),
            calls.health(dialect),
            calls.leases(dialect, NEW, "x", 5.0),
            calls.leases_at_once(dialect, Limits(), "x"),
            calls.names(dialect, Limits()),
        ):
            given = {name for name in request.params if name.endswith("_timeout")}
            assert given == {limit}, f"{version}: {request}"


def _copy(node: str, *, primary: bool, peer: bool) -> dict[str, Any]:
    recovery = {
        "stage": "DONE",
        "index": {"size_in_bytes": 10, "reused_size_in_bytes": 4, "recovered_size_in_bytes": 6},
        "translog": {"recovered": 0},
    }
    return {
        "routing": {"shard": 0, "primary": primary, "node": node, "state": "STARTED"},
        "peer_recovery" if peer else "gateway_recovery": recovery,
    }


def test_the_source_of_a_copy_of_0_90_is_the_primary() -> None:
    """Whichever copy is listed first: a replica before it is no source."""
    replica, third = (_copy(node, primary=False, peer=True) for node in ("id2", "id3"))
    copies = [replica, third, _copy("id1", primary=True, peer=False)]
    answer = {"indices": {"posts": {"shards": {"0": copies}}}}
    read = before_one.recoveries(answer, {f"id{number}": f"es{number}" for number in (1, 2, 3)})  # type: ignore[dict-item]  # names
    found = {one["target"]["name"]: one["source"].get("name") for one in read["posts"]["shards"]}
    assert found == {"es2": "es1", "es3": "es1", "es1": None}
