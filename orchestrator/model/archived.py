"""Settings of an older version that the servers keep as `archived.*`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NAMED: Final = 5
_TAKE_AWAY: Final = (
    'PUT /_cluster/settings {"persistent": {"archived.*": null}, "transient": {"archived.*": null}}'
)


def what_to_do(archived: Sequence[str]) -> str:
    """Why no update of the settings is accepted, and what the operator does about it."""
    more = f" and {len(archived) - _NAMED} more" if len(archived) > _NAMED else ""
    return (
        f"archived settings block every update: {', '.join(archived[:_NAMED])}{more}; look at them, then "
        f"take them away with {_TAKE_AWAY}"
    )
