"""Counts the changes of the world's parts, so that unchanged views are reused."""

from __future__ import annotations


class Changes:
    """Counts every change of a part of a view, so that unchanged views are reused.

    Attributes:
        count: of all changes in all worlds.
    """

    count = 0


class Part:
    """A part of the ground truth whose changes are counted."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        """Set the attribute and count the change."""
        if name != "shown":
            Changes.count += 1
        object.__setattr__(self, name, value)
