"""Events about what surrounds a run: messages and silences. They change nothing of its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.reading import Instant


class Surrounding:
    """What these events have in common: the run itself is as it was."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified(Surrounding):
    """A message was sent, or with `on` = `annotation` an annotation. `resume` does not send it again.

    Attributes:
        target: its name, without secrets.
        on: what it is about, as in `notify`.
        of: sequence of the event that it is about.
        reference: the id of an annotation.
    """

    target: str
    on: str
    of: int
    reference: str = ""
    event: Literal["notified"] = "notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNotified(Surrounding):
    """A message was not sent, or perhaps not: `why`. With `on` = `silence`, alerts could not be silenced."""

    target: str
    on: str
    of: int
    why: str
    event: Literal["not_notified"] = "not_notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceCreated(Surrounding):
    """Alerts of a wave are silenced, by a lease that the run renews.

    Attributes:
        silence: its id in Alertmanager.
        matchers: the alerts that it silences.
        until: when it ends unless it is renewed.
    """

    wave: int
    silence: str
    matchers: str
    until: Instant
    event: Literal["silence_created"] = "silence_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRenewed(Surrounding):
    """A silence lasts longer: the nodes of its wave are not back yet. A resumed run has found it again."""

    wave: int
    silence: str
    until: Instant
    event: Literal["silence_renewed"] = "silence_renewed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceEnded(Surrounding):
    """A silence is over, or ends by itself at `until` and is not renewed any more."""

    wave: int
    silence: str
    until: Instant
    why: str
    event: Literal["silence_ended"] = "silence_ended"


AroundEvent: TypeAlias = Notified | NotNotified | SilenceCreated | SilenceRenewed | SilenceEnded
