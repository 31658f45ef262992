"""Write the witnesses into the table of safety rules: `make docs` reads them from marks at the tests."""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent / "explanation" / "safety.md"
TESTS: Final = Path(__file__).parents[1] / "tests"
_MARK: Final = re.compile(r"\bmark\.proves\(([^)]*)\)(?:\n(?:@.*\n)*def (test_\w+))?")
_ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \| (.*?) \|(.*)\|$", re.MULTILINE)


def witnesses(tests: Path = TESTS) -> Mapping[str, list[str]]:
    """The tests that show each rule, by the rule's name: their mark is `@pytest.mark.proves("rescue")`.

    A mark directly above a test names that test; one of a whole module, or in a table, names the file.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(tests.rglob("*.py")):
        for names, test in _MARK.findall(file.read_text(encoding="utf-8")):
            name = f"{file.relative_to(tests.parent)}::{test}".removesuffix("::")
            for rule in re.findall(r'"([^"]+)"', names):
                found[rule].add(name)
    return {rule: sorted(tests) for rule, tests in found.items()}


def rules(page: str) -> list[str]:
    """The names of the rules on the page, in its order."""
    return [name for name, _, _ in _ROW.findall(page)]


def written(page: str, found: Mapping[str, list[str]]) -> str:
    """The page with the tests of each rule in its row, those on servers apart where there are two columns."""

    def row(match: re.Match[str]) -> str:
        name, rule, shown = match.groups()
        tests = found.get(name, [])
        columns = [tests]
        if re.sub(r"`[^`]*`", "", shown).count("|"):
            on_servers = [test for test in tests if test.startswith("tests/integration/")]
            columns = [on_servers, [test for test in tests if test not in on_servers]]
        cells = " | ".join(", ".join(f"`{test}`" for test in column) for column in columns)
        return f"| `{name}` | {rule} | {cells} |"

    return _ROW.sub(row, page)


def write() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), witnesses()), encoding="utf-8")
