"""Which readings of the cluster's health are recorded in the journal: enough for a chart, and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from orchestrator.model.cluster import CopyState, Health
from orchestrator.model.event import ClusterSampled
from orchestrator.model.observation import Observation
from orchestrator.model.reading import Seconds, Unknown

_COUNT_SECONDS: Final[Seconds] = 60.0
"""Minimum interval between two samples that differ only in the number of copies."""
_AT_ONCE: Final = 60
"""Changes that are recorded one after the other: those of some fifteen waves."""
_TURN_SECONDS: Final[Seconds] = 15.0
"""After those, one change in so many seconds: a wave with four changes takes longer, and the health of a
damaged cluster may alternate for days."""

Sampling: TypeAlias = Callable[[Observation], Sequence[ClusterSampled]]
"""The samples to record of a reading: one or none."""


def no_samples(_seen: Observation) -> Sequence[ClusterSampled]:
    """Record nothing."""
    return ()


class Sampler:
    """Records a reading if it differs from the last sample.

    The routing table is read in every phase, a report of health in some only: the sample is of the table.
    It is recorded at once if the health changes, or if the first copies become unassigned or recover, or the
    last ones no longer do. A change of the numbers alone is recorded at most once a minute.
    """

    def __init__(self) -> None:
        self._last: ClusterSampled | None = None
        self._left = float(_AT_ONCE)

    def __call__(self, seen: Observation) -> Sequence[ClusterSampled]:
        """The sample of this reading, if it is due."""
        if isinstance(seen.cluster, Unknown):
            return ()
        away = Counter(copy.state for copy in seen.cluster.not_started)
        health = Health.RED if seen.cluster.routing.red else Health.YELLOW if away else Health.GREEN
        sample = ClusterSampled(
            read=seen.at,
            health=health,
            unassigned=away[CopyState.UNASSIGNED],
            recovering=away[CopyState.INITIALIZING],
        )
        if self._last is not None and not self._is_due(sample, self._last):
            return ()
        self._last = sample
        return (sample,)

    def _is_due(self, sample: ClusterSampled, last: ClusterSampled) -> bool:
        passed = sample.read - last.read
        if _state_of(sample) == _state_of(last):
            return passed >= _COUNT_SECONDS and _numbers_of(sample) != _numbers_of(last)
        left = min(float(_AT_ONCE), self._left + passed / _TURN_SECONDS)
        if left < 1.0:
            return False
        self._left = left - 1.0
        return True


def _numbers_of(sample: ClusterSampled) -> tuple[int, int]:
    return sample.unassigned, sample.recovering


def _state_of(sample: ClusterSampled) -> tuple[object, ...]:
    return sample.health, sample.unassigned > 0, sample.recovering > 0
