"""Whether a copy would return to a node: decided as real servers do, and counted by what nodes share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from orchestrator.elasticsearch.rules.returning import (
    DECIDERS,
    Case,
    returns,
)
from orchestrator.elasticsearch.rules.settings import AWARENESS
from orchestrator.model.cluster import CopyState, Node, NodeName, ShardCopy, ShardId
from orchestrator.model.copies import Copies
from orchestrator.model.observation import ClusterView, Disk, SettingsView
from orchestrator.model.policy import Awareness, Policy, numbers
from orchestrator.model.reading import Unknown
from orchestrator.simulation import machines, views
from orchestrator.simulation.world import World
from tests.returning_cases import VERSIONS, recorded, recorded_cases
from tests.simulation.play import policy

ATTRIBUTES = ((), ("zone",), ("rack",), ("zone", "rack"))


def _node_by_node(asked: Policy, view: ClusterView, shard: ShardId) -> bool:
    """The definition: some data node of a fitting version, without a copy, whose values have room."""
    copies, metadata = view.shards[shard], view.metadata[shard.index_uuid]
    everywhere = (metadata.auto_expand or "").endswith("-all")
    data = {node.name: node for node in view.nodes if node.holds_data}
    primary = next((copy for copy in copies if copy.primary), None)
    source = None if primary is None or primary.node is None else view.node(primary.node)
    for node in data.values():
        if node.name in {copy.node for copy in copies}:
            continue
        if source is not None and numbers(node.version) < numbers(source.version):
            continue
        for attribute in () if everywhere else asked.awareness.attributes:
            forced = asked.awareness.forced if attribute == asked.zone_attribute else ()
            known = {each.attributes.get(attribute) for each in data.values()} | set(forced)
            values = known - {None}
            here = Counter(data[c.node].attributes.get(attribute) for c in copies if c.node in data)
            value = node.attributes.get(attribute)
            if value is None or here[value] >= -(-len(copies) // len(values)):
                break
        else:
            return True
    return False


def _view(dice: Random) -> ClusterView:
    world = World(seed=dice.randrange(1000))
    for number in range(1, dice.randint(3, 8)):
        world.add_node(f"es{number}", zone=dice.choice("abc"))
    for number in range(4):
        world.add_index(f"i{number}", shards=2, replicas=dice.randint(0, 4))
    if dice.random() < 0.5:
        machines.die(world, world.nodes[dice.choice(list(world.nodes))])
        world.agenda.advance(60.0)
    seen = views.cluster(world)
    nodes = tuple(
        replace(
            node,
            version=dice.choice(("9.1.0", "9.2.0")),
            attributes=dice.choice(({}, {"zone": "d"})) or {**node.attributes, "rack": dice.choice("xy")},
        )
        for node in seen.nodes
    )
    indices = tuple(replace(one, auto_expand=dice.choice((None, None, "0-all"))) for one in seen.indices)
    return replace(seen, nodes=nodes, indices=indices)


@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=lambda each: "-".join(each) or "none")
def test_it_is_what_a_look_at_every_node_finds(attributes: tuple[str, ...]) -> None:
    dice, found = Random(7), Counter[bool]()  # noqa: S311  (repeatable, and secret to nobody)
    for _ in range(150):
        view = _view(dice)
        forced = dice.choice(((), ("a", "b", "c", "e")))
        asked = policy(zone_attribute="zone", awareness=Awareness(attributes=attributes, forced=forced))
        deciders = returns(asked, view)
        for shard in view.shards:
            expected = _node_by_node(asked, view, shard)
            assert deciders.has_a_place(view, shard) is expected
            found[expected] += 1
    assert min(found[True], found[False]) > 50


# The deciders, compared with real servers ------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_deciders_say_what_allocation_explain_says(version: str, subtests: pytest.Subtests) -> None:
    evaluated, agreed = recorded(version)["deciders"], Counter[tuple[str, bool]]()
    for name, refused_by, view, settings, disks in recorded_cases(version):
        here = returns(policy(), view, settings, disks)
        shard = next(each for each in view.shards if each.index == "logs" and each.number == 0)
        away = next(copy for copy in view.shards[shard] if copy.state is CopyState.UNASSIGNED)
        others = [copy.node for copy in view.shards[shard] if copy is not away and copy.node]
        primary = view.primary(shard)
        for node, refuse in refused_by.items():
            held = [copy.shard.index for copy in view.routing.on(NodeName(node)).values()]
            asked = Case(
                rules=here.rules,
                index=view.metadata[shard.index_uuid],
                node=view.members[NodeName(node)],
                others=[view.members[other] for other in others],
                source=view.members[primary.node] if primary is not None and primary.node else None,
                of_index=held.count("logs"),
                of_all=len(held),
            )
            for decider in DECIDERS:
                if decider.name not in evaluated or _by_the_cluster(decider.name, name):
                    continue
                with subtests.test(case=name, node=node, decider=decider.name):
                    assert isinstance(decider.says(asked), str) is (decider.name in refuse)
                    agreed[decider.name, decider.name in refuse] += 1
    refused = {name for name, refuses in agreed if refuses}
    assert {"filter", "same_shard", "shards_limit", "awareness", "enable", "disk_threshold"} <= refused


def _by_the_cluster(decider: str, case: str) -> bool:
    """Whether the cluster's own `enable`, which a run disables and restores, is what was recorded."""
    return decider == "enable" and not case.startswith("enable")


NEVER_IN_THE_WAY: Final[Mapping[str, str]] = {
    "max_retry": "a copy that was started has no failed attempts, and the run retries those that fail later",
    "throttling": "it passes with the recoveries before it",
    "replica_after_primary_active": "it passes when the primary has started",
    "snapshot_in_progress": "it refuses to move a copy, not to allocate one",
    "restore_in_progress": "it is about primaries that are restored",
    "node_shutdown": "`no_other_maintenance` holds while there is a shutdown record",
    "node_replacement": "it needs a shutdown record",
    "cluster_rebalance": "it is about moves",
    "concurrent_rebalance": "it is about moves",
    "rebalance_only_when_active": "it is about moves",
    "cluster_concurrent_recoveries": "it passes with the recoveries before it",
    "index_version": "a copy that was started is of an index that its node may open",
    "resize": "it is about a shrunken index before its first allocation",
    "shrink": "it is about a shrunken index before its first allocation",
    "ccr_primary_follower": "it is about primaries that are restored",
    "searchable_snapshots": "it is about primaries before their first allocation",
    "searchable_snapshots_enable": "it is about a repair of snapshots",
    "searchable_snapshot_repository_exists": "a copy that was started had its repository",
    "has_frozen_cache": "the node of a copy that was started has its cache",
    "dedicated_frozen_node": "a copy that was started is of the kind that its node takes",
    "archive": "a copy that was started is of an index that its node may open",
    "remote_store_migration": "it is about the direction of a migration",
    "search_replica_allocation": "a copy that was started is of the kind that its node takes",
    "target_pool": "a copy that was started is of the kind that its node takes",
    "warm_disk_threshold": "it is about nodes without the role `data`",
}
"""The other deciders, and why none of them keeps away for good a copy that was started."""


def test_every_decider_of_the_servers_has_a_place_in_the_table() -> None:
    known = {decider.name for decider in DECIDERS} | NEVER_IN_THE_WAY.keys()
    assert {name for version in VERSIONS for name in recorded(version)["deciders"]} - known == set()


def _case(rules: dict[str, Any] | None = None, **cluster: str) -> Case:
    """es2 and an index with these rules, in a cluster with these settings."""
    view = views.cluster(three())
    index = replace(view.indices[0], filters=json.dumps(rules) if rules else "")
    here = returns(policy(), view, SettingsView(persistent=cluster), {})
    return Case(rules=here.rules, index=index, node=view.members[NodeName("es2")])


def three() -> World:
    world = World()
    for number in (1, 2, 3):
        world.add_node(f"es{number}", zone="abc"[number - 1])
    world.add_index("pair", replicas=1, places=["es1", "es2"])
    return world


def test_what_a_decider_cannot_evaluate_is_no_agreement(subtests: pytest.Subtests) -> None:
    load = "cluster.routing.allocation.load_awareness.provisioned_capacity"
    for what, case, decider in (
        ("a rule that is not known", _case({"by_moon": "full"}), "filter"),
        ("a host name that was not read", _case({"require": {"_host": "es2.lan"}}), "filter"),
        (
            "an address that was not read",
            replace(_case({"exclude": {"_ip": "10.0.0.1"}}), node=_unread()),
            "filter",
        ),
        ("the load of nodes", _case(**{load: "3"}), "load_awareness"),
        ("a disk", _case(), "disk_threshold"),
    ):
        with subtests.test(what):
            says = next(each.says for each in DECIDERS if each.name == decider)
            assert isinstance(says(case), Unknown)


def _unread() -> Node:
    return replace(_case().node, address="")


def test_filters_of_every_form(subtests: pytest.Subtests) -> None:
    """What no recorded answer has: forms of addresses, of lists and of names of attributes."""
    node = replace(
        _case().node, address="fe80::1", attributes={"rack.row": "r1", "zone": "b"}, own_name="Thor"
    )
    for rules, refuses in (
        ({"exclude": {"_ip": "fe80:0:0::0001"}}, True),
        ({"exclude": {"_host": "fe80::*"}}, True),
        ({"require": {"rack": {"row": "r1"}}}, False),
        ({"require": {"_name": "es2"}}, True),
        ({"require": {"name": "Th*"}}, False),
        ({"include": {"zone": ["a", "b"]}}, False),
        ({"include": {"zone": " , "}}, False),
        ({"initial_recovery": {"_id": "another"}}, False),
        ({"require": {"zone": "b", "_ip": "10.0.0.1,fe80::1"}}, False),
        ({"require": {"zone": "B"}}, True),
    ):
        with subtests.test(rules=rules):
            says = next(each.says for each in DECIDERS if each.name == "filter")
            assert (says(replace(_case(rules), node=node)) is not None) is refuses


def test_only_what_no_node_takes_is_away(subtests: pytest.Subtests) -> None:
    """The only copy of a shard is forced onto its node, and what another node takes comes there."""
    for rules, cluster, expected in (
        ({}, {}, []),
        ({"require._name": "es1"}, {}, ["es2"]),
        ({"require._name": "es3"}, {}, []),
        ({"exclude._name": "es1,es2,es3"}, {}, ["es1", "es2"]),
        ({"total_shards_per_node": "1"}, {}, []),
        ({"require._id": "id-es1"}, {}, ["es2"]),
        ({}, {"cluster.routing.allocation.exclude._name": "es2,es3"}, ["es2"]),
        ({}, {AWARENESS: "rack"}, ["es1", "es2"]),
    ):
        with subtests.test(rules=rules, cluster=cluster):
            world = three()
            world.add_index("alone", replicas=0, places=["es2"])
            for index in world.indices.values():
                index.rules = rules
            view = views.cluster(world)
            here = returns(policy(), view, SettingsView(persistent=cluster), _disks(view))
            found = [away.copy for name in view.members for away in here.away(view, name)]
            assert [copy.node for copy in found] == expected
            assert {copy.shard.index for copy in found} <= {"pair"}


def test_a_copy_that_another_node_may_take_is_in_doubt(subtests: pytest.Subtests) -> None:
    """Its own node refuses it; es3 takes it, does not, or its disk was not read."""
    for over_low, expected in ((False, []), (True, [str]), (None, [Unknown])):
        with subtests.test(over_low=over_low):
            world = three()
            next(iter(world.indices.values())).rules = {"exclude._name": "es2"}
            view = views.cluster(world)
            disks = _disks(view)
            disk = disks.pop(NodeName("es3"))
            if over_low is not None:
                disks[NodeName("es3")] = replace(disk, over_low=over_low)
            here = returns(policy(), view, SettingsView(), disks)
            assert [type(away.said) for away in here.away(view, NodeName("es2"))] == expected


def test_of_several_copies_over_a_limit_each_may_stay_away() -> None:
    """Which of them the server takes back is decided by the priority and the age of their indices."""
    world = World()
    for number in (1, 2, 3):
        world.add_node(f"es{number}")
    index = world.add_index("pair", shards=3, replicas=1, places=["es1", "es2"])
    index.rules = {"total_shards_per_node": "2", "exclude._name": "es3"}
    view = views.cluster(world)
    here = returns(policy(), view, SettingsView(), _disks(view))
    assert [(a.copy.shard.number, a.said) for a in here.away(view, NodeName("es2"))] == [
        (number, "index.routing.allocation.total_shards_per_node is 2") for number in range(3)
    ]


def test_the_limit_counts_only_copies_that_come_back(subtests: pytest.Subtests) -> None:
    """The only copies do, since they are forced; and none that stays away for another reason."""
    for only, kept_off, away in (("0", "", "ab"), ("z", "", "ab"), ("", "a", "a"), ("", "", "abc")):
        with subtests.test(only=only, kept_off=kept_off):
            world = World()
            for number in (1, 2):
                world.add_node(f"es{number}")
            for name in ("a", "b", only or "c"):
                index = world.add_index(name, replicas=0 if only == name else 1, places=["es2", "es1"])
                index.rules = {"exclude._name": "es2"} if name == kept_off else {}
            view = views.cluster(world)
            limit = SettingsView(persistent={"cluster.routing.allocation.total_shards_per_node": "2"})
            here = returns(policy(), view, limit, _disks(view))
            assert "".join(each.copy.shard.index for each in here.away(view, NodeName("es2"))) == away


def test_copies_of_a_node_are_counted_once_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many shards with a limit, and of the next reading anew."""
    world, counted, on = three(), Counter[NodeName](), Copies.on
    index = world.add_index("many", shards=8, replicas=1, places=["es1", "es2"])
    index.rules = {"total_shards_per_node": "1"}
    view = views.cluster(world)
    here = returns(policy(), view, SettingsView(), _disks(view))

    def counting(self: Copies, node: NodeName) -> Mapping[ShardId, ShardCopy]:
        counted[node] += 1
        return on(self, node)

    monkeypatch.setattr(Copies, "on", counting)
    shards = [shard for shard in view.shards if shard.index == "many"]
    assert all(here.has_a_place(view, shard) for shard in shards)
    assert counted == {"es3": 1}
    primary, replica = view.shards[shards[0]]
    moved = view.changed({shards[0]: (primary, replica._replace(node=NodeName("es3")))})
    assert not any(here.has_a_place(moved, shard) for shard in shards)


def _disks(view: ClusterView) -> dict[NodeName, Disk]:
    return {name: Disk(used_share=0.5, over_low=False, over_high=False) for name in view.members}
