"""Words that text for people does not use: in help, messages, phases, pages and shipped files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest
import typer.main

from docs.explained import TERMS
from orchestrator.cli.program import app
from orchestrator.cli.work import explain
from orchestrator.elasticsearch.rules.merge import OWN_RULES
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.riak.rules.predicates import PREDICATES as RIAK_PREDICATES
from tests.unit.sources import ROOT, SOURCES, Module, module_of, modules

pytestmark = SOURCES

REFUSED: Final = (
    *("nobody", "anew", "whoever", "whatever", "thereby", "by now", "told", "tells", "mend", "mends"),
    *(r"stands(?! down)", "put back", "puts back", "putting back", "the other one", "as it was", "in hand"),
    *("is ours", "go on", "goes on", "owes", "knows", "somebody else's", "by somebody else", "in crumbs"),
    *("without a word", "all the same", "wins", "so it is with"),
    *("(?:another|new|same) life", "stands? there", "beside the process", "is there no more"),
)
"""Patterns: a figure of speech, a person where there is none, or a second word for what has one."""
_REFUSED: Final = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b", re.IGNORECASE)
PAGES: Final = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
"""For operators and engineers: also `README.md`, `CHANGELOG.md`, decisions and generated pages."""
FILES: Final = sorted(file for folder in ("configs", "playbooks") for file in (ROOT / folder).rglob("*.yml"))
"""Files that users copy: every word in them is for people, the comments too."""


def _found(text: str) -> list[str]:
    return [word.lower() for word in _REFUSED.findall(" ".join(text.split()))]


def _prose(page: str) -> str:
    """A page without what it quotes: output and commands in blocks, names and messages between backticks."""
    return re.sub(r"`[^`]*`", "", re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL))


def _helps() -> Iterator[tuple[str, str]]:
    """What `--help` prints, by command."""
    todo = [(typer.main.get_command(app), "orchestrate", None)]
    while todo:
        command, name, parent = todo.pop()
        context = typer.Context(command, info_name=name, parent=parent)
        yield name, command.get_help(context)
        inner = getattr(command, "commands", {})
        todo += [(one, f"{name} {child}", context) for child, one in inner.items()]


def test_refused_words_are_found_in_prose_and_not_in_quotes(subtests: pytest.Subtests) -> None:
    for page, found in [
        ("What it told\n  us", ["told"]),
        ("Put  back, and mend.", ["put back", "mend"]),
        ("A recommendation to stand down.", []),
        ("Ask whoever made it.", ["whoever"]),
        ("A value is put\nback.", ["put back"]),
        ("It prints `is put back`.", []),
        ("```text\nall will be put back\n```\n", []),
        ("```text\nall\n```\nIt is put back.\n```text\nend\n```\n", ["put back"]),
    ]:
        with subtests.test(page=page):
            assert _found(_prose(page)) == found


def test_help_reasons_and_terms_are_in_plain_words() -> None:
    texts = dict(_helps())
    texts |= {rule.name: rule.why for rule in (*PREDICATES, *RIAK_PREDICATES, *OWN_RULES)}
    texts |= TERMS
    for entry in explain.all_entries():
        if entry.kind.startswith("exit code") or entry.kind == "phase of a node":
            texts[entry.names[0]] = " ".join((*entry.text, *(fact for _, fact in entry.facts)))
    for name in ("orchestrate tune apply", "no_running_snapshot", "stand down", "8", "pending"):
        assert texts.pop(name)
    assert {name: found for name, text in texts.items() if (found := _found(text))} == {}


def _messages(module: Module) -> list[tuple[int, str]]:
    """Texts with a blank, each with its line."""
    return [(line, text) for line, text in module.texts if " " in text]


def test_a_message_is_found_and_a_docstring_is_not() -> None:
    source = '"""It told."""\nX = 1\n"""It stands."""\ndef f():\n    """Told."""\n    return f"it told {X}"\n'
    assert _messages(module_of(source)) == [(6, "it told ")]


def test_messages_are_in_plain_words() -> None:
    found = [
        (module.name, line, words)
        for module in modules()
        for line, text in _messages(module)
        if (words := _found(text))
    ]
    assert found == []


PUBLIC: Final = {"in_hand", "NodeInHand", "lives_are_told"}
"""Names that are in records, journals and the list of predicates already."""


def _defined(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip()


def test_names_are_in_plain_words() -> None:
    source = "class NodeInHand:\n    as_it_was: int\ndef put_back(told): ...\n"
    assert [_found(_words(name)) for name in _defined(source)] == [
        ["in hand"],
        ["put back"],
        ["as it was"],
        ["told"],
    ]
    defined = {(name, module.name) for module in modules() for name in _defined(module.source)}
    assert {one for one in defined if one[0] not in PUBLIC and _found(_words(one[0]))} == set()


def test_pages_and_shipped_files_are_in_plain_words(subtests: pytest.Subtests) -> None:
    assert {ROOT / "README.md", ROOT / "docs/index.md"} <= set(PAGES)
    assert FILES
    for page in PAGES:
        with subtests.test(str(page.relative_to(ROOT))):
            assert _found(_prose(page.read_text())) == []
    for file in FILES:
        with subtests.test(str(file.relative_to(ROOT))):
            assert _found(re.sub(r"^(\s*)# ?", r"\1", file.read_text(), flags=re.MULTILINE)) == []
