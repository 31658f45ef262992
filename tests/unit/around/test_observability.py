"""The shipped alert rules and the dashboard name metrics, labels and values that runs write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.around.metrics import NODE_PHASES, OUTCOMES, Figures
from orchestrator.config.lookup import shipped

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = shipped("configs") / "observability"
RULES: Final = (FOLDER / "alerts.yml").read_text()
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES: Final = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
VARIABLES: Final = [one["query"] for one in DASHBOARD["templating"]["list"]]
TESTED: Final = (ROOT / "tests/data/observability/rules.yml").read_text()
WRITTEN: Final = {name for name, _, _ in Figures("prod", 1.0).families(0)}


@pytest.mark.parametrize("text", [RULES, json.dumps(DASHBOARD), TESTED])
def test_every_metric_is_one_that_a_run_writes(text: str) -> None:
    named = set(re.findall(r"\borchestrate_\w+", text))
    assert named
    assert named <= WRITTEN


def test_every_metric_is_in_the_docs_and_in_the_dashboard() -> None:
    page = (ROOT / "docs/how-to/around-a-run.md").read_text()
    rows = page.partition("| metric | is |")[2].partition("\n\n")[0].splitlines()
    documented = {name for row in rows for name in re.findall(r"`(\w+)", row.partition(" | ")[0])}
    names = {name.removeprefix("orchestrate_") for name in WRITTEN}
    assert documented == names
    assert {name for name in names if f"orchestrate_{name}" not in json.dumps(DASHBOARD)} == set()


def test_every_value_of_a_label_is_one_that_there_is() -> None:
    labels = {"outcome": OUTCOMES, "phase": NODE_PHASES}
    for text in (RULES, *QUERIES, TESTED):
        for label, values in re.findall(r'\b(outcome|phase)=~?"([^"]+)"', text):
            assert set(values.split("|")) <= set(labels[label])


def test_every_rule_is_tested() -> None:
    names = re.findall(r"alert: (\w+)", RULES)
    assert len(names) == len(set(names)) == 7
    assert set(re.findall(r"alertname: (\w+)", TESTED)) == set(names)


def test_the_dashboard_asks_the_chosen_source_alone() -> None:
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r"\$\{?(\w+)", text)) == {"datasource", "cluster", "instance"}
    panels = DASHBOARD["panels"]
    asked = [one["datasource"]["uid"] for panel in panels for one in (panel, *panel["targets"])]
    assert set(asked) == {"${datasource}"}
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for at in places for x in range(at["x"], at["x"] + at["w"])
             for y in range(at["y"], at["y"] + at["h"])]  # fmt: skip
    assert len(cells) == len(set(cells)), "no panel covers another one"
    assert max(x for x, _ in cells) < 24
