"""What counts as a number in profiles and on hosts."""

from __future__ import annotations

import pytest

from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.registry import RULES
from orchestrator.model.tuning import TuningSetting

ODD = ("²", "٣٣٣", "1" * 5000, "+1", "1_0", " 1", "1\n", "-1", "0x10", "010", "00", "")


@pytest.mark.parametrize("word", ODD)
def test_what_only_python_takes_for_a_number_is_none(word: str) -> None:
    assert not is_number(word)


def test_numbers_of_a_kernel() -> None:
    assert is_number("0")
    assert is_number(str(2**64 - 1))


@pytest.mark.parametrize("word", ODD)
@pytest.mark.parametrize("tunable", RULES)
def test_no_tunable_takes_it_and_none_fails_on_it(tunable: str, word: str) -> None:
    assert RULES[tunable](TuningSetting(tunable=tunable, wanted=word)) is not None
