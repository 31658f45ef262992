"""Durations, sizes, percentages, budgets and times, as files and flags write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.quantities import (
    Age,
    Budget,
    Moment,
    format_byte_size,
    format_duration,
    parse_budget,
    parse_byte_size,
    parse_duration,
    parse_percent,
    parse_time_or_age,
)

NOVEMBER = Moment(at=1_793_491_200.0)
RIGHT = {
    parse_duration: {"90s": 90, "10m": 600, "8h": 28_800, "30d": 2_592_000},
    # As Elasticsearch counts.
    parse_byte_size: {
        "1b": 1,
        "1k": 1024,
        "100mb": 100 << 20,
        "100MB": 100 << 20,
        "2gb": 2**31,
        "1tb": 2**40,
    },
    parse_percent: {"50%": 0.5, "0%": 0, "100%": 1, "12.5%": 0.125},
    parse_time_or_age: {
        "30d": Age(seconds=2_592_000.0),
        "2026-11-01T00:00Z": NOVEMBER,
        "2026-11-01T01:00:00+01:00": NOVEMBER,
    },
}
WRONG = {
    parse_duration: [
        "",
        "10",
        10,
        "-1s",
        "1.5h",
        "1h30m",
        "10 m",
        "10M",
        "0m",
        "99999d",
        None,
        True,
        "\u0661s",
    ],
    parse_byte_size: ["100", 100, "-1", "0b", "1.5gb", "9999999999999tb", "mb", None],
    parse_percent: ["50", 0.5, "%", "101%", "-1%", None],
    parse_budget: [0, -1, "0", "0%", "x", 1.0, True, None, "1 %"],
    parse_time_or_age: [
        *("", "2026-11-01", "2026-11-01T00:00", "2026-13-01T00:00Z", "yesterday", "0d", "30"),
    ],
}


def test_quantities_are_read(subtests: pytest.Subtests) -> None:
    for read, texts in RIGHT.items():
        for text, value in texts.items():  # type: ignore[attr-defined]
            with subtests.test(read=read.__name__, text=text):
                assert read(text) == value


def test_what_is_no_quantity_is_refused(subtests: pytest.Subtests) -> None:
    for read, values in WRONG.items():
        for value in values:  # type: ignore[attr-defined]
            with subtests.test(read=read.__name__, value=value), pytest.raises(ValueError, match="must be"):
                read(value)


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
    assert NOVEMBER.resolve(5.0) == 1_793_491_200.0
