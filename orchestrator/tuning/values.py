"""Values as the kernel's files and the profiles have them: choices in brackets, and whole numbers. Pure.

A kernel file may list the possible values, the current one in brackets: `always [madvise] never`.

Python accepts more digits than a kernel does (`²`, `٣`), and fails on a number of thousands of digits. In
/proc/sys a number that begins with 0 is octal: the kernel reads `010` as 8 (`proc_get_long`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


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


SAME_MEANING: Final = {
    "none": "noop",
    "noop": "none",
    "deadline": "mq-deadline",
    "mq-deadline": "deadline",
    "0": "no",
    "no": "0",
    "1": "yes",
    "yes": "1",
}
"""Words of which older and newer kernels offer one or the other. The boot script gets this table too."""


def chosen(wanted: str, choices: Choices) -> str | None:
    """The wanted word, or the one with the same meaning; None if the file offers neither.

    A file that holds 0 or 1 alone is a switch: it offers both. `choose` in `shell/kernel.sh` does the same.
    """
    offered = ("0", "1") if choices.offered in {("0",), ("1",)} else choices.offered
    return next((word for word in (wanted, SAME_MEANING.get(wanted)) if word in offered), None)


_NUMBER: Final = re.compile("0|[1-9][0-9]{0,19}")
"""No kernel value is longer: 2**64 has 20 digits."""


def is_number(text: str) -> bool:
    """Whether a text is exactly a whole number, without a sign or leading zeros, that a kernel can hold."""
    return _NUMBER.fullmatch(text) is not None
