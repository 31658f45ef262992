"""JSON from outside: every text in it is made visible, and loses the known secrets, where it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from orchestrator.redact import Redactor
from orchestrator.untrusted import visible

_ESCAPED: Final = re.compile(rb"\\[^\"\\/]")
"""In JSON: only behind a backslash, and not before these three, is a character that may not print."""
_DEEPEST: Final = 200
"""Levels of JSON: an answer of a server has about twenty."""
_MOST_VALUES: Final = 32_000_000
"""Values of JSON: a million shard copies are about 12 million, and a value takes up to 200 bytes."""


def parsed(data: bytes | str, redact: Redactor | None = None) -> Any:
    """The value of JSON from outside, with every text in it made `visible`, names of fields too.

    Args:
        data: as it was received.
        redact: removes the secrets that it knows from every text.

    Raises:
        ValueError: it is not JSON, or has more values than memory should hold.
    """
    raw = data if isinstance(data, bytes) else data.encode()
    # A value takes at least two bytes, and its separator or bracket is one of them.
    if len(raw) > 2 * _MOST_VALUES and sum(raw.count(mark) for mark in b",[{") > _MOST_VALUES:
        raise ValueError(f"JSON of more than {_MOST_VALUES} values")
    value = orjson.loads(raw)
    # Most answers, and the large ones, have nothing to change: that is seen without a look at each text.
    printable = raw.isascii() and b"\x7f" not in raw and not (b"\\" in raw and _ESCAPED.search(raw))
    if printable and not (redact and redact.may_be_in(raw)):
        return value
    return _each_text(value, visible if redact is None else lambda text: visible(redact.without_known(text)))


def _each_text(value: Any, seen: Callable[[str], str], depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"JSON nested more than {_DEEPEST} deep")
    match value:
        case str():
            return seen(value)
        case dict():
            return {seen(key): _each_text(inner, seen, depth + 1) for key, inner in value.items()}
        case list():
            for at, inner in enumerate(value):  # in place: a large answer is not held twice
                value[at] = _each_text(inner, seen, depth + 1)
            return value
        case _:
            return value
