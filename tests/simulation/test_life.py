"""The judge of whole runs: what it must see at the end of one, and what is none of the run's."""

from __future__ import annotations

import pytest

from orchestrator.simulation import allocation, mishaps
from orchestrator.simulation.parts import SimIndex
from tests.simulation.chance import chance
from tests.simulation.wide import Life


@pytest.fixture
def life() -> Life:
    """A cluster as some seed makes it, before its run."""
    return Life(chance(1))


def _index(life: Life, name: str) -> SimIndex:
    return next(index for index in life.world.indices.values() if index.name == name)


def _said(life: Life) -> list[str]:
    return [said for said, _ in life._not_as_found()]  # what it concludes is its one product


def test_a_replica_that_is_left_is_seen(life: Life) -> None:
    index = _index(life, "logs")
    allocation.set_replicas(life.world, index, index.replicas + 1)
    assert _said(life) == [f"logs has {index.replicas} replicas"]


def test_a_replica_that_is_left_on_an_index_of_during_the_run_is_seen(life: Life) -> None:
    life.world.create_index("new", replicas=0)
    assert _said(life) == []
    allocation.set_replicas(life.world, _index(life, "new"), 1)
    assert _said(life) == ["new has 1 replicas"]


def test_an_index_that_is_made_again_is_another_one_and_has_what_its_maker_gave_it(life: Life) -> None:
    before = _index(life, "logs")
    allocation.set_replicas(life.world, before, before.replicas + 1)
    life.simulation.fate.befall(mishaps.IndexDeleted(index="logs", made_again=True))
    assert _index(life, "logs") is not before
    assert _index(life, "logs").replicas == before.replicas
    assert _said(life) == []
