"""The site that `make site` builds: every page once in its navigation, no broken link, no foreign host."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="`make test-long` installs what builds the site")
import markdown
import yaml
from mkdocs.config import load_config
from pymdownx.superfences import SuperFencesException

from tests.integration.browsing import Browser, browser

pytestmark = pytest.mark.part(name="long")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = {"changes.md"}
"""Pages of the navigation that the hook makes from other files."""


class _Configuration(yaml.SafeLoader):
    """Reads `mkdocs.yml`, whose tags for Python are of no matter here."""


_Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, _suffix, _node: None)


def _navigation(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    for below in entry.values() if isinstance(entry, dict) else entry:
        yield from _navigation(below)


def test_the_navigation_has_every_page_once() -> None:
    configuration = yaml.load((DOCS / "site/mkdocs.yml").read_text(), Loader=_Configuration)  # noqa: S506  (a SafeLoader)
    changes = set((DOCS / "development/changes").glob("*-*.md"))
    pages = {str(page.relative_to(DOCS)) for page in set(DOCS.rglob("*.md")) - changes}
    assert pages
    assert sorted(_navigation(configuration["nav"])) == sorted(pages | MADE)
    assert configuration["strict"] is True


def _build(docs: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  (our own tool)
        [
            *(sys.executable, "-m", "mkdocs", "build"),  # with --quiet a warning would not be counted
            *("--config-file", str(docs / "site/mkdocs.yml"), "--site-dir", str(target)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = _build(DOCS, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class _Asked(HTMLParser):
    """What a browser loads for a page: addresses of styles, scripts, pictures and frames."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = tag != "a" and (tag != "link" or given.get("rel") not in {"canonical", "next", "prev"})
        self.addresses += [given[key] or "" for key in ("href", "src", "srcset") if loads and key in given]


@cache
def _pages(site: Path) -> tuple[Path, ...]:
    return tuple(sorted(site.rglob("*.html")))


def test_the_strict_build_passes_and_each_page_is_there(site: Path) -> None:
    names = {str(page.relative_to(site)) for page in _pages(site)}
    assert {"index.html", "changes.html", "how-to/faq.html", "development/adr/index.html"} <= names
    assert "files/configs/clusters/example.yml.html" in names, "a link to a file outside docs/ leads nowhere"
    assert not list(site.rglob("*.py"))


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    foreign = []
    for page in _pages(site):
        asked = _Asked()
        asked.feed(page.read_text())
        assert asked.addresses
        foreign += [(page.name, one) for one in asked.addresses if re.match(r"(?:[a-z]+:)?//", one)]
    for style in (*site.rglob("*.css"), *site.rglob("*.svg")):
        found = re.findall(r"url\([\"']?((?:https?:)?//[^)]*)", style.read_text())
        foreign += [(style.name, one) for one in found]
    assert foreign == []


def test_search_and_diagrams_need_no_server_and_no_script(site: Path) -> None:
    assert "every_shard_keeps_started_copies" in (site / "search/search_index.js").read_text()
    assert "iframe-worker.js" in (site / "index.html").read_text()
    drawn = [page for page in _pages(site) if '<div class="diagram">' in page.read_text()]
    assert {page.stem for page in drawn} == {"a-run", "architecture"}
    assert not [page for page in _pages(site) if 'class="mermaid"' in page.read_text()]


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser whose pages are 390 pixels wide."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        found.command(
            "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
        )
        yield found


def test_a_phone_shows_every_table_without_scrolling(site: Path, phone: Browser) -> None:
    wide, tables = {}, 0
    for page in _pages(site):
        phone.open(page.as_uri())
        cells = phone.run(  # code at the end of a line has a padding of less than 4 pixels
            "return [...document.querySelectorAll('article table:not([class]) td')].map((cell) => ["
            "cell.textContent,"
            "cell.scrollWidth > cell.clientWidth + 4 || cell.getBoundingClientRect().right > 390])"
        )
        tables += bool(cells)
        if found := [text for text, hidden in cells if hidden]:
            wide[page.stem] = found
    assert tables > 20
    assert wide == {}


_ANSWERS = {
    "only zone b": "how-to/faq.html#how-do-i-restart-only-zone-b-or-exclude-a-node",
    "exclude a node": "how-to/faq.html#how-do-i-restart-only-zone-b-or-exclude-a-node",
    "allocation machine dies": "how-to/faq.html#what-happens-to-allocation-if-the-machine-that-runs-it-dies",
    "backup": "how-to/faq.html#does-it-wait-while-a-backup-runs",
    "from cron": "how-to/periodic-restarts.html#from-cron",
    "kubernetes": "how-to/faq.html#does-it-work-with-kubernetes-or-managed-services",
    "managed services": "how-to/faq.html#does-it-work-with-kubernetes-or-managed-services",
    "8 to 9": "how-to/upgrade.html#from-8-to-9-and-from-7-to-8",
    "my own tunable": "how-to/tune-hosts.html#my-own-tunable",
}


def test_the_first_page_found_has_the_answer(site: Path, phone: Browser, subtests: pytest.Subtests) -> None:
    links = "return [...document.querySelectorAll('.md-search-result__item')].slice(0, 1).flatMap((item) => "
    links += "[...item.querySelectorAll('a')].map((link) => link.href.replace(/[?][^#]*/, '')))"
    for words, answer in _ANSWERS.items():
        with subtests.test(words):
            phone.open("about:blank")
            phone.open(f"{(site / 'index.html').as_uri()}?q={words.replace(' ', '+')}")
            phone.wait(lambda: bool(phone.run(links)))
            assert f"{site.as_uri()}/{answer}" in phone.run(links)
    front = (site / "index.html").read_text()
    linked = {answer for answer in _ANSWERS.values() if answer in front or answer.split("#")[0] in front}
    assert linked == set(_ANSWERS.values()), "the front page leads there too"


def test_every_fault_of_a_page_fails_the_build_and_is_named(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs)
    for outside in ("CHANGELOG.md", "README.md", "configs", "playbooks"):
        (tmp_path / outside).symlink_to(ROOT / outside)
    with (docs / "how-to/faq.md").open("a") as file:
        file.write("\n[gone](no-such-page.md) [no such heading](gates.md#no-such-heading)\n")
    (docs / "how-to/new.md").write_text("# A page that is not in the navigation\n")
    done = _build(docs, tmp_path / "site")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert [
        name for name in ("no-such-page.md", "no-such-heading", "how-to/new.md") if name not in said
    ] == []


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site/hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cells_have_the_names_of_their_columns() -> None:
    table = "| code | **what** to do | |\n|---|---|---|\n| 1 | wait | `<td>` |\n"
    named = _hooks().on_page_content(markdown.markdown(table, extensions=["tables"]))
    cells = re.findall(r'<td data-name="([^"]*)">(.*?)</td>', named)
    assert cells == [("code", "1"), ("what to do", "wait"), ("", '<code class="short">&lt;td&gt;</code>')]
    pair = markdown.markdown("| a | b |\n|---|---|\n| 1 | 2 |\n", extensions=["tables"])
    assert _hooks().on_page_content(pair) == pair


def test_a_diagram_says_what_its_source_says() -> None:
    drawn = _hooks().drawn
    layers = drawn("flowchart TD\n  cli --> runs & lab\n  runs & lab --> model\n")
    assert re.findall(r">(\w+|↓)<", layers) == ["cli", "↓", "runs", "lab", "↓", "model"]
    named = "sequenceDiagram\n  participant A as one & all\n  participant B as two\n"
    talk = drawn(f"{named}  A->>B: ask <x>\n  B-->>A: tell\n")
    assert re.findall(r"<text[^>]*>([^<]*)<", talk) == ["one &amp; all", "two", "ask &lt;x&gt;", "tell"]
    assert talk.count("stroke-dasharray") == 1


@pytest.mark.parametrize(
    "source",
    [
        "pie\n  a: 1",
        "flowchart TD\n  a --> b\n  c --> d",
        "sequenceDiagram\n  note over A",
    ],
)
def test_a_diagram_that_is_not_understood_is_refused(source: str) -> None:
    hooks = _hooks()
    with pytest.raises(ValueError, match="'"):
        hooks.drawn(source)
    # Any other error would leave the source on the page, and the build would pass.
    config = hooks.on_config(load_config(str(DOCS / "site/mkdocs.yml")))
    fences = config.mdx_configs["pymdownx.superfences"]
    with pytest.raises(SuperFencesException, match="'"):
        markdown.markdown(
            f"```mermaid\n{source}\n```\n",
            extensions=["pymdownx.superfences"],
            extension_configs={"pymdownx.superfences": fences},
        )
