"""Faults of a file, turned into one ConfigError that names file, line and key of each, five at most.

No message repeats a value of the file or an unknown key: a wrong file may hold secrets. For an unknown key
the message has its line and the nearest known key.
"""

from __future__ import annotations

import difflib
import math
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BeforeValidator, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from orchestrator.config.spec import LATER_ERROR, LONG_FORM, MAPPING, SCALAR, Spec, later
from orchestrator.config.yaml import Document, KeyPath, dotted
from orchestrator.errors import ConfigError, NotInThisVersion, OrchestratorError

_MOST: Final = 5
"""Maximum of faults shown for a file."""
_MOST_LISTED: Final = 12
"""Maximum of known words in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFault:
    """One fault of a file."""

    path: KeyPath  # the key for the message
    message: str
    at: KeyPath | None = None  # the key whose line is named, if `path` must not be shown
    later: bool = False  # it is correct for a later version


@dataclass(slots=True)
class Faults:
    """All faults of one file, in the order of its lines."""

    document: Document
    found: list[FileFault] = field(default_factory=list)

    def add(self, path: KeyPath, message: str, *, at: KeyPath | None = None) -> None:
        """Add a fault; `at` as in `FileFault`."""
        self.found.append(FileFault(path=path, message=message, at=at))

    def raise_any(self) -> None:
        """Raise an error if there are faults.

        Raises:
            NotInThisVersion: all faults belong to a later version.
            ConfigError: any other fault; the error has the place of the first one, and a line for each other.
                Beyond five faults, only their number is given.
        """
        if self.found:
            raise self.error()

    def error(self) -> OrchestratorError:
        """One error for all faults; there must be at least one."""
        ordered = sorted(self.found, key=lambda fault: self._line(fault) or math.inf)
        if all(fault.later for fault in ordered):
            return NotInThisVersion(*map(self._where, ordered))
        first, *rest = ordered[:_MOST]
        others = [self._error(fault) for fault in rest]
        if len(ordered) > _MOST:
            others.append(ConfigError(f"and {len(ordered) - _MOST} more", file=self.document.file))
        return self._error(first, *others)

    def _error(self, fault: FileFault, *others: ConfigError) -> ConfigError:
        key = dotted(fault.path) or None
        return ConfigError(fault.message, *others, file=self.document.file, line=self._line(fault), key=key)

    def _line(self, fault: FileFault) -> int | None:
        return self.document.line(fault.path if fault.at is None else fault.at)

    def _where(self, fault: FileFault) -> str:
        line = self._line(fault)
        place = self.document.file if line is None else f"{self.document.file}:{line}"
        return f"{place}: {dotted(fault.path)}" if fault.path else place


Model = TypeVar("Model", bound=Spec)


def validate(model: type[Model], document: Document) -> Model:
    """Check a document against a model.

    Raises:
        ConfigError: it does not match: file, line and key of every fault.
        NotInThisVersion: all faults belong to a later version.
    """
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        found = _joined([_fault(model, details) for details in error.errors(include_url=False)])
    # Which other keys belong to an unknown kind is not known.
    of_kind = [fault for fault in found if fault.path == ("kind",) and "kind" in document.content]
    # Raised outside the handler: pydantic's error holds the values and must not become the context of ours.
    raise Faults(document, of_kind or found).error()


def near(word: str, known: Iterable[str]) -> str:
    """The end of messages about an unknown word: the nearest known word, or the first twelve."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"known: {', '.join(names[:_MOST_LISTED])}{more}" if names else "none is known here"


def _fault(model: type[Spec], details: ErrorDetails) -> FileFault:
    path: KeyPath = tuple(
        part for part in details["loc"] if part not in (SCALAR, MAPPING, LONG_FORM, "[key]")
    )
    kind, given = details["type"], details.get("input")
    if kind == "extra_forbidden":
        return _unknown_key(model, path)
    if kind == LATER_ERROR:
        return FileFault(path=path, message=details["msg"], later=True)
    return FileFault(path=path, message=_message(details, given))


def _unknown_key(model: type[Spec], path: KeyPath) -> FileFault:
    parents = _models_at(model, path[:-1])
    for parent in parents:
        if path[-1] in parent.ELSEWHERE:
            return FileFault(path=path, message=parent.ELSEWHERE[str(path[-1])])
    if len(path) == 1 and (file := _file_of(str(path[0]))) not in ("", model.FILE):
        return FileFault(path=path, message=f"is a key of the {file}")
    known = [name for parent in parents for name, info in parent.model_fields.items() if not is_later(info)]
    key = str(path[-1])
    # A word that is near none of our keys may be a secret: only a misspelt key of ours is named.
    named = f" `{key}`" if difflib.get_close_matches(key, known, n=1) else ""
    return FileFault(path=path[:-1], at=path, message=f"unknown key{named}; {near(key, known)}")


def _file_of(key: str) -> str:
    """What people call the file that has this key; empty if none has it."""
    return next((spec.FILE for spec in Spec.below() if spec.FILE and key in spec.model_fields), "")


def _joined(found: list[FileFault]) -> list[FileFault]:
    """Drop repeated faults of the same mapping: a wrong file has no known key."""
    first: dict[tuple[KeyPath, str], FileFault] = {}
    again: Counter[tuple[KeyPath, str]] = Counter()
    for fault in found:
        same = (fault.path, fault.message)
        again[same] += 1
        first.setdefault(same, fault)
    return [
        fault if again[same] == 1 else replace(fault, message=f"{fault.message} ({again[same]} such keys)")
        for same, fault in first.items()
    ]


def is_later(info: FieldInfo) -> bool:
    """Whether a key belongs to a later version: it is known, but refused."""
    return any(isinstance(part, BeforeValidator) and part.func is later for part in info.metadata)


def _message(details: ErrorDetails, given: object) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if given is None and kind not in {"missing", "value_error"}:
        return "has no value"
    match kind:
        case "missing":
            return "is missing"
        case "bool_type" | "bool_parsing":
            words = isinstance(given, str) and given.lower() in {"yes", "no", "on", "off", "y", "n"}
            return "must be true or false" + (
                " (YAML 1.2 takes yes, no, on and off for text)" if words else ""
            )
        case "int_type" | "int_parsing" | "int_from_float":
            return "must be a whole number"
        case "string_type":
            return "must be text" + (", in quotes" if isinstance(given, int | float) else _found(given))
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long" | "too_long":
            return f"must have at most {context.get('max_length')} characters or items"
        case "enum" | "literal_error":
            return _choice(str(context.get("expected", "")), given)
        case "greater_than_equal":
            return f"must be at least {context.get('ge')}"
        case "less_than_equal":
            return f"must be at most {context.get('le')}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a mapping of keys (`key: value`)" + _found(given)
        case "tuple_type" | "list_type":
            return "must be a list" + _found(given)
        case _:
            return details["msg"].removeprefix("Value error, ")


def _choice(expected: str, given: object) -> str:
    choices = [choice for choice in expected.replace(" or ", ", ").replace("'", "").split(", ") if choice]
    choices = [choice.lower() if choice in ("True", "False") else choice for choice in choices]
    if len(choices) == 1:
        return f"must be {choices[0]}"
    close = difflib.get_close_matches(given, choices, n=1) if isinstance(given, str) else []
    return f"must be one of {', '.join(choices)}" + (f"; did you mean `{close[0]}`?" if close else "")


def _found(given: object) -> str:
    match given:
        case dict():
            return ", not a mapping (a text that begins with a brace needs quotes)"
        case list():
            return ", not a list"
        case str():
            return ", not a text"
        case _:
            return ""


def _models_at(model: type[Spec], path: Sequence[str | int]) -> list[type[Spec]]:
    """The possible models of a mapping at a path; empty if the path leaves the models."""
    current: Any = model
    for part in path:
        current = _step(current, str(part))
    return [arm for arm in _arms(current) if _is_spec(arm)]


def _step(annotation: Any, part: str) -> Any:
    for arm in _arms(annotation):
        if _is_spec(arm) and part in arm.model_fields:
            return arm.model_fields[part].annotation
        if get_origin(arm) in (tuple, dict):
            return get_args(arm)[0 if get_origin(arm) is tuple else 1]
    return None


def _arms(annotation: Any) -> list[Any]:
    """The possible types of an annotation, through Annotated and unions."""
    if get_origin(annotation) is Annotated:
        return _arms(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [inner for arm in get_args(annotation) for inner in _arms(arm)]
    return [annotation]


def _is_spec(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Spec)
