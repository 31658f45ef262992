"""Answers of real nodes (`tests/data/elasticsearch/<version>/`), read; and the same answers, damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.cluster import CopyState, Health, NodeName, Role
from orchestrator.model.observation import ClusterView, HealthView, SettingsView
from orchestrator.model.reading import Reading, Unknown
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.stores.elasticsearch.connection import parse_server
from orchestrator.stores.elasticsearch.dialect import NEWEST, OPENSEARCH, family_of
from orchestrator.stores.elasticsearch.fields import Malformed, reading
from orchestrator.stores.elasticsearch.parse import (
    parse_health,
    parse_recoveries,
    parse_settings,
    parse_snapshots,
    parse_tasks,
)
from orchestrator.stores.elasticsearch.parse_cluster import parse_cluster, parse_index_uuids
from orchestrator.stores.elasticsearch.parse_disks import parse_disks
from orchestrator.stores.elasticsearch.parse_nodes import Life, parse_lives, parse_members, unfamiliar

DATA = Path(__file__).parents[2] / "data" / "elasticsearch"
VERSIONS = sorted(folder.name for folder in DATA.iterdir())
each_version = pytest.mark.parametrize("version", VERSIONS)


def body(version: str, name: str) -> Any:
    return json.loads((DATA / version / f"{name}.json").read_text())["body"]


def lives_of(version: str, scenario: str) -> dict[str, Life]:
    by_id = parse_lives(body(version, f"{scenario}.lives"))
    nodes = body(version, f"{scenario}.state")["nodes"]
    return {nodes[node_id]["ephemeral_id"]: life for node_id, life in by_id.items()}


def parse_state(version: str, state: Any, lives: dict[str, Life]) -> Reading[ClusterView]:
    distribution, _, number = version.rpartition("-")
    dialect = family_of(distribution or "elasticsearch", number)
    assert dialect is not None
    return parse_cluster(state, lives, distribution=distribution or "elasticsearch", dialect=dialect)


def view_of(version: str, scenario: str, lives_from: str | None = None) -> ClusterView:
    lives = lives_of(version, lives_from or scenario)
    view = parse_state(version, body(version, f"{scenario}.state"), lives)
    assert isinstance(view, ClusterView), view
    return view


def test_every_accepted_family_was_recorded() -> None:
    assert {"9.1.0", "8.19.0", "opensearch-2.19.0"} <= set(VERSIONS)


@each_version
def test_each_masters_order_of_the_same_state_reads_alike(version: str) -> None:
    """Else the reasons of two plans of one state differ."""
    state, lives = body(version, "settled.state"), lives_of(version, "settled")
    turned = copy.deepcopy(state)
    for part in (turned["routing_table"]["indices"], turned["metadata"]["indices"]):
        assert len(part) > 1
        for name in reversed(list(part)):
            part[name] = part.pop(name)
    one, other = parse_state(version, state, lives), parse_state(version, turned, lives)
    assert isinstance(one, ClusterView)
    assert isinstance(other, ClusterView)
    assert list(one.routing.table) == list(other.routing.table)
    assert one.indices == other.indices


@each_version
def test_members(version: str) -> None:
    view = view_of(version, "settled")
    assert (view.name, view.version) == ("lab", version.removeprefix("opensearch-"))
    assert view.distribution == ("opensearch" if "opensearch" in version else "elasticsearch")
    assert [node.name for node in view.nodes] == ["es1", "es2", "es3"]
    assert [node.zone("zone") for node in view.nodes] == ["a", "b", "c"]
    for node in view.nodes:
        assert node.address == "127.0.0.1"
        assert {Role.MASTER, Role.DATA, Role.INGEST} <= node.roles
        assert node.incarnation.ephemeral_id
        assert node.incarnation.started_at_ms is not None
        assert node.incarnation.started_at_ms > 1_500_000_000_000
    assert view.voters == {node.node_id for node in view.nodes}
    assert view.master in {node.name for node in view.nodes}
    assert view.voting_exclusions == ()
    assert view.shutdowns == ()


@each_version
def test_indices(version: str) -> None:
    view = view_of(version, "settled")
    indices = {index.name: index for index in view.indices}
    assert (indices["posts"].replicas, indices["posts"].open, indices["posts"].auto_expand) == (1, True, None)
    assert indices["single"].pinned_to == "es1"
    assert indices["single"].allocation_enable == "all"
    assert indices["stuck"].pinned_to == "nobody"
    assert (indices["expanding"].auto_expand, indices["expanding"].replicas) == ("0-1", 1)
    assert indices["shut"].open is False
    assert len({index.uuid for index in view.indices}) == len(view.indices)
    in_sync = indices["posts"].in_sync
    assert in_sync is not None
    for copy_ in view.copies:
        if copy_.shard.index == "posts":
            assert copy_.started
            assert copy_.allocation_id in in_sync[copy_.shard.number]
    assert sum(copy_.shard.index == "posts" for copy_ in view.copies) == 6
    assert sum(copy_.shard.index == "shut" for copy_ in view.copies) == 2, (
        "closed indices have copies since 7.2"
    )


@each_version
def test_a_copy_that_nothing_takes_is_unassigned(version: str) -> None:
    (stuck,) = (copy_ for copy_ in view_of(version, "settled").copies if copy_.shard.index == "stuck")
    assert (stuck.state, stuck.primary, stuck.node) == (CopyState.UNASSIGNED, True, None)
    assert stuck.unassigned_reason == "INDEX_CREATED"


@each_version
def test_an_empty_cluster_has_no_copies(version: str) -> None:
    view = view_of(version, "empty")
    assert len(view.nodes) == 3
    assert {index.name for index in view.indices} == {copy_.shard.index for copy_ in view.copies}
    assert not any(index.name == "posts" for index in view.indices)


@each_version
def test_a_node_that_is_down(version: str) -> None:
    view = view_of(version, "down")
    assert len(view.nodes) == 2
    missing = [copy_ for copy_ in view.copies if copy_.unassigned_reason == "NODE_LEFT"]
    assert missing
    assert {copy_.node for copy_ in view.copies if copy_.node} == {node.name for node in view.nodes}
    health = parse_health(body(version, "down.health"))
    assert isinstance(health, HealthView)
    assert health.nodes == 2
    assert health.unassigned_shards == sum(copy_.state is CopyState.UNASSIGNED for copy_ in view.copies)
    assert health.active_shards == sum(copy_.started for copy_ in view.copies)


@each_version
def test_a_restarted_node_has_another_incarnation(version: str) -> None:
    before = {node.name: node.incarnation for node in view_of(version, "settled").nodes}
    after = {node.name: node.incarnation for node in view_of(version, "recovering").nodes}
    changed = {name for name in after if after[name].differs_from(before[name])}
    down = {node.name for node in view_of(version, "down").nodes}
    assert changed == set(before) - down


@each_version
def test_a_relocating_source_is_a_started_copy(version: str) -> None:
    view = view_of(version, "relocating")
    (moving,) = (copy_ for copy_ in view.copies if copy_.state is CopyState.RELOCATING)
    assert moving.started
    assert moving.shard.index == "posts"
    assert moving.relocating_to is not None
    assert moving.relocating_to != moving.node


@each_version
def test_what_goes_on_in_a_busy_cluster(version: str) -> None:
    view = view_of(version, "busy", lives_from="settled")
    assert view.voting_exclusions == ("es3",)
    assert parse_snapshots(body(version, "busy.snapshots")) == ("backup/nightly",)
    assert parse_snapshots(body(version, "busy.state")) == ("backup/nightly",)
    assert parse_snapshots(body(version, "settled.state")) == ()
    activity = parse_tasks(body(version, "busy.tasks"), snapshots=())
    assert not isinstance(activity, Unknown)
    assert activity.merges
    assert activity.merges <= {node.name for node in view.nodes}
    assert activity.reindexes == frozenset()


def test_reindexes_are_told_by_their_action() -> None:
    task = {"name": "es2", "tasks": {"x:1": {"action": "indices:data/write/update/byquery"}}}
    activity = parse_tasks({"nodes": {"x": task}}, snapshots=("r/s",))
    assert not isinstance(activity, Unknown)
    assert activity.reindexes == {"es2"}
    assert activity.snapshots == ("r/s",)


def test_only_a_member_without_its_tasks_is_unread() -> None:
    failure = {"type": "failed_node_exception", "reason": "Failed node [x3]", "node_id": "x3"}
    task = {"name": "es2", "tasks": {"x:1": {"action": "indices:data/write/update/byquery"}}}
    answer = {"node_failures": [failure], "nodes": {"x2": task}}
    activity = parse_tasks(answer, snapshots=(), members={"x2": NodeName("es2"), "x3": NodeName("es3")})
    assert not isinstance(activity, Unknown)
    assert (activity.unread, activity.reindexes) == ({"es3"}, {"es2"})


@pytest.mark.parametrize("part", ["node_failures", "task_failures"])
def test_any_other_failure_makes_the_tasks_unknown(part: str) -> None:
    failure = {"type": "failed_node_exception", "reason": "es3 timed out"}
    if part == "task_failures":
        failure["node_id"] = "x3"
    activity = parse_tasks({part: [failure], "nodes": {}}, snapshots=(), members={"x3": NodeName("es3")})
    assert isinstance(activity, Unknown)
    assert "es3 timed out" in activity.reason


@each_version
def test_settings_keep_the_levels_apart(version: str) -> None:
    settings = parse_settings(body(version, "settled.settings"))
    assert isinstance(settings, SettingsView)
    assert settings.persistent["cluster.routing.allocation.enable"] == "all"
    assert settings.transient == {
        "indices.recovery.max_bytes_per_sec": "60mb",
        "cluster.routing.allocation.exclude._name": "other",
    }
    assert "cluster.routing.allocation.enable" not in settings.files, (
        "a default that is overridden is not listed"
    )
    assert settings.effective("cluster.routing.allocation.awareness.attributes") == ("zone",)
    assert settings.effective("cluster.routing.rebalance.enable") == "all"
    assert settings.effective("cluster.routing.allocation.node_concurrent_recoveries") == "2"
    empty = parse_settings(body(version, "empty.settings"))
    assert isinstance(empty, SettingsView)
    assert (empty.persistent, empty.transient) == ({}, {})


@each_version
def test_recoveries_under_way_and_finished(version: str) -> None:
    view = view_of(version, "recovering")
    uuids = {index.name: index.uuid for index in view.indices}
    before = {node.name: node.incarnation for node in view_of(version, "settled").nodes}
    (restarted,) = (n.name for n in view.nodes if n.incarnation.differs_from(before[n.name]))
    running = parse_recoveries(body(version, "recovering.recoveries"), uuids=uuids, finished_on=())
    everything = parse_recoveries(
        body(version, "recovering.recoveries"), uuids=uuids, finished_on=[restarted]
    )
    assert not isinstance(running, Unknown)
    assert not isinstance(everything, Unknown)
    assert all(not each.done for each in running)
    assert {each.target for each in everything if each.done} <= {restarted}
    assert set(running) <= set(everything)
    for each in everything:
        assert 0 <= each.bytes_reused <= each.bytes_total
        assert each.shard.index_uuid == uuids[each.shard.index]
    active = parse_recoveries(body(version, "recovering.active"), uuids=uuids, finished_on=())
    assert not isinstance(active, Unknown)
    assert active
    assert {each.target for each in active} == {restarted}


def test_recoveries_of_an_index_that_is_gone_are_left_out() -> None:
    assert parse_recoveries(body("9.1.0", "recovering.recoveries"), uuids={}, finished_on=()) == ()


@each_version
def test_health_that_timed_out_is_not_settled(version: str) -> None:
    answer = body(version, "settled.health")
    health = parse_health(answer)
    assert isinstance(health, HealthView)
    assert (health.status, health.settled) == (Health.RED, True)
    late = parse_health(answer | {"timed_out": True})
    assert isinstance(late, HealthView)
    assert late.settled is False


@each_version
def test_disks(version: str) -> None:
    settings = parse_settings(body(version, "settled.settings"))
    assert isinstance(settings, SettingsView)
    members = [NodeName("es1"), NodeName("es2"), NodeName("es3")]
    disks = parse_disks(body(version, "settled.disks"), settings)
    assert not isinstance(disks, Unknown)
    assert set(disks) == set(members)
    assert all(0 < disk.used_share < 1 for disk in disks.values())
    fewer = parse_disks(body(version, "down.disks"), settings)
    assert not isinstance(fewer, Unknown)
    assert set(fewer) < set(members)


@each_version
def test_the_probe_tells_product_version_and_node(version: str) -> None:
    elastic = "opensearch" not in version
    server = parse_server(body(version, "probe"), "Elasticsearch" if elastic else "")
    assert server.version == version.removeprefix("opensearch-")
    assert (server.distribution == OPENSEARCH) is not elastic
    assert server.name in {"es1", "es2", "es3"}
    assert server.address is not None
    assert parse_members(body(version, "probe")) == {server.name: server.member}


@each_version
def test_roles_come_from_where_the_version_has_them(version: str) -> None:
    view = parse_state(version, body(version, "settled.state"), {})
    if version.startswith(("8", "9")):
        assert isinstance(view, ClusterView)
        assert view.node(NodeName("es1")) is not None
        assert view.nodes[0].incarnation.started_at_ms is None, "what was not told is not made up"
    else:
        assert isinstance(view, Unknown)
        assert "has not reported its roles" in view.reason


@each_version
def test_new_lives_are_noticed(version: str) -> None:
    settled, after = lives_of(version, "settled"), body(version, "recovering.state")
    (new,) = unfamiliar(after, settled)
    assert after["nodes"][new]["ephemeral_id"] not in settled
    assert unfamiliar(body(version, "settled.state"), settled) == ()


# Damage -------------------------------------------------------------------------------------------------

ABSENT = object()
Path_ = tuple[str | int, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


def damaged(value: Any, path: Path_, by: Any) -> Any:
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    if by is ABSENT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = by
    return whole


def settings_for_disks() -> SettingsView:
    settings = parse_settings(body("9.1.0", "empty.settings"))
    assert isinstance(settings, SettingsView)
    return settings


READERS: dict[str, Callable[[Any], object]] = {
    "recovering.state": lambda value: parse_state("9.1.0", value, lives_of("9.1.0", "recovering")),
    "settled.settings": parse_settings,
    "recovering.health": parse_health,
    "recovering.recoveries": lambda value: parse_recoveries(
        value,
        uuids=dict.fromkeys(["posts", "single", "expanding", "shut"], "u"),
        finished_on=("es1", "es2", "es3"),
    ),
    "busy.tasks": lambda value: parse_tasks(value, snapshots=()),
    "busy.snapshots": parse_snapshots,
    "empty.disks": lambda value: parse_disks(value, settings_for_disks()),
    "settled.state": parse_index_uuids,
    "recovering.lives": lambda value: reading("lives", lambda: parse_lives(value)),
}


def test_damage_never_raises(subtests: pytest.Subtests) -> None:
    for by in [ABSENT, None, 7, "?", [], {}, [None], {"x": None}]:
        for name, read in READERS.items():
            with subtests.test(str(by), name=name):
                whole = body("9.1.0", name)
                assert not isinstance(read(whole), Unknown)
                for path in places(whole):
                    read(damaged(whole, path, by))
                for instead in (None, 7, "text", [], [[]]):
                    assert isinstance(read(instead), Unknown), instead


def test_what_the_state_must_have(subtests: pytest.Subtests) -> None:
    for part in ["cluster_name", "cluster_uuid", "version", "nodes", "metadata"]:
        with subtests.test(part=part):
            state = body("9.1.0", "settled.state")
            for by in (ABSENT, None, {}):
                assert isinstance(READERS["recovering.state"](damaged(state, (part,), by)), Unknown)


NOT_HEALTHY = {
    "copies of an index": ("routing_table", "indices", "posts"),
    "all copies": ("routing_table",),
    "an index": ("metadata", "indices", "posts"),
    "all indices": ("metadata", "indices"),
    "its settings": ("metadata", "indices", "posts", "settings"),
    "its state": ("metadata", "indices", "posts", "state"),
    "its in-sync sets": ("metadata", "indices", "posts", "in_sync_allocations"),
    "its replicas": ("metadata", "indices", "posts", "settings", "index", "number_of_replicas"),
    "the voters": ("metadata", "cluster_coordination", "last_committed_config"),
    "the exclusions": ("metadata", "cluster_coordination", "voting_config_exclusions"),
}


def test_a_part_that_is_gone_does_not_read_as_healthy(subtests: pytest.Subtests) -> None:
    for what, path in NOT_HEALTHY.items():
        with subtests.test(what=what):
            view = READERS["recovering.state"](damaged(body("9.1.0", "recovering.state"), path, ABSENT))
            assert isinstance(view, Unknown)
            assert view.reason.startswith("cluster state: the answer is not what it should be: ")


@pytest.mark.parametrize("part", ["persistent", "transient", "defaults"])
def test_a_level_that_is_gone_is_not_an_empty_one(part: str) -> None:
    assert isinstance(parse_settings(damaged(body("9.1.0", "settled.settings"), (part,), ABSENT)), Unknown)


def test_a_copy_on_a_stranger_is_malformed() -> None:
    state = body("9.1.0", "settled.state")
    path = ("routing_table", "indices", "posts", "shards", "0", 0, "node")
    view = parse_state("9.1.0", damaged(state, path, "nobody"), lives_of("9.1.0", "settled"))
    assert isinstance(view, Unknown)
    assert "nobody, which is not among the nodes" in view.reason


def test_two_nodes_of_one_name_are_malformed() -> None:
    state = body("9.1.0", "settled.state")
    for node in state["nodes"].values():
        node["name"] = "same"
    view = parse_state("9.1.0", state, lives_of("9.1.0", "settled"))
    assert isinstance(view, Unknown)
    assert "several nodes are called same" in view.reason


def test_shutdown_records_by_id_or_as_a_list() -> None:
    state = body("9.1.0", "settled.state")
    for nodes in ({"n1": {"type": "RESTART"}}, [{"node_id": "n1", "type": "RESTART"}]):
        state["metadata"]["node_shutdown"] = {"nodes": nodes}
        view = parse_state("9.1.0", state, lives_of("9.1.0", "settled"))
        assert isinstance(view, ClusterView)
        assert view.shutdowns == ("n1",)


def test_searchable_snapshots_are_told_by_their_store() -> None:
    state = body("9.1.0", "settled.state")
    state["metadata"]["indices"]["posts"]["settings"]["index"]["store"] = {"type": "snapshot"}
    view = parse_state("9.1.0", state, lives_of("9.1.0", "settled"))
    assert isinstance(view, ClusterView)
    assert [index.name for index in view.indices if index.searchable_snapshot] == ["posts"]


def test_a_probe_answered_by_several_nodes_is_none() -> None:
    answer = body("9.1.0", "settled.lives")
    with pytest.raises(Malformed, match="3 nodes say"):
        parse_server(answer, "Elasticsearch")


@pytest.mark.parametrize(("state", "node"), [("STARTED", None), ("UNASSIGNED", "es1")])
def test_a_copy_is_somewhere_or_unassigned_and_never_both(state: str, node: str | None) -> None:
    whole = body("9.1.0", "settled.state")
    ids = {each["name"]: node_id for node_id, each in whole["nodes"].items()}
    path = ("routing_table", "indices", "posts", "shards", "0", 0)
    for key, value in (("state", state), ("node", node and ids[node])):
        whole = damaged(whole, (*path, key), value)
    view = parse_state("9.1.0", whole, lives_of("9.1.0", "settled"))
    assert isinstance(view, Unknown)
    assert f"is {state} on {node}" in view.reason


def test_nonsense_is_not_taken_for_nothing(subtests: pytest.Subtests) -> None:
    for name, path, by in [
        ("recovering.health", ("number_of_nodes",), -3),
        ("recovering.health", ("unassigned_shards",), "9" * 5000),
        ("busy.snapshots", ("snapshots", "snapshots"), 0),
        ("busy.tasks", ("node_failures",), 0),
        ("settled.state", ("metadata", "indices"), 0),
    ]:
        with subtests.test(name=name, path=path, by=by):
            whole = {**body("9.1.0", name), path[0]: body("9.1.0", name).get(path[0])}
            assert isinstance(READERS[name](damaged(whole, path, by)), Unknown)


def test_a_life_that_is_no_text_is_an_unfamiliar_one() -> None:
    assert unfamiliar({"nodes": {"a": {"ephemeral_id": {"x": 1}}}}, ["e"]) == ("a",)


def test_many_names_are_not_put_into_one_request_line() -> None:
    dialect = family_of("elasticsearch", "9.1.0")
    assert dialect is not None
    few, many = [f"{n:022d}" for n in range(3)], [f"{n:022d}" for n in range(300)]
    assert ",".join(few) in calls.lives(few, NEWEST).path
    assert calls.lives(many, NEWEST).path == "/_nodes/_all/jvm,http,settings,plugins"
    assert len(calls.index_uuids(dialect, Limits(), many).target) < 1000
    assert "ignore_unavailable" not in calls.index_uuids(dialect, Limits(), many).params
