"""Which scenes apply to which version: a scene that does not is not generated, and this says which."""

from __future__ import annotations

from typing import Final

from orchestrator.stores.elasticsearch.dialect import ELASTICSEARCH, OPENSEARCH, parse_version
from tests.conformance.generations import USUAL, VERSIONS, generation
from tests.conformance.scenes import SCENES, played_on
from tests.lab.distributions import DISTRIBUTIONS

CLOSED: Final = frozenset({"the primary of a closed index is restarted", "an index is closed and opened"})
BY_VOTES: Final = frozenset({"a master hands over"})
BY_ENABLE: Final = frozenset(
    {"all allocation is off", "the only copy comes back though all allocation is off"}
)
DELAYED: Final = frozenset({"a copy waits for its node"})
NOT_PLAYED: Final = {
    "0.90.13": CLOSED | BY_VOTES | BY_ENABLE | DELAYED,
    "1.7.6": CLOSED | BY_VOTES,
    "2.4.6": CLOSED | BY_VOTES,
    "5.6.16": CLOSED | BY_VOTES,
    "6.8.23": CLOSED | BY_VOTES,
}
"""On every other version all scenes are played."""


def test_every_scene_is_played_where_it_applies() -> None:
    every = {str(scene) for scene in SCENES}
    assert len(every) == len(SCENES) == 19
    left_out = {version: every - {str(scene) for scene in played_on(version)} for version in VERSIONS}
    assert {version: scenes for version, scenes in left_out.items() if scenes} == NOT_PLAYED
    assert sum(len(played_on(version)) for version in VERSIONS) == 191


def test_one_version_of_each_generation_is_played() -> None:
    """Of each major version that is accepted, and that the lab has."""
    played = {_major(generation(version).server.product.value, version) for version in VERSIONS}
    assert len(played) == len(VERSIONS)
    assert played == {_major(each.product.value, each.version) for each in DISTRIBUTIONS}
    assert {product for product, _ in played} == {ELASTICSEARCH, OPENSEARCH}


def test_make_test_plays_one_scene() -> None:
    """The others are compared with their records: real servers change only with their version."""
    assert [str(scene) for scene in played_on(USUAL) if scene.usual] == ["a copy away misses a write"]


def _major(product: str, version: str) -> tuple[str, int]:
    return product, parse_version(version.rpartition("-")[2])[0]
