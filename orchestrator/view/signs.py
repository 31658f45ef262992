"""The signs of the views: each in Unicode and ASCII, with its colour.

Colour is on signs alone; text has the terminal's own colour, and what is bad is bold. The colours are
those of the 256-colour cube that have a contrast of at least 4.5 to 1 with black and with white. The first
16 colours differ from terminal to terminal, and no usual palette has one that is readable on both.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def sign(name: str, times: int = 1) -> tuple[str, str]:
    """A sign, so many times, with its style, as `Text.assemble` takes it."""
    character, _, style = SIGNS[name]
    return character * times, style


IN_ASCII: Final[Mapping[str, str]] = {
    **{character: plain for character, plain, _ in SIGNS.values()},
    "→": "->",
    "…": "...",
    "─": "-",
}
"""All signs of the program that are not ASCII, and what is written where an encoding lacks them."""

ONE_COLUMN: Final[Mapping[str, str]] = {sign: plain[-1] for sign, plain in IN_ASCII.items()}
"""The same for a picture, whose border stays where it is."""


def in_encoding(text: str, encoding: str, plain: Mapping[str, str] = IN_ASCII) -> str:
    """A text in which signs that an encoding lacks are in ASCII."""
    lacking = {ord(sign): each for sign, each in plain.items() if not sign.encode(encoding, "ignore")}
    return text.translate(lacking)
