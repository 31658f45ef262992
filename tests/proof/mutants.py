"""Small changes of the program, which tests should notice: drawn by a seed, found again by name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

PACKAGES: Final = ("elasticsearch", "engine", "riak", "runtime")
_SEED: Final = "proof"
_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NO_CODE: Final = ("annotation", "returns", "decorator_list", "bases", "args")
"""What a node has that is types, decorators or a signature; of a call, `args` are code."""
_EMPTY: Final = {"tuple[": "()", "frozenset[": "frozenset()", "dict[": "{}", "list[": "[]"}
"""What an early return gives, by how the annotation of its function begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change."""

    name: str  # by which it is found in another commit too: file, function, kind, text before and after
    path: str  # of the file, from the root
    source: str  # the whole file with the change


def mutants_of(root: Path) -> dict[str, Mutant]:
    """All that there are, by name."""
    files = [path for package in PACKAGES for path in (root / "orchestrator" / package).rglob("*.py")]
    return {each.name: each for path in sorted(files) for each in _of_file(root, path)}


def drawn(mutants: Mapping[str, Mutant], count: int) -> list[str]:
    """The names of so many, by chance; a larger draw begins with a smaller one, in another commit too."""
    return sorted(mutants, key=lambda name: sha256(f"{_SEED} {name}".encode()).digest())[:count]


def _of_file(root: Path, path: Path) -> Iterator[Mutant]:
    text, place = path.read_text(), str(path.relative_to(root))
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line.encode()))
    data, seen = text.encode(), Counter[str]()
    for where, kind, node, after in _changes(ast.parse(text), "", ""):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = " ".join(data[start:end].decode().split())
        name = f"{place} {where or 'module'}: {kind}: {before[:70]} -> {' '.join(after.split())[:70]}"
        seen[name] += 1
        number = f" #{seen[name]}" if seen[name] > 1 else ""
        yield Mutant(
            name=name + number, path=place, source=(data[:start] + after.encode() + data[end:]).decode()
        )


_Change = tuple[str, str, ast.expr | ast.stmt, str]
"""The function, the kind of change, the node, and the text that replaces it."""


def _changes(node: ast.AST, where: str, returns: str) -> Iterator[_Change]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
        returns = ast.unparse(node.returns) if isinstance(node, ast.FunctionDef) and node.returns else ""
    if isinstance(node, ast.expr):
        yield from ((where, kind, node, f"({after})") for kind, after in _of_expression(node))
    elif isinstance(node, ast.stmt):
        yield from ((where, kind, node, after) for kind, after in _of_statement(node, returns))
    for name, value in ast.iter_fields(node):
        if name in _NO_CODE and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            # Places within an f-string are exact from Python 3.12 on only.
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.pattern):
                yield from _changes(child, where, returns)


def _of_expression(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=others) if type(op) in _COMPARISONS:
            yield "comparison", ast.unparse(ast.Compare(left, [_COMPARISONS[type(op)]()], others))
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.unparse(ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", ast.unparse(operand)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "not", f"{ast.unparse(body)} if not ({ast.unparse(test)}) else {ast.unparse(orelse)}"
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() | float() as number):
            yield "constant", repr(number + 1)
        case _:
            pass


def _of_statement(node: ast.stmt, returns: str) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            if returns.endswith("None"):
                yield "early return", "return None"
            for begins, empty in _EMPTY.items():
                if returns.startswith(begins) and ast.unparse(value) != empty:
                    yield "early return", f"return {empty}"
            if returns == "bool":
                yield "not", f"return not ({ast.unparse(value)})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue():
            yield "deleted", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "deleted", "pass"
        case _:
            pass
