"""The simulation behaves as real clusters do: the same scenes on both, compared reading by reading."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.runtime.clock import SystemClock
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.fate import Fate
from orchestrator.simulation.mishaps import Seams
from orchestrator.simulation.world import World
from orchestrator.stores.elasticsearch.access import Access
from orchestrator.stores.elasticsearch.client import ElasticsearchClient
from orchestrator.stores.elasticsearch.cluster import ElasticsearchCluster
from tests.conformance.generations import USUAL, VERSIONS, generation
from tests.conformance.scenes import MADE, Scene, nothing_is_rebalanced, played_on
from tests.conformance.stages import (
    RealStage,
    RestlessError,
    Shot,
    SimulatedStage,
    Stage,
    shot,
    shot_of_loaded,
)

if TYPE_CHECKING:
    from orchestrator.lab.nodes import LabCluster
    from orchestrator.ports import ClusterReadings
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real


def play(scene: Scene, stage: Stage) -> list[tuple[str, Shot]]:
    """The readings of a scene, by title."""
    names = {index.name for index in scene.indices}
    nothing_is_rebalanced(stage)

    reasons = not (stage.generation.shuffles and scene.crowded)
    where = scene.placed and (stage.generation.by_operations or not scene.behind)

    def taken() -> Shot:
        placed = names if where else set()
        told = shot(stage.read(), placed, made_meanwhile=(MADE, *(names - placed)), reasons=reasons)
        return {**told, **shot_of_loaded(stage, scene.indices)}

    return [("at first", taken()), *((title, taken()) for title in scene.play(stage))]


def differences(real: list[tuple[str, Shot]], simulated: list[tuple[str, Shot]]) -> list[str]:
    """Where the two disagree, in words."""
    assert [title for title, _ in real] == [title for title, _ in simulated]
    told = []
    for (title, seen), (_, modelled) in zip(real, simulated, strict=True):
        told += [
            f"{title}: {part}: real {seen.get(part)!r}, simulated {modelled.get(part)!r}"
            for part in {**seen, **modelled}
            if seen.get(part) != modelled.get(part)
        ]
    return told


def _played(scene: Scene, lab: LabCluster) -> tuple[ClusterReadings, list[tuple[str, Shot]]]:
    """The cluster as it was found, and the readings of the scene on it."""
    client = ElasticsearchClient(Access(endpoints=lab.endpoints), clock=SystemClock())
    try:
        real = RealStage(lab, ElasticsearchCluster(client), scene.indices)
        return real.read(), play(scene, real)
    finally:
        client.close()


CASES = [
    pytest.param(
        version,
        scene,
        marks=() if version == USUAL and scene.usual else pytest.mark.part(name="generations"),
        id=f"{version}: {scene}",
    )
    for version in VERSIONS
    for scene in played_on(version)
]


@pytest.mark.parametrize(("version", "scene"), CASES)
def test_a_scene_ends_alike_on_both(
    process_cluster: ProcessCluster, version: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        like, seen = _played(scene, process_cluster(version))
    except RestlessError as error:
        # Seen on OpenSearch 2.19.0 in three runs of a hundred: replicas stay in the first stage of their
        # recovery for ever. What the scene is about cannot be read there; the servers' words are shown.
        with capsys.disabled():
            sys.stdout.write(f"\n{version}: {scene}: PLAYED AGAIN on another cluster: {error}")
        like, seen = _played(scene, process_cluster(version, anew=True))
    world = World()
    port = SimulatedCluster(world=world, fate=Fate(world), seams=Seams())
    modelled = play(scene, SimulatedStage(port, like, scene.indices, generation(version)))
    apart = differences(seen, modelled)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{version}: {scene}: {len(seen)} readings, "
            + ("equal" if not apart else "\n  ".join(["differ:", *apart]))
        )
    assert apart == []
