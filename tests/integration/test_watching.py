"""What the watcher of `watching.py` would notice: each thing it can say, from readings made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.watching import Lost, Sightings
from tests.integration.zoning import rescued

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


def test_a_shard_that_lost_both_started_copies_is_lost() -> None:
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


def test_it_is_told_when_a_shard_was_first_started() -> None:
    found = Sightings(NAMES)
    for at, each in enumerate((state("INITIALIZING"), state("STARTED"), state("STARTED", "STARTED")), 1):
        found.add(each, float(at))
    assert found.first_started == {"[posts][0]": 2.0}


def test_an_index_that_is_deleted_is_not_lost() -> None:
    found = seen(state("STARTED", "STARTED"), state("STARTED", "STARTED", index="other"))
    assert (found.lost, found.fewest) == ([], 2)


def test_nodes_are_away_together_only_when_one_reading_says_so() -> None:
    found = seen(
        state(present=("es1", "es3")), state(present=("es2", "es3")), state(present=("es1",)), state()
    )
    assert found.saw_away(["es2", "es3"])
    assert not found.saw_away(["es1", "es2"])


def test_a_rescue_is_excused_only_for_an_unread_new_index() -> None:
    lines: list[dict[str, Any]] = [
        {"event": "wave_started", "wave": {"nodes": ["es1"]}},
        {"event": "action_confirmed"},
        {"event": "taken_down"},
        {"event": "rescued", "shards": ["[posts][0]"]},
    ]
    stamped = [
        {**line, "sequence": second, "ts": f"2026-01-01T00:00:0{second}.000Z"}
        for second, line in enumerate(lines)
    ]
    said = "\n".join([*map(json.dumps, stamped), '{"event": "cut o'])
    found, asked = Sightings(NAMES), 1767225601.0
    assert rescued([said], found) == {"es1"}, "nobody read it as started"
    found.add(state("STARTED"), asked + 0.5)
    assert rescued([said], found) == {"es1"}
    found = Sightings(NAMES)
    found.add(state("STARTED"), asked - 0.5)
    with pytest.raises(AssertionError, match="was there before"):
        rescued([said], found)
