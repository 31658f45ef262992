"""The walls of the program: who may import whom, how long a module and a function may be, no idle sleep."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "orchestrator").rglob("*.py"))
MODULE_LINES = 800
FUNCTION_LINES = 100
BANNED_NAMES = {"utils", "util", "helpers", "misc", "common"}


def _lint_imports(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(  # noqa: S603  (our own tool)
        [program, "--no-cache", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def test_no_layer_contract_is_broken() -> None:
    done = _lint_imports()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 4 kept, 0 broken." in done.stdout


def test_a_broken_contract_would_be_seen(tmp_path: Path) -> None:
    # The same checker and kind of contract on a package that breaks it: the test above is no formality.
    package = tmp_path / "breaking"
    (package / "upper").mkdir(parents=True)
    for folder in (package, package / "upper"):
        (folder / "__init__.py").write_text("")
    (package / "lower.py").write_text("import breaking.upper\n")
    config = tmp_path / "pyproject.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "breaking"\n[[tool.importlinter.contracts]]\nname = "layers"\n'
        'type = "layers"\nlayers = ["breaking.upper", "breaking.lower"]\n'
    )
    done = _lint_imports("--config", str(config), cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "breaking.lower is not allowed to import breaking.upper" in done.stdout


LONGER: Mapping[str, int] = {
    "orchestrator/engine/run.py": 1050,  # every phase of a run, in the order in which a run goes through them
}
"""Modules of one idea that are longer than the wall, and how long they may be."""


def test_no_module_is_too_long_to_be_read_at_once() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert len(lengths) > 100
    long = {name: n for name, n in lengths.items() if n > LONGER.get(name, MODULE_LINES)}
    assert long == {}
    assert [name for name in LONGER if lengths[name] <= MODULE_LINES] == [], (
        "not longer than the wall any more"
    )


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [one for one in node.body if not _is_docstring(one)]
            first = body[0].lineno if body else node.lineno
            yield f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno or first) - first + 1


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lost_strings(source: str) -> list[int]:
    """Lines of strings in functions that are statements of their own: the second half of a text, mostly."""
    functions = (
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    inside = ((function, node) for function in functions for node in ast.walk(function))
    return sorted(
        {
            node.lineno
            for function, node in inside
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.JoinedStr | ast.Constant)
            and getattr(node.value, "value", "") is not ...
            and not any(node is inner.body[0] for inner in ast.walk(function) if _has_docstring(inner))
        }
    )


def _has_docstring(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_docstring(
        node.body[0]
    )


def test_no_half_of_a_text_is_lost_on_a_line_of_its_own() -> None:
    assert {str(path): found for path in MODULES if (found := _lost_strings(path.read_text()))} == {}
    assert _lost_strings(
        'def f():\n    """What it does."""\n    said = "the first half"\n    " and the second"\n'
    ) == [4]


def test_no_function_is_too_long_to_be_seen_at_once() -> None:
    lengths = [found for path in MODULES for found in _functions(path)]
    assert {name: n for name, n in lengths if n > FUNCTION_LINES} == {}


def test_no_module_is_named_for_having_no_idea_of_its_own() -> None:
    assert [str(path) for path in MODULES if path.stem in BANNED_NAMES] == []


def test_nothing_sleeps_without_saying_why() -> None:
    # Waiting is listening to the cluster, the hosts and the clock; a sleep is for what offers no event.
    bare = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            above = lines[number - 1] if number else ""
            if re.search(r"\b(?:time\.)?sleep\(", line) and not line.lstrip().startswith(("#", '"', "def ")):
                reason = "#" in line or above.lstrip().startswith("#")
                bare += [] if reason else [f"{path.relative_to(ROOT)}:{number + 1}: {line.strip()}"]
    assert bare == []


UNCHECKED = ("unit/hosts/tuning",)
"""Folders of tests that may still have longer names, and import from one another."""
TEST_NAME = 60


def _test_faults(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_") and len(name) > TEST_NAME:
                yield f"{name} has {len(name)} characters"
            case ast.ImportFrom(module=str(module), names=names):
                imported = [*module.split("."), *(alias.name for alias in names)]
                yield from (f"imports {each}" for each in imported if each.startswith("test_"))
            case ast.Import(names=names):
                dotted = [part for alias in names for part in alias.name.split(".")]
                yield from (f"imports {each}" for each in dotted if each.startswith("test_"))
            case _:
                pass


def test_names_of_tests_are_short_and_no_test_imports_another() -> None:
    tests = ROOT / "tests"
    paths = [path for path in sorted(tests.rglob("*.py")) if "data" not in path.parts]
    assert len(paths) > 200
    checked = [path for path in paths if not path.relative_to(tests).as_posix().startswith(UNCHECKED)]
    assert len(checked) > 150
    assert {
        str(path.relative_to(ROOT)): found for path in checked if (found := list(_test_faults(path)))
    } == {}


def test_a_long_name_or_an_imported_test_would_be_seen(tmp_path: Path) -> None:
    bad = tmp_path / "test_bad.py"
    bad.write_text(
        f"from tests.unit import test_one\nfrom tests.test_two import three\nimport tests.test_four\n"
        f"from tests.fakes.clock import ManualClock\ndef test_{'x' * 56}(): ...\ndef test_{'y' * 55}(): ...\n"
    )
    assert list(_test_faults(bad)) == [
        "imports test_one",
        "imports test_two",
        "imports test_four",
        f"test_{'x' * 56} has 61 characters",
    ]


@pytest.mark.parametrize("word", ["TODO", "FIXME", "NotImplementedError", "mock.patch"])
def test_nothing_is_left_for_later(word: str) -> None:
    assert [str(path.relative_to(ROOT)) for path in MODULES if word in path.read_text()] == []


def test_no_page_and_no_module_has_the_marks_of_a_merge() -> None:
    folders = [ROOT / name for name in ("orchestrator", "docs", "tests", "playbooks", "configs")]
    files = [*ROOT.glob("*.*"), *(file for folder in folders for file in folder.rglob("*.*"))]
    texts = [file for file in files if file.suffix in {".md", ".py", ".yml", ".toml", ".json", ".sh"}]
    assert len(texts) > 800
    marked = [file for file in texts if re.search(r"^(<<<<<<<|>>>>>>>) ", file.read_text(), re.MULTILINE)]
    assert marked == []
