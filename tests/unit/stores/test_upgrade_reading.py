"""What an upgrade is checked by, in the forms of answers of 5.6 to 9.x and OpenSearch, and in odd ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.upgrade import Deprecation, UpgradeView
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.dialect import Dialect, family_of
from orchestrator.stores.elasticsearch.fields import Malformed
from orchestrator.stores.elasticsearch.parse_nodes import parse_lives
from orchestrator.stores.elasticsearch.parse_upgrade import (
    parse_creations,
    parse_deprecations,
    parse_node_settings,
    parse_repositories,
    parse_upgrade_mode,
    parse_youngest,
    version_of,
)
from orchestrator.stores.elasticsearch.upgrade import read_upgrade
from tests.fakes.scripted_http import Answerer, ScriptedServer, node, reply

NONE_5_6: Final = {"cluster_settings": [], "node_settings": [], "index_settings": {}}


def deprecation(level: str, message: str = "Indices created before 8.0", **more: object) -> dict[str, Any]:
    return {"level": level, "message": message, "url": "https://ela.st/es-deprecation", **more}


def said(reading: Reading[Any]) -> str:
    assert isinstance(reading, Unknown), reading
    return reading.reason


# Deprecations ------------------------------------


def test_a_cluster_without_deprecations_lists_none() -> None:
    assert parse_deprecations(NONE_5_6) == ()
    in_9 = {**NONE_5_6, "ml_settings": [], "data_streams": {}, "templates": {}, "ilm_policies": {}}
    assert parse_deprecations(in_9) == ()


@pytest.mark.parametrize("level", ["critical", "CRITICAL"])
def test_critical_deprecations_of_every_part_are_listed(level: str) -> None:
    body = {
        "cluster_settings": [deprecation(level, "a setting", details="the setting [x]\n  is gone")],
        "node_settings": [deprecation(level, "Realm order", resolve_during_rolling_upgrade=False)],
        "ml_settings": [deprecation("warning")],
        "index_settings": {"logs-6": [deprecation(level), deprecation("warning")]},
        "data_streams": {"metrics": [deprecation(level, "old backing index")]},
        "templates": {"t": [deprecation(level, "an old template")]},
        "ilm_policies": {"p": [deprecation("info")]},
    }
    assert parse_deprecations(body) == (
        Deprecation(subject="cluster settings", message="a setting: the setting [x] is gone"),
        Deprecation(subject="node settings", message="Realm order"),
        Deprecation(subject="index logs-6", message="Indices created before 8.0"),
        Deprecation(subject="data stream metrics", message="old backing index"),
        Deprecation(subject="template t", message="an old template"),
    )


def test_a_long_deprecation_is_cut() -> None:
    body = {**NONE_5_6, "node_settings": [deprecation("critical", "x" * 1000)]}
    found = parse_deprecations(body)
    assert not isinstance(found, Unknown)
    assert found[0].message == "x" * 300 + "…"


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        {"cluster_settings": [], "node_settings": []},
        {**NONE_5_6, "node_settings": None},
        {**NONE_5_6, "index_settings": {"logs": None}},
        {**NONE_5_6, "cluster_settings": [{"message": "without a level"}]},
        {**NONE_5_6, "cluster_settings": [{"level": "critical"}]},
        {**NONE_5_6, "cluster_settings": ["critical"]},
    ],
    ids=str,
)
def test_an_odd_list_of_deprecations_is_unknown(body: Any) -> None:
    assert "deprecations" in said(parse_deprecations(body))


# Snapshots ------------------------------------


def snapshot(name: str, ended: object, *, state: str = "SUCCESS", failed: object = 0) -> dict[str, Any]:
    return {"snapshot": name, "state": state, "end_time_in_millis": ended, "shards": {"failed": failed}}


def test_the_youngest_whole_snapshot_counts() -> None:
    listed = [
        snapshot("old", 1_600_000_000_000),
        snapshot("good", 1_700_000_000_500),
        snapshot("part", 1_800_000_000_000, state="PARTIAL", failed=2),
        snapshot("failed", 1_800_000_000_000, state="FAILED"),
        snapshot("odd", 1_800_000_000_000, failed=1),
        {"snapshot": "begun", "state": "IN_PROGRESS"},
    ]
    assert parse_youngest({"snapshots": listed, "total": 6, "remaining": 0}) == (1_700_000_000.5, "good")


@pytest.mark.parametrize("body", [{}, {"snapshots": []}, {"snapshots": [snapshot("x", 1, state="FAILED")]}])
def test_without_a_whole_snapshot_there_is_none(body: Any) -> None:
    """With only some fields asked for, an empty list is left out."""
    assert parse_youngest(body) is None


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"snapshots": {}},
        {"snapshots": [{"snapshot": "x"}]},
        {"snapshots": [snapshot("x", None)]},
        {"snapshots": [snapshot("x", "2026-01-01")]},
        {"snapshots": [snapshot("", 1)]},
        {"snapshots": [snapshot("x", 1, failed="none")]},
    ],
    ids=str,
)
def test_an_odd_list_of_snapshots_is_unknown(body: Any) -> None:
    assert "finished snapshots" in said(parse_youngest(body))


def test_repositories_are_listed_in_order() -> None:
    assert parse_repositories({"s3": {"type": "s3"}, "nfs": {"type": "fs"}}) == ("nfs", "s3")
    assert parse_repositories({}) == ()
    assert "snapshot repositories" in said(parse_repositories([]))


# Versions of indices ------------------------------------


@pytest.mark.parametrize(
    ("number", "version"),
    [
        (5_061_699, "5.6.16"),
        (6_082_399, "6.8.23"),
        (7_172_899, "7.17.28"),
        (8_100_499, "8.10.4"),
        (8_500_003, "8"),
        (8_537_000, "8"),
        (9_009_000, "9"),
        (135_238_227, "1.2.4"),
        (136_407_927, "2.19.1"),
    ],
)
def test_a_version_is_read_from_its_number(number: int, version: str) -> None:
    """From 8.11 on the number counts changes of the format; those of OpenSearch have a bit of their own."""
    assert version_of(number) == version


def index(created: object, **settings: object) -> dict[str, Any]:
    return {"settings": {"index": {"version": {"created": created}, **settings}}}


def state_of(**indices: Any) -> dict[str, Any]:
    return {"cluster_name": "prod", "metadata": {"indices": indices}}


def test_indices_are_read_with_their_versions_and_blocks() -> None:
    mounted = {"store": {"type": "snapshot"}, "blocks": {"write": "true"}}
    archive = {"settings": {"index": {"version": {"created": "5061699", "compatibility": "8500003"}}}}
    body = state_of(
        logs=index("7172899"),
        kept=index("7172899", blocks={"write": "true"}, verified_read_only="true"),
        closed=index("7172899", blocks={"read_only": True}, verified_read_only=True),
        blocked=index("7172899", blocks={"write": "true"}),
        opened=index("7172899", blocks={"write": "false"}, verified_read_only="true"),
        mounted=index("7172899", **mounted),
        archive=archive,
    )
    assert parse_creations(body) == {
        "logs": ("7.17.28", False),
        "kept": ("7.17.28", True),
        "closed": ("7.17.28", True),
        "blocked": ("7.17.28", False),
        "opened": ("7.17.28", False),
        "mounted": ("7.17.28", True),
        "archive": ("8", False),
    }


def test_a_cluster_without_indices_has_none() -> None:
    assert parse_creations({"cluster_name": "prod"}) == {}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"metadata": {"indices": {}}},
        {"cluster_name": "prod", "metadata": []},
        state_of(logs=index(None)),
        state_of(logs=index("7.17.28")),
        state_of(logs=index(0)),
        state_of(logs=index(-7)),
        state_of(logs={}),
        state_of(logs=index("7172899", blocks={"write": "perhaps"})),
    ],
    ids=str,
)
def test_an_odd_list_of_indices_is_unknown(body: Any) -> None:
    assert "versions of indices" in said(parse_creations(body))


# Nodes ------------------------------------


def test_settings_of_nodes_are_read_by_name_alone() -> None:
    secret = {"node.name": "es1", "xpack.notification.email.password": "hunter22", "node.data": "true"}
    body = {"nodes": {"AbC": {"name": "es1", "settings": secret}, "DeF": {"name": "es2"}}}
    found = parse_node_settings(body)
    assert found == {"es1": ("node.data", "node.name", "xpack.notification.email.password"), "es2": ()}
    assert "hunter22" not in str(found)


@pytest.mark.parametrize(
    "body",
    [{}, {"nodes": {}}, {"nodes": {"A": {"settings": {}}}}, {"nodes": {"A": {"name": "x", "settings": []}}}],
    ids=str,
)
def test_an_odd_list_of_nodes_is_unknown(body: Any) -> None:
    assert "settings of nodes" in said(parse_node_settings(body))


@pytest.mark.parametrize(
    ("plugins", "names"),
    [
        ([{"name": "analysis-icu", "version": "9.1.0"}], {"analysis-icu"}),
        ([{"name": "repository-s3"}, {"name": "opensearch-knn"}], {"repository-s3", "opensearch-knn"}),
        ([], set()),
        (None, set()),
    ],
)
def test_plugins_of_a_node_are_read(plugins: object, names: set[str]) -> None:
    facts = {"version": "9.1.0", "roles": ["data"], "jvm": {"start_time_in_millis": 1}, "plugins": plugins}
    assert parse_lives({"nodes": {"AbC": facts}})["AbC"].plugins == names


def test_a_plugin_without_a_name_is_malformed() -> None:
    facts = {"version": "9.1.0", "roles": ["data"], "jvm": {"start_time_in_millis": 1}, "plugins": [{}]}
    with pytest.raises(Malformed, match="plugins"):
        parse_lives({"nodes": {"AbC": facts}})


def test_the_mode_of_machine_learning_is_no_guess() -> None:
    assert [parse_upgrade_mode({"upgrade_mode": one}) for one in (True, False, "true")] == [
        "true",
        "false",
        "true",
    ]
    for body in ({}, {"upgrade_mode": None}, {"upgrade_mode": 1}, []):
        assert "machine learning" in said(parse_upgrade_mode(body))


# The whole reading ------------------------------------

DAY: Final = 1_700_000_000_000
HEALTHY: Final[Mapping[str, Answerer]] = {
    "/_cluster/state/metadata": reply(state_of(logs=index("7172899"))),
    "/_nodes/settings": reply({"nodes": {"A": {"name": "es1", "settings": {"node.data": "true"}}}}),
    "/_migration/deprecations": reply(NONE_5_6),
    "/_xpack/migration/deprecations": reply(
        {**NONE_5_6, "index_settings": {"old": [deprecation("critical")]}}
    ),
    "/_snapshot": reply({"nfs": {"type": "fs"}, "s3": {"type": "s3"}}),
    "/_snapshot/nfs/_all": reply({"snapshots": [snapshot("a", DAY)]}),
    "/_snapshot/s3/_all": reply({"snapshots": [snapshot("b", DAY + 5000)]}),
}
BROKEN: Final = reply(
    {"error": {"type": "repository_verification_exception", "reason": "[s3] not accessible"}, "status": 500},
    status=500,
)
FORBIDDEN: Final = reply(
    {"error": {"type": "security_exception", "reason": "unauthorized for user [ops]"}, "status": 403},
    status=403,
)
NO_HANDLER: Final = reply({"error": "no handler found for uri [...] and method [GET]"}, status=400)


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Retries cost a test nothing."""


@contextmanager
def _served(version: str, **answers: Answerer) -> Iterator[ElasticsearchClient]:
    with ScriptedServer() as server:
        for path in ("/_nodes/_local/http", "/_nodes/http"):
            server.on(path, reply(node("es1", version=version)))
        for path, answer in {**HEALTHY, **answers}.items():
            server.on(path, answer)
        client = ElasticsearchClient(Access(endpoints=(server.url,)), clock=_Clock())
        try:
            yield client
        finally:
            client.close()


def _dialect(version: str, distribution: str = "elasticsearch") -> Dialect:
    found = family_of(distribution, version)
    assert found is not None
    return found


def _read(version: str = "8.19.0", *, of: str = "elasticsearch", **answers: Answerer) -> Reading[UpgradeView]:
    with _served(version, **answers) as client:
        return read_upgrade(client, _dialect(version, of))


def _view(reading: Reading[UpgradeView]) -> UpgradeView:
    assert not isinstance(reading, Unknown), reading
    return reading


def test_all_of_it_is_read() -> None:
    assert _view(_read()) == UpgradeView(
        deprecations=(),
        snapshot_ended=DAY / 1000 + 5,
        snapshot="s3/b",
        created={"logs": "7.17.28"},
        settings={"es1": ("node.data",)},
    )


@pytest.mark.parametrize("version", ["5.6.16", "6.8.23"])
def test_before_7_deprecations_are_below_xpack(version: str) -> None:
    found = _view(_read(version)).deprecations
    assert not isinstance(found, Unknown)
    assert [one.subject for one in found] == ["index old"]


def test_opensearch_is_not_asked_for_deprecations() -> None:
    assert _view(_read("2.19.1", of="opensearch", **{"/_migration/deprecations": BROKEN})).deprecations == ()


@pytest.mark.parametrize(
    ("answer", "says"),
    [(NO_HANDLER, "a part of X-Pack"), (FORBIDDEN, "unauthorized"), (BROKEN, "not accessible")],
)
def test_without_deprecations_nothing_is_known_of_them(answer: Answerer, says: str) -> None:
    view = _view(_read(**{"/_migration/deprecations": answer}))
    assert says in said(view.deprecations)
    assert view.snapshot == "s3/b", "the other parts are read"


def test_a_broken_repository_hides_no_snapshot_of_another() -> None:
    view = _view(_read(**{"/_snapshot/s3/_all": BROKEN}))
    assert (view.snapshot_ended, view.snapshot) == (DAY / 1000, "nfs/a")


def test_a_broken_repository_is_no_absence_of_snapshots() -> None:
    empty = reply({"snapshots": []})
    view = _view(_read(**{"/_snapshot/nfs/_all": empty, "/_snapshot/s3/_all": BROKEN}))
    assert "repository s3" in said(view.snapshot_ended)
    assert view.snapshot == ""
    assert _view(_read(**{"/_snapshot/nfs/_all": empty, "/_snapshot/s3/_all": empty})).snapshot_ended is None
    assert "unauthorized" in said(_view(_read(**{"/_snapshot": FORBIDDEN})).snapshot_ended)


@pytest.mark.parametrize("path", ["/_cluster/state/metadata", "/_nodes/settings"])
@pytest.mark.parametrize("answer", [FORBIDDEN, reply({}), reply([])], ids=["refused", "empty", "a list"])
def test_what_the_rest_depends_on_makes_all_unknown(path: str, answer: Answerer) -> None:
    assert isinstance(_read(**{path: answer}), Unknown)
