"""The walls of the program: how long a module and a function may be, no idle sleep, short names of tests.

Who may import whom is checked by `make lint` (import-linter, contracts in `pyproject.toml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.unit.sources import ROOT, SOURCES, module_of, modules

pytestmark = SOURCES

MODULE_LINES = 800
FUNCTION_LINES = 100
BANNED_NAMES = {"utils", "util", "helpers", "misc", "common"}
UNFINISHED = ("TODO", "FIXME", "NotImplementedError", "mock.patch")
TEST_NAME = 60


def test_no_module_is_too_long_to_be_read_at_once() -> None:
    lengths = {module.name: module.source.count("\n") for module in modules()}
    long = {name: lines for name, lines in lengths.items() if lines > MODULE_LINES}
    assert long == {}, f"a module has at most {MODULE_LINES} lines: what is a subject of its own moves out"


def test_no_function_is_too_long_to_be_seen_at_once() -> None:
    found = [(module.name, *function) for module in modules() for function in module.functions]
    long = [one for one in found if one[2] > FUNCTION_LINES]
    assert long == [], f"a function has at most {FUNCTION_LINES} lines"
    source = 'def f():\n    """What\n    it does."""\n    a = 1\n    return a\ndef g():\n    """Nothing."""\n'
    assert module_of(source).functions == (("f", 2), ("g", 1))


def test_no_half_of_a_text_is_lost_on_a_line_of_its_own() -> None:
    assert {module.name: module.lost for module in modules() if module.lost} == {}
    source = 'def f():\n    """What it does."""\n    said = "the first half"\n    " and the second"\n'
    assert module_of(source).lost == (4,)


def test_no_module_is_named_for_having_no_idea_of_its_own() -> None:
    names = [module.name for module in modules()]
    assert "engine/run.py" in names
    assert [name for name in names if Path(name).stem in BANNED_NAMES] == []


def test_nothing_is_left_for_later() -> None:
    found = [(module.name, word) for module in modules() for word in UNFINISHED if word in module.source]
    assert found == []


def test_nothing_sleeps_without_saying_why() -> None:
    # Waiting is listening to the cluster, the hosts and the clock; a sleep is for what offers no event.
    bare = []
    for module in modules():
        above = ""
        for number, line in enumerate(module.source.splitlines(), start=1):
            code = not line.lstrip().startswith(("#", '"', "def "))
            reason = "#" in line or above.lstrip().startswith("#")
            if code and not reason and re.search(r"\b(?:time\.)?sleep\(", line):
                bare.append(f"{module.name}:{number}: {line.strip()}")
            above = line
    assert bare == []


APART: Final = {"airflow"}
"""Packages with an environment of their own: their types may have the names of others."""


def test_a_public_type_has_a_name_of_its_own() -> None:
    where: dict[str, list[str]] = {}
    for module in modules():
        if module.name.partition("/")[0] not in APART:
            for name in re.findall(r"^class ([A-Z]\w*)", module.source, re.MULTILINE):
                where.setdefault(name, []).append(module.name)
    assert {"Situation", "Policy"} <= where.keys()
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


def _test_faults(source: str) -> Iterator[str]:
    """Read by line: the tests are many, and only their names and imports count."""
    for name in re.findall(r"^\s*def (test_\w+)", source, re.MULTILINE):
        if len(name) > TEST_NAME:
            yield f"{name} has {len(name)} characters, more than {TEST_NAME}"
    for line in re.findall(r"^\s*(?:from|import) .*(?:\([^)]*\))?", source, re.MULTILINE):
        yield from (f"imports {name}" for name in re.findall(r"\btest_\w+", line))


def test_names_of_tests_are_short_and_no_test_imports_another() -> None:
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT / "tests").as_posix()
        if not name.startswith("data/") and (faults := list(_test_faults(path.read_text()))):
            found[name] = faults
    assert found == {}


def test_a_long_name_or_an_imported_test_would_be_seen() -> None:
    bad = (
        "from tests.unit import test_one\nfrom tests.test_two import (\n    three,\n)\n"
        "import tests.test_four\n"
        f"from tests.fakes.clock import ManualClock\ndef test_{'x' * 56}(): ...\ndef test_{'y' * 55}(): ...\n"
    )
    assert list(_test_faults(bad)) == [
        f"test_{'x' * 56} has 61 characters, more than 60",
        "imports test_one",
        "imports test_two",
        "imports test_four",
    ]


def test_no_page_and_no_module_has_the_marks_of_a_merge() -> None:
    folders = [ROOT / name for name in ("orchestrator", "docs", "tests", "playbooks", "configs")]
    files = [*ROOT.glob("*.*"), *(file for folder in folders for file in folder.rglob("*.*"))]
    texts = [file for file in files if file.suffix in {".md", ".py", ".yml", ".toml", ".json", ".sh"}]
    marked = [file for file in texts if re.search(rb"^(<<<<<<<|>>>>>>>) ", file.read_bytes(), re.MULTILINE)]
    assert marked == []
