"""Keeps the readings of recovery from the cluster port for the views, so that they need no calls."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from orchestrator.model.action import ActionResult, ClusterAction
from orchestrator.model.cluster import NodeName
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import HealthView, Look, Recovery
from orchestrator.model.reading import Instant, Reading, Seconds, Unknown
from orchestrator.model.watch import ClusterWatch
from orchestrator.ports import ClusterPort, ClusterReadings


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The latest readings of recovery; None before the first.

    Attributes:
        recoveries_at: when `recoveries` was read.
        health_at: when `health` was read.
    """

    recoveries: tuple[Recovery, ...] | None = None
    recoveries_at: Instant = 0.0
    health: HealthView | None = None
    health_at: Instant = 0.0


NOTHING_SEEN = Seen()


class ListeningCluster:
    """A `ClusterPort` that passes everything on and keeps the latest recoveries and health.

    Readings are replaced as a whole, so that another thread may read `seen`.
    """

    def __init__(self, port: ClusterPort, now: Callable[[], Instant]) -> None:
        self._port = port
        self._now = now
        self._recoveries: tuple[tuple[Recovery, ...] | None, Instant] = (None, 0.0)
        self._health: tuple[HealthView | None, Instant] = (None, 0.0)

    @property
    def seen(self) -> Seen:
        """The latest readings."""
        (recoveries, recoveries_at), (health, health_at) = self._recoveries, self._health
        return Seen(recoveries=recoveries, recoveries_at=recoveries_at, health=health, health_at=health_at)

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the cluster, and keep the readings that show the progress of recovery."""
        readings = self._port.observe(look)
        if not isinstance(readings.recoveries, Unknown):
            self._recoveries = (readings.recoveries, self._now())
        if not isinstance(readings.health, Unknown):
            self._health = (readings.health, self._now())
        return readings

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Pass on."""
        return self._port.bulk(uuids)

    def perform(self, action: ClusterAction) -> ActionResult:
        """Pass on."""
        return self._port.perform(action)

    def describe(self, action: ClusterAction) -> str:
        """Pass on."""
        return self._port.describe(action)

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Pass on."""
        return self._port.watch(watch, timeout)

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Pass on."""
        self._port.avoid(nodes)

    def close(self) -> None:
        """Pass on."""
        self._port.close()
