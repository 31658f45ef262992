"""Simulated gates: open, closed or unreadable, and the judge of actions against closed gates."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.model.event import AlertsAtStart
from orchestrator.model.gate import (
    AlertmanagerGate,
    FiringAlert,
    Gate,
    GateView,
    Since,
    alert_name,
    view_of_alerts,
)
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.simulation.parts import GateState, SimGate
from orchestrator.simulation.world import World

_READ_SECONDS: Final = 0.02
_TIMEOUT_SECONDS: Final = 10.0
"""A gate's own limit of one answer (`gates[].timeout`)."""
_ALERT: Final = "d66cde581d11faf9"
_NEW: Final = 'DiskFull{cluster="prod"}'
"""The alert that closes a gate, by fingerprint and as it is shown."""


def add_gates(world: World, gates: Sequence[Gate]) -> None:
    """The world has these gates; one that is not there yet is open."""
    for gate in gates:
        there = world.gates.setdefault(gate.name, SimGate())
        there.alerts = gate.since if isinstance(gate, AlertmanagerGate) else None


def note_alerts(world: World, event: AlertsAtStart) -> None:
    """The alerts of the start are what the run has recorded first: none that it records later is excused."""
    gate = world.gates[event.gate]
    gate.known = gate.known or event.alerts


@dataclass(slots=True, kw_only=True)
class SimulatedGates:
    """The gates as the program reads them."""

    world: World

    def observe(self) -> Mapping[str, Reading[GateView]]:
        """Read all of them at once. A gate that does not answer costs its time limit."""
        read = self.states()
        for gate in self.world.gates.values():
            gate.asked += 1
        if read:
            silent = any(isinstance(view, Unknown) for view in read.values())
            self.world.agenda.advance(_TIMEOUT_SECONDS if silent else _READ_SECONDS)
        return read

    def states(self) -> Mapping[str, Reading[GateView]]:
        """Their current readings."""
        read: dict[str, Reading[GateView]] = {}
        for name, gate in self.world.gates.items():
            match gate.state:
                case GateState.OPEN | GateState.CLOSED if gate.alerts is not None:
                    read[name] = view_of_alerts(_firing(gate), _firing(gate))
                case GateState.OPEN:
                    read[name] = GateView(open=True, evidence="12 messages, at most 100 allowed")
                case GateState.CLOSED:
                    read[name] = GateView(open=False, evidence="640 messages, at most 100 allowed")
                case GateState.UNREADABLE:
                    read[name] = Unknown(reason="no answer within 10 s")
        return read

    def close(self) -> None:
        """Do nothing: no connection is open."""


def accept_alerts(world: World, alerts: Collection[str]) -> None:
    """A person accepts alerts: from here on, the one that closes a gate is excused if it is among them."""
    for gate in world.gates.values():
        if not {_NEW, alert_name(_NEW)}.isdisjoint(alerts):
            gate.known = {**gate.known, _ALERT: math.inf}


def _firing(gate: SimGate) -> tuple[FiringAlert, ...]:
    old = FiringAlert(fingerprint="35c09500004f2c5f", began=0.0, name='Old{cluster="prod"}')
    new = FiringAlert(fingerprint=_ALERT, began=gate.since, name=_NEW)
    fires = (new,) if gate.state is GateState.CLOSED else ()
    return (old, *fires) if gate.alerts is Since.START else fires


def shut(world: World, name: str, state: GateState, seconds: Seconds | None) -> None:
    """A gate closes or becomes unreadable, and may open again after a while."""
    gate = world.gates.get(name)
    if gate is None:
        return
    _become(world, name, gate, state)
    gate.turns += 1
    turn = gate.turns
    if seconds is not None:

        def opens() -> None:
            if gate.turns == turn:  # nothing else has happened to it since
                _become(world, name, gate, GateState.OPEN)

        world.agenda.after(seconds, opens)


def _become(world: World, name: str, gate: SimGate, state: GateState) -> None:
    if gate.state is state:
        return
    gate.state, gate.since = state, world.agenda.now
    world.story.append((world.agenda.now, f"gate {name} is {state.value}"))


def judge(world: World, what: str) -> None:
    """Record a disruptive action while a gate was not open, if the program could have read that.

    The cluster is read before the gates, so the program could read any earlier gate state.
    """
    for name, gate in world.gates.items():
        excused = gate.state is GateState.CLOSED and gate.known.get(_ALERT, -math.inf) >= gate.since
        if gate.state is not GateState.OPEN and not excused and gate.since < world.last_read:
            world.violated(f"{what} while gate {name} is {gate.state.value}")
