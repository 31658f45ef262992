"""The figures of a report's page are those of its JSON: each is read out of the page, for several runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC
from html.parser import HTMLParser
from typing import Any

import pytest

from orchestrator.names import OUTCOMES
from orchestrator.steps import TURN, step_of_node
from orchestrator.view.report.facts import as_json, seconds_of
from orchestrator.view.report.page import run_page
from orchestrator.view.text import counted, duration, listed, size
from tests.simulation import reported
from tests.simulation.program import Simulation

_VOID = frozenset({"meta", "link", "br"})


class Page(HTMLParser):
    """A page, read.

    Attributes:
        texts: of paragraphs, by the heading above them.
        tables: rows of cells, by the heading above them.
        cards: the figures at the top.
        bars: in the timeline, by class.
        labels: of the charts.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"": []}
        self.tables: dict[str, list[list[str]]] = {}
        self.cards: dict[str, str] = {}
        self.bars = Counter[str]()
        self.labels: list[str] = []
        self._heading, self._open = "", list[tuple[str, list[str]]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        if tag == "rect" and self._heading == "Timeline":
            self.bars[str(given.get("class"))] += 1
        if "aria-label" in given:
            self.labels.append(str(given["aria-label"]))
        if tag not in _VOID:
            self._open.append((tag, []))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "rect" and self._heading == "Timeline":
            self.bars[str(dict(attrs).get("class"))] += 1

    def handle_data(self, data: str) -> None:
        for _, said in self._open:
            said.append(data)

    def handle_endtag(self, tag: str) -> None:
        opened, said = self._open.pop()
        assert opened == tag, (opened, tag)
        text = " ".join("".join(said).split())
        match tag:
            case "h2":
                self._heading = text
            case "p" | "summary" | "li":
                self.texts.setdefault(self._heading, []).append(text)
            case "td" | "th":
                self.tables[self._heading][-1].append(text)
            case "dt":
                self._card = text
            case "dd":
                self.cards[self._card] = text

    def rows(self, heading: str) -> list[dict[str, str]]:
        """The rows of the table below a heading, by the names of its columns."""
        head, *rows = self.tables.get(heading, [[]])
        return [dict(zip(head, row, strict=True)) for row in rows]

    def said(self, heading: str) -> str:
        """The paragraphs below a heading."""
        return "\n".join(self.texts.get(heading, []))


def _or_nothing(words: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else words(value)


@pytest.mark.parametrize("made", [reported.held, reported.resumed_twice, reported.many])
def test_the_figures_of_the_page_are_those_of_the_json(made: Callable[[], Simulation]) -> None:
    facts = reported.facts(made())
    told, page = json.loads(json.dumps(as_json(facts))), Page(run_page(facts, UTC))
    _top(told, page)
    _attempts(told, page)
    _nodes(told, page)
    _charts(told, page)
    _health(told, page)
    _holds(told, page)
    _settings(told, page)
    _commands(told, page)


def _top(told: dict[str, Any], page: Page) -> None:
    likely = told["predicted_seconds"]
    nodes = f"{told['nodes_restarted']} of {counted(told['nodes_selected'], 'node')} restarted in"
    assert f"{nodes} {duration(told['seconds'])}" in page.said("")
    assert likely is None or f"(predicted {duration(likely['likely'])}, between" in page.said("")
    for title, names in (("Failed", told["nodes_failed"]), ("Not restarted", told["nodes_not_restarted"])):
        assert (f"{title}: {listed(names, 12)}" in page.said("")) is bool(names)
    assert page.cards["A node (median)"].startswith(duration(told["seconds_a_node"]))
    held = duration(told["seconds_held"]) if told["seconds_held"] else "not held"
    assert page.cards["Held"].startswith(held)
    moved = f"{size(told['bytes_copied'])}{size(told['bytes_reused'])} reused from disk"
    assert page.cards["Copied"].replace(" ", "") == moved.replace(" ", "")
    changed = counted(len(told["settings"]), "setting")
    assert page.cards["Settings"].endswith(f"{changed} changed during the run")


def _attempts(told: dict[str, Any], page: Page) -> None:
    several = told["attempts"] if len(told["attempts"]) > 1 else []
    rows = page.rows("Attempts")
    assert [(row["#"], row["Took"]) for row in rows] == [
        (f"{one['number']} {one['how']}", duration(one["seconds"])) for one in several
    ]
    for row, one in zip(rows, several, strict=True):
        assert row["End"].startswith(OUTCOMES.get(one["outcome"], "no end recorded"))


def _nodes(told: dict[str, Any], page: Page) -> None:
    steps = {step.capitalize(): seconds_of(step) for step in TURN.values()}
    times = {**steps, "In all": "seconds", "Predicted": "predicted_seconds"}
    rows = page.rows("Nodes")
    assert rows == [
        {
            "Node": node["node"],
            "Wave": str(node["wave"] or ""),
            "Zone": node["zone"] or "",
            "Step": step_of_node(node["phase"]) + node["why"],
            **{title: _or_nothing(duration, node[name]) for title, name in times.items()},
            "Reused": _or_nothing(size, node["bytes_reused"]),
            "Copied": _or_nothing(size, node["bytes_copied"]),
        }
        for node in told["nodes"]
    ]


def _charts(told: dict[str, Any], page: Page) -> None:
    turns = Counter(turn["step"].split()[0] for node in told["nodes"] for turn in node["turns"])
    drawn = {step.split()[0]: page.bars[step.split()[0]] - 1 for step in TURN.values()}  # one in the key
    assert drawn == {step: turns[step] for step in drawn}
    of = f"{counted(len(told['waves']), 'wave')} and {counted(len(told['nodes']), 'node')}"
    assert any(label.startswith(f"Timeline of {of};") for label in page.labels)
    assert page.bars["band"] == sum(len(wave["nodes"]) for wave in told["waves"])
    assert page.bars["held"] == (len(told["holds"]) + 1 if told["holds"] else 0)
    copied = f"{size(told['bytes_reused'])} were found on the nodes' own disks, {size(told['bytes_copied'])}"
    assert copied in page.said("Data of the nodes")


def _health(told: dict[str, Any], page: Page) -> None:
    said = page.said("Health of the cluster").lower()
    for health, seconds in told["health_seconds"].items():
        assert f"{health} for {duration(seconds)}" in said
    most = max(one["unassigned"] + one["recovering"] for one in told["samples"])
    assert f"at most {counted(most, 'copy', 'copies')}" in said


def _holds(told: dict[str, Any], page: Page) -> None:
    seconds, times = Counter[str](), Counter[str]()
    for hold in told["holds"]:
        seconds[hold["predicate"]] += hold["seconds"]
        times[hold["predicate"]] += 1
    rows = page.rows("Holds and gates")
    assert {row["What held the run"]: (row["Cost"], row["Times"]) for row in rows} == {
        name: (duration(seconds[name]), str(times[name])) for name in seconds
    }


def _settings(told: dict[str, Any], page: Page) -> None:
    rows = {row["Setting"]: row for row in page.rows("Settings")}
    assert rows.keys() == {one["key"] for one in told["settings"]}
    for one in told["settings"]:
        row = rows[one["key"]]
        assert row["Before"] == ("not set" if one["before"] is None else str(one["before"]))
        assert ("as before" in row["After"]) is (one["restored"] and one["after"] == one["before"])
        assert one["times"] < 2 or f"({one['times']} times)" in row["During"]


def _commands(told: dict[str, Any], page: Page) -> None:
    sent = Counter((one["verb"], one["detail"]) for one in told["commands"])
    rows = page.rows("Commands")
    assert sum(int(row["Sent"].split()[0]) for row in rows) == len(told["commands"])
    assert len(rows) == len(sent)
