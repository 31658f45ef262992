"""What `decide` answers."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.action import Action
from orchestrator.model.event import Event, Hold
from orchestrator.model.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next step of a run.

    The events are committed first; if that fails, nothing is done. Then the actions are performed, and each
    outcome is an event too. Then, unless something happened, the shell listens to `watch` and looks again.

    Attributes:
        events: to be committed, `ActionSent` for each action among them.
        actions: to be performed once the events are committed.
        holds: why the run does not go on, as of this reading.
        watch: what to listen to until then; None = look again at once.
    """

    events: tuple[Event, ...] = ()
    actions: tuple[Action, ...] = ()
    holds: tuple[Hold, ...] = ()
    watch: Watch | None = None

    @property
    def at_once(self) -> bool:
        """Whether nothing is done and nothing waited for: what is known is written down, or read again."""
        return not self.actions and self.watch is None
