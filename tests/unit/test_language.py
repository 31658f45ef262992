"""Words that text for people does not use: in help, messages, phases, pages and shipped files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import typer.main

from orchestrator.cli.program import app
from orchestrator.cli.work import explain
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.riak.catalogue import PREDICATES as RIAK_PREDICATES
from orchestrator.merging.rules import OWN_RULES
from orchestrator.view.phrases import TERMS

REFUSED: Final = (
    *("nobody", "anew", "whoever", "whatever", "thereby", "by now", "told", "tells", "mend", "mends"),
    *(r"stands(?! down)", "put back", "puts back", "putting back", "the other one", "as it was", "in hand"),
    *("is ours", "go on", "goes on", "owes", "knows", "somebody else's", "by somebody else", "in crumbs"),
    "without a word",
    *("(?:another|new|same) life", "stands? there", "beside the process", "is there no more"),
)
"""Patterns: a figure of speech, a person where there is none, or a second word for what has one."""
ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = Path(explain.__file__).parents[2]
PAGES: Final = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
"""For operators and engineers: also `README.md`, `CHANGELOG.md`, decisions and generated pages."""
FILES: Final = sorted(file for folder in ("configs", "playbooks") for file in (ROOT / folder).rglob("*.yml"))
"""Files that users copy: every word in them is for people, the comments too."""


def _found(text: str) -> list[str]:
    words = " ".join(text.split())
    return [word for word in REFUSED if re.search(rf"\b{word}\b", words, re.IGNORECASE)]


def _prose(page: str) -> str:
    """A page without what it quotes: output and commands in blocks, names and messages between backticks."""
    return re.sub(r"`[^`]*`", "", re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL))


def _helps() -> dict[str, str]:
    """What `--help` prints, by command."""
    root = typer.main.get_command(app)
    found: dict[str, str] = {}

    def walk(command: object, name: str, parent: typer.Context | None) -> None:
        context = typer.Context(command, info_name=name, parent=parent)  # type: ignore[arg-type]
        found[name] = command.get_help(context)  # type: ignore[attr-defined]
        for child, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {child}", context)

    walk(root, "orchestrate", None)
    return found


@pytest.mark.parametrize("word", ["told", "Put back", "mend"])
def test_a_refused_word_is_found(word: str) -> None:
    assert _found(f"What it {word}\n  was") == [word.lower()]
    assert _found("a recommendation") == []


def test_help_is_in_plain_words() -> None:
    helps = _helps()
    assert len(helps) > 20
    assert {name: found for name, text in helps.items() if (found := _found(text))} == {}


def test_terms_and_the_reasons_of_predicates_are_in_plain_words() -> None:
    reasons = {rule.name: rule.why for rule in (*PREDICATES, *RIAK_PREDICATES, *OWN_RULES)}
    assert len(reasons) > 25
    assert {name: found for name, why in reasons.items() if (found := _found(why))} == {}
    assert {term: found for term, text in TERMS.items() if (found := _found(text))} == {}


def test_exit_codes_and_phases_are_explained_in_plain_words() -> None:
    entries = [
        entry
        for entry in explain.all_entries()
        if entry.kind.startswith("exit code") or entry.kind == "phase of a node"
    ]
    assert len(entries) > 15
    texts = {entry.names[0]: " ".join((*entry.text, *(fact for _, fact in entry.facts))) for entry in entries}
    assert {name: found for name, text in texts.items() if (found := _found(text))} == {}


def _messages(source: str) -> Iterator[tuple[int, str]]:
    """Texts with a blank, each with its line; docstrings and texts that describe a name are none."""
    tree = ast.parse(source)
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in described:
            continue
        if " " in node.value:
            yield node.lineno, node.value


def test_a_message_is_found_and_a_docstring_is_not() -> None:
    source = (
        '"""What it told."""\nX = 1\n"""It stands."""\ndef f():\n    """Told."""\n    return f"it told {X}"\n'
    )
    assert list(_messages(source)) == [(6, "it told ")]


def test_messages_are_in_plain_words() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {words}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in _messages(path.read_text())
        if (words := _found(text))
    ]
    assert found == []


def test_only_what_a_page_quotes_may_have_refused_words(subtests: pytest.Subtests) -> None:
    for page, found in [
        ("Ask whoever made it.", ["whoever"]),
        ("A value is put\nback.", ["put back"]),
        ("It prints `is put back`.", []),
        ("```text\nall will be put back\n```\n", []),
        ("```text\nall\n```\nIt is put back.\n```text\nend\n```\n", ["put back"]),
    ]:
        with subtests.test(page=page, found=found):
            assert _found(_prose(page)) == found


def test_pages_and_shipped_files_are_found() -> None:
    pages = {str(page.relative_to(ROOT)) for page in PAGES}
    assert len(pages) > 35
    assert {"README.md", "CHANGELOG.md", "docs/index.md", "docs/development/adr/README.md"} <= pages
    assert len(FILES) >= 8


def test_pages_are_in_plain_words(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(str(page.relative_to(ROOT))):
            assert _found(_prose(page.read_text())) == []


def test_shipped_files_are_in_plain_words(subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(str(file.relative_to(ROOT))):
            assert _found(re.sub(r"^(\s*)# ?", r"\1", file.read_text(), flags=re.MULTILINE)) == []
