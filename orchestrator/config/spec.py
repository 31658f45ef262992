"""Common parts of the models of all files: the base class and the types of fields."""

from __future__ import annotations

import contextlib
import difflib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from orchestrator.config.quantities import (
    BYTE_SIZE,
    DURATION,
    PERCENT,
    Budget,
    parse_budget,
    parse_byte_size,
    parse_duration,
    parse_percent,
)
from orchestrator.config.secrets import FORMS, SecretReference, parse_reference
from orchestrator.config.yaml import Text
from orchestrator.model.policy import Kind

SCALAR: Final = "<scalar>"
MAPPING: Final = "<mapping>"
LONG_FORM: Final = "<long form>"
"""Tags of unions of a plain value and mappings; they are not part of a key's path."""

LATER_ERROR: Final = "not_in_this_version"


class Spec(BaseModel):
    """A mapping of a file. Unknown keys are refused, values are not coerced from other types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    ELSEWHERE: ClassVar[Mapping[str, str]] = {}  # keys for other kinds of cluster, with the message for each
    FILE: ClassVar[str] = ""  # what people call the file, if this is a whole one

    @classmethod
    def below(cls) -> Iterator[type[Spec]]:
        """Every model that is derived from this one."""
        for model in cls.__subclasses__():
            yield model
            yield from model.below()


def keys_of_file(file: str) -> frozenset[str]:
    """The keys of a file of any kind of cluster."""
    return frozenset(key for model in Spec.below() if file == model.FILE for key in model.model_fields)


HOSTS: Final = "hosts"
"""The kind of a cluster file that names hosts without a cluster. Not a `Kind`: no run has it."""


def plain_name(name: str) -> str:
    """Check the operator's name for a cluster, which alone keeps two runs off one cluster.

    Raises:
        ValueError: it could be confused with another name.
    """
    if not name.isprintable() or name != name.strip():
        raise ValueError("must be a name of one line, without blanks at its ends or control characters")
    return name


def shape(value: object) -> str:
    """Choose the arm for a value in a union of a plain value and a mapping."""
    return MAPPING if isinstance(value, dict | BaseModel) else SCALAR


def _reference(value: object) -> SecretReference:
    if isinstance(value, SecretReference):
        return value
    return parse_reference(value, value.place if isinstance(value, Text) else None)


def later(_value: object) -> None:
    """Refuse a key of a later version, with any value.

    Raises:
        PydanticCustomError: always.
    """
    raise PydanticCustomError(LATER_ERROR, "not in this version")


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Refuse texts that do not match completely. The message says what is wanted, without the pattern."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(wanted)
        return value

    return AfterValidator(check)


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    # Not `min_length`: pydantic counts only valid items, so one bad item would look like an empty list.
    if not value:
        raise ValueError("must not be empty")
    return value


NOT_EMPTY: Final = AfterValidator(_not_empty)


def _given(value: object) -> object:
    if value is None:
        raise PydanticCustomError("no_value", "has no value")
    return value


T = TypeVar("T")
Unset = Annotated[T | None, BeforeValidator(_given)]
"""A key that may be absent, but not empty: `auth:` without a value is a mistake."""


Later = Annotated[
    None,
    BeforeValidator(later),
    WithJsonSchema({"not": {}, "title": "a later version's"}),
    Field(default=None),
]
"""The type of a key of a later version: refused if present."""

ElasticsearchKind = Annotated[Kind, WithJsonSchema({"const": "elasticsearch"})]
RiakKind = Annotated[Kind, WithJsonSchema({"const": "riak"})]
"""Which model a file is checked against follows from its `kind`, so each model sees its own alone."""

Duration = Annotated[
    float,
    PlainValidator(parse_duration),
    WithJsonSchema(
        {"type": "string", "pattern": "^[0-9]+[smhd]$", "title": "duration", "description": DURATION}
    ),
]
ByteSize = Annotated[
    int,
    PlainValidator(parse_byte_size),
    WithJsonSchema({"type": "string", "title": "size", "description": BYTE_SIZE}),
]
Share = Annotated[
    float,
    PlainValidator(parse_percent),
    WithJsonSchema(
        {"type": "string", "pattern": "^[0-9.]+%$", "title": "percentage", "description": PERCENT}
    ),
]
NodeBudget = Annotated[
    Budget,
    PlainValidator(parse_budget),
    WithJsonSchema({"type": ["integer", "string"], "title": "number or percentage"}),
]
Reference = Annotated[
    SecretReference,
    PlainValidator(_reference),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^(env|file|command|keyring):.+",
            "title": "reference to a secret",
            "description": FORMS,
        }
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=1000)]


def _quotes_are_closed(line: str) -> str:
    """Refuse a command with an open quote. Quotes in a comment or a here-document do not count."""
    for comments in (False, True):
        with contextlib.suppress(ValueError):
            shlex.split(line, comments=comments)
            return line
    if "<<" in line:
        return line
    raise ValueError("a quote is opened and not closed, or a backslash comes last")


PLACEHOLDERS: Final = ("{node}", "{name}", "{host}")
"""A node's full name, the part before its `@`, and the part after it."""
VERSION_PLACEHOLDER: Final = "{version}"
"""The wanted version of an upgrade."""
_ANYWHERE: Final = (*PLACEHOLDERS, VERSION_PLACEHOLDER)
_IN_BRACES: Final = re.compile(r"(?<![$%{])\{(\w+)\}(?!\})")
"""Not `${name}`, a variable of the shell, nor the forms of curl and Go templates."""


def _is_slip(word: str, here: Collection[str]) -> bool:
    """Whether a word in braces was meant as a placeholder here; others (`{code}`) are the command's own."""
    known = {"node", *(placeholder.strip("{}") for placeholder in here)}
    return bool(difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.8))


def no_placeholder_but(*here: str, which: str) -> AfterValidator:
    """Refuse a placeholder that only other keys accept: it would reach the shell unchanged.

    Args:
        here: the placeholders that this key accepts.
        which: the same in words.
    """

    def check(text: str) -> str:
        for word in _IN_BRACES.findall(text):
            placeholder = f"{{{word}}}"
            if placeholder not in here and (placeholder in _ANYWHERE or _is_slip(word, here)):
                raise ValueError(f"`{placeholder}` is no placeholder here: {which}")
        return text

    return AfterValidator(check)


ONLY_NODE: Final = no_placeholder_but(
    "{node}",
    which="there is `{node}` alone (`{name}` and `{host}` are for `riak.command` and `riak.admin`)",
)
NO_PLACEHOLDER: Final = no_placeholder_but(which="there is none, since it is not about one node")

CommandLine = Annotated[Name, AfterValidator(_quotes_are_closed)]
NodeCommandLine = Annotated[CommandLine, ONLY_NODE]
"""A command line; `{node}` is replaced by the node's name."""
Positive = Annotated[StrictInt, Field(ge=1)]
