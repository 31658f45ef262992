"""The status of a systemd unit: a datagram for each wait, with nothing that systemd takes for more."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.situation import Decision
from orchestrator.model.observation import Watch
from orchestrator.model.phase import Outcome
from orchestrator.view.reporters import LineReporter, Reporters
from orchestrator.view.unit_status import UnitStatus
from tests.unit.view import samples


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Its socket, and the address that it gives to a unit."""
    name = str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as server:
        server.setblocking(False)
        server.bind(name if request.param == "path" else f"\0{name}")
        yield server, name if request.param == "path" else f"@{name}"


class Unit:
    """A run in a unit."""

    def __init__(self, address: str) -> None:
        self.out, self.at = io.StringIO(), samples.t0 + 120
        shown = LineReporter(self.out, lambda: self.at)
        self.status = Reporters(shown, UnitStatus(address, lambda: self.at))
        state = samples.run_state()
        self.state = replace(state, begun=replace(state.begun, planned=(samples.ES,) * 10))

    def waits(self, what: str, after: float = 0.0, holds: Any = ()) -> None:
        self.at += after
        watch = Watch(until=0.0, for_people=what)
        self.status.waiting(self.state, Decision(holds=holds, watch=watch))

    def ends(self) -> None:
        self.status.finished(samples.run_state(), Outcome.DONE)


def _received(server: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(server.recv(65536).decode())
        except BlockingIOError:
            return found


def test_a_wait_and_the_end_are_the_status(systemd: tuple[socket.socket, str]) -> None:
    server, address = systemd
    unit = Unit(address)
    unit.waits("es2 to come up")
    unit.waits("es2 to come up", after=1)
    unit.waits("es2 to come up", after=30)
    unit.ends()
    waits = "STATUS=waiting (wave 2 of 10, stop and start) for es2 to come up"
    assert _received(server) == [
        f"{waits}: 30s so far, the run stands down in 9m 40s",
        f"{waits}: 1m 1s so far, the run stands down in 9m 9s",
        "STATUS=ended: done",
    ]
    assert unit.out.getvalue().count("waiting (") == 2, "it is shown as before"


def test_a_wait_sends_no_other_assignment(systemd: tuple[socket.socket, str]) -> None:
    server, address = systemd
    Unit(address).waits("x\nREADY=1\nMAINPID=1\x1b[2J")
    (line,) = _received(server)
    assert line.startswith("STATUS=")
    assert line.isprintable()
    Unit(address).waits("x" * 9000)
    assert len(_received(server)[0]) < 500


def test_a_systemd_that_is_behind_or_gone_is_not_waited_for(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as server:
        server.bind(name)
        unit = Unit(name)
        for number in range(2000):
            unit.waits(f"{'x' * (number % 7)} to come up")
        server.setblocking(False)
        assert 0 < len(_received(server)) < 2000
    Path(name).unlink()
    unit.waits("another")
    unit.ends()
    assert unit.out.getvalue()
