"""The commands that messages advise: each can be typed as it is printed.

A run that was begun with `--state` is found only with it, so every advice carries it. Nothing else composes a
command line; a test looks through all modules.
"""

from __future__ import annotations

import re
import shlex
from typing import Final
from urllib.parse import unquote

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
