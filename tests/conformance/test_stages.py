"""When a cluster counts as at rest, so that a scene reads it: with readings of a script, on no cluster."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import CopyState
from orchestrator.model.observation import ClusterView
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.simulation import views
from orchestrator.simulation.world import World
from tests.conformance.stages import RestlessError, at_rest

WITHOUT_MASTER = ClusterReadings(cluster=Unknown(reason="no master"))


def _reading(replica: CopyState) -> ClusterReadings:
    world = World()
    for number in (1, 2, 3):
        world.add_node(f"es{number}")
    copy = world.add_index("posts").shards[0].copies[1]
    copy.state = replica
    return ClusterReadings(cluster=views.cluster(world))


class _Script:
    """Readings in their order, each with the seconds that it takes; the last one is read again and again."""

    def __init__(self, *readings: tuple[Seconds, ClusterReadings]) -> None:
        self._readings, self.now = list(readings), 0.0

    def observe(self) -> ClusterReadings:
        seconds, read = self._readings[0] if len(self._readings) == 1 else self._readings.pop(0)
        self.now += seconds
        return read

    def rests(self) -> CopyState:
        def wait(seconds: Seconds) -> None:
            self.now += seconds

        read = at_rest(self.observe, now=lambda: self.now, wait=wait).cluster
        assert isinstance(read, ClusterView)
        return read.copies[1].state


@pytest.mark.parametrize("moving", [CopyState.INITIALIZING, CopyState.UNASSIGNED])
@pytest.mark.parametrize("seconds", [0.1, 8.0], ids=["quick", "slow"])
def test_a_reading_is_not_at_rest_however_long_it_took(seconds: Seconds, moving: CopyState) -> None:
    """Health waits for a master for seconds, and the first state of a new master has copies on their way."""
    script = _Script(
        (0.1, WITHOUT_MASTER), (seconds, _reading(moving)), (seconds, _reading(CopyState.STARTED))
    )
    assert script.rests() is CopyState.STARTED
    first = _Script((seconds, _reading(moving)), (0.1, _reading(CopyState.STARTED)))
    assert first.rests() is CopyState.STARTED


def test_a_cluster_that_moves_on_and_on_is_said_to() -> None:
    with pytest.raises(RestlessError):
        _Script((0.1, _reading(CopyState.INITIALIZING))).rests()
