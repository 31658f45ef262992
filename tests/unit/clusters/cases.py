"""The cases of `tests/data/parsers/`: answers, how they are read, and what comes of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import Enum
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orchestrator.elasticsearch import fields
from orchestrator.errors import ConfigError
from orchestrator.model.observation import SettingsView
from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak import output
from orchestrator.riak.output import CommandOutput, dialect_of

DATA = Path(__file__).parents[2] / "data"
ABSENT = object()
T = TypeVar("T")


def known(reading: Reading[T]) -> T:
    """What was read."""
    assert not isinstance(reading, Unknown), reading
    return reading


def unread(read: Callable[[], object]) -> str:
    """Why something of Riak cannot be read."""
    with pytest.raises(output.RiakUnreadable) as raised:
        read()
    return raised.value.reason


def why(outcome: object) -> str:
    """The reason of what is unknown, refused, in doubt or a fault."""
    reason = getattr(outcome, "reason", None)
    assert isinstance(reason, str), outcome
    return reason


@dataclass(frozen=True, kw_only=True)
class Case:
    """An answer and what the parser makes of it."""

    parser: str  # the dotted name, without `orchestrator.`
    name: str
    answer: Any
    # the case's own; `tests/data/parsers/README.md` has what they mean
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> Any:
        module, _, function = self.parser.rpartition(".")
        return getattr(import_module(f"orchestrator.{module}"), function)

    @property
    def is_text(self) -> bool:
        """Whether the parser reads a text, which the file may have line by line."""
        first, *_ = signature(self.function).parameters.values()
        return first.annotation in {"CommandOutput", "str", "object"}

    @property
    def is_json(self) -> bool:
        """Whether the parser takes any JSON."""
        first, *_ = signature(self.function).parameters.values()
        return first.annotation == "Any"

    @property
    def text(self) -> str:
        return text_of(self.answer) if isinstance(self.answer, list) else str(self.answer)

    def read(self) -> Any:
        """What the parser returns. What some of them raise is `Unknown` too."""
        first, *others = signature(self.function).parameters.values()
        given = dict(self.keys.get("with", {}))
        known = {other.name for other in others}
        if "dialect" in known:
            given["dialect"] = dialect_of(self.keys.get("version", "3.2.1"))
        if "settings" in known and "SettingsView" in str(signature(self.function)):
            given["settings"] = SettingsView(**given["settings"])
        answer = self.text if self.is_text and isinstance(self.answer, list) else self.answer
        if first.annotation == "CommandOutput":
            end, errors = self.keys.get("exit", 0), self.keys.get("stderr", "")
            answer = CommandOutput(exit=end, stdout=answer, stderr=errors)
        try:
            return output.reading(lambda: self.function(answer, **given))
        except fields.ReadFailed as error:
            return error.unknown
        except (ConfigError, ValueError) as error:
            return Unknown(reason=str(error))

    def fits(self, found: Any) -> bool:
        """Whether this is what the parser should make of the answer."""
        if "unknown" in self.keys:
            passes = self.keys.get("passes", False)
            return (
                isinstance(found, Unknown)
                and self.keys["unknown"] in found.reason
                and found.passes is passes
                and not any(word in found.reason for word in self.keys.get("never", ()))
            )
        if "part" in self.keys:
            return self.keys["part"].items() <= found.items()
        return same(found, self.keys["value"])


def text_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def all_cases() -> Iterator[Case]:
    for file in sorted((DATA / "parsers").glob("*.json")):
        content = json.loads(file.read_text())
        every = content.pop("every", {})
        for name, keys in content.items():
            yield from _expanded(Case(parser=file.stem, name=name, answer=None, keys={**every, **keys}))


def _expanded(case: Case) -> Iterator[Case]:
    keys = case.keys
    answers = keys["answers"] if "answers" in keys else [recorded(keys)]
    for answer in answers:
        yield replace(case, answer=answer)
    whole = answers[0]
    spoilt = {**keys, "unknown": ""}
    for was, now in keys.get("spoilt", ()):
        text = text_of(whole) if isinstance(whole, list) else whole
        assert was in text, (case.parser, case.name, was)
        yield replace(
            case, name=f"{case.name}: {was!r} is {now!r}", answer=text.replace(was, now), keys=spoilt
        )
    for path, *by in keys.get("damaged", ()):
        way = tuple(path.split("/"))
        yield replace(
            case,
            name=f"{case.name}: {path} is {by or 'gone'}",
            answer=damaged(whole, way, *by),
            keys=spoilt,
        )


def recorded(keys: Mapping[str, Any]) -> Any:
    """The answer itself, or the recorded one of that name."""
    if "text" in keys:
        return (DATA / keys["text"]).read_text()
    if "recorded" not in keys:
        return keys["answer"]
    return json.loads((DATA / f"{keys['recorded']}.json").read_text())["body"]


def damaged(value: Any, path: Sequence[str | int], by: Any = ABSENT) -> Any:
    """A copy with something else at one place."""
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[int(key) if isinstance(inner, list) else key]
    last = int(path[-1]) if isinstance(inner, list) else path[-1]
    if by is ABSENT:
        del inner[last]
    else:
        inner[last] = by
    return whole


def same(found: Any, wanted: Any) -> bool:
    """Whether a value is the one of a file: of a dataclass the fields that the file names.

    What is unknown is `Unknown: ` and a part of the reason.
    """
    if isinstance(found, Unknown) and isinstance(wanted, str):
        return wanted.startswith("Unknown: ") and wanted.removeprefix("Unknown: ") in found.reason
    if isinstance(found, Enum):
        return wanted in (found.value, found.name)
    if is_dataclass(found) and isinstance(wanted, dict):
        return all(same(getattr(found, key), each) for key, each in wanted.items())
    if isinstance(found, Mapping) and isinstance(wanted, dict):
        plain = {str(key): each for key, each in found.items()}
        return plain.keys() == wanted.keys() and all(same(plain[key], each) for key, each in wanted.items())
    if isinstance(found, set | frozenset):
        found = sorted((each.value if isinstance(each, Enum) else each) for each in found)
    if isinstance(found, tuple | list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    both_texts = isinstance(found, str) and isinstance(wanted, str)
    return bool(found == wanted) and (both_texts or type(found) is type(wanted))
