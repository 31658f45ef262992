"""The legal steps of a run, and what each phase of it reads and watches: data that code and docs read.

A run begins in PREPARING and ends in ENDED. A wave goes from GATED to SETTLED, and every phase has a step
to STANDING_DOWN. Only stops are behind predicates: none bars a start or a restore.

`resume` and `restore` are no steps: they continue in the phase that fits what the journal says of the nodes.
Those of a node follow from its `grid`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from orchestrator.errors import SafetyViolation
from orchestrator.model.observation import EVERYTHING, Look
from orchestrator.model.phase import Phase

RUN_STEPS: Final[Mapping[Phase, frozenset[Phase]]] = {
    # DOWN, here and below: a lost stop of ours was done late, and the node has to be started.
    Phase.PREPARING: frozenset({Phase.MERGING, Phase.GATED, Phase.DOWN, Phase.STANDING_DOWN}),
    Phase.MERGING: frozenset({Phase.MERGED, Phase.STANDING_DOWN}),
    # FINISHING: no node is to be restarted.
    Phase.MERGED: frozenset({Phase.GATED, Phase.FINISHING, Phase.STANDING_DOWN}),
    # REASSIGNED: the run waits again for a wave that made room (`overlap_recovery`).
    Phase.GATED: frozenset(
        {Phase.WITHHELD, Phase.REASSIGNED, Phase.FINISHING, Phase.DOWN, Phase.STANDING_DOWN}
    ),
    # REASSIGNED: the wave is called off, so allocation is restored before the run waits.
    Phase.WITHHELD: frozenset({Phase.DOWN, Phase.REASSIGNED, Phase.STANDING_DOWN}),
    # REASSIGNED: every stop of the wave was refused, or was never done: the wave is called off.
    Phase.DOWN: frozenset({Phase.REJOINED, Phase.REASSIGNED, Phase.STANDING_DOWN}),
    Phase.REJOINED: frozenset({Phase.REASSIGNED, Phase.STANDING_DOWN}),
    # GATED: the wave was called off, or it makes room for the next while its copies recover.
    Phase.REASSIGNED: frozenset({Phase.SETTLED, Phase.GATED, Phase.DOWN, Phase.STANDING_DOWN}),
    Phase.SETTLED: frozenset({Phase.GATED, Phase.DOWN, Phase.STANDING_DOWN}),
    Phase.FINISHING: frozenset({Phase.ENDED, Phase.DOWN, Phase.STANDING_DOWN}),
    Phase.STANDING_DOWN: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}

MAY_WAIT_WITHHELD: Final = frozenset({Phase.WITHHELD, Phase.DOWN, Phase.REJOINED, Phase.STANDING_DOWN})
"""The only phases in which allocation may be disabled. In all others the cluster heals."""


class HostsRead(Enum):
    """The nodes whose hosts a phase reads.

    CANDIDATES are all pending nodes at the beginning and before the first stop, and otherwise those of the
    wave that may go next, with those of hosts that were not ready.
    """

    NONE = auto()
    PENDING = auto()
    CANDIDATES = auto()
    WAVE = auto()
    ABSENT = auto()
    OURS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What the next decision of a phase needs, and nothing more."""

    look: frozenset[Look]  # parts of the cluster's state
    hosts: HostsRead  # whose hosts
    failures: bool = False  # whether members that leave are a second failure


READS: Final[Mapping[Phase, Reads]] = {
    Phase.PREPARING: Reads(look=EVERYTHING, hosts=HostsRead.CANDIDATES),
    Phase.MERGING: Reads(look=EVERYTHING | {Look.BULK}, hosts=HostsRead.PENDING),
    Phase.MERGED: Reads(look=frozenset({Look.CLUSTER, Look.BULK}), hosts=HostsRead.NONE),
    Phase.GATED: Reads(look=EVERYTHING, hosts=HostsRead.CANDIDATES),
    Phase.WITHHELD: Reads(look=EVERYTHING - {Look.RECOVERIES, Look.HOST_RIGHTS}, hosts=HostsRead.WAVE),
    Phase.DOWN: Reads(look=frozenset({Look.CLUSTER, Look.HOSTS}), hosts=HostsRead.WAVE, failures=True),
    Phase.REJOINED: Reads(
        look=frozenset({Look.CLUSTER, Look.HEALTH, Look.HOSTS}), hosts=HostsRead.WAVE, failures=True
    ),
    Phase.REASSIGNED: Reads(
        look=frozenset({Look.CLUSTER, Look.SETTINGS, Look.HEALTH, Look.RECOVERIES, Look.HOSTS}),
        hosts=HostsRead.ABSENT,
        failures=True,
    ),
    Phase.SETTLED: Reads(
        look=frozenset(
            {Look.CLUSTER, Look.SETTINGS, Look.HEALTH, Look.RECOVERIES, Look.FINISHED, Look.HOSTS}
        ),
        hosts=HostsRead.ABSENT,
    ),
    Phase.FINISHING: Reads(
        look=frozenset({Look.CLUSTER, Look.SETTINGS, Look.BULK, Look.HOSTS}), hosts=HostsRead.ABSENT
    ),
    Phase.STANDING_DOWN: Reads(
        look=frozenset({Look.CLUSTER, Look.SETTINGS, Look.HOSTS}), hosts=HostsRead.OURS
    ),
    Phase.ENDED: Reads(look=frozenset(), hosts=HostsRead.NONE),
}


def check_run_step(old: Phase, new: Phase) -> None:
    """Refuse an illegal step of the run.

    Raises:
        SafetyViolation: the step is not in the table.
    """
    if new not in RUN_STEPS[old]:
        raise SafetyViolation(f"a run may not go from {old.value} to {new.value}")
