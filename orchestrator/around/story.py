"""What is worth a message: a fold of a run's public events. No I/O, no clock.

Everything here is for one target, since each chooses what it wants, and how long a hold has to last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.config.around import On

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
class Seen:
    """A public event.

    Attributes:
        at: when, in seconds since the epoch.
        line: the object of `--output json`.
        text: its sentence.
    """

    at: float
    line: Mapping[str, Any]
    text: str

    @property
    def event(self) -> str:
        """Its name."""
        return str(self.line["event"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message.

    Attributes:
        on: what it is about: one of `On`, or a test.
        of: sequence of the event that it is about.
        line: that event, as in `--output json`.
    """

    on: str
    of: int
    text: str
    line: Mapping[str, Any]


class Story:
    """Makes the messages of a run for one target.

    Args:
        on: what it wants.
        after: seconds that a hold lasts before it is reported.
        duration: seconds in words.
    """

    def __init__(self, on: Collection[On], after: float, duration: Callable[[float], str]) -> None:
        self._on, self._after, self._duration = on, after, duration
        self._holds: dict[tuple[str, str], Seen] = {}
        self._first: Seen | None = None
        self._reported = False
        self._end: Message | None = None

    def of(self, batch: Sequence[Seen]) -> list[Message]:
        """The messages of events that were committed together."""
        found: list[Message] = []
        failed: list[Seen] = []
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
        first = self._first
        if first is None or self._reported or On.HELD not in self._on or now - first.at < self._after:
            return []
        if On.GATE_CLOSED in self._on and all(seen.event == "gate_closed" for seen in self._holds.values()):
            return []  # reported when it closed
        self._reported = True
        said = [seen.text for seen in self._holds.values()]
        more = [f"and {len(said) - _MOST_HOLDS} more"] if len(said) > _MOST_HOLDS else []
        text = "\n".join([f"for {self._duration(now - first.at)} now", *said[:_MOST_HOLDS], *more])
        return [_message(On.HELD, first, text)]

    def end(self, text: str) -> list[Message]:
        """The message of the end, if it has come, with what is said of it at length."""
        ended, self._end = self._end, None
        if ended is None or ended.on not in self._on:
            return []
        return [Message(on=ended.on, of=ended.of, text=text, line=ended.line)]

    def _one(self, seen: Seen) -> list[Message]:
        line = seen.line
        match seen.event:
            case "run_started" | "run_resumed" | "restore_begun":
                self._forget()
                self._end = None
                return [_message(On.STARTED, seen, seen.text)]
            case "hold":
                self._held(seen, str(line["predicate"]), str(line["subject"]))
            case "gate_closed":
                self._held(seen, "gate_closed", str(line["gate"]))
                self._reported = self._reported or On.GATE_CLOSED in self._on
                return [_message(On.GATE_CLOSED, seen, seen.text)]
            case "gate_opened":
                self._holds.pop(("gate_closed", str(line["gate"])), None)
                return self._cleared(seen)
            case "holds_cleared":
                gates = {key: one for key, one in self._holds.items() if key[0] == "gate_closed"}
                self._holds = gates if line.get("but_gates") else {}
                return self._cleared(seen)
            case "phase_entered" if line.get("node") is None and line["to"] in ("standing_down", "ended"):
                self._forget()  # what follows is about the end
            case "phase_entered" if line.get("node") is None:
                self._holds = {}
                return self._cleared(seen)
            case "run_finished":
                self._forget()
                on = _ENDINGS.get(str(line["outcome"]), On.STOOD_DOWN)
                self._end = _message(on, seen, seen.text)
            case _:
                pass
        return []

    def _held(self, seen: Seen, predicate: str, subject: str) -> None:
        self._holds[predicate, subject] = seen
        self._first = self._first or seen

    def _cleared(self, seen: Seen) -> list[Message]:
        if self._holds or self._first is None:
            return []
        held, reported = seen.at - self._first.at, self._reported
        self._forget()
        said = f"nothing holds the run any more, after {self._duration(held)}"
        return [_message(On.CLEARED, seen, said)] if reported else []

    def _forget(self) -> None:
        self._holds, self._first, self._reported = {}, None, False


def sent_already(past: Sequence[Seen]) -> set[tuple[str, str, int]]:
    """Target, subject and sequence of each message whose fate is in the journal."""
    return {
        (str(seen.line["target"]), str(seen.line["on"]), int(seen.line["of"]))
        for seen in past
        if seen.event in ("notified", "not_notified")
    }


def last_attempt(past: Sequence[Seen]) -> Sequence[Seen]:
    """The events of the last attempt at a run."""
    begins = [number for number, seen in enumerate(past) if seen.event in _AGAIN]
    return past[begins[-1] :] if begins else past


def _is_failure(seen: Seen) -> bool:
    failed = seen.event == "phase_entered" and seen.line["to"] == "failed" and seen.line.get("node")
    return bool(failed) or seen.event == "second_failure"


def _message(on: On, seen: Seen, text: str) -> Message:
    return Message(on=on, of=int(seen.line["sequence"]), text=text, line=seen.line)
