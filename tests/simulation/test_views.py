"""What is shown of the world is kept and changed with it: it must be what would be made of it anew."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import CopyState, Health
from orchestrator.model.observation import ClusterView, HealthView
from orchestrator.simulation import views
from orchestrator.simulation.deciders import shards_of
from orchestrator.simulation.world import World
from tests.simulation.compared import compared


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


@pytest.mark.parametrize("seed", range(4))
def test_what_was_kept_is_what_would_be_made_anew(seed: int) -> None:
    def compare(world: World) -> None:
        made = _made_anew(world)
        assert views.cluster(world) == made
        assert tuple(views.cluster(world).copies) == made.copies  # in the same order
        assert list(views.cluster(world).members.items()) == [(node.name, node) for node in made.nodes]
        assert views.health(world, settled=True) == _counted_anew(world)

    compared(seed, compare)
