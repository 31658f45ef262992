"""How long commands took, of those on an idle machine, in seconds."""

from __future__ import annotations

SECONDS = {
    "ping": 0.35,
    "stop": 5.8,
    "daemon": 3.6,
    "start": 3.6,
    "": 0.6,
}
"""By the first word; `""` is any other command."""


def seconds_of(word: str) -> float:
    """Of a command that begins with this word."""
    return SECONDS.get(word, SECONDS[""])
