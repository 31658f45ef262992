"""Parse the tables that Riak's newer commands draw with `+`, `-` and `|`.

If a table is wider than the screen, Riak cuts cells and headings without notice. So the headings must be the
expected ones, and every row must be as wide as the border. For names, the blank that the command prints after
them must be there, or the table must be clearly narrower than a screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from orchestrator.riak.output import RiakUnreadable, blank, shown

_BORDER: Final = re.compile(r"\+(-+\+)+")
NARROW: Final = 79
"""The narrowest known screen: 80 columns less the one that Riak keeps free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A complete table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # cells with their padding
    width: int  # of each line, in characters

    def must_be_uncut(self) -> None:
        """Check the width of a table whose names have no padding.

        Raises:
            RiakUnreadable: the table is as wide as a screen, so cells may have been cut.
        """
        if self.width >= NARROW:
            raise RiakUnreadable("the table is as wide as a screen, so its cells may be cut")


def take_table(lines: Sequence[str], headings: Sequence[str]) -> tuple[Table, tuple[str, ...]]:
    """The table at the beginning of these lines, and the lines after it.

    Raises:
        RiakUnreadable: there is no table with these headings, or it is cut.
    """
    start = next((at for at, line in enumerate(lines) if not blank(line)), None)
    if start is None or not _BORDER.fullmatch(lines[start]):
        raise RiakUnreadable("the table is missing")
    border = lines[start]
    borders = [at for at, line in enumerate(lines) if line == border]
    if len(borders) != 3 or borders[1] != start + 2:  # noqa: PLR2004  (above and below the headings, at the end)
        raise RiakUnreadable("the table is not whole")
    found = tuple(cell.strip() for cell in _cells(lines[start + 1], border))
    if found != tuple(headings):
        raise RiakUnreadable(f"the table's headings are {', '.join(found)} instead of {', '.join(headings)}")
    rows = tuple(_cells(line, border) for line in lines[borders[1] + 1 : borders[2]])
    if not rows:
        raise RiakUnreadable("the table is empty")
    return Table(headings=found, rows=rows, width=len(border)), tuple(lines[borders[2] + 1 :])


def _cells(line: str, border: str) -> tuple[str, ...]:
    walls = [at for at, mark in enumerate(border) if mark == "+"]
    if len(line) != len(border) or any(line[at] != "|" for at in walls):
        raise RiakUnreadable(f"{shown(line)} is no row of its table")
    return tuple(line[left + 1 : right] for left, right in pairwise(walls))
