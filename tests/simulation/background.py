"""Whole simulated runs by the thousand, lived while tests of real nodes wait for their nodes.

Those tests leave half of the processor idle. The runs take what is left over: they are in a session of their
own, which the scheduler sets against all other work as one group of the least weight.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.soak import Tally, soak

RUNS: Final = int(os.environ.get("ORCHESTRATE_RUNS", "300"))
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_LEAST: Final = 19
"""The nice value of least weight. A process's own says nothing outside its session: sched(7)."""
_started = pytest.StashKey["SimulatedRuns"]()


def _yield_to_others() -> None:
    os.setsid()
    os.nice(_LEAST)
    with suppress(OSError):  # a kernel without autogroups goes by nice alone
        _AUTOGROUP.write_text(str(_LEAST), encoding="ascii")


def _go_on(tests: int, _tally: Tally) -> None:
    """End with the tests that asked, if they were killed: nobody would, and a pool waits for ever."""
    if os.getppid() != tests:
        os.killpg(0, signal.SIGKILL)


class SimulatedRuns:
    """The runs of a session of tests, under way in a process of their own with children.

    Attributes:
        group: the process group of all of them.
    """

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=get_context("spawn"),
            initializer=_yield_to_others,
            max_tasks_per_child=2,  # those below: once they are done it ends, whoever is left to end it
        )
        self.group = self._pool.submit(os.getpid).result()
        self._lived: Future[Tally] = self._pool.submit(
            soak, 0, RUNS, workers=os.cpu_count() or 1, progress=partial(_go_on, os.getpid())
        )

    def lived(self) -> Tally:
        """Wait for the last of them."""
        return self._lived.result()

    def end(self) -> None:
        """Leave no process behind, also when the tests were broken off."""
        if not self._lived.done():
            os.killpg(self.group, signal.SIGKILL)
        self._pool.shutdown()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask for what the runs came to when all other tests are done."""
    items.sort(key=_asks)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the runs when the tests do, if any of them asks."""
    if not session.config.option.collectonly and any(map(_asks, session.items)):
        session.stash[_started] = SimulatedRuns()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what is still under way."""
    if (started := session.stash.get(_started, None)) is not None:
        started.end()


@pytest.fixture(scope="session")
def lived(request: pytest.FixtureRequest) -> Tally:
    """All the runs, over all cores."""
    return request.session.stash[_started].lived()


def _asks(item: pytest.Item) -> bool:
    return lived.__name__ in getattr(item, "fixturenames", ())
