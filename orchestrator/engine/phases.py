"""The legal steps, as literal tables: read by `evolve`, by the tests and by the docs' diagram.

A run begins in PREPARING and ends in ENDED. A wave goes from GATED to SETTLED, and every phase has a way
to STANDING_DOWN. Only stops are gated: no rule bars a start or a restore.

Resuming is no step: `run_resumed` puts the run where its journal and the world say it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.errors import SafetyViolation
from orchestrator.model.phase import NodePhase, Phase

RUN_STEPS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.PREPARING: frozenset({Phase.MERGING, Phase.GATED, Phase.STANDING_DOWN}),
    Phase.MERGING: frozenset({Phase.MERGED, Phase.STANDING_DOWN}),
    # FINISHING: no node is to be restarted.
    Phase.MERGED: frozenset({Phase.GATED, Phase.FINISHING, Phase.STANDING_DOWN}),
    # REASSIGNED: a wave that made room (`overlap_recovery`) is waited for again.
    Phase.GATED: frozenset({Phase.WITHHELD, Phase.REASSIGNED, Phase.FINISHING, Phase.STANDING_DOWN}),
    # REASSIGNED: the last reading before the stop held, so allocation goes back before anyone waits.
    Phase.WITHHELD: frozenset({Phase.DOWN, Phase.REASSIGNED, Phase.STANDING_DOWN}),
    # WITHHELD: a stop that certainly never happened goes through the gates again.
    Phase.DOWN: frozenset({Phase.REJOINED, Phase.WITHHELD, Phase.STANDING_DOWN}),
    Phase.REJOINED: frozenset({Phase.REASSIGNED, Phase.STANDING_DOWN}),
    # GATED: the wave was called off, or it makes room for the next while its copies are on their way.
    Phase.REASSIGNED: frozenset({Phase.SETTLED, Phase.GATED, Phase.STANDING_DOWN}),
    Phase.SETTLED: frozenset({Phase.GATED, Phase.FINISHING, Phase.STANDING_DOWN}),
    Phase.FINISHING: frozenset({Phase.ENDED, Phase.STANDING_DOWN}),
    Phase.STANDING_DOWN: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}

NODE_STEPS: Final[Mapping[NodePhase, frozenset[NodePhase]]] = {
    # RECOVERED: somebody else restarted it during the run; that counts as its restart.
    NodePhase.PENDING: frozenset({NodePhase.STOPPING, NodePhase.RECOVERED, NodePhase.SKIPPED}),
    # STARTING: it came up before we started it, or it is started without hooks and tuning (rescue).
    NodePhase.STOPPING: frozenset(
        {NodePhase.STOPPED, NodePhase.STARTING, NodePhase.PENDING, NodePhase.REJOINED, NodePhase.FAILED}
    ),
    NodePhase.STOPPED: frozenset({NodePhase.TUNED, NodePhase.STARTING, NodePhase.FAILED}),
    NodePhase.TUNED: frozenset({NodePhase.STARTING, NodePhase.FAILED}),
    # PENDING: the stop in doubt never happened: still the same life.
    NodePhase.STARTING: frozenset({NodePhase.REJOINED, NodePhase.FAILED, NodePhase.PENDING}),
    NodePhase.REJOINED: frozenset({NodePhase.RECOVERED, NodePhase.STARTING, NodePhase.FAILED}),
    # A FAILED node may be started again (`--retry-failed`), come back by itself, or be given up.
    NodePhase.FAILED: frozenset({NodePhase.STARTING, NodePhase.REJOINED, NodePhase.SKIPPED}),
    NodePhase.RECOVERED: frozenset(),
    NodePhase.SKIPPED: frozenset(),
}

FINAL_NODE_PHASES: Final = frozenset(phase for phase, steps in NODE_STEPS.items() if not steps)
"""Phases in which nothing more is to be done for a node."""

MAY_WAIT_WITHHELD: Final = frozenset({Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.STANDING_DOWN})
"""The only phases in which allocation may be withheld. Elsewhere the cluster heals."""


def check_run_step(old: Phase, new: Phase) -> None:
    """Refuse an illegal step of the run.

    Raises:
        SafetyViolation: the step is not in the table.
    """
    if new not in RUN_STEPS[old]:
        raise SafetyViolation(f"a run may not go from {old.value} to {new.value}")


def check_node_step(node: str, old: NodePhase, new: NodePhase) -> None:
    """Refuse an illegal step of a node.

    Raises:
        SafetyViolation: the step is not in the table.
    """
    if new not in NODE_STEPS[old]:
        raise SafetyViolation(f"node {node} may not go from {old.value} to {new.value}")
