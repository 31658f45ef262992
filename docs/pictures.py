"""Draw the pictures of the main screens, as a terminal shows simulated runs: `make docs`."""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.unit.view.screens import SCREENS, home_of, look
from tests.unit.view.terminal import Cell

FOLDER: Final = Path(__file__).parent / "images"
WIDTH: Final = 80
HEIGHT: Final = 24
_COMMAND: Final = "orchestrate restart --cluster prod"


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen of `tests/unit/view/screens.py`, and the command in the title of its window."""

    screen: str
    command: str


PICTURES: Final[Mapping[str, Picture]] = {
    "restart.svg": Picture("live, down", _COMMAND),
    "held.svg": Picture("live, held", _COMMAND),
    "question.svg": Picture("question", _COMMAND),
    "done.svg": Picture("summary, done", _COMMAND),
    "failed.svg": Picture("summary, failed", _COMMAND),
}
"""File name under `docs/images/` to what it shows."""


def drawn(picture: Picture, nodes: int = 3) -> str:
    """The picture as SVG, without a font of another host."""
    with home_of(nodes) as home:
        looked = look(partial(SCREENS[picture.screen], home), WIDTH, HEIGHT)
    rows = list(looked.cells)
    while not rows[-1]:
        rows.pop()
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    for row in rows:
        parts = [("".join(cell.text for cell in cells), style) for style, cells in groupby(row, key=_style)]
        console.print(Text.assemble(*parts), soft_wrap=True)
    svg = console.export_svg(title=picture.command)
    return re.sub(r',\s*url\("https://[^"]*"\) format\("[^"]*"\)', "", svg)


def _style(cell: Cell) -> Style:
    name = cell.colour.replace("brown", "yellow").replace("bright", "bright_")
    colour = None if name == "default" else f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name
    return Style(color=colour, dim=cell.dim or None, bold=cell.bold or None)


def write() -> None:
    """Write every picture."""
    for name, picture in PICTURES.items():
        (FOLDER / name).write_text(drawn(picture), encoding="utf-8")
