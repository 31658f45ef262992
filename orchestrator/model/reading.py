"""What a reading of the world can be: a value, or `Unknown` with its reason.

Unknown is never healthy: a predicate that meets it holds, and no code may take it for an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

Instant: TypeAlias = float
"""A moment in seconds since the Unix epoch, from a `Clock` that never goes back within one process."""

Seconds: TypeAlias = float
"""A duration in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A reading that failed or was not taken.

    Attributes:
        reason: one line for people: which read, of what, and how it failed.
        passes: it may well be read a little later as it is; a wrong key or account someone has to change.
        since: of a host that may be read later: when the first of its failed readings in a row was.
    """

    reason: str
    passes: bool = False
    since: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled(Unknown):
    """What was read is not what it should be, and stays so until a person changes it.

    Attributes:
        remedy: what that person can do.
    """

    remedy: str


T = TypeVar("T")
Reading: TypeAlias = T | Unknown
"""A value that was read, or `Unknown`."""

NOT_READ = Unknown(reason="not read in this observation")
"""The part of an observation that nobody asked for this time."""

_MOST_PLACES: Final = 5
"""Places that one message names."""


def reasons_by_place(reasons: Mapping[str, str]) -> str:
    """What is wrong with each place, such as the URL of an endpoint, in one line: five places at most."""
    shown = [why if place in why else f"{place}: {why}" for place, why in reasons.items()][:_MOST_PLACES]
    if len(reasons) > len(shown):
        shown.append(f"and {len(reasons) - len(shown)} more")
    return "; ".join(shown)
