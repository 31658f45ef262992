"""Events about what surrounds a run: messages and silences. They change nothing of its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """A message was sent. `resume` does not send it again.

    Attributes:
        target: its name, without secrets.
        on: what it is about, as in `notify`.
        of: sequence of the event that it is about.
    """

    target: str
    on: str
    of: int
    event: Literal["notified"] = "notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNotified:
    """A message was not sent, or perhaps not: `why`."""

    target: str
    on: str
    of: int
    why: str
    event: Literal["not_notified"] = "not_notified"


AroundEvent: TypeAlias = Notified | NotNotified
