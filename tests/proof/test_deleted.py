"""A rule whose deletion no whole run notices is not tested: each is deleted from the catalogue."""

from __future__ import annotations

import pytest

from orchestrator.elasticsearch.rules.predicates import PREDICATES
from tests.proof.apart import ran
from tests.proof.deletions import OF_OVERLAP, SCENARIOS

NAMES = [*(rule.name for rule in PREDICATES), *OF_OVERLAP]


def test_every_predicate_has_its_scenario() -> None:
    assert sorted(SCENARIOS) == sorted(rule.name for rule in PREDICATES)


def test_with_the_predicate_the_run_behaves(subtests: pytest.Subtests) -> None:
    found = ran("scenes", NAMES)
    assert sorted(each.name for each in found) == sorted(NAMES)
    for each in found:
        with subtests.test(name=each.name):
            assert (each.error, each.said) == (None, None)


@pytest.mark.proves("each-predicate")
def test_without_the_predicate_it_does_not(subtests: pytest.Subtests) -> None:
    found = ran("deleted")
    assert [each.name for each in found] == NAMES
    for each in found:
        with subtests.test(name=each.name):
            assert each.error is None, each.error
            assert each.said is not None
