"""Events of tuning: what was set and read again, and what could not be set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import OnFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningApplied:
    """A tunable was set while the node was down, and read again.

    Attributes:
        found: the original value, for people.
    """

    node: NodeName
    tunable: str
    found: str
    wanted: str
    event: Literal["tuning_applied"] = "tuning_applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningMissed:
    """A tunable could not be read or set. The node is started anyway.

    Attributes:
        tunable: empty when it is about the whole host.
        on_failure: the profile's setting: the run continues, or stands down once the node is started.
    """

    node: NodeName
    tunable: str
    why: str
    on_failure: OnFailure
    event: Literal["tuning_missed"] = "tuning_missed"


TuningEvent: TypeAlias = TuningApplied | TuningMissed
