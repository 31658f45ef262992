"""A wave is refused: the run waits, allocation as it was found, and whatever may hold it has a limit.

Predicates have `deadlines.hold`, gates `deadlines.gate`. The two clocks run apart: predicates count from when
the first of them refused until none of them does, gates from when the first one closed until all are open.
So a run that a closed gate holds for hours has not used up what a snapshot of ten minutes may take, nor the
other way round; whichever limit is reached first stands the run down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orchestrator.engine.decision import Decision
from orchestrator.engine.gatekeeping import closed_gates, gate_news, gates_are_asked
from orchestrator.engine.steps import Situation, stand_down, wait
from orchestrator.model.event import Event, Hold, HoldsCleared
from orchestrator.model.gate_event import GATES_OPEN
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import Unknown

HOLD_POLL_SECONDS: Final = 5.0
"""Between readings while a rule refuses or a gate is closed: neither is worth more load than that."""


def of_predicates(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Those that are no gates: the journal has events of their own for gates."""
    return tuple(hold for hold in holds if hold.predicate != GATES_OPEN)


def held(situation: Situation, refused: tuple[Hold, ...]) -> Decision:
    """Wait with allocation as it was found, at most so long; at once when only the operator can mend it."""
    state = situation.state
    news = untold(situation, refused)
    first = _sentence(refused[0]) if refused else "no reading"
    lasting = {rule.name for rule in situation.kind.predicates if not rule.passes_with_time}
    read = situation.view is not None and not isinstance(situation.seen.settings, Unknown)
    if read and state.untouched and any(hold.predicate in lasting for hold in refused):
        return stand_down(state, f"held by {first}", Outcome.HELD, *news)
    late = overdue(situation, refused)
    if late is not None:
        return stand_down(state, late, Outcome.HELD, *news)
    only_gates = refused and not of_predicates(refused)
    awaited = f"{_gates(refused)} to open: {refused[0].evidence}" if only_gates else f"the gates: {first}"
    return wait(situation.now, awaited, seconds=HOLD_POLL_SECONDS, holds=refused, events=news)


def untold(situation: Situation, refused: tuple[Hold, ...]) -> tuple[Event, ...]:
    """What the journal has not been told yet."""
    state, others = situation.state, of_predicates(refused)
    said = {(hold.predicate, hold.subject) for hold in state.holds}
    new = tuple(hold for hold in others if (hold.predicate, hold.subject) not in said)
    # Gates alone are left to wait for: their limit counts now, and no time is lost of the others'.
    cleared = refused and not others and of_predicates(state.holds)
    news = gate_news(state, situation.policy, situation.seen)
    return (*new, *news, *((HoldsCleared(but_gates=True),) if cleared else ()))


def overdue(situation: Situation, refused: tuple[Hold, ...]) -> str | None:
    """Why the run waits no longer; None while it may."""
    state, now, deadlines = situation.state, situation.now, situation.policy.deadlines
    others = of_predicates(refused)
    since = state.holding_since
    if (others or not refused) and since is not None and now - since > deadlines.hold:
        return f"held for {deadlines.hold:.0f} s by {_sentence(others[0]) if others else 'no reading'}"
    closed = closed_gates(situation.policy, situation.seen) if gates_are_asked(state) else ()
    since = state.gates_closed_since
    if closed and since is not None and now - since > deadlines.gate:
        return f"held for {deadlines.gate:.0f} s by {_sentence(closed[0])}"
    return None


def let_go(situation: Situation) -> tuple[Event, ...]:
    """What the journal is told when nothing refuses any more."""
    state = situation.state
    news = gate_news(state, situation.policy, situation.seen)
    return (*news, HoldsCleared()) if of_predicates(state.holds) else news


def _sentence(hold: Hold) -> str:
    return f"{hold.predicate}: {hold.subject}: {hold.evidence}"


def _gates(closed: tuple[Hold, ...]) -> str:
    names = ", ".join(hold.subject for hold in closed)
    return f"gate {names}" if len(closed) == 1 else f"gates {names}"
