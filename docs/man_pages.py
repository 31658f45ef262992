"""Write the manual pages from the commands: `make docs` writes them into `docs/man/man1`."""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from docs.explained import EXIT_MEANINGS
from orchestrator.cli.program import PROGRAM, app
from orchestrator.errors import ExitCode

FOLDER: Final = Path(__file__).parent / "man" / "man1"
_DATE: Final = "2026-11-25"
"""Date of the pages; change it with a release."""
_FILES: Final = (
    ("configs/, $ORCHESTRATE_CONFIG, ~/.config/orchestrate/, /etc/orchestrate/", "Searched in this order."),
    ("clusters/NAME.yml", "Cluster files, below one of these folders."),
    ("playbooks/NAME.yml", "Playbooks, likewise. Some are shipped with the program."),
    ("tuning/NAME.yml", "Tuning profiles, likewise. Some are shipped with the program."),
    (
        "/var/lib/orchestrate/state.db",
        "The state, if it is writable; else ~/.local/state/orchestrate/state.db.",
    ),
)


def pages() -> Mapping[str, str]:
    """Every page by its file name."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name=PROGRAM, **(app.info.context_settings or {}))
    return {f"{name}.1": text for name, text in _pages(group, context, "")}


def _pages(command: Any, context: typer.Context, above: str) -> Iterator[tuple[str, str]]:
    """The page of a command, and those of the commands below it."""
    words = context.command_path
    name = words.replace(" ", "-")
    below = {each: found for each, found in getattr(command, "commands", {}).items() if not found.hidden}
    related = [above] if above else []
    related += [f"{name}-{each}" for each in below]
    first, *more = (command.help or "").strip().split("\n\n")
    parts = [
        f'.TH "{name.upper()}" "1" "{_DATE}" "orchestrate" "User Commands"',
        ".SH NAME",
        _text(f"{name} - {first.partition('. ')[0].rstrip('.')}"),
        ".SH SYNOPSIS",
        f".B {_text(words)}",
        _text(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_paragraphs(first, *more),
        *_records(
            "COMMANDS", [(f"{words} {each}", found.get_short_help_str(500)) for each, found in below.items()]
        ),
        *_records(
            "OPTIONS",
            [record for each in command.get_params(context) if (record := each.get_help_record(context))],
        ),
    ]
    said, line = getattr(command, "example", ("", ""))
    if line:
        parts += [".SH EXAMPLES", _text(f"For example, {said}:"), ".PP", f".B {_text(line, width=500)}"]
    if not above:
        codes = [(f"{code.value}", EXIT_MEANINGS[code][0]) for code in ExitCode]
        parts += [*_records("EXIT STATUS", codes), *_records("FILES", _FILES)]
    if related:
        parts += [".SH SEE ALSO", *(f".BR {_text(each)} (1)" for each in related)]
    yield name, "\n".join(parts) + "\n"
    for each, found in below.items():
        yield from _pages(found, typer.Context(found, info_name=each, parent=context), name)


def _records(title: str, records: Any) -> Iterator[str]:
    """A section of names, each with its text."""
    if records:
        yield f".SH {title}"
    for name, text in records:
        yield from (".TP", f".B {_text(name)}", _text(text))


def _paragraphs(*texts: str) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield from (*([".PP"] if number else []), _text(text))


def _text(text: str, width: int = 72) -> str:
    """Text for troff: a line a sentence at least, hyphens as typed, code in bold, no line is a request."""
    sentences = re.split(r"(?<=[.?!:]) (?=[A-Z`])", " ".join(text.replace("**", "").split()))
    lines = [
        line for sentence in sentences for line in textwrap.wrap(sentence, width, break_on_hyphens=False)
    ]
    plain = "\n".join(lines).replace("\\", "\\e").replace("-", "\\-")
    bold = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", plain)
    return re.sub(r"^(?=[.'])", r"\\&", bold, flags=re.MULTILINE)


def write() -> None:
    """Write every page, and remove pages of commands that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = pages()
    for stale in FOLDER.glob("*.1"):
        if stale.name not in found:
            stale.unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text)
