"""The output of a command, and the check that it is complete. Pure.

Rules for every parser of this package:

1. Output that was cut (our own limit, a lost connection, too much output) raises `RiakUnreadable`.
2. From 3.2 on the last line is the return term. Without it the text is cut.
3. Before 3.2 there is no return term, so each parser requires the last thing that its command always prints.
4. An unknown, repeated or misplaced line makes the whole output unreadable.
5. Wrapper scripts may print lines before the answer: `lines_of` leaves these out.
6. Exit code 0 proves nothing: 3.2 returns 0 for `ringready` FALSE, and the packaged `/usr/sbin/riak` of 3.2.0
   and 3.2.1, called as root, returns 0 for everything. Any other exit code rules out a good reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from orchestrator.model.reading import Reading, Unknown
from orchestrator.riak.rules.recovery import impossible

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\D.*)?", re.DOTALL)
_FIRST_WITHOUT_RIAK_ADMIN: Final = (3, 0)
_OLDEST: Final = (2, 0)
"""The first version with `cluster status`, `cluster partitions`, `show` and bucket types: every stop needs
their output."""
_FIRST_WITH_RETURN_TERM: Final = (3, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakDialect:
    """A family of versions."""

    returns_term: bool  # the last line of a `riak admin` command is its return term
    # the start of an administrative command line, unless the cluster file overrides it
    admin: tuple[str, ...]
    has_eval: bool  # `riak rpc` exists
    can_be_hastened: bool = False  # the state of its vnode manager shows the vnodes that are not started


def dialect_of(version: str) -> RiakDialect | None:
    """The dialect of a version such as `3.2.1`; None if it is too old or not a version."""
    number = _number(version)
    if number is None or number < _OLDEST:
        return None
    return RiakDialect(
        returns_term=number >= _FIRST_WITH_RETURN_TERM,
        admin=("riak-admin",) if number < _FIRST_WITHOUT_RIAK_ADMIN else ("riak", "admin"),
        has_eval=number >= _FIRST_WITHOUT_RIAK_ADMIN,
        can_be_hastened=impossible(version) is None,
    )


def unsupported(version: str) -> str:
    """Why a version without a dialect is refused, and what to do."""
    oldest = ".".join(map(str, _OLDEST))
    if _number(version) is None:
        return f"which is no version that this program can read: Riak {oldest} or newer is needed"
    return f"which is too old: Riak {oldest} or newer is needed. Upgrade it, or restart its nodes by hand"


def _number(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version.strip())
    return None if found is None else (int(found[1]), int(found[2]))


T = TypeVar("T")

_NODE_DOWN: Final = (
    re.compile(r"Node '?(\S+?)'? (?:is )?not responding to pings\.?"),  # 3.x on stdout, 1.4 on stderr
    re.compile(r"Node did not respond to ping!"),  # riak-admin of 1.4 to 2.9, and 3.0; on stderr
    re.compile(r"Node is not running!"),  # riak-admin of 1.4
)
_TERM: Final = re.compile(r"ok|error|\{error,.+\}")
_NOISE: Final = re.compile(
    r"!!!!.*"  # the warning about `ulimit -n`
    r"|Attempting to restart script through sudo .*"
    r"|sudo: unable to resolve host .*"
    r"|\S*sh: (?:line \d+: )?warning: setlocale: .*"
    r"|(?:shell-init|sh: \d+): .*getcwd.*"
)
"""Lines that the start scripts, shells and sudo print before the output."""
_LONGEST_SHOWN: Final = 100
_LONGEST_REASON: Final = 500
"""Reasons are shown and journalled at every reading; a node's output may be megabytes."""


class RiakUnreadable(Exception):  # noqa: N818  (says what something is)
    """Something of Riak could not be read: this package raises nothing else. See `reading`."""

    def __init__(self, reason: str, *, passes: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.passes = reason, passes


class Return(Enum):
    """The return term of 3.2; NONE before 3.2."""

    OK = "ok"
    ERROR = "error"
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """A command's raw output, including blank lines and line ends."""

    exit: int | None  # its exit code; None if it did not end by itself, or a part of the output was dropped
    stdout: str
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The output of a command, without the return term."""

    lines: tuple[str, ...]  # without line ends; wrapped terms are joined to one line
    returned: Return
    exit: int

    @property
    def text(self) -> str:
        """All lines as one text."""
        return " ".join(line.strip() for line in self.lines if line.strip())

    def must_be_ok(self) -> None:
        """Refuse the output of a command that failed.

        Raises:
            RiakUnreadable: the exit code or the return term says so.
        """
        if self.exit != 0:
            raise RiakUnreadable(f"exit code {self.exit}")
        if self.returned is Return.ERROR:
            raise RiakUnreadable("the return term is an error")


def reading(read: Callable[[], T]) -> Reading[T]:
    """The value, or `Unknown`: for a part of a port's reading, so that it makes no other part unknown."""
    try:
        return read()
    except RiakUnreadable as error:
        return Unknown(reason=error.reason, passes=error.passes)


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """Put the name of the output before the reason of a failure: a decorator of parsers, or a block."""
    try:
        yield
    except RiakUnreadable as error:
        why = error.reason
        short = f"{why[:_LONGEST_REASON]}{'…' if len(why) > _LONGEST_REASON else ''}"
        raise RiakUnreadable(f"{what}: {short}", passes=error.passes) from None
    except ValueError:  # Python converts no text of more than 4300 digits to a number
        raise RiakUnreadable(f"{what}: it holds a number that is too long to be one") from None


def said(output: CommandOutput, dialect: RiakDialect) -> Said:
    """The lines of a `riak admin` command, after checks that they are complete.

    Raises:
        RiakUnreadable: the output was cut, or the node that ran the command is down.
    """
    if output.exit is None:
        raise RiakUnreadable("the command did not come to its end")
    silent = node_down(output)
    if silent is not None:
        raise RiakUnreadable(silent)
    lines = lines_of(output.stdout)
    at = next((at for at in reversed(range(len(lines))) if lines[at].strip()), None)
    returned = Return.NONE
    if at is not None and _TERM.fullmatch(lines[at].strip()):
        returned = Return.OK if lines[at].strip() == Return.OK.value else Return.ERROR
        lines = lines[:at]
    elif dialect.returns_term:
        raise RiakUnreadable(f"cut: the return term is missing after {_last(lines)}")
    if any(_TERM.fullmatch(line.strip()) for line in lines):
        raise RiakUnreadable("a return term is in the middle")
    return Said(lines=tuple(unwrapped(lines)), returned=returned, exit=output.exit)


def node_down(output: CommandOutput) -> str | None:
    """Riak's own message that the node that ran the command is down; None without such a message.

    Any line counts: such a line in the middle of an answer also makes it invalid.
    """
    for line in (*lines_of(output.stdout), *lines_of(output.stderr)):
        if any(pattern.fullmatch(line.strip()) for pattern in _NODE_DOWN):
            return line.strip()
    return None


def lines_of(text: str) -> list[str]:
    """The lines without line ends and trailing white space, and without the lines of wrapper scripts."""
    lines = text.replace("\r", "").split("\n")
    lines = [line.rstrip() for line in (lines[:-1] if lines[-1] == "" else lines)]
    at = next((at for at, line in enumerate(lines) if not is_noise(line)), len(lines))
    return lines[at:]


def unwrapped(lines: Iterable[str]) -> list[str]:
    """The same lines, with wrapped lists (an open bracket at the end of a line) joined again.

    Riak wraps long lists after a comma. If a bracket is never closed, all further text is joined to one line,
    and no parser accepts that line.
    """
    found: list[str] = []
    held: list[str] = []
    depth = 0
    for line in lines:
        held.append(line.strip() if held else line)
        # Counted line by line: atoms are never wrapped, and a list may have as many lines as the ring.
        depth += _open(line)
        if depth <= 0:
            found.append(" ".join(held))
            held, depth = [], 0
    return [*found, " ".join(held)] if held else found


def shown(line: str) -> str:
    """A line of another program's text, shortened for a message."""
    line = line.strip()
    return repr(line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…")


def blank(line: str) -> bool:
    """Whether a line is empty."""
    return not line.strip()


def is_noise(line: str) -> bool:
    """Whether a line comes from a wrapper script, not from the command itself."""
    return _NOISE.fullmatch(line) is not None


def _open(line: str) -> int:
    bare = re.sub(r"'[^']*'", "", line)
    return sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")


def _last(lines: list[str]) -> str:
    words = [line for line in lines if line.strip()]
    return shown(words[-1]) if words else "nothing at all"
