"""What holds a run, by its public events: predicates that are not met and closed gates, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

GATES_OPEN: Final = "gates_open"
"""The predicate that a closed gate does not meet."""
_NAMED: Final = 3
"""Subjects of a hold that are named where one evidence is enough; it is of the first."""

Said = TypeVar("Said")
_Key: TypeAlias = tuple[str, str]


def in_words(predicate: str, subjects: Sequence[str], count: int, evidence: str) -> str:
    """A hold in one line: `predicate (subject and 2 more): evidence`; `count` is of all its subjects."""
    named = subjects[:_NAMED]
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{predicate} ({', '.join(named)}{more}): {evidence}"


def public_in_words(hold: Mapping[str, Any]) -> str:
    """The same of a hold in `--output json`."""
    subjects, count = hold.get("subjects") or [str(hold.get("subject"))], int(hold.get("count", 1))
    return in_words(str(hold.get("predicate")), subjects, count, str(hold.get("evidence")))


@dataclass(slots=True, kw_only=True)
class HoldPeriod(Generic[Said]):
    """One hold of a run."""

    predicate: str  # that is not met; `subject`: for what, or the gate
    subject: str
    began: float  # in seconds since the epoch, `ended` likewise; None while it lasts
    said: list[Said]  # what was given with each event about it, in order
    ended: float | None = None


class Holds(Generic[Said]):
    """The holds of a run: a fold.

    A step of the run ends them all, and so does the end of an attempt: of a killed one, its last event.

    Attributes:
        all: in the order of their begins.
        first: the one with which the run began to be held, which may have ended; None while nothing holds it.
    """

    def __init__(self) -> None:
        self.all: list[HoldPeriod[Said]] = []
        self.first: HoldPeriod[Said] | None = None
        self._open: dict[_Key, HoldPeriod[Said]] = {}
        self._seconds = self._at = 0.0

    @property
    def open(self) -> list[HoldPeriod[Said]]:
        """Those that last, the oldest first."""
        return list(self._open.values())

    def seconds(self, now: float) -> float:
        """How long at least one of them has held the run in all, by now."""
        return self._seconds + (now - self.first.began if self.first is not None else 0.0)

    def see(self, event: Mapping[str, Any], at: float, said: Said) -> None:
        """One more event, with what to keep of it if it is about a hold."""
        match event["event"]:
            case "run_started" | "run_resumed" | "restore_begun":
                self._end(self._open, self._at)
            case "hold":
                self._hold((event["predicate"], event["subject"]), at, said)
            case "gate_closed":
                self._hold((GATES_OPEN, event["gate"]), at, said)
            case "gate_opened":
                self._end({(GATES_OPEN, event["gate"])}, at)
            case "holds_cleared":
                kept = GATES_OPEN if event.get("but_gates") else None
                self._end([key for key in self._open if key[0] != kept], at)
            case "phase_entered" if event.get("node") is None:
                self._end(self._open, at)
            case "run_finished":
                self._end(self._open, at)
            case _:
                pass
        self._at = at

    def _hold(self, key: _Key, at: float, said: Said) -> None:
        if key not in self._open:
            self._open[key] = HoldPeriod(predicate=key[0], subject=key[1], began=at, said=[])
            self.all.append(self._open[key])
            self.first = self.first or self._open[key]
        self._open[key].said.append(said)

    def _end(self, keys: Iterable[_Key], at: float) -> None:
        for key in [*keys]:
            if key in self._open:
                self._open.pop(key).ended = at
        if self.first is not None and not self._open:
            self._seconds, self.first = self.seconds(at), None
