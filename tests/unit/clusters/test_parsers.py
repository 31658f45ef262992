"""Every parser reads the answers of `tests/data/parsers/` as the value beside them: a case is no Python."""

from __future__ import annotations

import pytest

from tests.unit.clusters.cases import all_cases


def test_every_parser_reads_its_cases(subtests: pytest.Subtests) -> None:
    for case in all_cases():
        with subtests.test(case.parser, name=case.name):
            found = case.read()
            assert case.fits(found), f"{case.answer!r} is read as {found!r}"
