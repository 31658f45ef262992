"""Words that text for operators does not use: help, exit codes and phases so far."""

from __future__ import annotations

import re
from typing import Final

import pytest
import typer.main

from orchestrator.cli.program import app
from orchestrator.cli.work import explain
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.riak.catalogue import PREDICATES as RIAK_PREDICATES
from orchestrator.merging.rules import OWN_RULES
from orchestrator.view.terms import TERMS

REFUSED: Final = (
    *("nobody", "anew", "whoever", "whatever", "thereby", "by now", "told", "tells", "mend", "mends"),
    *(r"stands(?! down)", "put back", "the other one", "as it was", "in hand", "is ours", "go on with"),
    "somebody else's",
)
"""Patterns: a figure of speech, a person where there is none, or a second word for what has one."""


def _found(text: str) -> list[str]:
    words = " ".join(text.split())
    return [word for word in REFUSED if re.search(rf"\b{word}\b", words, re.IGNORECASE)]


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
