"""What is worth a message: a fold of a run's public events. No I/O, no clock.

Everything here is for one target, since each chooses what it wants, and how long a hold has to last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.config.around import On
from orchestrator.formats import duration
from orchestrator.holds import GATES_OPEN, Holds

READ: Final = frozenset(
    {
        *("deposed", "gate_closed", "gate_opened", "hold", "holds_cleared", "node_recovered", "notified"),
        *("not_notified", "phase_entered", "restore_begun", "run_finished", "run_resumed", "run_started"),
        *("second_failure", "wave_finished", "wave_gave_way", "wave_started"),
    }
)
"""Names of the events that are read around a run. Others need not be encoded."""
_AGAIN: Final = ("run_resumed", "restore_begun")
_ENDINGS: Final = {"done": On.DONE, "restored": On.DONE, "paused": On.PAUSED}
ENDS: Final = (On.DONE, On.PAUSED, On.STOOD_DOWN)
_MOST_HOLDS: Final = 5
"""Holds that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicEvent:
    """A public event."""

    at: float  # when, in seconds since the epoch
    line: Mapping[str, Any]  # the object of `--output json`
    text: str  # its sentence

    @property
    def event(self) -> str:
        """Its name."""
        return str(self.line["event"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message."""

    on: str  # what it is about: one of `On`, or a test
    of: int  # sequence of the event that it is about
    text: str
    line: Mapping[str, Any]  # that event, as in `--output json`


class MessageStory:
    """Makes the messages of a run for one target.

    Args:
        on: what it wants.
        after: seconds that a hold lasts before it is reported.
    """

    def __init__(self, on: Collection[On], after: float) -> None:
        self._on, self._after = on, after
        self._holds = Holds[PublicEvent]()
        self._reported = False
        self._end: Message | None = None

    def of(self, batch: Sequence[PublicEvent]) -> list[Message]:
        """The messages of events that were committed together."""
        found: list[Message] = []
        failed: list[PublicEvent] = []
        for seen in batch:
            found += self.due(seen.at)
            if _is_failure(seen):
                failed.append(seen)
            else:
                found += self._one(seen)
        if failed:  # one message for a wave whose nodes all failed
            text = "\n".join(dict.fromkeys(seen.text for seen in failed))
            found.append(_message(On.FAILED, failed[0], text))
        return [message for message in found if message.on in self._on]

    def due(self, now: float) -> list[Message]:
        """The message of a hold that has lasted long enough by now."""
        first, holds = self._holds.first, self._holds.open
        if first is None or self._reported or On.HELD not in self._on or now - first.began < self._after:
            return []
        if On.GATE_CLOSED in self._on and all(hold.predicate == GATES_OPEN for hold in holds):
            return []  # reported when it closed
        self._reported = True
        said = [hold.said[-1].text for hold in holds]
        more = [f"and {len(said) - _MOST_HOLDS} more"] if len(said) > _MOST_HOLDS else []
        text = "\n".join([f"for {duration(now - first.began)} now", *said[:_MOST_HOLDS], *more])
        return [_message(On.HELD, first.said[0], text)]

    def end(self, text: str) -> list[Message]:
        """The message of the end, if it has come, with what is said of it at length."""
        ended, self._end = self._end, None
        if ended is None or ended.on not in self._on:
            return []
        return [Message(on=ended.on, of=ended.of, text=text, line=ended.line)]

    def _one(self, seen: PublicEvent) -> list[Message]:
        held, reported = self._holds.first, self._reported
        self._holds.see(seen.line, seen.at, seen)
        self._reported = reported and self._holds.first is not None
        match seen.event:
            case "run_started" | "run_resumed" | "restore_begun":
                self._end = None
                return [_message(On.STARTED, seen, seen.text)]
            case "gate_closed":
                self._reported = reported or On.GATE_CLOSED in self._on
                return [_message(On.GATE_CLOSED, seen, seen.text)]
            case "phase_entered" if seen.line["to"] in ("standing_down", "ended"):
                return []  # what follows is about the end
            case "run_finished":
                on = _ENDINGS.get(str(seen.line["outcome"]), On.STOOD_DOWN)
                self._end = _message(on, seen, seen.text)
                return []
            case _ if held is not None and reported and not self._reported:
                lasted = duration(seen.at - held.began)
                return [_message(On.CLEARED, seen, f"nothing holds the run any more, after {lasted}")]
            case _:
                return []


def sent_already(past: Sequence[PublicEvent]) -> set[tuple[str, str, int]]:
    """Target, subject and sequence of each message whose fate is in the journal."""
    return {
        (str(seen.line["target"]), str(seen.line["on"]), int(seen.line["of"]))
        for seen in past
        if seen.event in ("notified", "not_notified")
    }


def last_attempt(past: Sequence[PublicEvent]) -> Sequence[PublicEvent]:
    """The events of the last attempt at a run."""
    begins = [number for number, seen in enumerate(past) if seen.event in _AGAIN]
    return past[begins[-1] :] if begins else past


def not_notified(why: str) -> dict[str, object]:
    """The event of what a target did not get; `target`, `on` and `of` are added to it."""
    return {"event": "not_notified", "why": why}


def _is_failure(seen: PublicEvent) -> bool:
    failed = seen.event == "phase_entered" and seen.line["to"] == "failed" and seen.line.get("node")
    return bool(failed) or seen.event == "second_failure"


def _message(on: On, seen: PublicEvent, text: str) -> Message:
    return Message(on=on, of=int(seen.line["sequence"]), text=text, line=seen.line)
