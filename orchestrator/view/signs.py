"""The signs of the live view: each in Unicode and ASCII, with its colour.

Colour is on signs alone; text has the terminal's own colour, and what is bad is bold. The colours are
those of the 256-colour cube that have a contrast of at least 4.5 to 1 with black and with white. The first
16 colours differ from terminal to terminal, and no usual palette has one that is readable on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SIGNS: Final[Mapping[str, tuple[str, str, str]]] = {
    "done": ("✓", "+", "color(29)"),
    "now": ("▶", ">", "color(63)"),
    "to come": ("·", "-", "color(243)"),
    "failed": ("✗", "X", "bold color(131)"),
    "skipped": ("○", "o", "color(243)"),
    "attention": ("!", "!", "bold color(163)"),
    "bar": ("━", "#", "color(29)"),
    "half": ("╸", "=", "color(29)"),
    "rest": ("╌", ".", "color(243)"),
}
"""Name of a sign to its character, the same in ASCII, and its style. Each is one column wide."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs as a terminal can show them."""

    unicode: bool

    def sign(self, name: str, times: int = 1) -> tuple[str, str]:
        """A sign, so many times, with its style, as `Text.assemble` takes it."""
        character, plain, style = SIGNS[name]
        return ((character if self.unicode else plain) * times, style)


UNICODE = Glyphs(unicode=True)
ASCII = Glyphs(unicode=False)
