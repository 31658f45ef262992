"""Erlang terms as Riak prints them, and the tables of its newer commands.

Erlang terms as Riak prints them: atoms, numbers, lists, tuples. Wrapped lines are white space.

Only the types in these outputs: no maps, no funs, no process ids, no binaries.

Parse the tables that Riak's newer commands draw with `+`, `-` and `|`.

If a table is wider than the screen, Riak cuts cells and headings without notice. So the headings must be the
expected ones, and every row must be as wide as the border. For names, the blank that the command prints after
them must be there, or the table must be clearly narrower than a screen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NewType, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.riak.output import RiakUnreadable, blank, shown
from orchestrator.untrusted import UntrustedValue, address, shortened

Atom = NewType("Atom", str)
"""An atom without its quotes."""

Term: TypeAlias = "int | float | Atom | list[Term] | tuple[Term, ...]"

_DEEPEST: Final = 20
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<quoted>'(?:[^'\\\n]|\\[^\n])*')
    | (?P<number>-?\d+(?:\.\d+)?(?![\w@.]))
    | (?P<atom>[a-z][\w@]*)
    | (?P<mark>[\[\]{},])
    )""",
    re.VERBOSE,
)
_NAME: Final = re.compile(r"\w[\w.-]*", re.ASCII)
"""No character with a meaning in a shell: names go into commands and paths again."""
_LONGEST_NUMBER: Final = 60
"""An index has at most 49 digits."""


@dataclass(slots=True)
class _Reader:
    tokens: list[tuple[str, str]]
    at: int = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise RiakUnreadable("a term ends too soon")
        self.at += 1
        return self.tokens[self.at - 1]

    def term(self, depth: int) -> Term:
        if depth > _DEEPEST:
            raise RiakUnreadable("a term is too deep")
        kind, text = self.take()
        if kind == "quoted":
            return Atom(re.sub(r"\\(.)", r"\1", text[1:-1]))
        if kind == "atom":
            return Atom(text)
        if kind == "number":
            return float(text) if "." in text else int(text)
        if text == "[":
            return self.items("]", depth)
        if text == "{":
            return tuple(self.items("}", depth))
        raise RiakUnreadable(f"a term has {text!r} where a value should be")

    def items(self, end: str, depth: int) -> list[Term]:
        found: list[Term] = []
        if self.peek() == end:
            self.take()
            return found
        while True:
            found.append(self.term(depth + 1))
            _, mark = self.take()
            if mark == end:
                return found
            if mark != ",":
                raise RiakUnreadable(f"a term has {mark!r} where a comma should be")


def parse_term(text: str) -> Term:
    """One complete term.

    Raises:
        RiakUnreadable: it is not a term, is cut, or more text follows.
    """
    tokens: list[tuple[str, str]] = []
    at, rest = 0, text.rstrip()
    while at < len(rest):
        found = _TOKEN.match(rest, at)
        if found is None or found.lastgroup is None:
            raise RiakUnreadable(f"{rest[at : at + 30]!r} is no part of an Erlang term")
        if found.lastgroup == "number" and len(found[found.lastgroup]) > _LONGEST_NUMBER:
            raise RiakUnreadable("a number is too long")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    reader = _Reader(tokens)
    term = reader.term(0)
    if reader.peek():
        raise RiakUnreadable(f"{reader.peek()!r} follows a term")
    return term


def node_name(text: object) -> NodeName:
    """A node's name, `name@host`.

    Raises:
        RiakUnreadable: it is not a name; a name that was wrapped in the middle has a blank in it.
    """
    if not isinstance(text, str):
        raise RiakUnreadable(f"{text!r} is no node name")
    name, _, host = text.partition("@")
    try:
        address(host)
    except UntrustedValue as error:
        raise RiakUnreadable(f"{shortened(text)} is no node name: {error}") from None
    if not _NAME.fullmatch(name):
        raise RiakUnreadable(f"{shortened(text)} is no node name")
    return NodeName(text)


def printed_node(text: str) -> NodeName:
    """A node's name, quoted as an atom or bare, depending on the version.

    Raises:
        RiakUnreadable: it has neither form.
    """
    text = text.strip()
    return node_name(text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text)


def node_names(text: str) -> tuple[NodeName, ...]:
    """A list of nodes, each once.

    Raises:
        RiakUnreadable: it is not a list of nodes, or a name occurs twice.
    """
    names = tuple(node_name(each) for each in _list(text))
    if len(set(names)) != len(names):
        raise RiakUnreadable("a node is listed twice")
    return names


def counts_by_node(text: str) -> dict[NodeName, int]:
    """A list of `{node, count}`, each node once.

    Raises:
        RiakUnreadable: it is another term.
    """
    found: dict[NodeName, int] = {}
    for each in _list(text):
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], int)):  # noqa: PLR2004  (a pair)
            raise RiakUnreadable(f"{each!r} is no node with a number")
        name = node_name(each[0])
        if name in found:
            raise RiakUnreadable(f"{name} is listed twice")
        found[name] = each[1]
    return found


def _list(text: str) -> Sequence[Term]:
    term = parse_term(text)
    if not isinstance(term, list):
        raise RiakUnreadable(f"{text.strip()[:60]!r} is no list")
    return term


_BORDER: Final = re.compile(r"\+(-+\+)+")
NARROW: Final = 79
"""The narrowest known screen: 80 columns less the one that Riak keeps free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A complete table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # cells with their padding
    width: int  # of each line, in characters

    def must_be_uncut(self) -> None:
        """Check the width of a table whose names have no padding.

        Raises:
            RiakUnreadable: the table is as wide as a screen, so cells may have been cut.
        """
        if self.width >= NARROW:
            raise RiakUnreadable("the table is as wide as a screen, so its cells may be cut")


def take_table(lines: Sequence[str], headings: Sequence[str]) -> tuple[Table, tuple[str, ...]]:
    """The table at the beginning of these lines, and the lines after it.

    Raises:
        RiakUnreadable: there is no table with these headings, or it is cut.
    """
    start = next((at for at, line in enumerate(lines) if not blank(line)), None)
    if start is None or not _BORDER.fullmatch(lines[start]):
        raise RiakUnreadable("the table is missing")
    border = lines[start]
    borders = [at for at, line in enumerate(lines) if line == border]
    if len(borders) != 3 or borders[1] != start + 2:  # noqa: PLR2004  (above and below the headings, at the end)
        raise RiakUnreadable("the table is not whole")
    found = tuple(cell.strip() for cell in _cells(lines[start + 1], border))
    if found != tuple(headings):
        raise RiakUnreadable(f"the table's headings are {', '.join(found)} instead of {', '.join(headings)}")
    rows = tuple(_cells(line, border) for line in lines[borders[1] + 1 : borders[2]])
    if not rows:
        raise RiakUnreadable("the table is empty")
    return Table(headings=found, rows=rows, width=len(border)), tuple(lines[borders[2] + 1 :])


def _cells(line: str, border: str) -> tuple[str, ...]:
    walls = [at for at, mark in enumerate(border) if mark == "+"]
    if len(line) != len(border) or any(line[at] != "|" for at in walls):
        raise RiakUnreadable(f"{shown(line)} is no row of its table")
    return tuple(line[left + 1 : right] for left, right in pairwise(walls))
