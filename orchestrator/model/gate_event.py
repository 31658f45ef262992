"""What the journal tells of gates: which closed, which opened, and what all of them said before a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

GATES_OPEN: Final = "gates_open"
"""The predicate that a closed gate is a refusal of; the gate's name is its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """A gate is closed, or (not `readable`) cannot be read, which counts as closed: no node is stopped."""

    gate: str
    evidence: str
    readable: bool = True
    event: Literal["gate_closed"] = "gate_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """A gate that was closed lets the run go on, as far as it is concerned."""

    gate: str
    evidence: str
    event: Literal["gate_opened"] = "gate_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatesPassed:
    """All gates were open at the last reading before a stop; what each of them said, by its name."""

    gates: Mapping[str, str]
    event: Literal["gates_passed"] = "gates_passed"


GateEvent: TypeAlias = GateClosed | GateOpened | GatesPassed
