"""A rule whose deletion no whole run notices is not tested: each is deleted from a copy of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from tests.simulation.deletion import OF_OVERLAP, SCENARIOS, lapse_of, lapse_without

NAMES = [*(rule.name for rule in PREDICATES), *OF_OVERLAP]


def test_every_predicate_has_its_scenario() -> None:
    assert sorted(SCENARIOS) == sorted(rule.name for rule in PREDICATES)


@pytest.mark.parametrize("name", NAMES)
def test_with_the_predicate_the_run_behaves(name: str) -> None:
    assert lapse_of(name) is None


@pytest.mark.parametrize("name", NAMES)
def test_without_the_predicate_it_does_not(name: str, tmp_path: Path) -> None:
    assert lapse_without(name, tmp_path) is not None
