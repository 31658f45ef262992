"""Kernel files that list the possible values, the current one in brackets: `always [madvise] never`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The content of such a file."""

    # the word in brackets; the only word of a file without brackets; None if there is neither
    current: str | None
    offered: tuple[str, ...]  # all words, in the file's order
    # whether a word is in brackets. A bare `none` of a scheduler file means: it cannot be set.
    bracketed: bool


def parse(text: str) -> Choices:
    """Read a file's text; words are kept unchanged (`defer+madvise`)."""
    words = text.split()
    chosen = [word[1:-1] for word in words if re.fullmatch(r"\[.+\]", word)]
    offered = tuple(word.strip("[]") for word in words)
    current = chosen[0] if chosen else offered[0] if len(offered) == 1 else None
    return Choices(current=current, offered=offered, bracketed=bool(chosen))
