"""Parts of the simulated world that report their changes, so that indexes and views are kept current."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_NOT_REPORTED: Final = frozenset({"shown", "watch"})


@dataclass(slots=True, kw_only=True, eq=False)
class TruthPart:
    """A part of the ground truth."""

    # the set that collects the changed parts of its world, and the part to add to it: a copy adds its shard.
    # None while it is in no world.
    watch: tuple[set[TruthPart], TruthPart] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Set the attribute and report the change."""
        object.__setattr__(self, name, value)
        if name not in _NOT_REPORTED and self.watch is not None:
            changed, part = self.watch
            changed.add(part)
