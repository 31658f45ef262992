"""Defects as text: what each changes in the source, and the program with that change.

A defect is compiled from the patched source. Where it changes functions only, every live function of that
source gets the new code, whoever holds it (a table, an import, a decorator); else the program is imported
anew. Neither can be undone: a defect is planted in a process of its own (`apart`), which then ends.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_RAN: Final = "__ran__"
"""The global by which patched code says that it runs."""
_CATALOGUES: Final = {
    "elasticsearch": ("orchestrator.elasticsearch.rules.kind", "Elasticsearch"),
    "riak": ("orchestrator.riak.rules.kind", "Riak"),
    "merging": ("orchestrator.elasticsearch.rules.merge", "MERGE_RULES"),
}


class NotPlantedError(AssertionError):
    """What is said to be planted is not in the program: nothing, or what is wrong anyway, would catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What is planted."""

    name: str
    says: str  # what the program does wrong then
    run: int | str  # what breaks under it: the seed of a drawn run, or the name of a scene
    # of the source, by path: lines as in a diff, with `@@` between two places
    changes: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # predicates that are deleted, each as the catalogue and its names


def planted_defects() -> tuple[Defect, ...]:
    """Those of `planted/*.toml`."""
    files = sorted((ROOT / "tests" / "proof" / "planted").glob("*.toml"))
    tables = [item for path in files for item in tomllib.loads(path.read_text()).items()]
    return tuple(
        Defect(
            name=name,
            says=each["says"],
            run=each["scene"] if "scene" in each else each["seed"],
            changes={path: text for path, text in each.items() if path.endswith(".py")},
            without=tuple(each.get("without", ())),
        )
        for name, each in tables
    )


# Planting ------------------------------------


def plant(defect: Defect) -> Callable[[], None]:
    """Put it into the program of this process, for good. The answer raises unless patched code has run.

    Raises:
        NotPlantedError: a text or a predicate is not there.
    """
    ran: set[int] = set()
    try:
        patched = {_module(path): _patched(path, text) for path, text in defect.changes.items()}
        codes = {module: _compiled(module, *lines) for module, lines in patched.items()}
        if not all(_swapped(module, code, ran.add) for module, code in codes.items()):
            _import_anew(codes, ran.add)
        for rules in defect.without:
            _delete(*rules.split())
    except NotPlantedError as error:
        raise NotPlantedError(f"{defect.name}: {error}") from None

    def confirm() -> None:
        if codes and not ran:
            raise NotPlantedError(f"{defect.name}: the program never runs what was planted")

    return confirm


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _file(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def _patched(path: str, text: str) -> tuple[list[str], list[int]]:
    """The lines of a file with its changes, and the number of the line where each of them begins."""
    if not (ROOT / path).exists():
        raise NotPlantedError(f"there is no {path}")
    lines, begins = (ROOT / path).read_text().splitlines(), list[int]()
    for hunk in text.split("@@\n"):
        diff = hunk.splitlines()
        before = [line[1:] for line in diff if line[0] != "+"]
        after = [line[1:] for line in diff if line[0] != "-"]
        size = len(before)
        found = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == before]
        if len(found) != 1 or before == after:
            raise NotPlantedError(f"{path} has this {len(found)} times, not once to be changed:\n{hunk}")
        same = next(number for number, line in enumerate(diff) if line[0] != " ")
        mere_deletion = not any(line[0] == "+" for line in diff)
        begins = [at + len(after) - size if at > found[0] else at for at in begins]
        begins.append(found[0] + same + (0 if mere_deletion else 1))
        lines[found[0] : found[0] + size] = after
    return lines, begins


def _compiled(module: str, lines: Sequence[str], begins: Sequence[int]) -> CodeType:
    """The code, which says that it runs before each statement where a change begins.

    Outside of functions it runs when the module is loaded.
    """
    tree = ast.parse("\n".join(lines))
    for number, line in enumerate(begins):
        body, at = _statement(tree, line)
        says = ast.parse(f"{_RAN}({number})").body[0]
        body.insert(body.index(at), ast.fix_missing_locations(ast.copy_location(says, at)))
    return compile(tree, _file(module), "exec", dont_inherit=True)


def _statement(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt]:
    """The innermost statement on a line, in the list that has it; of a function's first line, its first."""
    inner: ast.AST = tree
    found = (tree.body, tree.body[-1])
    while True:
        here = [each for each in _statements(inner) if each[1].lineno <= line <= (each[1].end_lineno or 0)]
        if not here:
            return (inner.body, inner.body[0]) if isinstance(inner, ast.FunctionDef) else found
        found, inner = here[0], here[0][1]


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """The statements that a node has, not those within them."""
    for _, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else ():
            if isinstance(each, ast.stmt):
                yield value, each
            elif isinstance(each, ast.ExceptHandler | ast.match_case):
                yield from _statements(each)


# New code for live functions ------------------------------------


class _OutsideError(Exception):
    """Something changes that is no function."""


def _swapped(module: str, code: CodeType, mark: Callable[[int], None]) -> bool:
    """Whether all that changes are functions, which have the new code now."""
    before = compile(_file(module).read_text(), _file(module), "exec", dont_inherit=True)
    scope = vars(importlib.import_module(module))
    scope[_RAN] = mark
    functions = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__globals__ is scope:
            functions[each.__code__.co_qualname, each.__code__.co_firstlineno].append(each)
    try:
        for old, new, nested in list(_changed(before, code)):
            live = functions[old.co_qualname, old.co_firstlineno]
            if not (live or nested):
                return False  # made once, when the module was loaded, as a comprehension is
            for each in live:
                each.__code__ = new
    except _OutsideError:
        return False
    return True


def _changed(
    old: CodeType, new: CodeType, *, within: bool = False
) -> Iterator[tuple[CodeType, CodeType, bool]]:
    """The functions that differ, old and new, and whether each is within another one."""
    if old.co_flags & CO_OPTIMIZED:
        if _deep(old) != _deep(new):
            yield old, new, within
    elif _shape(old) != _shape(new):
        raise _OutsideError
    ours, theirs = _nested(old), _nested(new)
    if [each.co_qualname for each in ours] == [each.co_qualname for each in theirs]:
        for one, other in zip(ours, theirs, strict=True):
            yield from _changed(one, other, within=within or bool(old.co_flags & CO_OPTIMIZED))


def _nested(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _shape(code: CodeType) -> tuple[object, ...]:
    """All of a code that matters, without lines, and without the functions within it."""
    consts = tuple(
        const.co_qualname if isinstance(const, CodeType) else repr(const) for const in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_code, *consts, *names, *counts, code.co_exceptiontable)


def _deep(code: CodeType) -> tuple[object, ...]:
    return (_shape(code), *map(_deep, _nested(code)))


# A fresh import ------------------------------------


@dataclass(slots=True, kw_only=True)
class _Finder(importlib.abc.MetaPathFinder):
    """Loads these modules from the code that is given."""

    codes: Mapping[str, CodeType]
    mark: Callable[[int], None]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if fullname in self.codes and spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self.codes[fullname], self.mark)
            return spec
        return None


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType, mark: Callable[[int], None]) -> None:
        super().__init__(name, path)
        self._code, self._mark = code, mark

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  (the loader has one module)
        return self._code

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _RAN, self._mark)
        super().exec_module(module)


def _import_anew(codes: Mapping[str, CodeType], mark: Callable[[int], None]) -> None:
    """The program and its tests from here on; what was imported before is of the old one."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("orchestrator", "tests")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(codes=codes, mark=mark))
    for module in codes:
        importlib.import_module(module)


def _delete(catalogue: str, *names: str) -> None:
    """Predicates, out of the catalogue by which the program goes."""
    module, attribute = _CATALOGUES[catalogue]
    owner: Any = importlib.import_module(module)
    whole = getattr(owner, attribute)
    rules = whole if isinstance(whole, tuple) else whole.predicates
    if missing := set(names) - {rule.name for rule in rules}:
        raise NotPlantedError(f"{attribute} has no {', '.join(missing)}")
    kept = tuple(rule for rule in rules if rule.name not in names)
    if isinstance(whole, tuple):
        setattr(owner, attribute, kept)
    else:
        whole.predicates = kept
