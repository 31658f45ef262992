"""The steps of a run and of a node, in words: one table for every view and for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHECK: Final = "check"
DISABLE: Final = "disable allocation"
STOP: Final = "stop"
WORK: Final = "work"  # hooks, install steps, tuning and the reboot
START: Final = "start"
JOIN: Final = "join"
RECOVER: Final = "recover"
HANDOFF: Final = "handoff"  # the same where data is handed off
DONE: Final = "done"
TO_COME: Final = "to come"

STEP_OF_RUN: Final[Mapping[str, str]] = {
    "preparing": CHECK,
    "merging": "merge",
    "merged": "recover after the merges",
    "gated": CHECK,
    "withheld": DISABLE,
    "down": f"{STOP} and {START}",
    "rejoined": JOIN,
    "reassigned": RECOVER,
    "settled": "end the wave",
    "finishing": "restore settings",
    "standing_down": "stand down",
    "ended": "ended",
}
"""Public name of a run's phase to what the run does in it. Nothing here is over while the phase lasts."""

STEP_OF_NODE: Final[Mapping[str, str]] = {
    "pending": TO_COME,
    "stopping": STOP,
    "stopped": WORK,
    "starting": f"{START} and {JOIN}",
    "rejoined": RECOVER,
    "recovered": DONE,
    "failed": "failed",
    "skipped": "skipped",
}
"""Public name of a node's phase to its step. The phase of the run parts START from JOIN."""

TURN: Final = {phase: STEP_OF_NODE[phase] for phase in ("stopping", "stopped", "starting", "rejoined")}
"""The same of the phases of a node that are parts of a turn."""


_SAME: Final[Mapping[str, str]] = {}


def step_of_run(phase: str, own: Mapping[str, str] = _SAME) -> str:
    """The step of a run in this phase; one that this version does not have is its own name.

    `own` has the names that a kind of cluster has of its own for some steps.
    """
    step = STEP_OF_RUN.get(phase, phase)
    return own.get(step, step)


def step_of_node(phase: str, own: Mapping[str, str] = _SAME) -> str:
    """The step of a node in this phase; one that this version does not have is its own name."""
    step = STEP_OF_NODE.get(phase, phase)
    return own.get(step, step)
