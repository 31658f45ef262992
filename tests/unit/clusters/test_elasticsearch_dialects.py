"""From which version on each difference between servers holds, and how each version is asked.

The table is written once more, in `tests/data`, apart from the one of the program. Sources: the docstring
of `eras`.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch import dialect as dialect_module
from orchestrator.elasticsearch.access import Access, RequestLimits
from orchestrator.elasticsearch.act import requests_for, watch_request
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.dialect import (
    ELASTICSEARCH,
    OPENSEARCH,
    Dialect,
    ServerVersion,
    dialect_for,
    dialect_of,
    family_of,
    parse_version,
)
from orchestrator.elasticsearch.eras import COMPONENT_TEMPLATE as NEW
from orchestrator.elasticsearch.eras import ERAS, LEGACY_TEMPLATE
from orchestrator.elasticsearch.faults import error_fault
from orchestrator.errors import NotInThisVersion
from orchestrator.model.action import (
    ClearVotingExclusions,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import CopiesActive, Level, MasterElected, NodesJoined
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from tests.fakes.plain import plain
from tests.unit.clusters.cases import DATA, same

ALWAYS = "0.90"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
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
HOLDS: dict[str, dict[str, tuple[str, str]]] = json.loads((DATA / "elasticsearch-eras.json").read_text())
"""By product and function of an era: the first version that it is of, and the first later one."""


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _at(since: dict[str, Any], version: str) -> Any:
    return [value for first, value in since.items() if _minor(first) <= _minor(version)][-1]


def test_each_difference_begins_with_its_version(subtests: pytest.Subtests) -> None:
    for column in (one.name for one in fields(Dialect) if one.name not in ("family", "eras")):
        since = SINCE[ELASTICSEARCH][column]
        expected = {(ELASTICSEARCH, version): _at(since, version) for version in ELASTICSEARCHES}
        of_opensearch = SINCE[OPENSEARCH].get(column, {ALWAYS: _at(since, "9.3")})
        expected |= {(OPENSEARCH, version): _at(of_opensearch, version) for version in OPENSEARCHES}
        with subtests.test(column):
            for (distribution, version), value in expected.items():
                found = getattr(_dialect(f"{version}.1", distribution), column)
                assert same(found, value), f"{distribution} {version}"


def test_each_function_of_an_era_is_of_its_versions(subtests: pytest.Subtests) -> None:
    named = {each.__name__ for era in ERAS for each in (*era.spell.values(), *era.reshape.values())}
    assert named == {name for of_product in HOLDS.values() for name in of_product}
    for product, versions in ((ELASTICSEARCH, ELASTICSEARCHES), (OPENSEARCH, OPENSEARCHES)):
        for version in versions:
            eras = _dialect(f"{version}.1", product).eras
            found = {each.__name__ for era in eras for each in (*era.spell.values(), *era.reshape.values())}
            expected = {
                name
                for name, (first, end) in HOLDS[product].items()
                if _minor(first) <= _minor(version) < _minor(end)
            }
            with subtests.test(product, version=version):
                assert found == expected


def _dialect(version: str, distribution: str = ELASTICSEARCH) -> Dialect:
    dialect = family_of(distribution, version)
    assert dialect is not None
    return dialect


def test_every_column_of_the_table_is_read() -> None:
    folder = Path(dialect_module.__file__).parent
    read = {
        node.attr
        for path in folder.glob("*.py")
        if path.name != "dialect.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dialect"
    }
    # The table itself decides on these.
    unread = {field.name for field in fields(Dialect)} - read - {"family", "accepted", "eras"}
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

ASKED = (
    *("0.90.13", "1.1.2", "1.5.2", "1.7.6", "2.4.6", "5.6.16", "6.8.23", "7.5.2", "7.17.28", "8.0.1"),
    *("8.19.0", "9.1.0", "opensearch-1.3.20", "opensearch-2.6.0", "opensearch-2.19.0"),
)
"""Versions on both sides of each difference in how something is asked."""
INDEX = {"index": "a/b <c>", "index_uuid": "u"}
LOADED = SetIndexSettings(
    **INDEX,
    found={"index.refresh_interval": "-1", "index.translog.durability": "async"},
    wanted={"index.refresh_interval": "5s", "index.translog.durability": None},
)
WRITE = WriteSettings(
    purpose=Purpose.RESTORE,
    changes=(
        SettingChange(level=Level.TRANSIENT, key="a", found="before", wanted="1"),
        SettingChange(level=Level.PERSISTENT, key="b", found="before", wanted=None),
        SettingChange(level=Level.PERSISTENT, key="c", found="before", wanted=("x", "y")),
        SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true"),
    ),
)
VERBS = (
    *(ProbeSettings(), WRITE, Flush(), RetryFailed(), RefreshIndex(**INDEX), LOADED, ClearVotingExclusions()),
    *(SetReplicas(**INDEX, found=0, wanted=1), ForceMerge(**INDEX, max_segments=5)),
    ExcludeFromVoting(node=NodeName("es 1&x")),
)
GREEK = ["p", "größe+1"]


def asked(dialect: Dialect) -> Iterator[tuple[str, HttpRequest]]:
    """Every call that differs by version, and every verb, as a version is asked."""
    for name, request in _every_call(dialect):
        yield name, dialect.spelled(request)
    for action in VERBS:
        for number, request in enumerate(requests_for(action, dialect)):
            yield f"{type(action).__name__} {number or ''}".rstrip(), request


def _every_call(dialect: Dialect) -> Iterator[tuple[str, HttpRequest]]:
    limits = RequestLimits()
    for snapshots in (False, True):
        yield f"state snapshots={snapshots}", calls.state(limits, with_snapshots=snapshots)
        yield f"state_uuid snapshots={snapshots}", calls.state_uuid(limits, with_snapshots=snapshots)
        yield f"recoveries active={snapshots}", calls.recoveries(active_only=snapshots)
    for call in (calls.index_uuids, calls.bulk_state):
        yield call.__name__, call(limits, GREEK)
    for other in (calls.segments, calls.writes):
        yield other.__name__, other(GREEK)
    for of_all in (calls.snapshots, calls.names, calls.settings, calls.levels, calls.repositories):
        yield of_all.__name__, of_all(limits)
    yield "creations", calls.creations(limits)
    yield "lives", calls.lives(["a", "b"])
    for alone in (calls.health, calls.disks, calls.deprecations, calls.ml_info, calls.tasks):
        yield alone.__name__, alone()
    yield "finished_snapshots", calls.finished_snapshots(limits, "nfs")
    for form in dialect.lease_forms:
        present = form == dialect.lease_forms[0]
        yield f"leases {form}", calls.leases(form, "x", 5.0, present=present)
    yield "leases_at_once", calls.leases_at_once(limits, "x")
    for watched in (NodesJoined(count=3), CopiesActive(count=7), MasterElected()):
        yield type(watched).__name__, watch_request(watched, 1.5)


def asked_by_version() -> str:
    """Each call and verb, with each form that it has and the versions that are asked so."""
    forms: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for version in ASKED:
        product, _, number = version.rpartition("-")
        for name, request in asked(_dialect(number, product or ELASTICSEARCH)):
            more = (f"{key}={plain(getattr(request, key))}" for key in ("accept", "silence", "answer_bytes"))
            forms[name][f"{request} ({' '.join(more)})"].append(version)
    lines = [
        f"{name}: {', '.join(versions)}\n    {said}\n"
        for name, each in sorted(forms.items())
        for said, versions in each.items()
    ]
    return "".join(lines)


def test_how_each_version_is_asked() -> None:
    """For a person to read when it changes.

    1.4 and 1.5 get no `expand_wildcards`: 1.1 refuses it, and they take it for a setting of the index (seen).
    """
    file = DATA / "elasticsearch-asked.txt"
    if os.environ.get(REWRITE):
        file.write_text(asked_by_version())
    assert asked_by_version() == file.read_text(), f"run with {REWRITE}=1 and read the diff"


def test_many_names_are_asked_for_in_requests_that_fit() -> None:
    few, many = [f"{n:022d}" for n in range(3)], [f"{n:022d}" for n in range(300)]
    assert ",".join(few) in calls.lives(few).path
    assert calls.lives(many).path == "/_nodes/_all/jvm,http,settings,plugins"
    uuids = calls.index_uuids(RequestLimits(), many)
    assert len(uuids.target) < 1000
    assert "ignore_unavailable" not in uuids.params
    names = [f"{number:03}-{'ü' * 90}" for number in range(30)]
    parts = list(calls.request_lines(names))
    assert [name for part in parts for name in part] == names
    assert len(parts) > 1
    assert all(len(calls.segments(part).path) < 2100 for part in parts)
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
