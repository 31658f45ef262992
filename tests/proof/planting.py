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
from dataclasses import dataclass, replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PLANTED: Final = Path(__file__).parent / "planted"
_RAN: Final = "__ran__"
"""The global by which patched code says that it runs."""
_CATALOGUES: Final = {
    "elasticsearch": ("orchestrator.engine.kinds.kind", "ELASTICSEARCH"),
    "riak": ("orchestrator.engine.kinds.kind", "RIAK"),
    "merging": ("orchestrator.merging.merging", "MERGE_RULES"),
}


class NotPlantedError(AssertionError):
    """What is said to be planted is not in the program: nothing, or what is wrong anyway, would catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One piece of text of a module, and what is there instead."""

    module: str
    before: str
    after: str

    def place(self, source: str) -> int:
        """Where the text is.

        Raises:
            NotPlantedError: it is not there exactly once, or stays as it is.
        """
        found = source.count(self.before)
        if found != 1:
            raise NotPlantedError(f"{self.module} has this {found} times, not once:\n{self.before}")
        if self.before == self.after:
            raise NotPlantedError(f"{self.module} stays as it is:\n{self.before}")
        return source.index(self.before)

    @property
    def shift(self) -> int:
        """Where in `after` it begins to differ; for a mere deletion, the character before that."""
        same = _in_common(self.before, self.after)
        rest = self.after[same:]
        new = rest[: len(rest) - _in_common(self.before[same:][::-1], rest[::-1])]
        return same + len(new) - len(new.lstrip()) if new.strip() else len(self.after[:same].rstrip()) - 1


def _in_common(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What is planted.

    Attributes:
        says: what the program does wrong then.
        run: what breaks under it: the seed of a drawn run, or the name of a scene.
        changes: of the source.
        without: predicates that are deleted, each as `catalogue name`.
    """

    name: str
    says: str
    run: int | str
    changes: tuple[Change, ...] = ()
    without: tuple[str, ...] = ()


def planted_defects() -> tuple[Defect, ...]:
    """Those of `planted/*.toml`."""
    tables = [tomllib.loads(path.read_text()) for path in sorted(_PLANTED.glob("*.toml"))]
    return tuple(
        Defect(
            name=each["id"],
            says=each["says"],
            run=each["scene"] if "scene" in each else each["seed"],
            changes=tuple(Change(**change) for change in each.get("change", ())),
            without=tuple(each.get("without", ())),
        )
        for table in tables
        for each in table["defect"]
    )


# Planting ------------------------------------


def plant(defect: Defect) -> Callable[[], None]:
    """Put it into the program of this process, for good. The answer raises unless patched code has run.

    Raises:
        NotPlantedError: a text or a predicate is not there.
    """
    try:
        marks, ran = _planted(defect)
    except NotPlantedError as error:
        raise NotPlantedError(f"{defect.name}: {error}") from None

    def confirm() -> None:
        if marks and not ran:
            raise NotPlantedError(f"{defect.name}: the program never runs what was planted")

    return confirm


def _planted(defect: Defect) -> tuple[int, set[int]]:
    sources: dict[str, str] = {}
    places: defaultdict[str, list[int]] = defaultdict(list)
    for change in defect.changes:
        source = sources.get(change.module) or _source(change.module)
        at, more = change.place(source), len(change.after) - len(change.before)
        sources[change.module] = source[:at] + change.after + source[at + len(change.before) :]
        earlier = [place + more if place > at else place for place in places[change.module]]
        places[change.module] = [*earlier, at + change.shift]
    ran: set[int] = set()
    codes, marks = {}, 0
    for module, source in sources.items():
        codes[module], marked = _compiled(module, source, places[module])
        marks += marked
    if not all(_swapped(module, code, ran.add) for module, code in codes.items()):
        _import_anew(codes, ran.add)
    for rule in defect.without:
        _delete(*rule.split())
    return marks, ran


def _source(module: str) -> str:
    path = ROOT / (module.replace(".", "/") + ".py")
    if not path.exists():
        raise NotPlantedError(f"there is no {path.relative_to(ROOT)}")
    return path.read_text()


def _compiled(module: str, source: str, places: Sequence[int]) -> tuple[CodeType, int]:
    """The code, with a mark before each statement at these places that is in a function; and how many."""
    tree, marks = ast.parse(source), 0
    for place in places:
        line, column = source.count("\n", 0, place) + 1, place - source.rfind("\n", 0, place) - 1
        found = _statement(tree, (line, len(source.splitlines()[line - 1][:column].encode())))
        if found is not None:
            body, at = found
            call = ast.parse(f"{_RAN}({marks})").body[0]
            body.insert(body.index(at), ast.fix_missing_locations(ast.copy_location(call, at)))
            marks += 1
    return compile(tree, _file(module), "exec", dont_inherit=True), marks


def _statement(tree: ast.AST, place: tuple[int, int]) -> tuple[list[ast.stmt], ast.stmt] | None:
    """The innermost statement of a function at this place, in the list that has it; None outside of all."""
    found, within = None, False
    node: ast.AST | None = tree
    while node is not None:
        inner = None
        for body, each in _statements(node):
            ends = (each.end_lineno or each.lineno, each.end_col_offset or each.col_offset)
            if (each.lineno, each.col_offset) <= place <= ends:
                inner = each
                if within:
                    found = (body, each)
        node, is_function = inner, isinstance(inner, ast.FunctionDef)
        if isinstance(inner, ast.FunctionDef):
            found = (inner.body, inner.body[0])  # unless one of its statements is there
        within = within or is_function
    return found


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """The statements that a node has, not those within them."""
    for _, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else ():
            if isinstance(each, ast.stmt):
                yield value, each
            elif isinstance(each, ast.ExceptHandler | ast.match_case):
                yield from _statements(each)


def _file(module: str) -> str:
    return str(ROOT / (module.replace(".", "/") + ".py"))


# New code for live functions ------------------------------------


class _OutsideError(Exception):
    """Something changes that is no function."""


def _swapped(module: str, code: CodeType, mark: Callable[[int], None]) -> bool:
    """Whether all that changes are functions, which have the new code now."""
    before = compile(_source(module), _file(module), "exec", dont_inherit=True)
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


def _delete(catalogue: str, name: str) -> None:
    """A predicate, out of the catalogue by which the program goes."""
    module, attribute = _CATALOGUES[catalogue]
    owner: Any = importlib.import_module(module)
    whole = getattr(owner, attribute)
    rules = whole if isinstance(whole, tuple) else whole.predicates
    kept = tuple(rule for rule in rules if rule.name != name)
    if kept == rules:
        raise NotPlantedError(f"{attribute} has no {name}")
    setattr(owner, attribute, kept if isinstance(whole, tuple) else replace(whole, predicates=kept))
