"""Parts of the tests: what a change calls for, and the table of the contributors' page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts
from tests.parts import PARTS, called_for

PAGE = Path(__file__).parents[2] / "docs/development/contributing.md"


def test_the_page_has_every_part() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        paths = ", ".join(f"`{path}`" for path in part.paths)
        assert f"| `make test-{name}` | {part.shows} | {paths} |\n" in text
    assert text.count("| `make test-") == len(PARTS) + len(("changed", "all"))


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"README.md", "orchestrator_notes.md"}, {}),
        ({"orchestrator/tuning/facts.py"}, {"long", "tuning"}),
        ({"orchestrator/airflow/operators.py", "tests/doubles/a.py"}, {"airflow", "long", "riak"}),
    ],
)
def test_a_change_calls_for_the_parts_of_its_paths(changed: set[str], wanted: set[str]) -> None:
    assert set(called_for(changed)) == set(wanted)


def test_every_path_of_a_part_is_there() -> None:
    assert not [path for part in PARTS.values() for path in part.paths if not (parts.ROOT / path).exists()]


def test_a_part_that_no_command_runs_is_refused(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.part(name="hots"))
    with pytest.raises(pytest.UsageError, match=r"no part of tests/parts\.py is .*hots"):
        parts.pytest_collection_modifyitems([request.node])
