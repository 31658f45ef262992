"""Values as text that a person can read and a file can keep: for tests of what a recording is read as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from orchestrator.model.reading import Unknown


def plain(value: Any) -> str:
    """In one line: of an object its fields but for those that are as usual; sets in order."""
    match value:
        case Unknown(reason=reason):
            return f"UNKNOWN: {reason}"
        case Enum():
            return value.name
        case Mapping():
            return (
                "{" + ", ".join(sorted(f"{plain(key)}: {plain(each)}" for key, each in value.items())) + "}"
            )
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(plain, value))) + "}"
        case tuple() | list() if not hasattr(value, "_fields"):
            return "[" + ", ".join(map(plain, value)) + "]"
    if (named := _named(value)) is None:
        return str(value) or "''"
    return "(" + " ".join(f"{name}={plain(each)}" for name, each in named.items()) + ")"


def lines(title: str, value: Any) -> Iterator[str]:
    """The same, and what has several parts in a line for each, in order."""
    if isinstance(value, Mapping):
        parts = [f"{plain(key)} {plain(each)}" for key, each in value.items()]
    elif isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        parts = [plain(each) for each in value]
    else:
        parts = [plain(value)]
    yield from (f"{title}: {part}" for part in sorted(parts) or ["none"])


def _named(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or a named tuple that are not as usual; None for another value."""
    usual: dict[str, Any] = {}
    if is_dataclass(value):
        for each in fields(value):
            made = each.default_factory
            usual[each.name] = each.default if made is MISSING else made()
    elif hasattr(value, "_field_defaults"):
        usual = dict.fromkeys(value._fields, MISSING) | value._field_defaults
    else:
        return None
    return {name: each for name, default in usual.items() if (each := getattr(value, name)) != default}
