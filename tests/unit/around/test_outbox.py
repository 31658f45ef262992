"""Messages to one target: never waited for, each with one fate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import pytest

from orchestrator.around import outbox
from orchestrator.around.outbox import MOST_IN_A_WHILE, MOST_WAITING, WHILE_SECONDS, Outbox
from orchestrator.around.story import Message
from orchestrator.around.web import NotSent


def message(number: int, on: str = "failed") -> Message:
    return Message(on=on, of=number, text="", line={})


class Box:
    """An outbox, with what it sent and what it recorded."""

    def __init__(
        self, send: Callable[[int], None] = lambda _number: None, most: int = MOST_IN_A_WHILE
    ) -> None:
        self.sent: list[int] = []
        self.fates: list[Mapping[str, Any]] = []
        self.skipped = 0.0
        self._send = send
        self.box = Outbox(
            "t", self._one, self.fates.append, most=most, clock=lambda: time.monotonic() + self.skipped
        )

    def _one(self, message: Message, _seconds: float) -> None:
        self._send(message.of)
        self.sent.append(message.of)

    def end(self, seconds: float) -> None:
        self.box.close(time.monotonic() + self.skipped + seconds)
        self.box.join()

    @property
    def lost(self) -> dict[int, str]:
        return {fate["of"]: fate["why"] for fate in self.fates if fate["event"] == "not_notified"}


def test_messages_are_sent_in_order_and_recorded() -> None:
    box = Box()
    for number in range(5):
        box.box.put(message(number))
    box.end(60)
    assert box.sent == [0, 1, 2, 3, 4]
    assert box.fates[0] == {"event": "notified", "target": "t", "on": "failed", "of": 0}
    assert [fate["of"] for fate in box.fates] == box.sent


def test_a_target_that_hangs_loses_what_waits_at_the_end() -> None:
    released = Event()
    box = Box(lambda _number: (released.wait(60), None)[1])
    for number in range(3):
        box.box.put(message(number))
    box.end(0.1)
    released.set()
    assert box.lost == dict.fromkeys(range(3), "it was not delivered before the end of the run")
    assert not [fate for fate in box.fates if fate["event"] == "notified"]


def test_what_cannot_have_arrived_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PAUSES", (0.0, 0.0))
    tries: list[int] = []

    def refuses(number: int) -> None:
        tries.append(number)
        raise NotSent("refused", again=number == 1)

    box = Box(refuses)
    box.box.put(message(1))
    box.box.put(message(2))
    while len(box.fates) < 2:
        time.sleep(0.01)
    box.end(60)
    assert tries == [1, 1, 1, 2]
    assert box.lost == {1: "refused", 2: "refused"}


def test_at_the_end_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PAUSES", (600.0, 600.0))
    tries: list[int] = []

    def refuses(number: int) -> None:
        tries.append(number)
        raise NotSent("refused", again=True)

    box = Box(refuses)
    box.box.put(message(1))
    box.end(60)
    assert (tries, box.lost) == ([1], {1: "refused"})


def test_a_slow_target_gets_no_endless_queue() -> None:
    released = Event()
    box = Box(lambda _number: (released.wait(60), None)[1], most=1000)
    for number in range(MOST_WAITING + 2):
        box.box.put(message(number))
    assert list(box.lost) == [MOST_WAITING, MOST_WAITING + 1]
    assert "does not keep up" in box.lost[MOST_WAITING]
    released.set()
    box.end(60)
    assert box.sent == [*range(MOST_WAITING)]


def test_a_flood_is_cut_but_the_end_is_sent() -> None:
    box = Box()
    for number in range(MOST_IN_A_WHILE + 1):
        box.box.put(message(number))
    box.box.put(message(100, "done"))
    box.skipped += WHILE_SECONDS + 1
    box.box.put(message(101))
    box.end(60)
    assert list(box.lost) == [MOST_IN_A_WHILE]
    assert box.sent == [*range(MOST_IN_A_WHILE), 100, 101]


def test_a_defect_of_a_way_ends_no_thread_and_says_no_secret() -> None:
    def defect(number: int) -> None:
        if number == 1:
            raise RuntimeError("hunter2")

    box = Box(defect)
    box.box.put(message(1))
    box.box.put(message(2))
    box.end(60)
    assert (box.lost, box.sent) == ({1: "a defect of the program: RuntimeError"}, [2])


def test_an_outbox_without_messages_has_no_thread() -> None:
    box = Box()
    box.end(60)
    assert box.fates == []
