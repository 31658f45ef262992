"""The recoveries of the simulated cluster: the latest one of each shard on each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.model.cluster import NodeName, ShardId
from orchestrator.model.observation import Recovery
from orchestrator.model.reading import Instant


@dataclass(slots=True, kw_only=True, eq=False)
class SimRecovery:
    """A recovery, running or done."""

    shard: ShardId
    target: NodeName
    source: NodeName | None
    total: int
    reused: int
    operations: int  # operations that it replays because the copy on disk missed them
    began: Instant
    ends: Instant
    done: bool = False
    shown: Recovery | None = None


class Recoveries:
    """Running and ended recoveries, in the order in which they began."""

    def __init__(self) -> None:
        self._latest: dict[tuple[ShardId, NodeName], SimRecovery] = {}
        self._running: dict[tuple[ShardId, NodeName], SimRecovery] = {}

    def __iter__(self) -> Iterator[SimRecovery]:
        return iter(self._latest.values())

    @property
    def running(self) -> Iterator[SimRecovery]:
        """Those that have not ended; a recovery whose node left never ends."""
        return iter(self._running.values())

    def begin(self, recovery: SimRecovery) -> None:
        """A recovery begins. The shard's earlier recovery on that node is forgotten."""
        key = (recovery.shard, recovery.target)
        for recoveries in (self._latest, self._running):
            recoveries.pop(key, None)
            recoveries[key] = recovery

    def end(self, recovery: SimRecovery) -> None:
        """A recovery has ended."""
        recovery.done = True
        if self._running.get((recovery.shard, recovery.target)) is recovery:
            del self._running[recovery.shard, recovery.target]

    def forget(self, uuid: str, *, ended: bool) -> None:
        """Forget the running recoveries of an index, and those that ended too."""
        for key, recovery in list((self._latest if ended else self._running).items()):
            if recovery.shard.index_uuid == uuid:
                del self._latest[key]
                self._running.pop(key, None)
