"""What an invariant is: a condition that is checked on one step of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.engine.state import RunState
from orchestrator.model.action import Action
from orchestrator.model.event import ActionSent, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event in its place: the state before it, the record, the state after it."""

    before: RunState
    record: Record
    after: RunState

    @property
    def sent(self) -> Action | None:
        """The verb that the event sends; None when it is another event."""
        event = self.record.event
        return event.action if isinstance(event, ActionSent) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Invariant:
    """One condition. It is equal only to itself, so that a catalogue of them is a key at no cost.

    Attributes:
        name: the name in failure reports.
        why: what goes wrong if it does not hold.
        check: yields what is wrong with a step.
        at: names of the events at which it can break, so that it is asked at no others; empty = at all.
    """

    name: str
    why: str
    check: Callable[[Step], Iterator[str]]
    at: tuple[str, ...] = ()
