"""What the program of 26 November 2026 (c10690cd) has left behind: the files of `tests/data/kept`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

KEPT: Final = Path(__file__).parent / "data/kept"


def kept(name: str) -> Any:
    """The content of one of its JSON files."""
    return json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))


def write_state(file: Path, run: str = "", cut: int = 0) -> None:
    """Its state file, whole; only this run in it, and only its first events, if one is named."""
    file.touch(mode=0o600)
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.executescript((KEPT / "state.sql").read_text(encoding="utf-8"))
        if run:
            raw.execute("DELETE FROM events WHERE run != ? OR sequence > ?", (run, cut))
            raw.execute("DELETE FROM runs WHERE id != ?", (run,))
            raw.execute("UPDATE runs SET outcome = NULL, exit_code = NULL, ended = NULL")
    raw.close()


def lost(new: Any, old: Any, path: str = "") -> list[str]:
    """Names and values of the old that the new has not: JSON may gain names, and never lose or change one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            each
            for name, was in old.items()
            for each in (lost(new[name], was, f"{path}.{name}") if name in new else [f"{path}.{name}"])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(new) == len(old):
        return [each for one, was in zip(new, old, strict=True) for each in lost(one, was, path)]
    return [] if new == old else [f"{path}: {old!r} is {new!r}"]


def names(value: Any, path: str = "") -> set[str]:
    """Each name in some JSON, with those above it."""
    if isinstance(value, dict):
        inner = (names(each, f"{path}{name}.") for name, each in value.items())
        return {f"{path}{name}" for name in value}.union(*inner)
    return set().union(*(names(each, path) for each in value)) if isinstance(value, list) else set()
