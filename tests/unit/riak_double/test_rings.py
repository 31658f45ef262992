"""The double's rings, by brute force: spread as Riak's own claim would, over the end of the ring too."""

from __future__ import annotations

import pytest

from tests.doubles.riak_double.ring import N_VAL, RECORDED_THREE, SPACING, claim, formed, preference_list

SIZES = (16, 32, 64, 128)


def names(count: int) -> list[str]:
    return [f"riak{number:02}@10.0.0.{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", range(4, 11))
def test_any_four_partitions_in_a_row_have_different_owners_and_all_nodes_about_as_many(
    count: int, size: int
) -> None:
    ring = formed(names(count), size)
    for wanted in range(1, SPACING + 1):
        for first in range(size):
            owners = [ring.owners[number] for number in preference_list(ring, first, wanted)]
            assert len(set(owners)) == wanted, (first, owners)
    owned = [len(ring.owned(name)) for name in ring.members]
    assert sum(owned) == size
    assert max(owned) - min(owned) <= 1


@pytest.mark.parametrize("count", [5, 7, 9])
def test_the_tail_of_the_ring_is_none_of_its_beginning(count: int) -> None:
    """64 is no multiple of these: with owners in turn some list over the end may have a node twice."""
    ring = formed(names(count), 64)
    for first in range(64 - N_VAL, 64):
        assert len({ring.owners[number] for number in preference_list(ring, first)}) == N_VAL
    in_turn = [number % count for number in range(64)]
    assert (in_turn[63] == in_turn[0]) is (count in {7, 9})


def test_three_nodes_on_16_partitions_are_as_recorded() -> None:
    three = names(3)
    assert claim(three, 16) == tuple(three[number] for number in RECORDED_THREE)
    assert RECORDED_THREE == (0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 2, 0, 0, 1, 2, 0)
