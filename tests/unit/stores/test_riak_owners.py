"""Who owns which partition: fallbacks are not owned, and no ring is made that /stats does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import HASH_SPACE
from orchestrator.stores.riak.parse_ring import parse_partitions, ring_of
from tests.unit.stores.riak_outputs import (
    ONE,
    RING,
    STATS,
    THREE,
    TWO,
    V32,
    out,
    owned,
    partitions_text,
)

STEP = HASH_SPACE // 16


def _row(kind: str, index: str) -> str:
    return f"|{kind:^9}|{index:^49}|{'0':^2}|\n"


def test_a_fallback_that_runs_on_a_node_is_not_owned_by_it() -> None:
    """It stands in for a node that is away: counted as owned, it would make a quorum where there is none."""
    text = partitions_text(ONE, owned()[ONE])
    foreign = str(min(owned()[TWO]))
    running = text.replace(f"|secondary|{'--':^49}|--|\n", _row("secondary", foreign))
    assert running != text
    assert parse_partitions(out(running), V32) == (ONE, owned()[ONE])


def test_a_node_that_owns_nothing_owns_nothing() -> None:
    border = f"+---------+{'-' * 49}+--+\n"
    rows = "".join(f"|{kind:^9}|{'--':^49}|--|\n" for kind in ("primary", "secondary", "stopped"))
    head = f"|{'type':^9}|{'index':^49}|id|\n"
    text = f"Partitions owned by '{ONE}':\n{border}{head}{border}{rows}{border}\nok\n"
    assert parse_partitions(out(text), V32) == (ONE, frozenset())


@pytest.mark.parametrize("kind", ["primary", "stopped"])
def test_a_partition_that_is_listed_twice_is_no_list(kind: str) -> None:
    text = partitions_text(ONE, owned()[ONE])
    again = _row(kind, str(max(owned()[ONE])))
    twice = text.replace("|secondary|", f"{again}|secondary|")
    assert twice != text
    found = parse_partitions(out(twice), V32)
    assert isinstance(found, Unknown)
    assert "twice" in found.reason


@pytest.mark.parametrize("index", ["none", "0x10", "-1"])
def test_an_index_that_is_none_is_no_list(index: str) -> None:
    text = partitions_text(ONE, owned()[ONE]).replace("|secondary|", f"{_row('primary', index)}|secondary|")
    assert isinstance(parse_partitions(out(text), V32), Unknown)


def test_owners_that_have_changed_places_are_no_ring() -> None:
    """Every partition has one owner, and yet it is another one than /stats counts."""
    whole = owned()
    counts = {node: len(indices) for node, indices in whole.items()}
    assert counts[ONE] != counts[THREE]
    changed = {**whole, ONE: whole[THREE], THREE: whole[ONE]}
    found = ring_of(changed, STATS)
    assert isinstance(found, Unknown)
    assert "not as many as /stats counts" in found.reason
    assert ring_of(whole, STATS) == RING


def test_nodes_without_partitions_are_no_matter() -> None:
    """Neither in what they say nor in what /stats says of them."""
    nine = NodeName("riak9@10.0.0.9")
    other = replace(STATS, ownership={**STATS.ownership, nine: 0})
    assert ring_of(owned(), other) == RING
    assert ring_of({**owned(), nine: frozenset()}, STATS) == RING


@pytest.mark.parametrize("index", [HASH_SPACE, 17 * STEP, -STEP, STEP + 1])
def test_an_index_beside_the_ring_is_no_partition(index: int) -> None:
    whole = owned()
    odd = {**whole, ONE: whole[ONE] - {max(whole[ONE])} | {index}}
    found = ring_of(odd, STATS)
    assert isinstance(found, Unknown)
    assert f"{index} is no partition of a ring of 16" in found.reason


def test_a_ring_that_does_not_divide_the_space_is_none() -> None:
    seven = replace(STATS, ring_size=7)
    found = ring_of(owned(), seven)
    assert isinstance(found, Unknown)
    assert "does not divide" in found.reason
