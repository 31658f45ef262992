"""Quantities that are written are read again; other texts are in `tests/data/parsers`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.quantities import (
    Budget,
    format_byte_size,
    format_duration,
    parse_budget,
    parse_byte_size,
    parse_duration,
    parse_time_or_age,
)


@given(st.integers(min_value=1, max_value=10 * 365 * 86_400))
def test_a_duration_that_is_written_is_read_again(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_a_size_that_is_written_is_read_again(size: int) -> None:
    assert parse_byte_size(format_byte_size(size)) == size


def test_a_budget_in_percent_is_rounded_down_and_is_at_least_one(subtests: pytest.Subtests) -> None:
    for value, nodes, count in [
        (1, 30, 1),
        ("3", 30, 3),
        ("10%", 30, 3),
        ("10%", 29, 2),
        ("10%", 3, 1),
        ("100%", 7, 7),
        ("29%", 100, 29),
    ]:
        with subtests.test(value=value, nodes=nodes):
            assert parse_budget(value).resolve(nodes) == count
    assert [str(Budget(count=2)), str(Budget(percent=12.5))] == ["2", "12.5%"]


def test_an_age_is_counted_back_from_now() -> None:
    assert parse_time_or_age("1d").resolve(100_000.0) == 13_600.0
    assert parse_time_or_age("2026-11-01T00:00Z").resolve(5.0) == 1_793_491_200.0
