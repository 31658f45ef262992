"""Every screen on a terminal: it fits, its end says what to do, no word breaks, colour alone says nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pytest
from rich.console import ConsoleDimensions

from tests.unit.view.moments import moments
from tests.unit.view.screens import (
    COUNTS,
    SCREENS,
    SIZES,
    WITHOUT_NODES,
    Home,
    home_of,
    live_view,
    look,
    on_terminal,
)
from tests.unit.view.terminal import FRAME, PALETTES, Cell, Seen, broken_words, contrast, seen

LINES: Final[Mapping[int, int]] = {3: 24, 30: 40, 300: 40}
"""By the number of nodes, how many lines a screen has at most."""

LONG: Final[Mapping[str, int]] = {"help": 50, "help of restart": 64, "explain a word": 48}
"""Lists of what there is: at most so many lines."""

WIDEST: Final = (1000, 100)
"""On such a terminal no line breaks."""

NEXT: Final[Mapping[str, str]] = {
    "plan": r"^Ready|^ready",
    "plan, held": r"(?i)held",
    "question": r"\[y/N\]",
    "live": r"Ctrl-C",
    "live, standing down": r"run-1",
    "live, second failure": r"run-1",
    "summary, held": r"orchestrate resume",
    "summary, failed": r"orchestrate resume .*--retry-failed",
    "summary, stood down": r"orchestrate resume",
    "summary, paused": r"orchestrate resume",
    "summary, not restored": r"orchestrate restore",
    "status, killed": r"orchestrate (resume|restore)",
    "status, failed": r"orchestrate resume .*--retry-failed",
    "validate": r"(?i)ready|passed|sound",
    "validate, two": r"(?i)not ready|failed",
    "rehearse, mishaps": r"orchestrate|restored|restarted",
}
"""By the beginning of a screen's name, what its last lines have: the verdict, or what to type."""
LAST: Final = 4
DRAWN: Final = ("live", "summary", "status --watch")
"""Screens of terminals that can move their cursor; all others are for every terminal."""
PLAIN: Final = (80, 24)
"""On a terminal of this size a screen is looked at without colour too."""

READABLE: Final = 4.5
"""Contrast of a sign on black and on white."""
VISIBLE: Final = 3.0
"""The same on a palette's own background: no colour is READABLE on white and on Solarized's."""


@pytest.fixture(scope="module", params=COUNTS)
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    with home_of(request.param) as made:
        yield made


@dataclass(frozen=True, kw_only=True)
class Looks:
    """A screen at every size, once without colour, and its words where no line breaks."""

    name: str
    nodes: int
    words: frozenset[str]
    sizes: Mapping[tuple[int, int], Seen]
    plain: Seen

    @property
    def coloured(self) -> Seen:
        return self.sizes[PLAIN]

    @property
    def cells(self) -> set[Cell]:
        """Characters, whether bold or not."""
        return {replace(cell, bold=False) for row in self.coloured.cells for cell in row if cell.text.strip()}


def looks_of(home: Home, name: str) -> Looks:
    makes = partial({**SCREENS, **WITHOUT_NODES}[name], home)
    return Looks(
        name=name,
        nodes=home.nodes,
        words=frozenset(re.findall(r"\S+", look(makes, *WIDEST).text)),
        sizes={size: look(makes, *size) for size in SIZES},
        plain=look(makes, *PLAIN, NO_COLOR="1", TERM="xterm" if name.startswith(DRAWN) else "dumb"),
    )


def faults(looks: Looks) -> Iterator[str]:
    """What is wrong with a screen, at each size."""
    for (width, height), looked in looks.sizes.items():
        at = f"{width}x{height}"
        yield from (f"{at}: {fault}" for fault in _of_one(looks.name, looks.nodes, looked, width, height))
        broken = broken_words(looked, looks.words, width)
        if broken:
            yield f"{at}: {len(broken)} words break: {', '.join(broken[:3])}"
    if looks.plain.text != looks.coloured.text:
        yield "another text without colour"
    if re.search(r"\x1b\[[\d;]*m" if looks.name.startswith(DRAWN) else r"\x1b", looks.plain.raw):
        yield "attributes with NO_COLOR"


def badly_coloured(signs: Collection[Cell], sign: Cell) -> Iterator[str]:
    """What is wrong with a character in a colour: words have the terminal's own."""
    if sign.text.isalnum():
        yield "a word in colour"
    if [other.colour for other in signs if other.text == sign.text] != [sign.colour]:
        yield "two colours, and only they differ"
    for name, palette in PALETTES.items():
        if min(contrast(sign, palette, behind) for behind in ("000000", "ffffff")) < READABLE:
            yield f"{name}: cannot be read on black or on white"
        if contrast(sign, palette) < VISIBLE:
            yield f"{name}: is not seen on its background"


def _of_one(name: str, nodes: int, looked: Seen, width: int, height: int) -> Iterator[str]:
    if name.startswith("live"):
        lines, most = _panel(looked), height - 2
        if len(looked.lines) and not any("╰" in line for line in looked.shown):
            yield "the panel is not on the screen"
    else:
        lines, most = looked.lines, next((at for n, at in LONG.items() if name == n), LINES[nodes])
        if width < 80:
            most += most // 2
    if len(lines) > most:
        yield f"{len(lines)} lines of {most}"
    wanted = [pattern for begin, pattern in NEXT.items() if name.startswith(begin)]
    if wanted and not re.search(wanted[-1], "\n".join(looked.last[:LAST]), re.MULTILINE):
        yield f"its end has not {wanted[-1]!r}: {looked.last[:2]}"
    if "Traceback" in looked.text:
        yield "a defect"


def _panel(looked: Seen) -> list[str]:
    begins = [place for place, line in enumerate(looked.lines) if line.startswith("╭")]
    return list(looked.lines[begins[-1] :]) if begins else []


def test_every_screen_is_as_its_rules_say(home: Home, subtests: pytest.Subtests) -> None:
    signs = set[Cell]()
    for name in (*SCREENS, *(WITHOUT_NODES if home.nodes == COUNTS[0] else ())):
        looks = looks_of(home, name)
        signs |= {cell for cell in looks.cells if cell.colour != "default" or cell.dim}
        with subtests.test(screen=name, nodes=home.nodes):
            assert [*faults(looks)] == []
    for sign in signs - {cell for cell in signs if cell.text in FRAME}:
        with subtests.test(sign=sign.text, colour=sign.colour, dim=sign.dim):
            assert [*badly_coloured(signs, sign)] == []
    assert {sign.text for sign in signs} >= set("✓▶·"), "there are signs in colour"


def test_contrast_is_that_of_the_guidelines() -> None:
    """Black on white has 21; grey #767676 is the darkest that has 4.5 on white, #777777 has not."""
    xterm, white = PALETTES["xterm, white"], "ffffff"
    found = [
        contrast(Cell("x", colour, dim=False), xterm, white) for colour in ("default", "767676", "777777")
    ]
    assert [round(one, 2) for one in found] == [21.0, 4.54, 4.48]
    assert (
        contrast(Cell("x", "default", dim=True), xterm)
        < READABLE
        < contrast(Cell("x", "red", dim=False), xterm)
    )


def test_the_terminal_sees_what_a_person_sees() -> None:
    """What the other tests rely on: lines that scrolled off, a word cut by the edge, colours, dim text."""
    written = b"\x1b[31mred\x1b[0m \x1b[2mdim\x1b[22m one two\r\n" + b"\r\n".join([b"x"] * 4)
    looked = seen(written, 12, 3)
    assert looked.lines == ("red dim one", "two", "x", "x", "x", "x")
    assert looked.shown == ("x", "x", "x")
    first, second = seen(written, 12, 8).cells[:2]
    assert (first[0], first[4]) == (Cell("r", "red", dim=False), Cell("d", "default", dim=True))
    assert second[0] == Cell("t", "default", dim=False)
    cut = seen(b"the setting allocation is", 14, 3)
    assert broken_words(cut, frozenset({"the", "setting", "allocation", "is"}), 40) == ["al|location"]
    assert broken_words(seen(b"the setting\r\nallocation", 14, 3), frozenset({"allocation"}), 40) == []


def test_a_terminal_of_another_size_shows_one_whole_panel() -> None:
    """It is drawn anew below the last lines, and nothing of the former one stays."""
    with on_terminal(80, 24) as made, live_view(moments(3)["down"], made) as (console, draw):
        draw()
        made.mark()
        console.size = ConsoleDimensions(60, 20)
        draw()
        made.mark()
    looked = seen(bytes(made.written), 80, 24, resized=(60, 20))
    corners = [line[0] for line in looked.shown if line and line[0] in "╭╰"]
    assert corners == ["╭", "╰"]
    assert len(looked.last) > len(_panel(looked)), "and lines of events above it"
