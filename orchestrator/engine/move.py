"""What one node of the wave does next, while it is down by us."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.action import HostAction
from orchestrator.model.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What one node does next; all empty = it waits.

    Attributes:
        give_up: stands the run down, with this reason.
        overdue: it gives up because its time is over.
    """

    events: tuple[Event, ...] = ()
    actions: tuple[HostAction, ...] = ()
    give_up: str | None = None
    overdue: bool = False


WAIT = Move()
