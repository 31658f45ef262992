"""Clusters on real hosts (systemd and sshd in containers) for tests: `host_cluster("9.1.0")`.

Registered by the conftest at the root. A cluster is kept for the session and brought back to a fresh state
for each test that asks for it; asking for another flavour, number of hosts or zones ends the one that runs.
Without a Docker engine these tests fail; with SKIP_REAL=1 they are skipped, and the summary says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hostlab import docker
from tests.integration.hostlab.flavours import find_flavour
from tests.integration.hostlab.hosts import HostCluster
from tests.integration.hostlab.running import ZONES, running
from tests.lab.distributions import Progress
from tests.lab.errors import LabError

_USUAL = "9.1.0"
_MISHAP = "mishap"
"""The property of a test's report that has one row of the table."""
HostClusterFactory = Callable[..., HostCluster]


class _Keeper:
    """Holds at most one cluster: the machine has little memory, and addresses are fixed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stack = contextlib.ExitStack()
        self._wanted: tuple[str, int, str] | None = None
        self._cluster: HostCluster | None = None

    def get(self, flavour: str, *, nodes: int = 3, zones: str = ZONES) -> HostCluster:
        """The cluster, running and fresh."""
        if docker.unwanted():
            pytest.skip(f"tests on real hosts are left out by {docker.SKIP_VARIABLE}=1")
        if self._cluster is not None and self._wanted == (flavour, nodes, zones):
            try:
                self._cluster.reset()
            except LabError as error:  # whatever the last test did to it: start from nothing
                self._progress(f"cannot be brought back, starting afresh: {error}")
            else:
                return self._cluster
        self.close()
        self._cluster = self._stack.enter_context(
            running(find_flavour(flavour), nodes=nodes, zones=zones, progress=self._progress)
        )
        self._wanted = (flavour, nodes, zones)
        return self._cluster

    def close(self) -> None:
        """Take it down."""
        self._cluster = None
        self._stack.close()


@pytest.hookimpl(tryfirst=True)  # before marks are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring tests of one flavour together: a change of cluster costs a minute. Others keep their places.

    Flavours that are not usual are left to `make test-services`.
    """
    for item in items:
        on_hosts, part = item.get_closest_marker("docker"), item.get_closest_marker("part")
        if on_hosts and not part and not find_flavour(_flavour(item)).usual:
            item.add_marker(pytest.mark.part(name="services"))
    places = [place for place, item in enumerate(items) if item.get_closest_marker("docker")]
    ordered = sorted((items[place] for place in places), key=_flavour)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _flavour(item: pytest.Item) -> str:
    """The parameter of that name, else `FLAVOUR` of its module, else the usual one."""
    callspec, module = getattr(item, "callspec", None), getattr(item, "module", None)
    given = callspec.params.get("flavour") if callspec else None
    return str(given or getattr(module, "FLAVOUR", _USUAL))


@pytest.fixture(scope="session")
def _host_clusters(request: pytest.FixtureRequest) -> Iterator[_Keeper]:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    terminal = request.config.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        """Minutes without a word look like a hang, so this goes past the capture of output."""
        disabled = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
        with disabled:
            if terminal is not None:
                terminal.write_line(f"lab: {line}")

    keeper = _Keeper(say)
    yield keeper
    keeper.close()


@pytest.fixture
def host_cluster(_host_clusters: _Keeper) -> HostClusterFactory:
    """Gives a running, fresh cluster: `host_cluster(flavour, nodes=6, zones="abc")`; see `flavours.py`."""
    return _host_clusters.get


@pytest.fixture
def fresh_host_cluster(_host_clusters: _Keeper) -> Iterator[HostClusterFactory]:
    """The same for tests that write to hosts' files and to the kernel: nobody else's, before or after."""
    _host_clusters.close()
    yield _host_clusters.get
    _host_clusters.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.fail("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)], check=True)  # noqa: S603, S607
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S603, S607


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of mishaps, also of tests that failed after them."""
    called = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    rows = [
        value
        for report in called
        for name, value in report.user_properties
        if name == _MISHAP and isinstance(value, list)
    ]
    if rows:
        terminalreporter.section("mishaps on real hosts: seconds to the first line that names each")
        for line in itertools.chain.from_iterable(sorted(rows, key=lambda row: str(row[0])[9:])):
            terminalreporter.write_line(line)
