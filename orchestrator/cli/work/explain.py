"""Explanations of terms, predicates, phases, exit codes, settings and file keys, for `explain`."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from orchestrator.errors import ExitCode, UsageError
from orchestrator.next_command import next_command

FILE: Final = Path(__file__).parents[1] / "explained.jsonl"
"""All explanations, grouped by kind. `make docs` writes it."""
_WIDEST: Final = 100
"""Maximum line width of a text, even on a wider terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The explanation of one name."""

    names: tuple[str, ...]  # all names that find it, the one to show first
    kind: str  # the kind in plain words, such as `predicate`
    text: tuple[str, ...] = ()  # paragraphs
    facts: tuple[tuple[str, str], ...] = ()  # facts with their labels
    may_be_disabled: bool = False  # whether it is a predicate for `--disable-predicate`


def all_entries() -> tuple[Entry, ...]:
    """Everything that can be explained, grouped by kind."""
    return tuple(Entry(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines())


def show(name: str | None) -> int:
    """Print the explanation of a name; without a name, list all.

    Raises:
        UsageError: there is no such name.
    """
    entries = all_entries()
    if name is None:
        typer.echo(_overview(entries), nl=False)
        return ExitCode.DONE
    wanted = re.sub(r"^exit[ _-]?code[ =_-]", "", name.casefold())
    found = [entry for entry in entries if wanted in {each.casefold() for each in entry.names}]
    if not found:
        close = difflib.get_close_matches(wanted, [each for entry in entries for each in entry.names], n=1)
        nearest = f"did you mean `{close[0]}`? " if close else ""
        raise UsageError(
            f"explain {name}: unknown name; {nearest}`{next_command('explain')}` lists all names"
        )
    typer.echo("\n".join(map(_page, found)), nl=False)
    return ExitCode.DONE


def _page(entry: Entry) -> str:
    lines = [f"{entry.names[0]} ({entry.kind})", ""]
    for text in entry.text:
        for part in text.split("\n\n"):
            lines += [_wrapped(part), ""]
    facts = [(name, fact) for name, fact in entry.facts if fact]
    label = max((len(name) for name, _ in facts), default=0)
    lines += [_wrapped(fact, first=f"{name:<{label}}  ") for name, fact in facts]
    return "\n".join(lines).rstrip() + "\n"


def _overview(entries: tuple[Entry, ...]) -> str:
    """All names by kind, without keys below names that the operator chooses."""
    groups: dict[str, list[str]] = {}
    for entry in entries:
        if ".NAME." not in entry.names[0]:
            groups.setdefault(entry.kind.partition(",")[0], []).append(entry.names[0])
    return "".join(f"{kind}:\n{_wrapped(', '.join(names))}\n" for kind, names in groups.items())


def _wrapped(text: str, *, first: str = "") -> str:
    """A paragraph after its label, as wide as the terminal. Names are never broken."""
    return textwrap.fill(
        text.replace("**", ""),
        min(shutil.get_terminal_size().columns, _WIDEST),
        initial_indent=f"  {first}",
        subsequent_indent=" " * (len(first) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
