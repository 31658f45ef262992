"""Whether a node may take one more copy of a shard: counted by what nodes share, not node by node."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from orchestrator.engine.kinds.elasticsearch.places import places, version_key
from orchestrator.model.cluster import ShardId
from orchestrator.model.observation import ClusterView
from orchestrator.model.policy import Awareness, Policy
from orchestrator.simulation import machines, views
from orchestrator.simulation.world import World
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
        if source is not None and version_key(node.version) < version_key(source.version):
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
        has_a_place = places(asked, view)
        for shard in view.shards:
            expected = _node_by_node(asked, view, shard)
            assert has_a_place(shard) is expected
            found[expected] += 1
    assert min(found[True], found[False]) > 50
