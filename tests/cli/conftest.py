"""A console for each test, and the small cluster with its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster


@pytest.fixture
def console(tmp_path: Path) -> Console:
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    return Console(home=home, folder=folder)


@pytest.fixture
def store(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateStore]:
    """The state of the console's commands, also for commands that run without it."""
    monkeypatch.setenv("ORCHESTRATE_STATE", console.url)
    opened = open_store(console.url, {}, access=DatabaseUse.WRITE)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _no_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts of the small cluster are this machine: `apt` at work on it would hold a plan."""
    monkeypatch.setattr("orchestrator.hosts.management.SCRIPT", "(exit 0)")


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def file(console: Console, cluster: SmallCluster) -> str:
    """The file of `cluster`."""
    return cluster.write_file(console.folder)
