"""The tables that Riak's newer commands draw with `+`, `-` and `|`.

A table that would be wider than the screen has its cells cut, headings too, without a word. So the headings
must be those that are expected, every row must be as wide as the border, and a reader of names asks for the
blank that the command itself puts after them, or for a table well under the width of a screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.stores.riak.output import Malformed, blank, shown

_BORDER: Final = re.compile(r"\+(-+\+)+")
NARROW: Final = 79
"""The narrowest screen that is known: 80 columns less the one that Riak keeps free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A whole table.

    Attributes:
        rows: cells as they stand, padding included.
        width: of each line, in characters.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    width: int

    def must_be_uncut(self) -> None:
        """For names that have no padding of their own.

        Raises:
            Malformed: the table is as wide as a screen may be, so that cells may have been cut.
        """
        if self.width >= NARROW:
            raise Malformed("the table is as wide as a screen, so its cells may be cut")


def take_table(lines: Sequence[str], headings: Sequence[str]) -> tuple[Table, tuple[str, ...]]:
    """The table at the beginning of these lines, and the lines after it.

    Raises:
        Malformed: there is none with these headings, or it is cut.
    """
    start = next((at for at, line in enumerate(lines) if not blank(line)), None)
    if start is None or not _BORDER.fullmatch(lines[start]):
        raise Malformed("the table is missing")
    border = lines[start]
    borders = [at for at, line in enumerate(lines) if line == border]
    if len(borders) != 3 or borders[1] != start + 2:  # noqa: PLR2004  (above and below the headings, at the end)
        raise Malformed("the table is not whole")
    found = tuple(cell.strip() for cell in _cells(lines[start + 1], border))
    if found != tuple(headings):
        raise Malformed(f"the table's headings are {', '.join(found)} instead of {', '.join(headings)}")
    rows = tuple(_cells(line, border) for line in lines[borders[1] + 1 : borders[2]])
    if not rows:
        raise Malformed("the table is empty")
    return Table(headings=found, rows=rows, width=len(border)), tuple(lines[borders[2] + 1 :])


def _cells(line: str, border: str) -> tuple[str, ...]:
    walls = [at for at, mark in enumerate(border) if mark == "+"]
    if len(line) != len(border) or any(line[at] != "|" for at in walls):
        raise Malformed(f"{shown(line)} is no row of its table")
    return tuple(line[left + 1 : right] for left, right in pairwise(walls))
