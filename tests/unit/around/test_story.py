"""What is worth a message: rows of events, and the messages that they make."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from typing import Any, Final, get_args

import pytest

from orchestrator import holds
from orchestrator.around import annotations, beside, metrics, silence, story
from orchestrator.around.story import READ, Message, MessageStory, PublicEvent, last_attempt, sent_already
from orchestrator.config.around import On
from orchestrator.model.event import Event
from orchestrator.model.phase import Phase

EVERYTHING: Final = frozenset(On)


def seen(number: int, event: str, *, at: float | None = None, **fields: Any) -> PublicEvent:
    line = {"ts": "then", "run": "r", "sequence": number, "event": event, **fields}
    return PublicEvent(at=float(number) if at is None else at, line=line, text=f"{event} {number}")


def told(
    *batches: list[PublicEvent], on: frozenset[str] = EVERYTHING, now: float | None = None
) -> list[Message]:
    """Every message that these batches make, and what is due at the end."""
    story = MessageStory(on, 600.0)
    found = [message for batch in batches for message in story.of(batch)]
    return found + (story.due(now) if now is not None else []) + story.end("the summary")


def subjects(
    *events: PublicEvent, now: float | None = None, on: frozenset[str] = EVERYTHING
) -> list[tuple[str, int]]:
    return [(str(message.on), message.of) for message in told(*([one] for one in events), on=on, now=now)]


START = seen(1, "run_started")
HOLD = seen(2, "hold", predicate="p", subject="s")
AGAIN = seen(3, "hold", predicate="p", subject="t")
CLOSED = seen(4, "gate_closed", gate="queue")
OPENED = seen(5, "gate_opened", gate="queue", at=700.0)
FREE = seen(6, "holds_cleared", but_gates=False, at=900.0)
BUT_GATES = seen(6, "holds_cleared", but_gates=True, at=900.0)
GOES_ON = seen(7, "phase_entered", node=None, to="withheld", at=901.0)
FAILED = seen(8, "phase_entered", node="es1", to="failed")
ENDING = seen(9, "phase_entered", node=None, to="standing_down", at=950.0)


def ended(outcome: str) -> PublicEvent:
    return seen(20, "run_finished", outcome=outcome, at=1000.0)


@pytest.mark.parametrize(
    ("events", "now", "wanted"),
    [
        ([START], None, [("started", 1)]),
        ([seen(3, "run_resumed")], None, [("started", 3)]),
        ([seen(3, "restore_begun")], None, [("started", 3)]),
        ([START, HOLD], 601.9, [("started", 1)]),
        ([START, HOLD, AGAIN], 602.0, [("started", 1), ("held", 2)]),
        ([HOLD, FREE], None, [("held", 2), ("cleared", 6)]),
        ([HOLD, seen(6, "holds_cleared", at=100.0)], 900.0, []),
        ([HOLD, GOES_ON], None, [("held", 2), ("cleared", 7)]),
        ([HOLD, ENDING], None, [("held", 2)]),
        ([CLOSED], 9000.0, [("gate_closed", 4)]),
        ([CLOSED, OPENED], None, [("gate_closed", 4), ("cleared", 5)]),
        ([CLOSED, HOLD, seen(5, "gate_opened", gate="queue")], 9000.0, [("gate_closed", 4)]),
        ([HOLD, CLOSED, BUT_GATES, seen(7, "gate_opened", gate="queue", at=950.0)], None,
         [("gate_closed", 4), ("cleared", 7)]),
        ([FAILED], None, [("failed", 8)]),
        ([seen(8, "second_failure", what="x")], None, [("failed", 8)]),
        ([seen(8, "phase_entered", node="es1", to="stopping")], None, []),
        ([ended("done")], None, [("done", 20)]),
        ([ended("restored")], None, [("done", 20)]),
        ([ended("paused")], None, [("paused", 20)]),
        ([ended("held")], None, [("stood_down", 20)]),
        ([ended("failed")], None, [("stood_down", 20)]),
        ([ended("interrupted")], None, [("stood_down", 20)]),
        ([ended("paused"), seen(21, "run_resumed", at=2000.0)], None, [("started", 21)]),
    ],
)  # fmt: skip
def test_what_is_worth_a_message(
    events: list[PublicEvent], now: float | None, wanted: list[tuple[str, int]]
) -> None:
    assert subjects(*events, now=now) == wanted


def test_only_what_is_wanted_is_sent() -> None:
    assert subjects(START, HOLD, CLOSED, FAILED, ended("done"), on=frozenset({On.FAILED})) == [("failed", 8)]


def test_a_closed_gate_is_a_hold_for_who_wants_no_gates() -> None:
    assert subjects(CLOSED, now=700.0, on=frozenset({On.HELD})) == [("held", 4)]


def test_nodes_that_failed_together_are_one_message() -> None:
    other = seen(10, "phase_entered", node="es2", to="failed")
    (message,) = told([FAILED, other])
    assert (message.of, message.text) == (8, "phase_entered 8\nphase_entered 10")
    assert [message.of for message in told([FAILED], [other])] == [8, 10]


def test_one_message_a_hold_names_all_that_hold() -> None:
    holds = [seen(number, "hold", predicate="p", subject=f"s{number}", at=1.0) for number in range(8)]
    (message,) = told(holds, now=700.0)
    assert message.text.splitlines() == ["for 11m 39s now", *(f"hold {n}" for n in range(5)), "and 3 more"]


def test_the_end_is_said_with_the_summary() -> None:
    (message,) = told([ended("done")])
    assert (message.text, message.line["outcome"]) == ("the summary", "done")


def test_every_event_that_is_read_is_public() -> None:
    """The names in a `case` or a comparison of the folds are those that are encoded for them."""
    folds = (MessageStory, sent_already, story._is_failure, annotations, holds, metrics, silence)
    public = {str(next(f.default for f in fields(kind) if f.name == "event")) for kind in get_args(Event)}
    named = {
        node.value
        for part in folds
        for node in ast.walk(ast.parse(inspect.getsource(part)))
        if isinstance(node, ast.Constant) and node.value in public
    }
    made_here = {"silence_created", "silence_renewed", "silence_ended"}
    phases = {phase.value for phase in Phase}
    assert named - made_here - phases == READ


def test_what_the_journal_has_of_messages() -> None:
    past = [
        seen(1, "run_started"),
        seen(2, "notified", target="a", on="started", of=1),
        seen(3, "not_notified", target="b", on="started", of=1, why="x"),
        seen(4, "run_resumed"),
        seen(5, "hold", predicate="p", subject="s"),
    ]
    assert sent_already(past) == {("a", "started", 1), ("b", "started", 1)}
    assert [one.line["sequence"] for one in last_attempt(past)] == [4, 5]
    assert [*last_attempt(past[:3])] == past[:3]


def test_resume_sends_what_the_killed_attempt_had_not() -> None:
    """Not what an earlier one had not: that is over."""
    past = [START, FAILED, seen(20, "run_resumed"), seen(21, "phase_entered", node="es2", to="failed")]
    known = {("t", "started", 20)}
    found = beside._unsent(MessageStory(EVERYTHING, 600.0), "t", past, known)
    assert [(str(message.on), message.of) for message in found] == [("failed", 21)]
