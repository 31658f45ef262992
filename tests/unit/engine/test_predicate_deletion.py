"""A rule whose deletion no whole run notices is not tested: each is deleted from a copy of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from tests.simulation.deletion import OF_OVERLAP, SCENARIOS, lapse_of, lapse_without

NAMES = [*(rule.name for rule in PREDICATES), *OF_OVERLAP]


def test_every_predicate_has_its_scenario() -> None:
    assert sorted(SCENARIOS) == sorted(rule.name for rule in PREDICATES)


def test_with_the_predicate_the_run_behaves(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            assert lapse_of(name) is None


def test_without_the_predicate_it_does_not(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            assert lapse_without(name, tmp_path / name) is not None
