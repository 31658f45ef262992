"""Golden files of the views."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

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
        assert text == path.read_text(encoding="utf-8"), f"if it is right, {REWRITE}=1 writes {name}"

    return compare


@pytest.fixture
def golden_views(golden: Callable[[str, str], None]) -> Callable[[str, Iterable[tuple[str, object]]], None]:
    """Compare many views, each below its title, with one file."""

    def shown(view: object) -> str:
        if isinstance(view, str):
            return view
        if isinstance(view, dict):
            return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in view.items())
        assert isinstance(view, (list, tuple)), view
        return "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in view)

    def compare(name: str, views: Iterable[tuple[str, object]]) -> None:
        golden(name, "".join(f"== {title}\n{shown(view).rstrip()}\n" for title, view in views))

    return compare
