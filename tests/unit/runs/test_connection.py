"""What a process does beside its loop, whatever ends the loop; and the ports of a cluster file."""

from __future__ import annotations

from typing import cast

import pytest

from orchestrator.runs.connection import ClusterPorts, Threads
from orchestrator.runs.from_file import FilePorts
from orchestrator.runtime.lease import Lease
from orchestrator.runtime.waiting import SystemClock


class Watched:
    """What is asked of a lease."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self) -> None:
        self.asked.append("start")

    def leave(self) -> None:
        self.asked.append("leave")


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError])
def test_the_heartbeat_ends_with_the_loop(end: type[BaseException]) -> None:
    lease = Watched()
    with pytest.raises(end), Threads(SystemClock()).keep(cast("Lease", lease)):
        raise end
    assert lease.asked == ["start", "leave"]


def test_the_ports_of_a_file_inherit_nothing_of_a_simulation() -> None:
    """A simulated cluster has no secrets and no endpoints to check: a file that says so would be believed."""
    own = {name for name in vars(ClusterPorts) if not name.startswith("_")}
    assert own <= vars(FilePorts).keys()
