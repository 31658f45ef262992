"""What the program says of a predicate or an event, found in its source: `explain` finds names by messages.

A part of a message that is known only at work is `…` here.
"""  # noqa: INP001  (a script beside the pages, no package)

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType

from orchestrator.kinds import kind_of
from orchestrator.model.policy import Kind
from orchestrator.view import host_words, words


def of_check(check: Callable[..., object]) -> tuple[str, ...]:
    """The evidence of a predicate: of its check, and of what this uses of its module."""
    module = _parsed(sys.modules[check.__module__])
    todo, seen = [check.__name__], dict[str, ast.stmt]()
    while todo:
        name = todo.pop()
        if name in module and name not in seen:
            seen[name] = module[name]
            todo += [node.id for node in ast.walk(module[name]) if isinstance(node, ast.Name)]
    return _distinct(text for part in seen.values() for text in _texts(part))


@cache
def of_events() -> Mapping[str, tuple[str, ...]]:
    """The name of each event's class to its sentences: in arms of a match, and in functions for one event."""
    found: dict[str, list[str]] = {}
    for function in (each for module in (words, host_words) for each in _parsed(module).values()):
        if not isinstance(function, ast.FunctionDef):
            continue
        kinds = list(_classes(function.args.args[0].annotation)) if function.args.args else []
        for kind in kinds if len(kinds) == 1 else ():
            found.setdefault(kind, []).extend(_texts(function))
        for case in (node for node in ast.walk(function) if isinstance(node, ast.match_case)):
            for kind in (name for node in ast.walk(case.pattern) for name in _classes(node)):
                found.setdefault(kind, []).extend(text for part in case.body for text in _texts(part))
    return {kind: _distinct(texts) for kind, texts in found.items()}


def _classes(node: ast.AST | None) -> Iterator[str]:
    """The classes that a pattern or an annotation names."""
    match node:
        case ast.MatchClass(cls=of):
            yield from _classes(of)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            yield name
        case ast.BinOp(left=left, right=right):
            yield from (*_classes(left), *_classes(right))


@cache
def _parsed(module: ModuleType) -> Mapping[str, ast.stmt]:
    """Functions and constants of a module by name."""
    found: dict[str, ast.stmt] = {}
    for part in ast.parse(inspect.getsource(module)).body:
        match part:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = part
            case ast.Assign(targets=[ast.Name(id=name)]):
                found[name] = part
    return found


def _texts(part: ast.AST) -> Iterator[str]:
    """The texts in a part of a module, without docstrings and without parts of other texts."""
    match part:
        case ast.Expr(value=ast.Constant(value=str())):
            return
        case ast.Constant(value=str(text)):
            yield text
        case ast.Attribute(value=ast.Name(id="words"), attr=name):  # of the kind of cluster
            said = (getattr(kind_of(kind).words, name) for kind in Kind)
            yield from (text for text in said if isinstance(text, str))
        case ast.JoinedStr(values=values):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in values)
            for one in values:
                if isinstance(one, ast.FormattedValue):
                    yield from _texts(one.value)
        case _:
            for child in ast.iter_child_nodes(part):
                yield from _texts(child)


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    clean = (" ".join(text.split()).strip(" :;,.") for text in texts)
    clean = (re.sub("…+", "…", text) for text in clean)
    return tuple(dict.fromkeys(text for text in clean if len(re.findall(r"[a-z]{2,}", text)) > 1))
