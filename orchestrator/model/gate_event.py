"""Events of gates: which closed, which opened, the alerts at the start, and all readings before a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from orchestrator.model.reading import Instant

GATES_OPEN: Final = "gates_open"
"""The predicate that a closed gate does not meet. The gate's name is the subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """A gate is closed or (not `readable`) cannot be read, which counts as closed. No node is stopped.

    A gate that alerts close has another such event when these alerts change.

    Attributes:
        subjects: the alerts that close it, at most five; `count`: how many they are. Empty for other gates.
    """

    gate: str
    evidence: str
    readable: bool = True
    count: int = 0
    subjects: tuple[str, ...] = ()
    event: Literal["gate_closed"] = "gate_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """A closed gate has opened and no longer holds the run."""

    gate: str
    evidence: str
    event: Literal["gate_opened"] = "gate_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsAtStart:
    """The alerts that fired when the run began: while they keep firing, they do not close the gate.

    Attributes:
        alerts: by fingerprint, when each began to fire (Unix seconds, by the server); silenced and inhibited
            ones included.
    """

    gate: str
    alerts: Mapping[str, Instant]
    event: Literal["alerts_at_start"] = "alerts_at_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatesPassed:
    """All gates were open at the last reading before a stop. Contains each gate's evidence by name."""

    gates: Mapping[str, str]
    event: Literal["gates_passed"] = "gates_passed"


GateEvent: TypeAlias = GateClosed | GateOpened | AlertsAtStart | GatesPassed
