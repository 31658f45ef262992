"""From which version on each difference between servers holds, and how each version is asked.

The table is written once more, in `tests/data`, apart from the one of the program. Sources: the docstring
of `Dialect`.
"""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import (
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    ProbeSettings,
    RefreshIndex,
    SetIndexSettings,
    SetReplicas,
)
from orchestrator.model.cluster import NodeName
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch import dialect as dialect_module
from orchestrator.stores.elasticsearch.access import Access, Limits
from orchestrator.stores.elasticsearch.act import request_for
from orchestrator.stores.elasticsearch.dialect import COMPONENT_TEMPLATE as NEW
from orchestrator.stores.elasticsearch.dialect import (
    ELASTICSEARCH,
    LEGACY_TEMPLATE,
    NEWEST,
    OPENSEARCH,
    Dialect,
    ServerVersion,
    dialect_for,
    dialect_of,
    family_of,
    parse_version,
)
from orchestrator.stores.elasticsearch.faults import error_fault
from tests.unit.stores.cases import DATA, same

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
SINCE: dict[str, dict[str, Any]] = json.loads((DATA / "elasticsearch-dialects.json").read_text())
"""By product and column: each first version with what holds from it on.

Other columns of OpenSearch are as in the newest Elasticsearch.
"""


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _at(since: dict[str, Any], version: str) -> Any:
    return [value for first, value in since.items() if _minor(first) <= _minor(version)][-1]


def test_each_difference_begins_with_its_version(subtests: pytest.Subtests) -> None:
    for column in (one.name for one in fields(Dialect) if one.name != "family"):
        since = SINCE[ELASTICSEARCH][column]
        expected = {(ELASTICSEARCH, version): _at(since, version) for version in ELASTICSEARCHES}
        of_opensearch = SINCE[OPENSEARCH].get(column, {ALWAYS: _at(since, "9.3")})
        expected |= {(OPENSEARCH, version): _at(of_opensearch, version) for version in OPENSEARCHES}
        with subtests.test(column):
            for (distribution, version), value in expected.items():
                found = getattr(_dialect(f"{version}.1", distribution), column)
                assert same(found, value), f"{distribution} {version}"


def _dialect(version: str, distribution: str = ELASTICSEARCH) -> Dialect:
    dialect = family_of(distribution, version)
    assert dialect is not None
    return dialect


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


ACCEPTED = {
    ELASTICSEARCH: "9.1.0 9.0.0-SNAPSHOT 8.19.0 8.0.0 7.17.28 7.8.0 7.0.0 6.8.23 5.6.16 2.4.6 1.7.6 1.1.0",
    OPENSEARCH: "2.19.0 2.0.0 1.3.20 3.1.0",
}
"""Beside those of which answers were recorded."""
REFUSED = {ELASTICSEARCH: "2.2.0 1.0.3 10.0.0", OPENSEARCH: "4.0.0", "couchbase": "7.0.0"}


def test_what_is_accepted() -> None:
    for product, versions in ACCEPTED.items():
        for version in versions.split():
            assert dialect_for(product, version).accepted, version
    for version in ("1.5.2", "0.90.13"):
        assert dialect_for(ELASTICSEARCH, version).accepted
    for product, versions in REFUSED.items():
        for version in versions.split():
            with pytest.raises(NotInThisVersion, match="not in this version"):
                dialect_for(product, version)
    old = ServerVersion(distribution=ELASTICSEARCH, version="1.0.3")
    with pytest.raises(NotInThisVersion, match=r"1\.0\.3 on es0, es1, es2, es3, es4 and 4 more"):
        dialect_of({f"es{number}": old for number in range(9)})


UPGRADES = (
    (ELASTICSEARCH, "2.3.0", "2.4.6"),
    (ELASTICSEARCH, "5.6.16", "6.8.23"),
    (ELASTICSEARCH, "6.8.23", "7.17.28"),
    (ELASTICSEARCH, "7.5.2", "7.17.28"),
    (ELASTICSEARCH, "7.17.28", "8.19.0"),
    (ELASTICSEARCH, "8.19.0", "9.1.0"),
    (OPENSEARCH, "1.3.20", "2.19.0"),
    (OPENSEARCH, "2.19.0", "3.1.0"),
)


def test_during_every_upgrade_dialect_of_is_the_older_one(subtests: pytest.Subtests) -> None:
    for product, old, new in UPGRADES:
        with subtests.test(product=product, old=old, new=new):
            one, other = (ServerVersion(distribution=product, version=version) for version in (new, old))
            found = dialect_of({"es1": one, "es2": other})
            assert found == dialect_of({"es2": other})
            assert found.family != dialect_of({"es1": one}).family or old in ("2.3.0", "7.5.2")
            before = product == ELASTICSEARCH and parse_version(old) < (7, 8, 0)
            assert found.lease_forms[0] == (LEGACY_TEMPLATE if before else NEW)


# How each version is asked ---------------------------------------------------------------------------------

INDEX = {"index": "p", "index_uuid": "u"}
REFRESHED = SetIndexSettings(**INDEX, found={}, wanted={"index.refresh_interval": "1s"})
MERGE = ForceMerge(index="p", index_uuid="u", max_segments=5)


def test_old_versions_are_asked_in_their_own_words(subtests: pytest.Subtests) -> None:
    probe = '{"persistent": {"orchestrate.settings-probe": "1"}}'
    synced = "POST /_flush/synced?ignore_unavailable=true&expand_wildcards=open"
    voting = "POST /_cluster/voting_config_exclusions/es1?timeout=30s"
    limits, oldest = Limits(), _dialect("0.90.13")
    of_state = "/_cluster/state?master_timeout=5s&filter_blocks=true"
    of_names = "&filter_nodes=true&filter_routing_table=true&filter_indices=p,gr%C3%B6%C3%9Fe%2B1"
    facts = "/_nodes/a,b?timeout=5s&clear=true&plugin=true&jvm=true&http=true&settings=true"
    for request, said in [
        (request_for(ExcludeFromVoting(node=NodeName("es1")), _dialect("7.5.2")), voting),
        (request_for(Flush(), _dialect("7.5.2")), synced),
        (request_for(Flush(), _dialect("6.8.23")), synced),
        (
            request_for(ProbeSettings(), _dialect("2.4.6")),
            f"PUT /_cluster/settings?master_timeout=30s&timeout=30s {probe}",
        ),
        (calls.state(oldest, limits, with_snapshots=True), f"GET {of_state}"),
        (calls.lives(["a", "b"], oldest), f"GET {facts}"),
        (calls.recoveries(oldest, active_only=True), "GET /_status?recovery=true"),
        (
            calls.writes(oldest, ["p"]),
            "GET /p/_stats?clear=true&indexing=true&merge=true&level=shards",
        ),
        (calls.index_uuids(oldest, limits, ["p", "größe+1"]), f"GET {of_state}{of_names}"),
    ]:
        with subtests.test(said):
            assert str(request) == said
    assert 409 in request_for(Flush(), _dialect("6.8.23")).accept
    assert "expand_wildcards" not in request_for(REFRESHED, oldest).params, "it would be a setting"


def test_roles_and_settings_by_version() -> None:
    """Before 5.0 roles are attributes, which are asked for; 5.6 takes no time limit for its settings."""
    for version, attributes in (("2.4.6", True), ("5.0.0", False)):
        assert ("nodes.*.attributes" in str(calls.lives(["_all"], _dialect(version)))) is attributes
    for version, timeout, defaults in [
        ("5.6.16", False, True),
        ("2.4.6", False, False),
        ("7.5.2", True, True),
    ]:
        request = calls.settings(_dialect(version), Limits())
        assert ("master_timeout" in request.params) is timeout
        assert ("include_defaults" in request.params) is defaults


def test_before_1_6_no_call_names_the_wildcards() -> None:
    """1.1 refuses `expand_wildcards=none`; 1.4 and 1.5 take it for a setting of the index (seen)."""
    for version, sent in [("0.90.13", False), ("1.1.2", False), ("1.5.2", False), ("1.7.6", True)]:
        dialect = _dialect(version)
        for request in (
            calls.segments(dialect, ["p"]),
            calls.writes(dialect, ["p"]),
            calls.bulk_state(dialect, Limits(), ["p"]),
            calls.index_uuids(dialect, Limits(), ["p"]),
            request_for(MERGE, dialect),
            request_for(RefreshIndex(index="p", index_uuid="u"), dialect),
            request_for(SetReplicas(index="p", index_uuid="u", found=1, wanted=2), dialect),
            request_for(REFRESHED, dialect),
        ):
            assert ("expand_wildcards" in request.params) is sent, (version, request)


def test_a_merge_without_a_task_is_hung_up_on() -> None:
    for product, version, task in [
        (ELASTICSEARCH, "8.0.1", False),
        (ELASTICSEARCH, "8.1.0", True),
        (OPENSEARCH, "2.6.0", False),
        (OPENSEARCH, "2.7.0", True),
    ]:
        request = request_for(MERGE, _dialect(version, product))
        assert ("wait_for_completion" in request.params) is task
        assert (request.silence is None) is task


def test_many_names_are_asked_for_in_requests_that_fit() -> None:
    few, many = [f"{n:022d}" for n in range(3)], [f"{n:022d}" for n in range(300)]
    assert ",".join(few) in calls.lives(few, NEWEST).path
    assert calls.lives(many, NEWEST).path == "/_nodes/_all/jvm,http,settings,plugins"
    uuids = calls.index_uuids(_dialect("9.1.0"), Limits(), many)
    assert len(uuids.target) < 1000
    assert "ignore_unavailable" not in uuids.params
    names = [f"{number:03}-{'ü' * 90}" for number in range(30)]
    parts = list(calls.request_lines(names))
    assert [name for part in parts for name in part] == names
    assert len(parts) > 1
    assert all(len(calls.segments(NEWEST, part).path) < 2100 for part in parts)
    assert list(calls.request_lines([])) == []
    assert list(calls.request_lines(["ü" * 127])) == [("ü" * 127,)]


def test_errors_before_two_have_their_later_types() -> None:
    lost = "RemoteTransportException[[es3][inet[/127.0.0.1:1]][a]]; nested: MasterNotDiscoveredException[]"
    for text, kind in [
        ("IndexMissingException[[nothing] missing]", "index_not_found_exception"),
        (lost, "master_not_discovered_exception"),
        ("no such thing", None),
    ]:
        fault = error_fault(404, {"error": text}, url="u", call="GET /", access=Access(endpoints=()))
        assert fault.error_type == kind
