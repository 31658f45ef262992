"""How a run's state follows what holds it: predicates and gates, and since when, for each has a limit."""

from __future__ import annotations

from typing import assert_never

from orchestrator.engine.state import RunState
from orchestrator.model.event import Hold, HoldsCleared
from orchestrator.model.gate_event import GATES_OPEN, GateClosed, GateOpened, GatesPassed
from orchestrator.model.reading import Instant
from orchestrator.model.replacing import replace


def told(
    state: RunState, event: Hold | HoldsCleared | GateClosed | GateOpened | GatesPassed, at: Instant
) -> RunState:
    """A predicate refuses, a gate closes or opens, all of them are passed, or nothing holds any more."""
    match event:
        case Hold():
            since = state.holding_since if state.holding_since is not None else at
            return replace(state, holds=_with(state, event), holding_since=since)
        case HoldsCleared(but_gates=True):
            return replace(state, holds=_closed(state), holding_since=None)
        case HoldsCleared():
            return replace(state, holds=(), holding_since=None, gates_closed_since=None)
        case GateClosed(gate=gate, evidence=evidence):
            since = state.gates_closed_since if state.gates_closed_since is not None else at
            hold = Hold(predicate=GATES_OPEN, subject=gate, evidence=evidence)
            return replace(state, holds=_with(state, hold), gates_closed_since=since)
        case GateOpened(gate=gate):
            left = tuple(h for h in state.holds if (h.predicate, h.subject) != (GATES_OPEN, gate))
            after = replace(state, holds=left)
            return after if _closed(after) else replace(after, gates_closed_since=None)
        case GatesPassed(gates=gates):
            return replace(state, gates_passed=frozenset(gates))
        case _:
            assert_never(event)


def _with(state: RunState, hold: Hold) -> tuple[Hold, ...]:
    others = (h for h in state.holds if (h.predicate, h.subject) != (hold.predicate, hold.subject))
    return (*others, hold)


def _closed(state: RunState) -> tuple[Hold, ...]:
    return tuple(hold for hold in state.holds if hold.predicate == GATES_OPEN)
