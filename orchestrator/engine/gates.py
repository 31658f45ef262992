"""Gates: which of them block the next stop by a reading, and the events about them.

A gate that was not read, or could not be read, is closed. Gates block only stops and merges. They never
block a start or a restore, and are not read while nodes are down.

The alerts that fire at the first reading of a run are recorded, and do not count while they keep firing. One
that is resolved and fires again has begun later, so it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.engine.predicates import Finding, Question
from orchestrator.engine.state import RunState
from orchestrator.holds import GATES_OPEN
from orchestrator.model.event import (
    AlertsAtStart,
    Event,
    GateClosed,
    GateOpened,
    GatesPassed,
    Hold,
)
from orchestrator.model.gate import (
    AlertmanagerGate,
    Gate,
    GateView,
    Since,
    alert_name,
    view_of_alerts,
)
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant, Reading, Unknown

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


def judged(gate: Gate, view: Reading[GateView], state: RunState) -> Reading[GateView]:
    """The reading of a gate as it counts for this run: without the alerts of its start and accepted ones."""
    if isinstance(view, Unknown) or not isinstance(gate, AlertmanagerGate):
        return view
    known = _at_start(gate, view, state)
    counted = [
        alert
        for alert in view.alerts
        if alert.counts
        and not (alert.fingerprint in known and alert.began <= known[alert.fingerprint])
        and state.accepted_alerts.isdisjoint((alert.name, alert_name(alert.name)))
    ]
    return view_of_alerts(view.alerts, counted)


def _at_start(gate: AlertmanagerGate, view: GateView, state: RunState) -> Mapping[str, Instant]:
    """The alerts that do not count because they fired when the run began: all of its first reading."""
    if gate.since is Since.ALWAYS:
        return {}
    known = state.alerts_at_start.get(gate.name)
    return {alert.fingerprint: alert.began for alert in view.alerts} if known is None else known


def _readings(state: RunState, observation: Observation) -> Iterator[tuple[Gate, Reading[GateView]]]:
    """The gates that count, each as it counts for this run."""
    for gate in gates_of(state.begun.policy):
        yield gate, judged(gate, observation.gate(gate.name), state)


def closed_gates(state: RunState, observation: Observation) -> tuple[Hold, ...]:
    """A hold for each gate that is closed by this reading; empty when all of them are open."""
    closed = (_closed(gate, view) for gate, view in _readings(state, observation))
    return tuple(
        Hold(predicate=GATES_OPEN, subject=event.gate, evidence=event.evidence) for event in closed if event
    )


def _closed(gate: Gate, view: Reading[GateView]) -> GateClosed | None:
    """That this gate is closed; None while it is open."""
    if isinstance(view, Unknown):
        return GateClosed(gate=gate.name, evidence=f"{_UNREAD}{view.reason}", readable=False)
    if view.open:
        return None
    return GateClosed(gate=gate.name, evidence=view.evidence, count=view.count, subjects=view.subjects)


_UNREAD: Final = "cannot be read, so it counts as closed: "


def gates_open(question: Question) -> Iterator[Finding]:
    """Every gate of the playbook is open."""
    for hold in closed_gates(question.state, question.observation):
        yield hold.subject, hold.evidence


def gate_news(state: RunState, observation: Observation) -> tuple[Event, ...]:
    """Gates that closed or opened since the last events about them; empty while gates are not read."""
    if not gates_are_asked(state):
        return ()
    known = {hold.subject: hold.evidence for hold in state.in_phase.holds if hold.predicate == GATES_OPEN}
    news: list[Event] = []
    for gate, view in _readings(state, observation):
        closed = _closed(gate, view)
        if not isinstance(view, Unknown) and _is_first(gate, state):
            alerts = {alert.fingerprint: alert.began for alert in view.alerts}
            news.append(AlertsAtStart(gate=gate.name, alerts=alerts))
        if closed and (gate.name not in known or (closed.subjects and closed.evidence != known[gate.name])):
            news.append(closed)
        elif not closed and gate.name in known and not isinstance(view, Unknown):
            news.append(GateOpened(gate=gate.name, evidence=view.evidence))
    return tuple(news)


def _is_first(gate: Gate, state: RunState) -> bool:
    """Whether the alerts of the start are those of this reading."""
    of_alerts = isinstance(gate, AlertmanagerGate) and gate.since is Since.START
    return of_alerts and gate.name not in state.alerts_at_start


def gates_passed(state: RunState, observation: Observation) -> tuple[Event, ...]:
    """What the open gates reported at the last reading before a stop; nothing without gates."""
    views = {gate.name: view for gate, view in _readings(state, observation)}
    said = {name: view.evidence for name, view in views.items() if not isinstance(view, Unknown)}
    return (GatesPassed(gates=said),) if said else ()
