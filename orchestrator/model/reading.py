"""A reading: a value, or `Unknown` with its reason.

Unknown is never healthy. A predicate that reads it holds, and no code may treat it as an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

Instant: TypeAlias = float
"""A moment in seconds since the Unix epoch, from a `Clock` that never runs backwards within one process."""

Seconds: TypeAlias = float
"""A duration in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A reading that failed or was not taken."""

    reason: str  # one line for people: which read, of what, and how it failed
    # the read may succeed a little later without a change. False where a person has to change a key or
    # account.
    passes: bool = False
    # for a host that may be read later: time of the first of its failed readings in a row
    since: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported(Unknown):
    """A reading that this server cannot give, such as of an API that it does not have; no change helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled(Unknown):
    """A read value that is not valid, and stays so until a person changes it."""

    remedy: str  # what the person can do


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Credentials that a cluster does not accept (401), or that lack a right (403)."""

    endpoint: str  # URL of the node that refused them
    credentials: str  # their kind and user, for people: `user ops`
    source: str = ""  # the reference of the secret, such as `env:ES_PASSWORD`; empty if there is none
    status: int = 401  # of HTTP
    call: str = ""  # the request that lacks a right: method and path. Empty if the login itself was refused.
    fixed: bool = False  # the source cannot change while the program runs

    @property
    def of_login(self) -> bool:
        """Whether the login was refused, and not one request."""
        return not self.call

    @property
    def sentence(self) -> str:
        """Who refuses whom, and where the secret comes from."""
        where = f"; secret from {self.source}" if self.source else ""
        if self.call:
            return f"{self.credentials} may not {self.call} ({self.status}{where}) at {self.endpoint}"
        return f"{self.endpoint} refused {self.credentials} ({self.status}{where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unauthorized(Unknown):
    """A reading that was refused for its credentials: waiting helps only if somebody changes something."""

    refusal: Refusal


T = TypeVar("T")
Reading: TypeAlias = T | Unknown
"""A value that was read, or `Unknown`."""

NOT_READ = Unknown(reason="not read in this observation")
"""The part of an observation that nobody asked for this time."""

_MOST_PLACES: Final = 5
"""Places that one message names."""


def reasons_by_place(reasons: Mapping[str, str]) -> str:
    """What is wrong with each place, such as the URL of an endpoint, in one line: five places at most.

    A remedy that is the same for all places, such as a key to set, is at the end alone.
    """
    remedies = {why.rpartition(": ")[2] for why in reasons.values()}
    remedy = f": {remedies.pop()}" if len(remedies) == 1 else ""
    remedy = remedy if "`" in remedy else ""
    reasons = {place: why.removesuffix(remedy) for place, why in reasons.items()}
    shown = [why if place in why else f"{place}: {why}" for place, why in reasons.items()][:_MOST_PLACES]
    if len(reasons) > len(shown):
        shown.append(f"and {len(reasons) - len(shown)} more")
    return "; ".join(shown) + remedy
