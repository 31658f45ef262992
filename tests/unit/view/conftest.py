"""Golden files of the views."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.unit.view.samples import GOLDEN

REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with its file under tests/data/view; with ORCHESTRATE_REWRITE_GOLDEN=1, write it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get(REWRITE):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {name}; write it with {REWRITE}=1 and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare
