"""What is shown of the world is kept until it changes: it must be what would be made of it anew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from orchestrator.model.observation import ClusterView, HealthView
from orchestrator.simulation import views
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.lived import BrokenError
from tests.simulation.wide import Life


@dataclass(slots=True)
class Comparing(Seams):
    """Compares at every point at which the program could be killed."""

    compare: Callable[[], None]
    crash_at: int | None = None
    passed: list[str] = field(default_factory=list)

    def point(self, what: str) -> None:
        del what
        self.compare()
        self.passed.append("compared")


def _made_anew(world: World) -> ClusterView:
    kept = world.shown
    world.shown = None
    for node in world.nodes.values():
        node.shown = None
    for index in world.indices.values():
        index.shown = None
        for shard in index.shards:
            for copy in shard.copies:
                copy.shown = None
    made = views.cluster(world)
    world.shown = kept
    return made


def _counted_anew(world: World) -> HealthView:
    kept, world.counted = world.counted, None
    counted = views.health(world, settled=True)
    world.counted = kept
    return counted


@pytest.mark.parametrize("seed", range(16))
def test_what_was_kept_is_what_would_be_made_anew(seed: int) -> None:
    life = Life(chance(seed))

    def compare() -> None:
        assert views.cluster(life.world) == _made_anew(life.world)
        assert views.health(life.world, settled=True) == _counted_anew(life.world)

    seams = Comparing(compare)
    life.simulation.seams = life.simulation.cluster.seams = seams
    with contextlib.suppress(BrokenError):  # what the program does wrong is not what is asked here
        life.live()
    assert seams.passed
