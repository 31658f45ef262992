"""CPU seconds of the tests by folder, at the end of pytest's output (a plugin of pytest).

The seconds are of the process that runs a test, and of the processes that it waited for: not of servers. With
`--budget` (`make budget`) a folder of `make check` that takes more than its budget fails the run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import pytest

PROPERTY: Final = "cpu_seconds"
BUDGETS: Final[Mapping[str, float]] = {
    "tests/cli": 33,
    "tests/conformance": 5,
    "tests/integration": 5,
    "tests/proof": 10,
    "tests/simulation": 97,
    "tests/unit": 50,
}
"""CPU seconds of each folder in `make check`: a tenth to a fifth more than measured on two quiet cores."""


def folder_of(nodeid: str) -> str:
    """The folder of `BUDGETS` to which a test counts, else its own."""
    file = nodeid.partition("::")[0]
    return next((each for each in BUDGETS if file.startswith(f"{each}/")), str(PurePath(file).parent))


def too_expensive(spent: Mapping[str, float]) -> Iterator[str]:
    """A line for each folder that took more than its budget."""
    for folder, seconds in spent.items():
        if seconds > BUDGETS.get(folder, 0.0):
            yield f"{folder}: {seconds:.1f} CPU seconds of {BUDGETS.get(folder, 0.0):.0f}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know the option."""
    parser.addoption("--budget", action="store_true", help="fail if a folder takes more than its CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in every process; add up in the one that prints."""
    config.pluginmanager.register(Meter(), "cpu-meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sums(config), "cpu-sums")


class Meter:
    """Notes in each report the CPU seconds since the one before."""

    def __init__(self) -> None:
        self._before = _spent()

    def pytest_collection_finish(self) -> None:
        """Begin with the first test."""
        self._before = _spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        """Each test has three reports: of its set-up, of itself, and of its end."""
        report: pytest.TestReport = yield
        now = _spent()
        report.user_properties = [*report.user_properties, (PROPERTY, now - self._before)]
        self._before = now
        return report


def _spent() -> float:
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


class Sums:
    """The seconds of all tests by folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._fails = config.getoption("budget")
        self._spent: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up."""
        for name, value in report.user_properties[-1:]:
            if name == PROPERTY:
                self._spent[folder_of(report.nodeid)] += float(str(value))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """With the option, fail a run that would pass."""
        if self._fails and session.exitstatus == pytest.ExitCode.OK and any(too_expensive(self._spent)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line, and one for each folder that is too expensive."""
        spent = ", ".join(f"{folder} {seconds:.0f}" for folder, seconds in sorted(self._spent.items()))
        terminalreporter.write_line(f"CPU seconds: {sum(self._spent.values()):.0f} ({spent})")
        for line in too_expensive(self._spent) if self._fails else ():
            terminalreporter.write_line(f"OVER BUDGET {line}")
