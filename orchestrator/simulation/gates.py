"""Simulated gates: open, closed or unreadable, and the judge of actions against closed gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.model.gate import GateView
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.simulation.parts import GateState, SimGate
from orchestrator.simulation.world import World

_READ_SECONDS: Final = 0.02
_TIMEOUT_SECONDS: Final = 10.0
"""A gate's own limit of one answer (`gates[].timeout`)."""


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
                case GateState.OPEN:
                    read[name] = GateView(open=True, evidence="12 messages, at most 100 allowed")
                case GateState.CLOSED:
                    read[name] = GateView(open=False, evidence="640 messages, at most 100 allowed")
                case GateState.UNREADABLE:
                    read[name] = Unknown(reason="no answer within 10 s")
        return read

    def close(self) -> None:
        """Do nothing: no connection is open."""


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
        if gate.state is not GateState.OPEN and gate.since < world.last_read:
            world.violated(f"{what} while gate {name} is {gate.state.value}")
