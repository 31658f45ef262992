"""A page of the docs as lines for a terminal. Other files are shown as they are, to be copied."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import partial
from os.path import normpath
from pathlib import Path

from orchestrator.cli.help_format import filled
from orchestrator.next_command import next_command

_BLOCK = re.compile(r"^ *```.*?^ *```|(?:(?!^ *```)[^\n]+(?:\n|\Z))+", re.MULTILINE | re.DOTALL)
"""A code block, or lines without an empty one."""
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")


def page_lines(file: Path, width: int) -> Iterator[str]:
    """The lines of a page, filled to a width: code as it is, the rows of a table below each other."""
    text = file.read_text("utf-8")
    if file.suffix != ".md":
        yield from text.splitlines()
        return
    text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\(([^)\s]*)\)", partial(_link, file.parent), text)
    for number, found in enumerate(_BLOCK.finditer(text)):
        block = found[0].rstrip("\n")
        yield from ([""] if number else [])
        if block.lstrip().startswith("```"):
            yield from (f"    {line}" for line in textwrap.dedent(block).splitlines()[1:-1])
        elif block.startswith("|"):
            yield from _table(block.splitlines(), width)
        elif block.startswith("#"):
            yield _plain(block.lstrip("# "))
        else:
            for item in re.split(r"\n(?= *(?:[-*]|\d+\.) )", block):
                mark = _ITEM.match(item)
                indent = len(mark[0]) if mark else 0
                yield from _filled(_plain(item), width, subsequent=" " * indent)


def _table(rows: list[str], width: int) -> Iterator[str]:
    """Each row: its first cell, and below it the others, each with the title of its column."""
    cells = [[_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    head, _, *body = cells
    for row in body:
        first, *rest = [cell for cell in zip(head, row, strict=False) if cell[1]]
        yield from _filled(first[1], width, subsequent="    ")
        for title, cell in rest:
            label = f"{title}: " if title and len(head) > 2 else ""  # noqa: PLR2004  (two columns need no titles)
            yield from _filled(f"  {label}{cell}", width, subsequent="    ")


def _plain(text: str) -> str:
    """A text without marks."""
    return text.replace("**", "").replace("\\|", "|").replace("<br>", " ")


def _link(folder: Path, found: re.Match[str]) -> str:
    """What is written for a link: to another page or file, with the command that shows it."""
    page = normpath(folder.name / Path(found[2].partition("#")[0]))
    there = (folder.parent / page).is_file() and not page.startswith("..")
    return f"{found[1]} (`{next_command('explain', page.removesuffix('.md'))}`)" if there else found[1]


def _filled(text: str, width: int, *, subsequent: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return filled(" ".join(text.split()), width, first=indent, then=subsequent).splitlines()
