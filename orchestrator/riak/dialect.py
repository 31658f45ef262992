"""The differences between versions of Riak in its commands and their output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
