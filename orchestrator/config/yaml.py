"""YAML for configuration files: version 1.2, limited in size, plain types only, with the line of every key.

ruamel.yaml composes the text into nodes; values are built here, because the rules are stricter than YAML's:

- `off`, `NO`, `yes`, dates and `12:30` stay text (YAML 1.2, and even under a `%YAML 1.1` directive);
- keys are always text, so that a node called `7` is `"7"`;
- a repeated key, a tag, a merge key and a second document are refused;
- size, number of values and depth are limited, aliases included (no "billion laughs").

No message repeats a value or a key of the file: it could be a secret in the wrong place.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from orchestrator.errors import ConfigError

MAX_BYTES: Final = 256 * 1024
"""A cluster file of a thousand overrides has about 100 KiB; the parser, in Python, takes seconds for more."""

MAX_VALUES: Final = 50_000
"""Maximum of values in one file with all aliases followed, against alias bombs."""

MAX_DEPTH: Final = 20
"""Nesting; the deepest key of the contract is at 5."""

KeyPath: TypeAlias = tuple[str | int, ...]
"""The place of a value: keys of mappings and indices of lists, from the top."""

_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """A place in a file, for messages."""

    file: str  # the path as the user wrote it
    line: int  # one-based
    key: str  # dotted path, such as `hosts.service.unit`

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}"


class Text(str):
    """A text with its place in the file; messages name a secret by its place, never by its value."""

    __slots__ = ("place",)
    place: FilePlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file that was read."""

    file: str  # the path as the user wrote it
    # the top mapping, of plain dicts, lists, `Text`, int, float, bool and None
    content: dict[str, Any] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(repr=False)  # one-based line of every key and list item

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of the nearest existing key above it; None if there is none."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def error(self, path: KeyPath, message: str) -> ConfigError:
        """The error that names the place of a key."""
        return ConfigError(message, file=self.file, line=self.line(path), key=dotted(path) or None)


def dotted(path: KeyPath) -> str:
    """A key path for messages: `hosts.overrides["es7.example.org"].port`, `endpoints[0]`."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif re.fullmatch(r"[\w*?-]+", part):
            shown += f".{part}" if shown else part
        else:
            shown += f'["{part}"]'
    return shown


def read(path: Path) -> Document:
    """Read and parse a file.

    Raises:
        ConfigError: it cannot be read, is too large, is not UTF-8 or breaks a rule of this module.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=file) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KiB: is this the right file?", file=file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from None
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Parse a text as a mapping.

    Raises:
        ConfigError: it breaks a rule of this module; file, line and key are named.
    """
    root = _compose(text, file)
    if root is None:
        raise ConfigError("is empty: a mapping of keys is needed", file=file)
    if not isinstance(root, MappingNode):
        raise ConfigError("must be a mapping of keys (`key: value`)", file=file, line=_line(root))
    builder = _Builder(file=file)
    content = builder.mapping(root, ())
    return Document(file=file, content=content, lines=builder.lines)


def _compose(text: str, file: str) -> Node | None:
    parser = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            # An anchor used twice is legal; ruamel's warning about it would print lines of the file.
            warnings.simplefilter("ignore")
            root: Node | None = parser.compose(text)
    except MarkedYAMLError as error:
        raise ConfigError(_problem(error), file=file, line=_fault_line(error)) from None
    except RecursionError:
        raise ConfigError(f"is nested deeper than {MAX_DEPTH} levels", file=file) from None
    except YAMLError as error:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else None
        raise ConfigError("holds a character that YAML does not allow", file=file, line=line) from None
    except Exception:  # noqa: BLE001  (every parser error is about the user's text, and its message may quote it)
        raise ConfigError("is not valid YAML", file=file) from None
    return root


_HINTS: Final = (
    ("found undefined alias", "a value that begins with `*` must be in quotes"),
    ("found undefined tag handle", "a value that begins with `!` must be in quotes"),
    ("found character '%'", "a value that begins with `%` must be in quotes"),
    ("found character '@'", "a value that begins with `@` must be in quotes"),
    ("found character '`'", "a value that begins with a back-tick must be in quotes"),
    ("found character '\\t'", "a tab cannot indent; use spaces"),
    (
        "mapping values are not allowed",
        "a `: ` is where no key can be; put the text in quotes, or check the indentation",
    ),
    ("but found another document", "a file holds one document; remove what follows the `---`"),
    (
        "expected ',' or",
        "a comma or a closing bracket is missing; a text that holds braces or brackets needs quotes",
    ),
    ("found unexpected end of stream", "a quote is opened here and not closed"),
    ("could not find expected ':'", "a key without its colon, or a wrong indentation"),
)


def _problem(error: MarkedYAMLError) -> str:
    problem = str(error.problem or "")
    for start, hint in _HINTS:
        if problem.startswith(start):
            return f"is not valid YAML: {hint}"
    # Quotes of ruamel may come from the file, and so be secrets; names of tokens (`<block end>`) do not.
    said = re.match(r"[^'\"]*(?:'<[a-z ]+>')?", problem)
    shown = said.group().strip(" ,") if said else ""
    return f"is not valid YAML: {shown}" if shown else "is not valid YAML"


def _fault_line(error: MarkedYAMLError) -> int | None:
    unclosed = str(error.problem or "").startswith("found unexpected end of stream")
    mark = (
        (error.context_mark if unclosed else error.problem_mark) or error.problem_mark or error.context_mark
    )
    return mark.line + 1 if mark is not None else None


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Turns nodes into plain values, and records their lines."""

    file: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    count: int = 0

    def fail(self, node: Node, message: str) -> ConfigError:
        """An error with its line, without a key, since valid keys are unknown here."""
        return ConfigError(message, file=self.file, line=_line(node))

    def value(self, node: Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.fail(node, f"holds more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise self.fail(node, f"is nested deeper than {MAX_DEPTH} levels")
        match node:
            case MappingNode():
                return self.mapping(node, path)
            case SequenceNode():
                return self.sequence(node, path)
            case ScalarNode():
                return self.scalar(node, path)
            case _:
                raise self.fail(node, "is neither a mapping nor a list nor a plain value")

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        self.no_tag(node, "map")
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise self.fail(
                    key_node, "a key must be plain text; text that begins with a brace needs quotes"
                )
            key = str(key_node.value)
            if key_node.tag == f"{_TAG}merge":
                raise self.fail(key_node, "merge keys (`<<`) are not YAML 1.2; write the keys out")
            here = (*path, key)
            if key in content:
                raise self.fail(key_node, f"this key is on line {self.lines[here]} too; remove one of them")
            self.lines[here] = _line(key_node)
            content[key] = self.value(value_node, here)
        return content

    def sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        self.no_tag(node, "seq")
        content = []
        for index, item in enumerate(node.value):
            self.lines[(*path, index)] = _line(item)
            content.append(self.value(item, (*path, index)))
        return content

    def scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        text = str(node.value)
        match str(node.tag).removeprefix(_TAG):
            case "null":
                return None
            case "bool" if text.lower() in {"true", "false"}:
                return text.lower() == "true"
            case "int":
                number = _integer(text)
                return number if number is not None else self.text(node, path)
            case "float":
                real = _real(text)
                return real if real is not None else self.text(node, path)
            case "str" | "bool" | "timestamp" | "value" | "merge":
                return self.text(node, path)
            case _:
                raise self.fail(node, "tags are not taken; a value that begins with `!` must be in quotes")

    def text(self, node: ScalarNode, path: KeyPath) -> Text:
        text = Text(node.value)
        text.place = FilePlace(file=self.file, line=self.lines.get(path, _line(node)), key=dotted(path))
        return text

    def no_tag(self, node: Node, plain: str) -> None:
        if node.tag != f"{_TAG}{plain}":
            raise self.fail(node, "tags are not taken")


def _integer(text: str) -> int | None:
    """A number as the core schema of YAML 1.2 writes it (`0o17` is octal, `017` is seventeen)."""
    match = re.fullmatch(r"[-+]?(?:[0-9]{1,20}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,20})", text)
    if match is None:
        return None
    return int(text, 10 if text.lstrip("+-").isdigit() else 0)


def _real(text: str) -> float | None:
    try:
        return float(text.replace(".inf", "inf").replace(".nan", "nan").lower())
    except ValueError:
        return None
