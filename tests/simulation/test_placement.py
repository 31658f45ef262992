"""What is kept of the world, indexes of copies and views, is what a full pass would give."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from orchestrator.model.cluster import CopyState, Health, NodeName
from orchestrator.model.observation import ClusterView, HealthView
from orchestrator.simulation import allocation, views
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.parts import SimIndex, SimShard
from orchestrator.simulation.placement import Placement
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.lived import BrokenError
from tests.simulation.play import cluster
from tests.simulation.wide import Life, life_of, tell


@dataclass(slots=True)
class _Comparing(Seams):
    """Compares at every point at which the program could be killed."""

    compare: Callable[[], None]
    crash_at: int | None = None
    passed: list[str] = field(default_factory=list)

    def point(self, what: str) -> None:
        del what
        self.compare()
        self.passed.append("compared")


def compared(seed: int, compare: Callable[[World], None]) -> None:
    """Live the run of that seed, and compare its world wherever the program could be killed."""
    life = Life(chance(seed))
    seams = _Comparing(lambda: compare(life.world))
    life.simulation.seams = life.simulation.cluster.seams = seams
    with contextlib.suppress(BrokenError):  # what the program does wrong is not what is asked here
        life.live()
    assert seams.passed


# Indexes ------------------------------------------------------------------------------------------------


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


def test_a_run_is_the_same_if_every_waiting_copy_is_tried(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is not due would have found no place."""

    def every(self: Placement, _rules: object) -> Iterator[tuple[SimIndex, SimShard]]:
        return iter(self.waiting)

    for seed in range(100, 103):
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


# Views --------------------------------------------------------------------------------------------------


def _made_anew(world: World) -> ClusterView:
    """The view of the cluster that no earlier view has a part in."""
    copies = [copy for _, shard in shards_of(world) for copy in shard.copies]
    parts = [*world.nodes.values(), *world.indices.values(), *copies]
    kept, shown = world.shown, [part.shown for part in parts]  # type: ignore[attr-defined]
    world.shown = None
    for part in parts:
        part.shown = None
    made = views.cluster(world)
    world.shown = kept
    for part, before in zip(parts, shown, strict=True):
        part.shown = before
    return made


def _counted_anew(world: World) -> HealthView:
    copies = [copy for _, shard in shards_of(world) for copy in shard.copies]
    away = [copy for copy in copies if not copy.serves]
    status = Health.RED if any(copy.primary for copy in away) else Health.YELLOW
    states = [copy.state for copy in copies]
    return HealthView(
        status=status if away else Health.GREEN,
        settled=world.master is not None,
        nodes=sum(node.joined for node in world.nodes.values()),
        active_shards=sum(copy.serves for copy in copies),
        initializing_shards=states.count(CopyState.INITIALIZING),
        relocating_shards=states.count(CopyState.RELOCATING),
        unassigned_shards=states.count(CopyState.UNASSIGNED),
        pending_tasks=len(world.late_writes),
        oldest_task=world.oldest_task,
    )


@pytest.mark.parametrize("seed", [1, 2, 20, 21])
def test_what_was_kept_is_what_would_be_made_anew(seed: int) -> None:
    """Each index of copies, and each view."""

    def compare(world: World) -> None:
        _equals_a_full_pass(world)
        made = _made_anew(world)
        assert views.cluster(world) == made
        assert tuple(views.cluster(world).copies) == made.copies  # in the same order
        assert list(views.cluster(world).members.items()) == [(node.name, node) for node in made.nodes]
        assert views.health(world, settled=True) == _counted_anew(world)

    compared(seed, compare)
