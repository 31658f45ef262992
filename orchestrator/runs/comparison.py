"""Two values of the configuration compared key by key, in words for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel

from orchestrator.config.secrets import SecretReference
from orchestrator.untrusted import visible


def leaves(value: object) -> dict[str, str]:
    """Every text and number of a value by its dotted key, in its order; what is not set is left out.

    A reference to a secret is shown without the arguments of a command, which may hold one; a hash of them
    shows whether they are the same.
    """
    return dict(_leaves(value, ""))


def differences(before: Mapping[str, str], now: Mapping[str, str], *, was: str) -> list[str]:
    """What differs, one line for each key: `key: WAS `a`, now `b``. Nothing is shortened."""
    return [
        f"{visible(key)}: {was} {_quoted(before.get(key))}, now {_quoted(now.get(key))}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
    ]


def _quoted(value: str | None) -> str:
    return "nothing" if value is None else f"`{visible(value)}`"


def _leaves(value: object, key: str) -> Iterator[tuple[str, str]]:
    match value:
        case None:
            return
        case SecretReference():
            yield key, _reference(value)
        case Enum():
            yield key, str(value.value)
        case str() | int() | float() | Path():
            yield key, str(value)
        case Mapping():
            for name, inner in value.items():
                yield from _leaves(inner, f"{key}.{name}" if key else str(name))
        case list() | tuple() | frozenset():
            for number, inner in enumerate(sorted(value) if isinstance(value, frozenset) else value):
                yield from _leaves(inner, f"{key}[{number}]")
        case BaseModel():
            yield from _leaves(dict(value), key)
        case _ if is_dataclass(value):
            yield from _leaves({each.name: getattr(value, each.name) for each in fields(value)}, key)
        case _:
            raise TypeError(f"{key} cannot be compared: {type(value).__name__}")


def _reference(reference: SecretReference) -> str:
    whole, shown = str(reference), reference.shown
    return shown if shown == whole else f"{shown} (sha256 {sha256(whole.encode()).hexdigest()[:12]})"
