"""Messages to one target, sent one after the other by a thread beside the run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from orchestrator.around.story import ENDS, Message, not_notified
from orchestrator.around.web import NotSent
from orchestrator.around.worker import Worker

MOST_WAITING: Final = 50
"""Messages that wait for a slow target. One more is lost."""
MOST_IN_A_WHILE: Final = 20
WHILE_SECONDS: Final = 600.0
"""At most so many messages in so long; the message of the end is always sent."""
SEND_SECONDS: Final = 10.0
"""Limit of one try."""
PAUSES: Final = (2.0, 10.0)
"""Seconds before the second and the third try. Only what cannot have been delivered is tried again."""

Send = Callable[[Message, float], str | None]
"""Sends a message within so many seconds; what the target calls it, if that is needed. Raises `NotSent`."""
Record = Callable[[Mapping[str, object]], None]
"""Takes an event for the journal."""


class Outbox(Worker):
    """The messages to one target. `put` never waits.

    Args:
        target: its name, for events.
        send: sends one.
        record: takes what became of each, as an event.
        seconds: limit of one try.
        most: at most so many messages in `WHILE_SECONDS`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        target: str,
        send: Send,
        record: Record,
        *,
        seconds: float = SEND_SECONDS,
        most: int = MOST_IN_A_WHILE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"message-{target}", clock)
        self._target, self._send, self._record, self._seconds = target, send, record, seconds
        self._most = most
        self._waiting: deque[Message] = deque()
        self._recent: deque[float] = deque()

    def put(self, message: Message) -> None:
        """Send it soon; one too many is recorded as lost."""
        with self._changed:
            why = self._too_many(message)
            if why is None:
                self._waiting.append(message)
                self._changed.notify()
        if why is not None:
            self._say(message, not_notified(why))
        else:
            self._begin()

    def _late(self) -> None:
        with self._changed:
            lost, self._waiting = self._waiting, deque()
        for message in lost:
            self._say(message, not_notified("it was not delivered before the end of the run"))

    def _too_many(self, message: Message) -> str | None:
        now = self._clock()
        while self._recent and now - self._recent[0] > WHILE_SECONDS:
            self._recent.popleft()
        if len(self._waiting) >= MOST_WAITING:
            return f"{MOST_WAITING} messages wait already: the target does not keep up"
        if len(self._recent) >= self._most and message.on not in ENDS:
            return f"{self._most} messages were sent within {WHILE_SECONDS / 60:g} minutes"
        self._recent.append(now)
        return None

    def _work(self) -> None:
        while (message := self._next()) is not None:
            fate = self._fate(message)
            with self._changed:  # it stays the first while it is sent, so that `_late` finds it
                if not self._waiting or self._waiting[0] is not message:
                    return
                self._waiting.popleft()
            self._say(message, fate)

    def _next(self) -> Message | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._until is not None)
            return self._waiting[0] if self._waiting else None

    def _fate(self, message: Message) -> Mapping[str, object]:
        """Send it; what became of it, as a part of an event."""
        why = ""
        for pause in (*PAUSES, None):
            try:
                reference = self._send(message, self._left(self._seconds))
            except NotSent as error:
                why = str(error)
                if not error.again or pause is None or self._closing_within(pause):
                    return not_notified(why)
            except Exception as defect:  # noqa: BLE001  (a message must not end a run; the type alone holds no secret)
                return not_notified(f"a defect of the program: {type(defect).__name__}")
            else:
                return {"event": "notified", **({"reference": reference} if reference else {})}
        return not_notified(why)

    def _closing_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._until is not None, timeout=seconds)

    def _say(self, message: Message, fate: Mapping[str, object]) -> None:
        self._record({**fate, "target": self._target, "on": str(message.on), "of": message.of})
