"""Counts the changes of the world's parts, so that a view of what has not changed is made once."""

from __future__ import annotations


class Changes:
    """Counts every change of a part that a view is made of, so that what has not changed is made once.

    Attributes:
        count: of all changes in all worlds.
    """

    count = 0


class Part:
    """A part of the ground truth whose changes are counted."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        """Set it, and count that."""
        if name != "shown":
            Changes.count += 1
        object.__setattr__(self, name, value)
