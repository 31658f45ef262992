"""Gates: which of them block the next stop by a reading, and the events about them.

A gate that was not read, or could not be read, is closed. Gates block only stops and merges. They never
block a start or a restore, and are not read while nodes are down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.engine.kinds.predicates import Finding, Question
from orchestrator.engine.state import RunState
from orchestrator.model.event import Event, Hold
from orchestrator.model.gate import Gate
from orchestrator.model.gate_event import GATES_OPEN, GateClosed, GateOpened, GatesPassed
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown

_ASKED_IN: Final = frozenset({Phase.MERGING, Phase.GATED, Phase.WITHHELD})
"""Phases that end in something disruptive (a merge, a stop), so that the gates are read for each decision."""


def gates_of(policy: Policy) -> tuple[Gate, ...]:
    """The gates that count, in the playbook's order: those that the operator has not switched off."""
    return tuple(gate for gate in policy.gates if not policy.disables(GATES_OPEN, gate.name))


def gates_are_asked(state: RunState) -> bool:
    """Whether the next decision needs a reading of the gates."""
    if state.phase not in _ASKED_IN or not gates_of(state.begun.policy):
        return False
    # A merge in progress may be lost, and is then sent again; a copy may come back with many segments.
    return state.phase is not Phase.MERGING or any(not one.ended for one in state.merging.indices.values())


def closed_gates(policy: Policy, observation: Observation) -> tuple[Hold, ...]:
    """A hold for each gate that is closed by this reading; empty when all of them are open."""
    holds = []
    for gate in gates_of(policy):
        view = observation.gate(gate.name)
        if isinstance(view, Unknown):
            evidence = f"{_UNREAD}{view.reason}"
        elif view.open:
            continue
        else:
            evidence = view.evidence
        holds.append(Hold(predicate=GATES_OPEN, subject=gate.name, evidence=evidence))
    return tuple(holds)


_UNREAD: Final = "cannot be read, so it counts as closed: "


def gates_open(question: Question) -> Iterator[Finding]:
    """Every gate of the playbook is open."""
    for hold in closed_gates(question.policy, question.observation):
        yield hold.subject, hold.evidence


def gate_news(state: RunState, policy: Policy, observation: Observation) -> tuple[Event, ...]:
    """Gates that closed or opened since the last events about them; empty while gates are not read."""
    if not gates_are_asked(state):
        return ()
    closed = {hold.subject: hold for hold in closed_gates(policy, observation)}
    known = {hold.subject for hold in state.in_phase.holds if hold.predicate == GATES_OPEN}
    news: list[Event] = []
    for gate in gates_of(policy):
        view = observation.gate(gate.name)
        if gate.name in closed and gate.name not in known:
            evidence, readable = closed[gate.name].evidence, not isinstance(view, Unknown)
            news.append(GateClosed(gate=gate.name, evidence=evidence, readable=readable))
        elif gate.name not in closed and gate.name in known and not isinstance(view, Unknown):
            news.append(GateOpened(gate=gate.name, evidence=view.evidence))
    return tuple(news)


def gates_passed(policy: Policy, observation: Observation) -> tuple[Event, ...]:
    """What the open gates reported at the last reading before a stop; nothing without gates."""
    views = {gate.name: observation.gate(gate.name) for gate in gates_of(policy)}
    said = {name: view.evidence for name, view in views.items() if not isinstance(view, Unknown)}
    return (GatesPassed(gates=said),) if said else ()
