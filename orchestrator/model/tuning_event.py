"""What the journal tells of tuning: what was set and read back, and what was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import OnFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningApplied:
    """A tunable was set while the node was down, and read back.

    Attributes:
        found: as people read it.
    """

    node: NodeName
    tunable: str
    found: str
    wanted: str
    event: Literal["tuning_applied"] = "tuning_applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningMissed:
    """A tunable could not be read or set; the node is started all the same.

    Attributes:
        tunable: empty when it is about the whole host.
        on_failure: what the profile says of it: the run goes on, or stands down once the node is started.
    """

    node: NodeName
    tunable: str
    why: str
    on_failure: OnFailure
    event: Literal["tuning_missed"] = "tuning_missed"


TuningEvent: TypeAlias = TuningApplied | TuningMissed
