"""The live view in pictures: three sizes of terminal, 3 to 300 nodes, moments that a simulated run lived."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from orchestrator.view.feed import Feed
from orchestrator.view.live import live_console, tone
from orchestrator.view.panel import ASCII, UNICODE, Glyphs, panel
from orchestrator.view.text import clock_time
from tests.unit.view.moments import NAMES, Moment, moments

Golden = Callable[[str, str], None]

SIZES = ((80, 24), (120, 30), (200, 50))
COUNTS = (3, 30, 300)
PICTURE = Path(__file__).parents[3] / "docs" / "images" / "restart.svg"


def _drawn(moment: Moment, width: int, height: int, *, colour: bool, glyphs: Glyphs = UNICODE) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system="256" if colour else None,
        no_color=not colour,
    )
    console.print(panel(moment.screen, width - 1, height=height, glyphs=glyphs))
    return out.getvalue()


@pytest.mark.parametrize("nodes", COUNTS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_pictures_of_a_lived_run(nodes: int, width: int, height: int, golden: Golden) -> None:
    seen = moments(nodes)
    assert sorted(seen) == sorted(NAMES)
    drawn = {name: _drawn(seen[name], width, height, colour=False) for name in NAMES}
    golden(f"pictures/{width}x{height}-{nodes}.txt", "".join(f"{name}\n{drawn[name]}" for name in NAMES))
    for name, text in drawn.items():
        lines = text.splitlines()
        assert len(lines) <= height - 2, f"{name} is too high"
        assert {cell_len(line) for line in lines} == {width - 1}, f"{name} has another width"
        coloured = _drawn(seen[name], width, height, colour=True)
        assert "\x1b[" in coloured
        assert Text.from_ansi(coloured).plain.split() == text.split(), "colour alone says nothing"
        assert _drawn(seen[name], width, height, colour=False, glyphs=ASCII).isascii()
        counts = next(line for line in lines if "Nodes" in line).split()
        added = sum(int(word) for word in counts if word.isdecimal())
        assert added == nodes or width > 120, "wider ones have other numbers beside the counts"


def test_pictures_on_a_narrow_terminal(golden: Golden) -> None:
    drawn = {name: _drawn(moment, 40, 24, colour=False) for name, moment in moments(30).items()}
    golden("pictures/40x24-30.txt", "".join(f"{name}\n{drawn[name]}" for name in NAMES))


def test_the_picture_of_the_documentation_is_of_today() -> None:
    """The README shows it; with `ORCHESTRATE_REWRITE_GOLDEN=1` it is drawn again."""
    moment, (width, height) = moments(3)["down"], (100, 30)
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    drawn = panel(moment.screen, width - 1, height=height)
    room = height - len(console.render_lines(drawn)) - 1
    for line in [one for one in Feed().lines(moment.records) if not one.in_panel][-room:]:
        words = (f"{clock_time(line.record.at)} ", "dim"), (line.text, tone(line.record.event))
        console.print(Text.assemble(*words, no_wrap=True, overflow="ellipsis"))
    console.print(drawn)
    svg = console.export_svg(title="orchestrate restart --cluster prod")
    svg = re.sub(r',\s*url\("https://[^"]*"\) format\("[^"]*"\)', "", svg)  # no font of another host
    if os.environ.get("ORCHESTRATE_REWRITE_GOLDEN"):
        PICTURE.write_text(svg, encoding="utf-8")
    assert svg == PICTURE.read_text(encoding="utf-8")


def test_no_color_loses_no_word() -> None:
    out = io.StringIO()
    console = live_console(out, {"NO_COLOR": "1", "TERM": "xterm-256color"})
    console.print(panel(moments(3)["down"].screen, 79, height=24))
    assert "\x1b" not in out.getvalue()
    assert "starting" in out.getvalue()
