"""The commands that messages advise: each can be typed as it is printed.

A run that was begun with `--state` is found only with it, so every advice carries it. Nothing else composes a
command line; a test looks through all modules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from orchestrator.errors import ExitCode

HIDDEN: Final = "***"
"""What a password is shown as."""
_PASSWORDS: Final = re.compile(
    r"(?P<before>://[^/@:]*:|[?&][^=&]*pass[^=&]*=)(?P<password>(?<=:)[^@]*(?=@)|(?<==)[^&]*)", re.IGNORECASE
)


def next_command(verb: str, *words: str, state: str = "") -> str:
    """A command line of this program.

    Args:
        verb: the command; several words for one of a group.
        words: its arguments and options.
        state: the state database that it needs, as after `--state`; empty for the usual place.
    """
    named = ("--state", without_password(state)) if state else ()
    return shlex.join(("orchestrate", *verb.split(), *words, *named))


def shell_lines(line: str, width: int | None, *, indent: int) -> list[str]:
    """A command line as lines that a shell takes as one, broken before an option if that is enough."""
    blank = " " * indent
    if width is None or indent + len(line) <= width:
        return [blank + line]
    parts: list[str] = []
    for word in map(shlex.quote, shlex.split(line)):
        with_option = parts and not word.startswith("--") and len(f"{blank}  {parts[-1]} {word} \\") <= width
        parts = [*parts[:-1], f"{parts[-1]} {word}"] if with_option else [*parts, word]
    lines = [blank + parts[0]]
    for part in parts[1:]:
        if len(f"{lines[-1]} {part} \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(f"{blank}  {part}")
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What a person does after a run that ended with an exit code."""

    does: str  # what the command does, as the end of a sentence
    verb: str  # the command that the run's id follows
    options: tuple[str, ...] = ()
    first: str = ""  # what comes before it; empty if nothing
    instead: NextStep | None = None  # what does this and more, for a run that has work left

    @property
    def lead(self) -> str:
        """What is written before the command: `repair es3, then continue`."""
        return lead(self.first, self.does)

    def command(self, *run: str, state: str = "") -> str:
        """The command for this run, as it can be typed."""
        return next_command(self.verb, *run, *self.options, state=state)


def lead(first: str, does: str) -> str:
    """What a person has to do before a command, if anything, and what the command does."""
    return f"{first}, then {does}" if first else does


_CONTINUE: Final = NextStep(does="continue", verb="resume")
AFTER: Final[Mapping[ExitCode, NextStep]] = {
    ExitCode.HELD: replace(_CONTINUE, first="correct what holds it (a resumed run keeps its playbook)"),
    ExitCode.FAILED: replace(_CONTINUE, first="repair what failed", options=("--retry-failed",)),
    ExitCode.INTERRUPTED: _CONTINUE,
    ExitCode.LEASED: replace(_CONTINUE, first="wait until the other run has ended"),
    ExitCode.NOT_RESTORED: NextStep(does="restore", verb="restore", instead=_CONTINUE),
    ExitCode.PAUSED: replace(_CONTINUE, first="look at the restarted nodes"),
}
"""What comes after a run, by its exit code; nothing after 0. Messages, views and pages take it from here."""


def without_password(url: str) -> str:
    """A database URL in which passwords are `***`: an operator has to fill them in."""
    return _PASSWORDS.sub(rf"\g<before>{HIDDEN}", url)


def passwords_in(url: str) -> frozenset[str]:
    """The passwords of a database URL, each as it is written there and as it is meant; none if hidden."""
    found = {each["password"] for each in _PASSWORDS.finditer(url)} - {"", HIDDEN}
    return frozenset(found | {unquote(password) for password in found})


def hides_password(url: str) -> bool:
    """Whether a database URL has `***` where its password belongs."""
    return any(each["password"] == HIDDEN for each in _PASSWORDS.finditer(url))
