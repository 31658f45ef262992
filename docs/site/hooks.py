"""What the site needs beside the pages: files of the repository that they link to, changes, diagrams, cells.

MkDocs calls the `on_` functions (`mkdocs.yml`, `hooks`). A page of `docs/` is shown as it is. Only a link
that leaves `docs/` is changed: the file that it names becomes a page below `files/`.
"""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.superfences import SuperFencesException

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
CHANGES: Final = "changes.md"
"""The page that `CHANGELOG.md` becomes."""
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD: Final = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
_ROW_OF_CELLS: Final = re.compile(r"<tr>(?:(?!</tr>).)*?<td.*?</tr>", re.DOTALL)
_SHORT: Final = re.compile(r"<code>(?=[^<]{1,24}</code>)")
_LANGUAGES: Final = {".yml": "yaml", ".py": "python", ".toml": "toml"}
_ROW, _COLUMN, _MARGIN = 34, 240, 100
_NAMED_FROM: Final = 3
_BOOST: Final = {"how-to": 2, "development": 0.2, "files": 0.2, CHANGES: 0.2}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw the fences named `mermaid`: no script of another host is needed to show them."""
    fence = {"name": "mermaid", "class": "diagram", "format": _fence}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changes, and a page for each file outside `docs/` that a page links to."""
    named = {target for page in files.documentation_pages() for target in _outside(page)}
    for target in sorted(named):
        fence = _LANGUAGES.get(target.suffix, "text")
        text = f"# {target}\n\n````{fence}\n{(ROOT / target).read_text(encoding='utf-8')}````\n"
        files.append(File.generated(config, _page_of(target), content=text))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, CHANGES, content=_LINK.sub(_from_top, changes)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead a link that leaves `docs/` to the page of its file. The first page has no side bar.

    In a search, questions come first, and pages for developers and shown files last.
    """
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    page.meta["search"] = {"boost": _BOOST.get(page.file.src_uri.split("/")[0], 1)}
    if page.file.src_uri == "how-to/faq.md":
        page.meta["search"] = {"boost": 4}
    if page.file.generated_by:
        return markdown
    folder = (DOCS / page.file.src_uri).parent

    def led(match: re.Match[str]) -> str:
        target = _target(folder, match.group(1))
        if target is None:
            return match.group(1)
        return os.path.relpath(DOCS / _page_of(target), folder)

    return _LINK.sub(led, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Give each cell the name of its column: on a narrow screen a row is a list of its cells (`site.css`).

    Short code in a cell stays on one line.
    """
    return _TABLE.sub(lambda table: _SHORT.sub('<code class="short">', _named(table[0])), html)


def _named(table: str) -> str:
    """A table, each cell with the name of its column; cells of two columns need none."""
    names = [re.sub(r"<[^>]+>", "", head).replace('"', "&quot;") for head in _HEAD.findall(table)]
    if len(names) < _NAMED_FROM:
        return table

    def row(cells: re.Match[str]) -> str:
        number = iter(names)
        return re.sub(r"<td", lambda _: f'<td data-name="{next(number)}"', cells[0])

    return _ROW_OF_CELLS.sub(row, table)


def _outside(file: File) -> set[Path]:
    """The files outside `docs/` to which a page links."""
    if file.generated_by:
        return set()
    folder = (DOCS / file.src_uri).parent
    found = (_target(folder, link) for link in _LINK.findall(file.content_string))
    return {target for target in found if target is not None}


def _target(folder: Path, link: str) -> Path | None:
    """What a link names, if that is a file of the repository outside `docs/`; else None."""
    target = Path(os.path.normpath(folder / link))
    if not target.is_relative_to(ROOT) or target.is_relative_to(DOCS):
        return None
    return target.relative_to(ROOT) if target.is_file() else None


def _page_of(target: Path) -> str:
    return f"files/{target.as_posix()}.md"


def _from_top(match: re.Match[str]) -> str:
    """A link of the change log, which is a folder above the pages."""
    return match.group(1).removeprefix("docs/")


def _fence(source: str, _language: str, _class: str, _options: object, _md: object, **_: object) -> str:
    """HTML of a diagram, for the fence of `on_config`; any other error would show its source instead."""
    try:
        return drawn(source)
    except ValueError as error:
        raise SuperFencesException(str(error)) from error


def drawn(source: str) -> str:
    """HTML of a diagram: the few kinds and forms that the pages have.

    Raises:
        ValueError: a line that is not understood.
    """
    kind, *lines = (line.strip() for line in source.strip().splitlines())
    if kind not in _KINDS:
        raise ValueError(f"the site draws {', '.join(_KINDS)}; not {kind!r}")
    return f'<div class="diagram">{_KINDS[kind](lines)}</div>'


def _layers(lines: list[str]) -> str:
    """Rows of boxes, each above those that it may use."""
    rows: list[list[str]] = []
    for line in lines:
        chain = [part.split(" & ") for part in line.split(" --> ")]
        if len(chain) == 1 or (rows and chain[0] != rows[-1]):
            raise ValueError(f"not one chain of layers: {line!r}")
        rows += chain if not rows else chain[1:]
    shown = ("".join(_box(name) for name in row) for row in rows)
    return '<div class="layers">' + "<div>↓</div>".join(f"<div>{row}</div>" for row in shown) + "</div>"


def _messages(lines: list[str]) -> str:
    """A line for each participant, and an arrow between two for each message, from the top down."""
    names: dict[str, str] = {}
    arrows: list[tuple[str, str, str, bool]] = []
    for line in lines:
        if named := re.fullmatch(r"participant (\w+) as (.+)", line):
            names[named[1]] = named[2]
        elif sent := re.fullmatch(r"(\w+)(-?)->>(\w+): (.+)", line):
            arrows.append((sent[1], sent[3], sent[4], bool(sent[2])))
        else:
            raise ValueError(f"neither a participant nor a message: {line!r}")
    at = {key: _MARGIN + number * _COLUMN for number, key in enumerate(names)}
    height, width = 50 + _ROW * len(arrows), 2 * _MARGIN + _COLUMN * (len(names) - 1)
    parts = [
        f'<text x="{x}" y="16" text-anchor="middle" font-weight="bold">{html.escape(names[key])}</text>'
        f'<line x1="{x}" y1="26" x2="{x}" y2="{height}" stroke-opacity="0.4"/>'
        for key, x in at.items()
    ]
    for number, (sender, receiver, said, answer) in enumerate(arrows):
        begin, end, y = at[sender], at[receiver], 58 + _ROW * number
        tip = 7 if end > begin else -7
        dashes = ' stroke-dasharray="4"' if answer else ""
        arrow = f"M{begin} {y}H{end}M{end - tip} {y - 4}L{end} {y}L{end - tip} {y + 4}"
        parts.append(
            f'<text x="{(begin + end) / 2}" y="{y - 6}" text-anchor="middle">{html.escape(said)}</text>'
            f'<path d="{arrow}" fill="none"{dashes}/>'
        )
    style = 'font-size="12" fill="currentColor" stroke="none"'
    body = "".join(parts).replace("<text", f"<text {style}")
    return f'<svg viewBox="0 0 {width} {height}" role="img" stroke="currentColor">{body}</svg>'


def _box(name: str) -> str:
    return f'<span class="box">{html.escape(name)}</span>'


_KINDS: Final[dict[str, Callable[[list[str]], str]]] = {
    "flowchart TD": _layers,
    "sequenceDiagram": _messages,
}
