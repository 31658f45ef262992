"""Cases in files of `tests/data`: a text and, behind `-> `, what comes of it; `====` is between two cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def cases(path: str) -> Iterator[tuple[str, list[str]]]:
    """The text of each case, and its lines that begin with `-> ` without that."""
    found = (DATA / path).read_text(encoding="utf-8").split("====\n")
    assert len(found) > 3, path
    for case in found:
        lines = case.splitlines(keepends=True)
        expected = [line.removeprefix("-> ").removesuffix("\n") for line in lines if line.startswith("-> ")]
        assert expected, case
        yield "".join(line for line in lines if not line.startswith("-> ")), expected
