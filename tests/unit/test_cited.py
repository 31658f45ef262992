"""What a message or a shipped file cites can be opened where the program was installed by pip."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Final

from orchestrator.cli.work.explain import all_entries
from orchestrator.config.lookup import shipped
from tests.unit.sources import ROOT, SOURCES, modules

pytestmark = SOURCES

FILE: Final = re.compile(r"(?:docs|configs|playbooks)/[\w/-]+[\w.-]*\w|[\w-]+\.md\b")
"""A path in the repository, or a page by its name."""
PLACES: Final = re.compile(r"configs/(?:clusters|playbooks|tuning)(?:/(?:NAME|prod)\.yml)?")
"""Folders and files of the operator, below the current one."""
TO_COPY: Final = sorted(
    file
    for folder in ("configs", "playbooks", "docs/reference")
    for file in (ROOT / folder).rglob("*")
    if file.is_file() and file.suffix != ".md"
)
EXPLAINED: Final = re.compile(r"orchestrate explain ([\w./-]*\w)")


def cited_files(text: str) -> list[str]:
    return [found for found in FILE.findall(text) if not PLACES.fullmatch(found)]


def test_a_cited_file_is_found_in_a_text() -> None:
    assert cited_files("see docs/how-to/gates.md, or gates.md (configs/clusters/x.yml)") == [
        "docs/how-to/gates.md",
        "gates.md",
        "configs/clusters/x.yml",
    ]
    assert EXPLAINED.findall("`orchestrate explain a-b/c.yml`. orchestrate explain x.") == ["a-b/c.yml", "x"]


def test_no_message_cites_a_file_of_the_repository() -> None:
    found = {
        (module.name, cited)
        for module in modules()
        for _, text in module.texts
        if " " in text or FILE.fullmatch(text)
        for cited in cited_files(text)
    }
    assert found == set(), "cite it as next_command('explain', NAME)"
    assert {(file.name, cited) for file in TO_COPY for cited in cited_files(file.read_text())} == set()


def explained() -> Iterator[tuple[str, str]]:
    """Where `orchestrate explain NAME` is printed or written, with the name."""
    for module in modules():
        for name, arguments in module.calls:
            if name == "next_command" and arguments[:1] == ("explain",) and arguments[1:] != (None,):
                yield from ((module.name, str(each)) for each in arguments[1:])
        for _, text in module.texts:
            yield from ((module.name, each) for each in EXPLAINED.findall(text))
    for file in TO_COPY:
        yield from ((file.name, each) for each in EXPLAINED.findall(file.read_text()))


def test_each_name_that_is_cited_is_explained() -> None:
    names = {name for entry in all_entries() for name in entry.names} | {"NAME"}
    cited = set(explained())
    assert {("hosts/sudo.py", "least-rights"), ("example.yml", "elasticsearch-role.yml")} <= cited
    assert {one for one in cited if one[1] not in names} == set()


def test_each_page_that_is_explained_is_in_the_package() -> None:
    """By the packaging metadata; `tests/unit/config/test_shipped.py` builds the wheel."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    pages = [entry.page for entry in all_entries() if entry.page]
    assert "docs/how-to/least-rights.md" in pages
    for page in pages:
        folder, _, name = page.partition("/")
        assert (shipped(folder) / name).is_file(), page
        included = built["force-include"].items()
        targets = {
            target + page.removeprefix(source) for source, target in included if page.startswith(source)
        }
        assert targets == {f"orchestrator/_shipped/{page}"}
