"""What the watcher of `watching.py` would notice: each thing it can say, from readings made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.watching import Lost, Sightings

NAMES = ("es1", "es2", "es3")


def state(*states: str, present: tuple[str, ...] = NAMES, index: str = "posts") -> dict[str, Any]:
    """A cluster state with one shard whose copies are in these states."""
    return {
        "nodes": {f"id-{name}": {"name": name} for name in present},
        "routing_table": {"indices": {index: {"shards": {"0": [{"state": each} for each in states]}}}},
    }


def seen(*readings: Mapping[str, Any]) -> Sightings:
    """These readings, one after another."""
    sightings = Sightings(NAMES)
    for reading in readings:
        sightings.add(reading)
    return sightings


def test_a_shard_that_had_two_started_copies_and_has_none_is_lost() -> None:
    found = seen(
        state("STARTED", "STARTED"),
        state("UNASSIGNED", "INITIALIZING", present=("es2",)),
        state("STARTED", "STARTED"),
    )
    assert found.lost == [Lost(shard="[posts][0]", away=frozenset({"es1", "es3"}))]
    assert (found.readings, found.fewest) == (3, 0)


def test_one_copy_left_is_counted_and_not_lost() -> None:
    found = seen(
        state("STARTED", "STARTED"),
        state("UNASSIGNED", "RELOCATING", present=("es1", "es3")),
    )
    assert (found.lost, found.fewest) == ([], 1)
    assert found.away == {frozenset({"es2"})}


def test_a_shard_that_never_had_two_is_not_counted() -> None:
    """An index is red while it is made, and one without replicas has nothing to keep."""
    found = seen(state("INITIALIZING", "UNASSIGNED"), state("STARTED", "UNASSIGNED"), state("UNASSIGNED"))
    assert (found.lost, found.fewest) == ([], None)


def test_an_index_that_is_deleted_is_not_lost() -> None:
    found = seen(state("STARTED", "STARTED"), state("STARTED", "STARTED", index="other"))
    assert (found.lost, found.fewest) == ([], 2)


def test_nodes_are_away_together_only_when_one_reading_says_so() -> None:
    found = seen(
        state(present=("es1", "es3")), state(present=("es2", "es3")), state(present=("es1",)), state()
    )
    assert found.saw_away(["es2", "es3"])
    assert not found.saw_away(["es1", "es2"])
