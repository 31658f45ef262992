"""Resolve names, globs, aliases and data streams to indices. Pure.

All come from one reading of the cluster's metadata, which includes the uuids and needs no right on any index.
The server's own `_resolve/index` (7.9 and later) returns no uuids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.elasticsearch.fields import (
    Malformed,
    answer_of,
    given,
    items,
    mapping,
    text,
    truth,
    within,
)
from orchestrator.model.merging import Resolution, ResolvedIndex

_EVERYTHING: Final = "_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """One index, with all its names."""

    index: ResolvedIndex
    open: bool
    hidden: bool
    names: frozenset[str]


def patterns_in(given_patterns: Iterable[str]) -> tuple[str, ...]:
    """Patterns without repetition; commas separate them, as in a request."""
    each = (part.strip() for pattern in given_patterns for part in pattern.split(","))
    return tuple(dict.fromkeys(part for part in each if part))


@answer_of("index metadata")
def parse_resolution(body: Any, patterns: Sequence[str]) -> Resolution:
    """Resolve patterns to indices.

    A glob has `*` for any number of characters; `_all` is `*`. It matches names of indices, aliases and data
    streams. A hidden index is left out unless a pattern is one of its names in full, or a glob with the same
    leading dot: this is the servers' own rule.

    Args:
        body: the cluster's metadata (`calls.names`).
        patterns: as the user gave them; commas separate.
    """
    known = _known(body)
    found: set[_Known] = set()
    shaded: set[_Known] = set()
    unmatched: list[str] = []
    for pattern in patterns_in(patterns):
        matching = {each: matched for each in known if (matched := _matching(pattern, each))}
        if not matching:
            unmatched.append(pattern)
        for each, matched in matching.items():
            (found if _wanted(pattern, each, matched) else shaded).add(each)
    return Resolution(
        open=_in_order(each for each in found if each.open),
        closed=_in_order(each for each in found if not each.open),
        hidden=_in_order(shaded - found),
        unmatched=tuple(unmatched),
    )


@answer_of("index metadata")
def parse_names(body: Any) -> Mapping[str, frozenset[str]]:
    """All names of each index (its own, aliases, data stream), by its uuid."""
    return {each.index.uuid: each.names for each in _known(body)}


def matches(pattern: str, name: str) -> bool:
    """Whether a name or a glob matches this name."""
    if pattern == _EVERYTHING:
        return True
    return (
        re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), name, re.DOTALL) is not None
    )


def _matching(pattern: str, index: _Known) -> frozenset[str]:
    return frozenset(name for name in index.names if matches(pattern, name))


def _wanted(pattern: str, index: _Known, matched: frozenset[str]) -> bool:
    """Whether this pattern includes this index even if it is hidden."""
    if "*" not in pattern and pattern != _EVERYTHING:
        return True
    if pattern.startswith("."):
        return True
    # The name of a visible alias or data stream includes its hidden indices.
    others = matched - {index.index.name}
    return any(not name.startswith(".") for name in others) or not index.hidden


def _in_order(indices: Iterable[_Known]) -> tuple[ResolvedIndex, ...]:
    return tuple(sorted((each.index for each in indices), key=lambda index: index.name))


def _known(body: Any) -> tuple[_Known, ...]:
    text(within(body, "cluster_name"), "cluster_name")  # the answer is valid, though it may list no index
    listed = mapping(given(within(body, "metadata", "indices"), {}), "metadata.indices")
    streams = _streams(body)
    return tuple(
        _one(name, mapping(value, f"metadata.indices.{name}"), streams) for name, value in listed.items()
    )


def _one(name: str, value: dict[str, Any], streams: Mapping[str, frozenset[str]]) -> _Known:
    where = f"metadata.indices.{name}"
    settings = mapping(within(value, "settings", "index"), f"{where}.settings.index")
    state = text(value.get("state"), f"{where}.state")
    if state not in ("open", "close"):
        raise Malformed(f"{where}.state is {state}")
    aliases = {text(alias, f"{where}.aliases") for alias in items(given(value.get("aliases"), []), where)}
    return _Known(
        index=ResolvedIndex(name=name, uuid=text(settings.get("uuid"), f"{where}: uuid")),
        open=state == "open",
        hidden=truth(settings.get("hidden", False), f"{where}: hidden") or name.startswith("."),
        names=frozenset({name} | aliases | {by for by, indices in streams.items() if name in indices}),
    )


def _streams(body: Any) -> dict[str, frozenset[str]]:
    """Backing indices by the name of a data stream, or of an alias of data streams."""
    where = "metadata.data_stream"
    own = mapping(given(within(body, "metadata", "data_stream"), {}), where)
    found = {
        name: frozenset(
            text(within(index, "index_name"), f"{where}.{name}: index_name")
            for index in items(within(stream, "indices"), f"{where}.{name}.indices")
        )
        for name, stream in mapping(given(own.get("data_stream"), {}), where).items()
    }
    for alias, value in mapping(given(own.get("data_stream_aliases"), {}), where).items():
        streams = items(given(within(value, "data_streams"), []), f"{where}.{alias}.data_streams")
        found[alias] = frozenset().union(*(found.get(str(stream), frozenset()) for stream in streams))
    return found
