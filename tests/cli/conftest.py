"""A console for each test, and real nodes where a test asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console


@pytest.fixture
def console(tmp_path: Path) -> Console:
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    return Console(home=home, folder=folder)


@pytest.fixture
def store(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateStore]:
    """The state of the console's commands, also for commands that run in this process."""
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    opened = open_store(f"sqlite:///{console.state}", {}, access=Access.WRITE)
    yield opened
    opened.close()
