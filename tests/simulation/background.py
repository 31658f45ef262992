"""Whole simulated runs by the thousand, lived while tests of real nodes wait for their nodes.

Those tests leave half of the processor idle. The runs take what is left over: they are in a session of their
own, which the scheduler sets against all other work as one group of the least weight.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.chance_riak import FIRST
from tests.simulation.soak import Tally, soak

ROOT: Final = Path(__file__).resolve().parents[2]
RUNS: Final = int(os.environ.get("ORCHESTRATE_RUNS", "300"))
ON_RINGS: Final = RUNS // 5
"""Runs on Riak clusters, beside the others."""
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_LEAST: Final = 19
"""The nice value of least weight. A process's own says nothing outside its session: sched(7)."""
_started = pytest.StashKey["SimulatedRuns"]()


class SimulatedRuns:
    """The runs of a session of tests, under way in a process of their own with children.

    Attributes:
        group: the process group of all of them.
    """

    def __init__(self) -> None:
        self._lived: tuple[Tally, Tally] | None = None
        self._told = tempfile.TemporaryFile()  # noqa: SIM115  (open until `end`)
        self._process = subprocess.Popen(  # noqa: S603  (this very module)
            [sys.executable, "-m", __name__, str(os.getpid())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._told,
            start_new_session=True,
        )
        self.group = self._process.pid

    def lived(self) -> tuple[Tally, Tally]:
        """Wait for the last of them; those on Riak clusters are counted for themselves."""
        if self._lived is not None:
            return self._lived
        code = self._process.wait()
        assert code == 0, f"the simulated runs ended with {code}"
        self._told.seek(0)
        tally, riak = pickle.load(self._told)  # noqa: S301  (written by our own process)
        assert isinstance(tally, Tally)
        assert isinstance(riak, Tally)
        self._lived = (tally, riak)
        return self._lived

    def end(self) -> None:
        """Leave no process behind, also when the tests were broken off."""
        if self._process.poll() is None:
            os.killpg(self.group, signal.SIGKILL)
            self._process.wait()
        self._told.close()


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
    return request.session.stash[_started].lived()[0]


@pytest.fixture(scope="session")
def lived_on_rings(request: pytest.FixtureRequest) -> Tally:
    """Those on Riak clusters."""
    return request.session.stash[_started].lived()[1]


def _asks(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return lived.__name__ in names or lived_on_rings.__name__ in names


def _go_on(tests: int, _tally: Tally) -> None:
    """End with the tests that asked, if they were killed: nobody else would."""
    if os.getppid() != tests:
        os.killpg(0, signal.SIGKILL)


def main(tests: int) -> None:
    """Live the runs for the tests with that process id, and write what they came to on standard output."""
    os.nice(_LEAST)
    with suppress(OSError):  # a kernel without autogroups goes by nice alone
        _AUTOGROUP.write_text(str(_LEAST), encoding="ascii")
    workers, progress = os.cpu_count() or 1, partial(_go_on, tests)
    tally = soak(0, RUNS, workers=workers, progress=progress)
    riak = soak(FIRST, ON_RINGS, workers=workers, progress=progress)
    pickle.dump((tally, riak), sys.stdout.buffer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
