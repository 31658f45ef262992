"""Cases in files of `tests/data`: texts with what comes of them behind `-> `, or rows in YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DATA = Path(__file__).parents[1] / "data"


def cases(path: str) -> Iterator[tuple[str, list[str]]]:
    """The text of each case (`====` is between two), and its lines behind `-> `."""
    found = (DATA / path).read_text(encoding="utf-8").split("====\n")
    assert len(found) > 3, path
    for case in found:
        lines = case.splitlines(keepends=True)
        expected = [line.removeprefix("-> ").removesuffix("\n") for line in lines if line.startswith("-> ")]
        assert expected, case
        yield "".join(line for line in lines if not line.startswith("-> ")), expected


def rows(path: str, keys: str = "") -> Any:
    """What a file of YAML holds: a list of rows, or lists of rows by name.

    Args:
        path: below `tests/data`.
        keys: all that a row may have: a misspelt one would be read by nothing, and its row prove less.
    """
    found = YAML(typ="safe").load((DATA / path).read_text(encoding="utf-8"))
    assert found, path
    lists = [found] if isinstance(found, list) else found.values()
    for row in (one for each in lists for one in each if keys and isinstance(one, dict)):
        assert row.keys() <= {*keys.split()}, row
    return found
