"""The program's modules, each read and parsed once for all tests about the tree (mark: `SOURCES`)."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "orchestrator"
SOURCES: Final = pytest.mark.xdist_group("sources")
"""The tests with this mark run in one process, so that the tree is parsed once."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What tests look at in a module."""

    name: str  # its path below the package
    source: str
    functions: tuple[tuple[str, int], ...]  # names, and how many lines the body has, without the docstring
    # lines of texts in functions that are statements: the second half of a message, mostly
    lost: tuple[int, ...]
    # lines and texts, without docstrings and other texts that are statements
    texts: tuple[tuple[int, str], ...]
    # names of what is called, with constant arguments; None for an argument that is none
    calls: tuple[tuple[str, tuple[str | None, ...]], ...]


def module_of(source: str, name: str = "") -> Module:
    nodes = list(ast.walk(ast.parse(source)))
    functions = [node for node in nodes if isinstance(node, Function)]
    alone = {id(node.value): node for node in nodes if isinstance(node, ast.Expr) and _is_text(node)}
    documented = {id(node.body[0]) for node in (*functions, *_classes(nodes)) if _is_text(node.body[0])}
    inside = (statement for function in functions for statement in ast.walk(function))
    return Module(
        name=name,
        source=source,
        functions=tuple((node.name, _lines(node)) for node in functions),
        lost=tuple(
            sorted(
                {
                    node.lineno
                    for node in inside
                    if isinstance(node, ast.Expr) and _is_text(node) and id(node) not in documented
                }
            )
        ),
        texts=tuple(
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
        ),
        calls=tuple(_call(node) for node in nodes if isinstance(node, ast.Call)),
    )


def _classes(nodes: Iterable[ast.AST]) -> Iterable[ast.ClassDef]:
    return (node for node in nodes if isinstance(node, ast.ClassDef))


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and value.value is not ...)


def _lines(node: Function) -> int:
    body = node.body[_is_text(node.body[0]) :] or node.body
    return (node.end_lineno or 0) - body[0].lineno + 1


def _call(node: ast.Call) -> tuple[str, tuple[str | None, ...]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [one for one in node.args if not isinstance(one, ast.Starred)]
    return name, tuple(str(one.value) if isinstance(one, ast.Constant) else None for one in given)


@cache
def modules() -> tuple[Module, ...]:
    """All of the program, in a second: a collector that looks at each new node again takes ten."""
    gc.disable()
    try:
        return tuple(
            module_of(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
            for path in sorted(PACKAGE.rglob("*.py"))
        )
    finally:
        gc.enable()
