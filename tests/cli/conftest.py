"""A console for each test, and real nodes where a test asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import Console


@pytest.fixture
def console(tmp_path: Path) -> Console:
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    return Console(home=home, folder=folder)
