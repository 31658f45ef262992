"""How `make test` shares the tests out over processes, and what it shows of them (a plugin of pytest).

Nodes as processes share the machine's ports, hosts in containers share addresses. So the tests on each are a
group, for one process, and begin first, because they take longest and mostly wait. The whole simulated runs
come next, all others take the rest. With `pytest` alone there is one process, and the order is the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Generator, Iterable
from types import FrameType
from typing import Any, Final

import pytest

from tests.integration.hostlab import docker

ON_SERVERS: Final = {"real": "nodes", "airflow": "nodes", "docker": "hosts"}
"""The mark of a test on servers, and its group."""
WHOLE_RUNS: Final = "whole-runs"
"""The group of the whole simulated runs."""
SLOW: Final = (
    "tests/cli/test_bulk.py",
    "tests/cli/test_due.py::test_nothing_due_is_done_though",
    "tests/cli/test_due.py::test_nothing_due_restores_what_a_dead_run_left",
    "tests/cli/test_interrupted_early.py",
    "tests/cli/test_killed_run.py",
    "tests/cli/test_left_by_others.py",
    "tests/cli/test_planted_secrets.py",
    "tests/cli/test_rehearse.py",
    "tests/cli/test_serve.py::test_viewers_hold_back_no_commit",
    "tests/cli/test_tune_on_trees.py",
    "tests/integration/test_big_hosts.py",
    "tests/integration/test_exclusion.py",
    "tests/integration/test_installing.py",
    "tests/integration/test_rehearse_on_nodes.py",
    "tests/integration/test_riak_on_processes.py",
    "tests/integration/test_transports.py",
    "tests/integration/test_tuning_over_ssh.py",
    "tests/proof/test_lockstep.py",
    "tests/proof/test_planted.py",
    "tests/simulation/test_defects.py",
    "tests/simulation/test_kept.py::test_killed_in_any_phase_resume",
    "tests/simulation/test_nights.py",
    "tests/simulation/test_steps_taken.py",
    "tests/simulation/test_tuning_on_trees.py",
    "tests/unit/airflow/test_airflow_attempts.py",
    "tests/unit/config/test_management.py",
    "tests/unit/diagnosis/test_sampler.py",
    "tests/unit/tuning/test_boot_script.py",
    "tests/unit/tuning/test_facts.py",
    "tests/unit/tuning/test_find_disks.py",
    "tests/unit/tuning/test_tuning_script.py",
    "tests/unit/runs/test_host_tuning.py",
    "tests/unit/runs/test_tuning_killed.py",
    "tests/unit/clusters/test_damaged_answers.py",
    "tests/unit/clusters/test_riak_lease.py",
    "tests/unit/clusters/test_riak_service.py",
    "tests/unit/test_daemons.py",
    "tests/unit/test_riak_double.py",
    "tests/unit/test_workers.py",
    "tests/unit/view/test_screens.py::test_every_screen_is_as_its_rules_say[30",  # 30 nodes, and 300
)
"""Where the beginning of a name says that `make check` leaves the test to `make test`."""
_EVERY_SECONDS: Final = 20.0
_ENDING_SECONDS: Final = 180.0
"""As long as a process may take to end the servers that it started."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Any:
    """Name the group of tests on servers, mark the slow ones, and put the long groups first."""
    for item in items:
        for mark, group in ON_SERVERS.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.xdist_group(group))
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=_turn)
    return (yield)


@pytest.hookimpl(tryfirst=True)  # before the names are sent
def pytest_collection_finish(session: pytest.Session) -> None:
    """Name each test of a group as xdist's scheduler expects it: `…@group`.

    xdist 3.8 writes the attribute of older versions of pytest, which 9.2 does not read.
    """
    if not session.config.getoption("loadgroup", False):
        return
    for item in session.items:
        mark = item.get_closest_marker("xdist_group")
        if mark and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = item._id.parse(f"{item.nodeid}@{mark.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Let a subtest be named by any value: pytest 9.2 sends its keywords as texts, and its name as it is."""
    data = yield
    context = (data or {}).get("_subtest.context")
    if context is not None and context["msg"] is not None:
        context["msg"] = str(context["msg"])
    return data


def _turn(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    order = (*dict.fromkeys(ON_SERVERS.values()), WHOLE_RUNS)
    return order.index(mark.args[0]) if mark and mark.args[0] in order else len(order)


def pytest_report_header() -> list[str]:
    """Say what is left out."""
    if not docker.unwanted():
        return []
    return [f"{docker.SKIP_VARIABLE}=1: tests on hosts in containers are left out"]


def pytest_configure(config: pytest.Config) -> None:
    """Be ready to be told to end; follow the workers, in the process that has them."""
    if hasattr(config, "workerinput"):
        # A terminal interrupts the workers, and so does the process that has them. Once is enough:
        # what the tests started is being ended by then.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupted_once)
        config.pluginmanager.register(Ending(), "ending")
        return
    # One that is told to end takes its servers down, as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Workers(config), "workers")


def _interrupted_once(_number: int, _frame: FrameType | None) -> None:
    _uninterrupted()
    raise KeyboardInterrupt


def _uninterrupted() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class Ending:
    """The end of a process that runs tests: it ends the servers there, and is not interrupted in it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Be left alone once the last test is over."""
        if nextitem is None:
            _uninterrupted()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Be left alone after an interruption too."""
        _uninterrupted()


class Workers:
    """The processes that run tests, seen from the one that has them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._pids: dict[str, int] = {}
        self._nodes: list[Any] = []
        self._began = self._shown = time.monotonic()
        self._done = self._failed = self._all = 0
        self._on_servers: dict[str, str] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        """Know its process."""
        self._pids[gateway.id] = gateway._rinfo().pid  # as xdist's own report does

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Know it."""
        self._nodes.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count what is to be done."""
        self._all = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test of each group that is on servers now."""
        name, _, group = nodeid.rpartition("@")
        if group in ON_SERVERS.values():
            self._on_servers[group] = name.rpartition("/")[2]
        self._show()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name what fails at once; with `-x`, interrupt the other worker, which would first end its group."""
        self._done += report.when == "teardown"
        if report.failed:
            self._failed += 1
            self._line(f"FAILED {report.nodeid} ({report.when})")
            if 0 < (self._config.getoption("maxfail") or 0) <= self._failed:
                self._interrupt(each for each in self._nodes if each is not getattr(report, "node", None))
        self._show()

    @pytest.hookimpl(tryfirst=True)  # before the workers are killed
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Let every worker end what it started."""
        if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            self._interrupt(self._nodes)
        for node in self._nodes:
            with contextlib.suppress(node.channel.TimeoutError, node.channel.RemoteError):
                node.channel.waitclose(_ENDING_SECONDS)

    def _interrupt(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            if not node.channel.isclosed():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pids[node.gateway.id], signal.SIGINT)

    def _show(self) -> None:
        """A line now and then, for who reads a log."""
        now = time.monotonic()
        if now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            passed = f"{now - self._began:.0f} s: {self._done} of {self._all} tests, {self._failed} failed"
            self._line("; ".join([passed, *(f"{group}: {name}" for group, name in self._on_servers.items())]))

    def _line(self, text: str) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(text)
            terminal.flush()
