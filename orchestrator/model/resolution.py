"""What names, globs, aliases and data streams stand for: concrete indices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedIndex:
    """An index as it was found; another one of the same name has another uuid."""

    name: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What patterns stand for, each index once and in the order of its name.

    Attributes:
        open: the indices to work on.
        closed: those that match and are closed: their segments can be neither read nor merged.
        hidden: those that match a glob, are hidden or have a name with a leading dot, and so are left out:
            name them, or write the dot, to have them among `open`.
        unmatched: the patterns that stand for nothing at all, as they were given.
    """

    open: tuple[ResolvedIndex, ...] = ()
    closed: tuple[ResolvedIndex, ...] = ()
    hidden: tuple[ResolvedIndex, ...] = ()
    unmatched: tuple[str, ...] = ()
