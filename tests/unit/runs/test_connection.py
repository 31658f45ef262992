"""What a process does beside its loop, whatever ends the loop."""

from __future__ import annotations

from typing import cast

import pytest

from orchestrator.runs.connection import Threads
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.lease import Lease


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
