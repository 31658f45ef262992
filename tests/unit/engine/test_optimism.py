"""The world of a plan: what it carries over from one step to the next is what a whole reading would give."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.elasticsearch.parse_cluster import parse_cluster
from orchestrator.elasticsearch.rules.kind import Elasticsearch
from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.engine.optimism import OptimisticWorld
from orchestrator.model.action import Purpose, SetReplicas, SettingChange, StartNode, StopNode, WriteSettings
from orchestrator.model.observation import (
    ClusterView,
    HostView,
    Level,
    Observation,
    ServiceState,
    SettingsView,
)
from tests.benchmarks.large_cluster import Size, state

CLUSTER = parse_cluster(orjson.loads(state(Size(nodes=9, copies=60))), {}, distribution="elasticsearch")
assert isinstance(CLUSTER, ClusterView)
RUNNING = HostView(service=ServiceState.RUNNING, detail="running")
ELASTICSEARCH = Elasticsearch()
SEEN = Observation(at=0.0, cluster=CLUSTER, hosts={node.name: RUNNING for node in CLUSTER.nodes})
STEPS = st.lists(st.tuples(st.sampled_from(["stop", "start", "replicas"]), st.integers(0, 8)), max_size=12)


def _world(seen: Observation) -> OptimisticWorld:
    return OptimisticWorld(kind=ELASTICSEARCH, seen=seen)


def _view(world: OptimisticWorld) -> ClusterView:
    assert isinstance(world.seen.cluster, ClusterView)
    return world.seen.cluster


def _after(world: OptimisticWorld, what: str, number: int) -> OptimisticWorld:
    name = sorted(node.name for node in _view(_world(SEEN)).nodes)[number]
    if what == "stop":
        return world.after(StopNode(node=name))
    if what == "start":
        return world.after(StartNode(node=name))
    index = _view(world).indices[number % len(_view(world).indices)]
    return world.after(
        SetReplicas(index=index.name, index_uuid=index.uuid, found=index.replicas, wanted=number % 3)
    )


@given(steps=STEPS)
def test_what_is_carried_over_is_what_is_there(steps: list[tuple[str, int]]) -> None:
    world = _world(SEEN)
    for what, number in steps:
        world = _after(world, what, number)
        carried = _view(world)
        fresh = replace(carried, copies=tuple(carried.copies))
        assert set(carried.not_started) == set(fresh.not_started)
        assert {shard: set(copies) for shard, copies in carried.shards.items()} == {
            shard: set(copies) for shard, copies in fresh.shards.items()
        }
        assert carried.moving.keys() == fresh.moving.keys()
        here = {node: set(copies.values()) for node, copies in carried.routing.by_node.items() if copies}
        assert here == {node: set(copies.values()) for node, copies in fresh.routing.by_node.items()}


def test_new_replicas_are_in_other_zones() -> None:
    """A plan whose replicas are in the zone of their primary has other waves than its run."""
    zones = {node.name: str(number % 3) for number, node in enumerate(CLUSTER.nodes)}
    nodes = tuple(replace(node, attributes={"zone": zones[node.name]}) for node in CLUSTER.nodes)
    settings = SettingsView(persistent={AWARENESS: "zone"}, transient={}, files={})
    world = _world(replace(SEEN, cluster=replace(CLUSTER, nodes=nodes), settings=settings))
    for count in (1, 2):
        for index in CLUSTER.indices:
            action = SetReplicas(index=index.name, index_uuid=index.uuid, found=0, wanted=count)
            shards = _view(world.after(action)).shards
            made = [copies for shard, copies in shards.items() if shard.index_uuid == index.uuid]
            for copies in made:
                assert len({zones[copy.node] for copy in copies if copy.node}) == len(copies) == count + 1


@given(steps=STEPS)
def test_actions_together_do_what_they_do_one_after_the_other(steps: list[tuple[str, int]]) -> None:
    names = sorted(node.name for node in _view(_world(SEEN)).nodes)
    verbs = {"stop": StopNode, "start": StartNode}
    actions = [verbs[what](node=names[number]) for what, number in steps if what in verbs]
    each = _world(SEEN)
    for action in actions:
        each = each.after(action)
    together = _world(SEEN).after(*actions)
    assert together == each
    assert list(_view(together).members.items()) == list(_view(each).members.items())
    assert list(_view(together).routing.red.items()) == list(_view(each).routing.red.items())
    assert list(_view(together).routing.away.items()) == list(_view(each).routing.away.items())


def test_a_written_setting_changes_no_rule_of_settings() -> None:
    """Before Elasticsearch 5 nothing becomes absent again, and before 1 flags disable allocation."""
    for resets, flags in ((True, False), (False, False), (False, True)):
        found = SettingsView(files={"a": "1"}, resets=resets, allocation_flags=flags)
        change = SettingChange(level=Level.PERSISTENT, key="a", found=None, wanted="2")
        world = _world(replace(SEEN, settings=found))
        after = world.after(WriteSettings(changes=(change,), purpose=Purpose.RESTORE)).seen.settings
        assert after == replace(found, persistent={"a": "2"})
