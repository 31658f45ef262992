"""How many copies stay: as many as the playbook says, and never fewer for want of knowledge."""

from __future__ import annotations

import pytest

from orchestrator.simulation.world import World
from tests.simulation.zones import forced
from tests.unit.engine.asking import cluster_of, findings, holding, question, viewing

RULE = "every_shard_keeps_started_copies"


@pytest.mark.parametrize(("least", "passes"), [(1, True), (2, True), (3, False)])
def test_as_many_copies_stay_as_the_playbook_says(least: int, *, passes: bool) -> None:
    """Three copies of each shard, one in each zone: two stay when a zone goes."""
    world: World = forced()
    for wave in (("es2",), ("es2", "es5")):
        asked = question(world, wave=wave, min_started_copies=least, max_unavailable=2)
        assert holding(asked) == ([] if passes else [RULE])
        for subject, evidence in findings(asked, RULE):
            assert subject == "index logs"
            assert "2 started in-sync copies elsewhere on es" in evidence
            assert evidence.endswith("3 wanted")


def test_an_index_of_which_nothing_is_known_is_not_exempt() -> None:
    """Its copies may be its only ones: what is unknown is never healthy."""
    world = World()
    for number in (1, 2, 3):
        world.add_node(f"es{number}", zone="abc"[number - 1])
    world.add_index("bare", replicas=0, places=["es2"])
    asked = question(world)
    assert holding(asked) == ["zero_replica_indices"]
    assert cluster_of(asked.observation.cluster).indices
    assert holding(viewing(asked, indices=())) == [RULE]
