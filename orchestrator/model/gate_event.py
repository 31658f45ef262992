"""Events of gates: which closed, which opened, and the readings of all gates before a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

GATES_OPEN: Final = "gates_open"
"""The predicate that a closed gate does not meet. The gate's name is the subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """A gate is closed or (not `readable`) cannot be read, which counts as closed. No node is stopped."""

    gate: str
    evidence: str
    readable: bool = True
    event: Literal["gate_closed"] = "gate_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """A closed gate has opened and no longer holds the run."""

    gate: str
    evidence: str
    event: Literal["gate_opened"] = "gate_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatesPassed:
    """All gates were open at the last reading before a stop. Contains each gate's evidence by name."""

    gates: Mapping[str, str]
    event: Literal["gates_passed"] = "gates_passed"


GateEvent: TypeAlias = GateClosed | GateOpened | GatesPassed
