"""What was read of the cluster's state, and whether it is still true.

The state has an id, which is the same while the state is. Our lease is in it too, and changes nothing of what
is read: each update of it makes the state one version later, as does everything else that changes the state.
So where it is later by just as many versions as updates were begun since it was read, and acknowledged,
nothing else has changed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.model.observation import ClusterView, RunningSnapshot, SettingsView
from orchestrator.model.reading import Instant, Reading, Seconds

APPLIED_SECONDS: Final[Seconds] = 120.0
"""A member applies a state within this time or is removed, which is another state: the master waits 30 s
(`cluster.publish.timeout`), then 90 s more (`cluster.follower_lag.timeout`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """What was read of the master's state. It stays true while nothing but our lease has changed that."""

    uuid: str  # the id of the state
    master: str  # the id of the master: a state that has only lost its master keeps its own id
    version: int  # of the state, counted by the master
    reading: int  # its number, as `OwnUpdates` counts
    since: Instant  # when it was first read
    cluster: ClusterView
    snapshots: Reading[tuple[RunningSnapshot, ...]]  # in progress; `NOT_READ` if that part was not asked for
    # certainly those of this state; None until then. Since 9.0 the node that is asked answers with its
    # own state, which may be older than the master's.
    settings: SettingsView | None = None

    def is_still(self, answer: Any, own: int) -> bool:
        """Whether an answer shows the same state. One that lacks the id or the master shows nothing.

        Args:
            answer: to `calls.state_uuid`.
            own: updates of ours that were made before the question, and begun since the reading.
        """
        match answer:
            case {"master_node": self.master, "state_uuid": self.uuid}:
                return True
            case {"master_node": self.master, "state_uuid": str(), "version": int(version)}:
                return 0 < own == version - self.version
            case _:
                return False


class OwnUpdates:
    """Counts the updates of our lease that were begun after a reading. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings = 0
        self._acknowledged: list[int] = []

    def was_read(self) -> int:
        """A state has just been read. Returns the number of the reading, for `since`."""
        with self._lock:
            self._readings += 1
            self._acknowledged.clear()  # only the last reading is asked for
            return self._readings

    def begin(self) -> int:
        """An update is to be sent: one that may already be part of a reading after this does not count."""
        with self._lock:
            return self._readings

    def acknowledge(self, begun: int) -> None:
        """The update has certainly been made, once. `begun` is what `begin` returned."""
        with self._lock:
            self._acknowledged.append(begun)

    def since(self, reading: int) -> int:
        """How many updates were begun after this reading, and have been made.

        To be asked before the state is: each of these is then part of its version.
        """
        with self._lock:
            return sum(begun >= reading for begun in self._acknowledged)
