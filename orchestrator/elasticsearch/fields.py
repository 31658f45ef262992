"""Typed reading of JSON that may lack anything: a value of the right type, or `Malformed` with the path.

Whatever cannot be read raises `ReadFailed` inside this package. `reading`, at the port's edge, makes it the
`Unknown` of one part, so that a part that failed makes no other part unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from orchestrator.model.reading import Reading, Unknown

T = TypeVar("T")
P = ParamSpec("P")
_LONGEST_SIZE: Final = 40
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?b?)", re.IGNORECASE)
_POWERS: Final = {
    "": 0,
    "b": 0,
    "k": 1,
    "kb": 1,
    "m": 2,
    "mb": 2,
    "g": 3,
    "gb": 3,
    "t": 4,
    "tb": 4,
    "p": 5,
    "pb": 5,
}
_LONGEST_NUMBER = 20
"""Digits of a 64-bit number and its sign: a server writes no longer number."""


class ReadFailed(Exception):  # noqa: N818  (says what was asked for)
    """It could not be read: why, and whether that passes."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.reason)
        self.unknown = unknown


class Malformed(ReadFailed):
    """A required part of the answer is missing or has another form."""

    def __init__(self, reason: str) -> None:
        super().__init__(Unknown(reason=reason))


class NotYetReported(Malformed):
    """A part is missing that will be there a moment later."""


@contextmanager
def answer_of(what: str) -> Iterator[None]:
    """Name what was read where its answer is malformed: around a parser, or as its decorator.

    Raises:
        ReadFailed: the answer is malformed.
    """
    try:
        yield
    except NotYetReported as error:
        raise ReadFailed(Unknown(reason=f"{what}: {error}", passes=True)) from error
    except Malformed as error:
        reason = f"{what}: the answer is not what it should be: {error}"
        raise ReadFailed(Unknown(reason=reason)) from error


def reading(read: Callable[P, T], *args: P.args, **more: P.kwargs) -> Reading[T]:
    """What is read; `Unknown` if that fails."""
    try:
        return read(*args, **more)
    except ReadFailed as error:
        return error.unknown


def known(read: Reading[T]) -> T:
    """What was read before, for a part that needs it.

    Raises:
        ReadFailed: it is unknown.
    """
    if isinstance(read, Unknown):
        raise ReadFailed(read)
    return read


def mapping(value: Any, where: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Malformed: it is another value.
    """
    if not isinstance(value, dict):
        raise Malformed(f"{where} is {_shown(value)} instead of an object")
    return value


def items(value: Any, where: str) -> list[Any]:
    """A JSON array.

    Raises:
        Malformed: it is another value.
    """
    if not isinstance(value, list):
        raise Malformed(f"{where} is {_shown(value)} instead of a list")
    return value


def text(value: Any, where: str) -> str:
    """A text that is not empty.

    Raises:
        Malformed: it is another value.
    """
    if not isinstance(value, str) or not value:
        raise Malformed(f"{where} is {_shown(value)} instead of a text")
    return value


def number(value: Any, where: str) -> int:
    """A whole number, or a text of digits, since settings are texts.

    Raises:
        Malformed: it is another value.
    """
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and value.removeprefix("-").isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{where} is {_shown(value)} instead of a number")
    return value


def truth(value: Any, where: str) -> bool:
    """A boolean, or the text `true` or `false`.

    Raises:
        Malformed: it is another value.
    """
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise Malformed(f"{where} is {_shown(value)} instead of true or false")
    return value


def count(value: Any, where: str) -> int:
    """A count.

    Raises:
        Malformed: it is not a number, or is below 0.
    """
    found = number(value, where)
    if found < 0:
        raise Malformed(f"{where} is {found}")
    return found


def within(value: Any, *path: str) -> Any:
    """The value at a path of nested objects, or None if a part of the path is absent.

    Raises:
        Malformed: a part of the path is present but is not an object.
    """
    for depth, step in enumerate(path):
        if value is None:
            return None
        value = mapping(value, ".".join(path[:depth]) or "the answer").get(step)
    return value


def unlisted(value: Any, key: str) -> bool:
    """Whether servers of this version list nothing of the kind: their era writes null (`eras`)."""
    return isinstance(value, dict) and key in value and value[key] is None


def given(value: Any, otherwise: Any) -> Any:
    """The value, or `otherwise` if it is None. 0 and false are values and are kept."""
    return otherwise if value is None else value


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)[:80]


def parse_size(value: str, where: str) -> int:
    """Bytes of `500mb` (1 mb = 1024² bytes).

    Raises:
        Malformed: it is not a size.
    """
    match = _SIZE.fullmatch(value.strip())
    if match is None or len(value) > _LONGEST_SIZE:
        raise Malformed(f"{where} is {value[:80]!r}")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])
