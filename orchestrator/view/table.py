"""Plain text tables: columns two blanks apart, no lines, so that they can be cut, piped and diffed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from orchestrator.view.units import visible


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> list[str]:
    """The lines of a table; the columns in `numbers` are right-aligned, the last column is not padded."""
    rows = [[visible(text) for text in row] for row in rows]
    widths = [max(cell_len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  ".join(
            _cell(text, width, right=place in numbers, last=place == len(head) - 1)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def _cell(text: str, width: int, *, right: bool, last: bool) -> str:
    blanks = " " * (width - cell_len(text))
    if right:
        return blanks + text
    return text if last else text + blanks
