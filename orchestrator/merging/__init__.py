"""Merging indices after a bulk load, before the first wave: a state machine of its own in the same loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.engine import run
from orchestrator.engine.run import Step
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.merging.merging import merging
from orchestrator.merging.settling import finishing, settling
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Phase
from orchestrator.model.reading import Instant

STEPS: Final[Mapping[Phase, Step]] = {
    Phase.MERGING: merging,
    Phase.MERGED: settling,
    Phase.FINISHING: finishing,
}
"""What is next in the phases of the merges, and at the end of a run that has merged."""


def decide(state: RunState, observation: Observation, now: Instant) -> Decision:
    """The next step of a run that may merge indices first; see `engine.run.decide`.

    Raises:
        SafetyViolation: as there.
    """
    return run.decide(state, observation, now, also=STEPS)
