"""Tables of Riak's newer commands: whole, with the headings expected, and every wall in its place."""

from __future__ import annotations

import pytest

from orchestrator.stores.riak.output import Malformed
from orchestrator.stores.riak.tables import NARROW, take_table

HEADINGS = ("node", "limit")
BORDER = "+------+------+"
HEAD = "| node |limit |"
ROWS = ("| a@b  |  2   |", "|      |  16  |")
WHOLE = (BORDER, HEAD, BORDER, *ROWS, BORDER)


def test_cells_are_told_as_they_stand_with_what_follows() -> None:
    table, rest = take_table(("", *WHOLE, "", "behind it"), HEADINGS)
    assert table.headings == HEADINGS
    assert table.rows == ((" a@b  ", "  2   "), ("      ", "  16  "))
    assert table.width == len(BORDER) == 15
    assert rest == ("", "behind it")


def test_what_is_cut_or_moved_is_no_table(subtests: pytest.Subtests) -> None:
    for lines in [
        (),
        ("", ""),
        ("before it", *WHOLE),
        WHOLE[1:],
        WHOLE[:-1],
        (BORDER, HEAD, *ROWS, BORDER),
        (BORDER, BORDER, HEAD, *ROWS, BORDER),
        (*WHOLE, BORDER),
        (BORDER, HEAD, BORDER, BORDER),
        (BORDER, HEAD, HEAD, BORDER, *ROWS, BORDER),
        ("|------+------|", HEAD, BORDER, *ROWS, BORDER),
        (BORDER, "| node | limi |", BORDER, *ROWS, BORDER),
        (BORDER, "|limit | node |", BORDER, *ROWS, BORDER),
        (BORDER, HEAD, BORDER, "| a@b  |  2   ", BORDER),
        (BORDER, HEAD, BORDER, "| a@b  |  2   | ", BORDER),
        (BORDER, HEAD, BORDER, "| a@b   |  2  |", BORDER),
        (BORDER, HEAD, BORDER, "  a@b  |  2   |", BORDER),
        (BORDER, HEAD, BORDER, "| a@b  |  2    ", BORDER),
        (BORDER, HEAD, BORDER, "", *ROWS, BORDER),
        (BORDER, HEAD, "", BORDER, *ROWS, BORDER),
        tuple(f"{line}>" for line in WHOLE),
    ]:
        with subtests.test(lines=lines), pytest.raises(Malformed):
            take_table(lines, HEADINGS)


@pytest.mark.parametrize("headings", [("node",), ("node", "limit", "more"), ("Node", "limit")])
def test_other_headings_are_another_table(headings: tuple[str, ...]) -> None:
    with pytest.raises(Malformed, match="the table's headings are node, limit instead of"):
        take_table(WHOLE, headings)


def _wide(width: int) -> tuple[str, ...]:
    border = f"+{'-' * (width - 2)}+"
    return (border, f"|{'node':^{width - 2}}|", border, f"|{'a@b':^{width - 2}}|", border)


def test_a_table_as_wide_as_the_narrowest_screen_may_be_cut() -> None:
    """80 columns less the one that Riak keeps free; wider ones may have been cut to a wider screen."""
    assert NARROW == 79
    take_table(_wide(NARROW - 1), ("node",))[0].must_be_uncut()
    for width in (NARROW, NARROW + 1, 200):
        with pytest.raises(Malformed, match="as wide as a screen"):
            take_table(_wide(width), ("node",))[0].must_be_uncut()
