"""What a host prints for one part of a script, with the mark that it made up."""

from __future__ import annotations

MARK = "@@orchestrate-00000000-0000-4000"


def part(name: str, text: str, code: int = 0, *, mark: str = MARK) -> str:
    return f"{mark} begin {name}\n{text}\n{mark} end {name} {code}\n"
