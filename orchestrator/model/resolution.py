"""The concrete indices behind names, globs, aliases and data streams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedIndex:
    """An index as found. A later index of the same name has another uuid."""

    name: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The indices that patterns resolve to, each once and sorted by name.

    Attributes:
        open: the indices to work on.
        closed: matching indices that are closed; their segments can be neither read nor merged.
        hidden: indices that match a glob but are left out, because they are hidden or their name has a
            leading dot. Give the name or the dot to have them in `open`.
        unmatched: patterns that match nothing, as given.
    """

    open: tuple[ResolvedIndex, ...] = ()
    closed: tuple[ResolvedIndex, ...] = ()
    hidden: tuple[ResolvedIndex, ...] = ()
    unmatched: tuple[str, ...] = ()
