"""What differs between versions of Riak, as far as its commands are read and given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.engine.kinds.riak.hasten import impossible

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\D.*)?", re.DOTALL)
_OLDEST: Final = (1, 4)
_FIRST_WITHOUT_RIAK_ADMIN: Final = (3, 0)
_FIRST_WITH_CLIQUE: Final = (2, 0)
_FIRST_WITH_RETURN_TERM: Final = (3, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A family of versions.

    Attributes:
        returns_term: the last line of a `riak admin` command is what it returned.
        lists_services: `services` tells them; 3.2 prints `[]` whatever runs.
        admin: the words before a command's own, unless the cluster file says otherwise.
        has_cluster_status: `cluster status`, `cluster partitions`, `handoff summary` and `show` exist.
        has_eval: `riak rpc` and `riak eval` exist.
        can_be_hastened: what its vnode manager has not started can be read out of its state.
    """

    returns_term: bool
    lists_services: bool
    admin: tuple[str, ...]
    has_cluster_status: bool
    has_eval: bool
    can_be_hastened: bool = False


def dialect_of(version: str) -> Dialect | None:
    """The dialect of a version such as `3.2.1`; None for one that is not known to be readable."""
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return None
    number = (int(found[1]), int(found[2]))
    if number < _OLDEST:
        return None
    return Dialect(
        returns_term=number >= _FIRST_WITH_RETURN_TERM,
        lists_services=number < _FIRST_WITH_RETURN_TERM,
        admin=("riak-admin",) if number < _FIRST_WITHOUT_RIAK_ADMIN else ("riak", "admin"),
        has_cluster_status=number >= _FIRST_WITH_CLIQUE,
        has_eval=number >= _FIRST_WITHOUT_RIAK_ADMIN,
        can_be_hastened=impossible(version) is None,
    )
