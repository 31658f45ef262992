"""The indexes of copies are kept current by their changes: they must be what a pass over all shards gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from orchestrator.model.cluster import CopyState, NodeName
from orchestrator.simulation import allocation
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.parts import SimIndex, SimShard
from orchestrator.simulation.placement import Placement
from orchestrator.simulation.world import World
from tests.simulation.compared import compared
from tests.simulation.play import cluster
from tests.simulation.wide import life_of, tell


def _equals_a_full_pass(world: World) -> None:
    kept, every = world.placement, list(shards_of(world))
    copies = [copy for _, shard in every for copy in shard.copies]
    assert kept.states == Counter(copy.state for copy in copies)
    assert kept.red == sum(copy.primary and not copy.serves for copy in copies)
    assert kept.held == Counter(copy.node for copy in copies if copy.node is not None)
    recovering = [copy for copy in copies if copy.state is CopyState.INITIALIZING]
    assert kept.arriving == Counter((copy.node, copy.primary) for copy in recovering)
    assert kept.waiting == [pair for pair in every if _waits(pair[1])]
    assert kept.missed() == [pair for pair in every if pair[1].had]
    assert kept.lost == [pair for pair in every if pair[1].lost_at is not None]
    for name in world.nodes:
        places = [(pair, {p for c in pair[1].copies for p in (c.node, c.relocating_to)}) for pair in every]
        assert kept.on(name) == [pair for pair, nodes in places if name in nodes]
    for pair in every:
        assert kept.shard(pair[1].id) == pair
    members = [node for node in world.nodes.values() if node.joined]
    assert list(kept.members.nodes) == members
    assert list(kept.members.data) == [node.name for node in members if node.holds_data]
    assert kept.members.zones == {node.zone for node in members if node.holds_data}
    assert list(world.recoveries.running) == [one for one in world.recoveries if not one.done]


def _waits(shard: SimShard) -> bool:
    return any(copy.state is CopyState.UNASSIGNED for copy in shard.copies)


@pytest.mark.parametrize("seed", range(20, 24))
def test_an_index_equals_a_full_pass(seed: int) -> None:
    compared(seed, _equals_a_full_pass)


def test_a_run_is_the_same_if_every_waiting_copy_is_tried(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is not due would have found no place."""

    def every(self: Placement, _rules: object) -> Iterator[tuple[SimIndex, SimShard]]:
        return iter(self.waiting)

    for seed in range(100, 106):
        lives = []
        for due in (Placement.due, every):
            with monkeypatch.context() as patched:
                patched.setattr(Placement, "due", due)
                lives.append(life_of(seed))
                tell(lives[-1])
        with subtests.test(seed=seed):
            assert lives[0].trace() == lives[1].trace()


def test_an_index_that_replaces_one_of_its_name_has_its_place() -> None:
    world = cluster(3)
    world.add_index("logs", shards=2)
    _equals_a_full_pass(world)
    assert next(index.name for index, _ in world.placement.on(NodeName("es1"))) == "logs"


def test_an_index_that_is_deleted_is_in_no_index() -> None:
    world = cluster(3)
    copy = world.indices["logs-uuid"].shards[0].copies[1]
    world.delete_index("logs")
    copy.state = CopyState.UNASSIGNED
    _equals_a_full_pass(world)
    allocation.reroute(world)
    assert world.placement.waiting == []
