"""How help is laid out: no word is broken, and on a narrow terminal a text is below its name."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from typer._click.formatting import HelpFormatter

from orchestrator.next_command import shell_lines

_STACKED_BELOW = 70
"""Columns. On a narrower terminal two columns have too few words in a line."""
_LONGEST_NAME = 30
"""Columns. A longer name has its text on the next line."""


class Formatter(HelpFormatter):
    """typer's, except that it breaks lines only at blanks."""

    def write_text(self, text: str) -> None:
        """Paragraphs, filled again."""
        paragraphs = (" ".join(each.split()) for each in text.split("\n\n"))
        self.write("\n\n".join(self._filled(each, self.current_indent) for each in paragraphs) + "\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The line of usage."""
        start = f"{prefix or 'Usage: '}{prog} "
        self.write(self._filled(args, len(start), first=start) + "\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = _LONGEST_NAME, col_spacing: int = 2
    ) -> None:
        """Names, each with its text."""
        blank = " " * self.current_indent
        stacked = self.width < _STACKED_BELOW
        column = 4 if stacked else min(max((len(name) for name, _ in rows), default=0), col_max) + col_spacing
        for name, text in rows:
            start = f"{blank}{name}"
            own_line = stacked or len(name) > column - col_spacing
            if own_line or not text:
                self.write(f"{start}\n")
                start = blank
            if text:
                indent = self.current_indent + column
                self.write(self._filled(" ".join(text.split()), indent, first=start.ljust(indent)) + "\n")

    def write_example(self, said: str, line: str) -> None:
        """A command line below what it does; a long one has its options on lines of their own."""
        self.write_paragraph()
        self.write_text(f"For example, {said}:")
        self.write("\n".join(shell_lines(line, self.width, indent=2)) + "\n")

    def _filled(self, text: str, indent: int, *, first: str | None = None) -> str:
        blank = " " * indent
        return filled(text, self.width, first=blank if first is None else first, then=blank)


def filled(text: str, width: int, *, first: str, then: str) -> str:
    """A text in lines that are broken only at blanks, however long a word is.

    Args:
        text: one paragraph.
        width: columns.
        first: what the first line begins with.
        then: what the others begin with.
    """
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )
