"""The live view in pictures: three sizes of terminal, 3 to 300 nodes, moments that a simulated run lived."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from docs import pictures
from orchestrator.view.live import live_console
from orchestrator.view.panel import panel
from tests.unit.view import samples
from tests.unit.view.moments import NAMES, Moment, moments

Golden = Callable[[str, str], None]

SIZES = ((60, 20), (80, 24), (120, 40), (200, 50))
COUNTS = (3, 30, 300)


def _drawn(moment: Moment, width: int, height: int, *, colour: bool, ascii_only: bool = False) -> str:
    out = samples.Ascii() if ascii_only else io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system="256" if colour else None,
        no_color=not colour,
    )
    console.print(panel(moment.screen, width - 1, height=height))
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
        assert _drawn(seen[name], width, height, colour=False, ascii_only=True).isascii()
        assert lines[1].lstrip("│ ").startswith(f"{moment_of(nodes, name)} of {nodes} nodes"), "it is first"
        assert sum(text.count(sign) for sign in "✓▶·") > nodes or nodes < FEW or width < 80, "a sign a node"


FEW = 12
"""Up to so many nodes there is no sign for each."""


def moment_of(nodes: int, name: str) -> int:
    """How many nodes are done then."""
    return moments(nodes)[name].state.recovered


@pytest.mark.parametrize("nodes", COUNTS)
def test_no_line_breaks_inside_a_word(nodes: int) -> None:
    """What is on two lines of a narrow terminal is on one of a wide one, and its words are the same."""
    for name, moment in moments(nodes).items():
        wide = set(_drawn(moment, 130, 20, colour=False).split())
        words = [word for word in _drawn(moment, 60, 20, colour=False).split() if word.isalpha()]
        assert set(words) - wide <= {"Nodes"}, name


def test_pictures_on_a_narrow_terminal(golden: Golden) -> None:
    drawn = {name: _drawn(moment, 40, 24, colour=False) for name, moment in moments(30).items()}
    golden("pictures/40x24-30.txt", "".join(f"{name}\n{drawn[name]}" for name in NAMES))


def test_the_pictures_of_the_documentation_are_of_today(subtests: pytest.Subtests) -> None:
    for name, picture in pictures.PICTURES.items():
        with subtests.test(name):
            drawn = (pictures.FOLDER / name).read_text(encoding="utf-8")
            assert pictures.drawn(picture) == drawn, "run: make docs"


def test_no_color_loses_no_word() -> None:
    out = io.StringIO()
    console = live_console(out, {"NO_COLOR": "1", "TERM": "xterm-256color"})
    console.print(panel(moments(3)["down"].screen, 79, height=24))
    assert "\x1b" not in out.getvalue()
    assert "start" in out.getvalue()
