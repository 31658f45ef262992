"""Marked lines of this program at the end of a file that other programs and people edit too. Pure.

A block is found by its markers alone, so the text around it may change. Removing the block leaves every other
byte unchanged. A begin marker without its end (after an edit by hand) is not a block and stays in the file.
"""

from __future__ import annotations

import re
from typing import Final

BEGIN: Final = "# BEGIN orchestrate {name}"
END: Final = "# END orchestrate {name}"


def block_in(text: str, name: str) -> str | None:
    """The lines between the markers, without the last line end; None if there is no block."""
    found = _pattern(name).search(text)
    return None if found is None else found["lines"].removesuffix("\n")


def has_stray_marks(text: str, name: str) -> bool:
    """Whether the text holds a marker outside a block: the lines were edited by hand."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    rest = _pattern(name).sub("", text, count=1)
    return any(line.strip() in {begin, end} for line in rest.splitlines())


def with_block(text: str, name: str, lines: str | None) -> str:
    """The text with the wanted block: replaced in its place, appended, or removed (None)."""
    block = "" if lines is None else f"{BEGIN.format(name=name)}\n{_ended(lines)}{END.format(name=name)}\n"
    found = _pattern(name).search(text)
    if found is not None:
        return text[: found.start()] + block + text[found.end() :]
    return text if lines is None else _ended(text) + block


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _pattern(name: str) -> re.Pattern[str]:
    begin, end = (re.escape(marker.format(name=name)) for marker in (BEGIN, END))
    return re.compile(rf"^{begin}\n(?P<lines>(?:(?!{begin}$|{end}$).*\n)*?){end}(?:\n|\Z)", re.MULTILINE)
