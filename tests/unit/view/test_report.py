"""The report: its figures, its page, and what no text of a journal can do in it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC
from html.parser import HTMLParser
from typing import Final

import pytest

from orchestrator.model.encoding import encode_event
from orchestrator.model.phase import Outcome
from orchestrator.redact import Redactor, cleaned
from orchestrator.view.node_times import node_lines
from orchestrator.view.report.charts import Axis, timeline
from orchestrator.view.report.facts import as_json, facts_of, rows_of
from orchestrator.view.report.page import history_page, run_page
from tests.unit.view import samples
from tests.unit.view.stories import (
    KEPT,
    MARKUP,
    NAMES,
    PAST,
    T0,
    begun,
    every_event,
    pages,
    public,
    story,
    turn,
    with_known_words,
)


def test_several_attempts_are_one_story() -> None:
    facts = facts_of(story())
    assert [(one["how"], one["outcome"], one["seconds"]) for one in facts["attempts"]] == [
        ("start", None, 182.0),
        ("resume", "failed", 20.0),
        ("resume", "done", 60.0),
    ]
    assert facts["attempts"][1]["message"] == "es3 failed"
    assert (facts["seconds"], facts["outcome"], facts["nodes_restarted"]) == (262.0, "done", 3)
    assert facts["node_seconds"] == {"es1": 40.0, "es2": 100.0, "es3": 40.0}
    assert [node["node"] for node in facts["nodes"] if node["slow"]] == ["es2"]
    assert (facts["bytes_reused"], facts["bytes_copied"]) == (2700, 300)
    steps = ("stop_seconds", "work_seconds", "start_and_join_seconds", "recover_seconds")
    assert [facts["nodes"][0][name] for name in steps] == [2.0, 0.0, 20.0, 18.0]
    assert facts["health_seconds"] == {"green": 152.0, "yellow": 30.0}
    costs = [(one["predicate"], one["subject"], one["seconds"]) for one in facts["holds"]]
    assert costs == [("no_running_snapshot", "nightly", 10.0), ("gates_open", "queue", 10.0)]
    assert facts["seconds_held"] == 14.0, "both held it for six seconds"
    (setting,) = facts["settings"]
    assert (setting["before"], setting["during"], setting["restored"]) == (None, ["primaries"], True)


def test_all_alerts_that_closed_a_gate_are_listed() -> None:
    told = [
        public(
            at,
            "gate_closed",
            gate="alertmanager",
            evidence=f"{len(names)} alerts fire",
            count=9,
            subjects=names,
        )
        for at, names in ((1, ["DiskFull", "HostDown"]), (2, ["HostDown", "Slow"]))
    ]
    page = run_page(facts_of([begun("es1"), *told, public(9, "gate_opened", gate="alertmanager")]), UTC)
    assert "<td>2 alerts fire <span" in page, "no other subjects are counted before it"
    assert "Alerts that closed it during the run: DiskFull, HostDown, Slow</td>" in page


def test_a_turn_over_two_attempts_is_not_measured() -> None:
    first = [begun("es1"), *turn(10, "es1", 1)]
    cut = [*first[:6], public(500, "run_resumed", operator="ann", host="b1"), *first[6:]]
    later = [{**one, "at": one["at"] + (600 if number > 6 else 0)} for number, one in enumerate(cut)]
    (node,) = facts_of(later)["nodes"]
    assert (node["phase"], node["seconds"], node["bytes_copied"]) == ("recovered", None, 100)


def test_a_terminal_has_how_long_each_node_was_down() -> None:
    """es2 recovered for 78 s of the 262 s of the run; a turn over two attempts is marked."""
    head, *nodes, end = node_lines(facts_of(story()), 80)
    assert head.split("  ")[0] == "NODE"
    assert [line.split() for line in nodes] == [
        ["es1", "22s", "18s", "40s", "15%"],
        ["es2", "22s", "1m", "18s", "1m", "40s", "38%"],
        ["es3", "22s", "18s", "40s", "15%"],
    ]
    assert end == ""
    first = [begun("es1"), *turn(10, "es1", 1)]
    later = [{**one, "at": one["at"] + 600} for one in first[6:]]
    cut = [*first[:6], public(500, "run_resumed", operator="ann", host="b1"), *later]
    _, row, marked, _ = node_lines(facts_of(cut), 80)
    assert "10m 40s*" in row
    assert marked == "* over several attempts, with the time between them"
    names = [f"es{number:03}" for number in range(300)]
    many = [begun(*names), *(one for n, name in enumerate(names) for one in turn(100 + 250 * n, name, n + 1))]
    assert len(node_lines(facts_of(many), 80)) < 12, "the slowest of many"
    assert node_lines(facts_of([begun("es1")]), 80) == []


def test_no_name_of_the_json_or_column_of_the_csv_is_lost() -> None:
    facts = facts_of(story())
    assert facts.keys() >= NAMES_OF_THE_REPORT
    assert list(rows_of(facts)[0]) == COLUMNS


NAMES_OF_THE_REPORT: Final = {
    *("run", "cluster", "product", "version", "target_version", "work", "strategy", "playbook", "reason"),
    *("repairs", "began", "ended", "finished", "seconds", "outcome", "exit_code", "message", "next"),
    "attempts",
    *("predicted_seconds", "nodes_selected", "nodes_restarted", "nodes_failed", "nodes_skipped", "nodes"),
    *("nodes_not_restarted", "seconds_a_node", "predicted_seconds_a_node", "node_seconds", "seconds_held"),
    *("bytes_reused", "bytes_copied", "health_seconds", "waves", "samples", "holds", "gates", "settings"),
    *("not_restored", "tuning", "merges", "commands", "happened"),
}
COLUMNS: Final = [
    *("run", "cluster", "version", "node", "zone", "wave", "phase", "began", "seconds", "predicted_seconds"),
    *("stop_seconds", "work_seconds", "start_and_join_seconds", "recover_seconds", "slow", "bytes_reused"),
    *("bytes_copied", "operations_replayed"),
]


def test_a_run_of_an_earlier_version_says_what_it_did_not_record() -> None:
    facts = facts_of(one for one in story() if one["event"] != "cluster_sampled")
    assert facts["samples"] is None
    assert "Not recorded: an earlier version" in run_page(facts, UTC)


def test_every_event_has_its_place_or_none() -> None:
    events = [encode_event(event) for event in samples.examples()]
    for event in events:
        if event["event"] != "run_started":
            run_page(facts_of([begun("es1", "es2", "es3"), public(1, **event)]), UTC)
    for event in events:
        if event["event"] == "run_started":  # a restart, a restore, merges with and without nodes
            run_page(
                facts_of([public(0, **event), public(9, "run_finished", outcome="done", exit_code=0)]), UTC
            )
    whole = [begun("es1"), *(public(n, **one) for n, one in enumerate(events))]
    assert json.dumps(as_json(facts_of(whole)))


def test_the_time_between_attempts_is_left_out_of_the_axis() -> None:
    axis = Axis(facts_of(story())["attempts"], UTC)
    (first, second) = axis.gaps
    assert first["text"] == "13m 38s until the next attempt"
    assert axis.at(T0) == 0.0
    assert axis.at(T0 + 5060) == pytest.approx(100.0, abs=0.01)
    assert axis.at(T0 + 1000) - axis.at(T0 + 182) == pytest.approx(3.0, abs=0.01)
    places = [axis.at(T0 + at) for at in range(0, 5061, 10)]
    assert places == sorted(places)
    assert second["x"] < axis.at(T0 + 5000)


def test_the_name_of_a_node_is_where_there_is_room() -> None:
    """Of one with steps in two attempts it is between them; of others it is beside their bars."""
    first = [begun("es1", "es2", "es3"), *turn(5, "es1", 1)[:5], public(20, "lease_lost")]
    again = [public(1000, "run_resumed"), *turn(1130, "es2", 2), *turn(1240, "es1", 3)]
    end = [*turn(1290, "es3", 4)[:5], public(1300, "run_finished", outcome="done", exit_code=0)]
    facts = facts_of([*first, *again, *end])
    names = {
        one["text"].split()[0]: (one["anchor"], round(one["x"]))
        for one in timeline(facts, Axis(facts["attempts"], UTC))["names"]
    }
    assert names == {"es1": ("start", 6), "es2": ("end", 48), "es3": ("end", 97)}


MANY: Final = 41
"""More than have a line each in the charts."""


class Shown(HTMLParser):
    """What is on a page, line by line: texts, rows of tables, and what the charts have where.

    Attributes:
        lines: each block of text; each mark of a chart with its class and its place.
    """

    blocks = frozenset(
        {"h1", "h2", "h3", "p", "summary", "li", "tr", "dt", "dd", "text", "title", "figcaption"}
    )
    marks = ("x", "y", "width", "height", "x1", "y1", "x2", "y2", "points", "d")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines, self._said = list[str](), ""
        self.feed(page.partition("</style>")[2])
        self._end()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in self.blocks:
            self._end()
        if tag in {"td", "th"}:
            self._said += " | "
        places = [f"{name}={given[name]}" for name in self.marks if name in given]
        if tag != "svg" and places:
            self._end()
            self.lines.append(" ".join([f"<{tag} {given.get('class', '')}>", *places]))
        if "aria-label" in given:
            self.lines.append(f"[{given['aria-label']}]")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.blocks:
            self._end()

    def handle_data(self, data: str) -> None:
        self._said += data

    def _end(self) -> None:
        if said := " ".join(self._said.split()):
            self.lines.append(said)
        self._said = ""


def test_the_figures_of_the_json_are_on_the_page(golden: Callable[[str, str], None]) -> None:
    """Of a run, of one of many nodes (each kind of line once, without its numbers), and of past runs."""
    many = [begun(*(f"es{number:02}" for number in range(1, MANY + 1)))]
    for number in range(1, MANY + 1):
        many += turn(50.0 * number, f"es{number:02}", number, seconds=20.0 + number % 7)
    facts = facts_of(story())
    told = as_json(facts)
    lines = ["== JSON", *(f"{name}: {json.dumps(told[name])}" for name in sorted(told))]
    lines += ["== its page", *Shown(run_page(facts, UTC)).lines]
    lines += ["== many nodes"]
    lines += dict.fromkeys(
        re.sub(r"\d[\d.]*", "#", line) for line in Shown(run_page(facts_of(many), UTC)).lines
    )
    lines += ["== past runs", *Shown(history_page([PAST, {**PAST, "run": "run-2"}], {}, UTC)).lines]
    golden("report.txt", "".join(f"{line}\n" for line in lines))


class Tags(HTMLParser):
    """The elements of a page, and the attributes that could act."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes = Counter[str](), set[str]()
        self.asked = list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "srcset", "action"} or name.startswith("on"):
                self.asked.append(f"{name}={value}")


def test_no_markup_of_a_text_acts_in_a_page(subtests: pytest.Subtests) -> None:
    """Of a journal, a status and past runs: no element, no address and no attribute comes from it."""
    plain = pages("")
    for kind, page in pages(MARKUP).items():
        with subtests.test(page=kind):
            found, usual = Tags(page), Tags(plain[kind])
            assert found.tags.keys() <= usual.tags.keys()
            assert found.attributes <= usual.attributes
            assert set(found.asked) == set(usual.asked)
            assert page.count("<script") == kind.startswith("live")
            assert page.lower().count("</style>") == 1
            assert "&lt;script&gt;acted()" in page
            assert "{{ 7 * 7 }}" in page


SECRETS: Final = ("correct horse battery", "pa$$/w0rd=x", "tok3n-5f0c")
SHAPES: Final[Mapping[str, str]] = {
    "Authorization: Basic dXNlcjpwYXNzd29yZA==": "dXNlcjpwYXNzd29yZA",
    "curl -H 'Authorization: Bearer abc.def.ghi'": "abc.def.ghi",
    "password=hunter2hunter2": "hunter2hunter2",
    '{"api_key": "k3yk3yk3y"}': "k3yk3yk3y",
    "run --token s3s4m3open": "s3s4m3open",
    "https://ann:p4ssp4ss@es1:9200/_cat": "p4ssp4ss",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----": "MIIEow",
}


@pytest.mark.parametrize("shape", [*SECRETS, *SHAPES])
def test_no_secret_of_a_journal_is_in_any_output(shape: str) -> None:
    redact, secret = Redactor(SECRETS), SHAPES.get(shape, shape)
    records = [
        {name: value if name in KEPT else cleaned(value, _planting(shape)) for name, value in one.items()}
        for one in every_event()
    ]
    records = with_known_words(records, every_event())
    facts = facts_of(cleaned(records, redact))
    for text in (run_page(facts, UTC), json.dumps(as_json(facts)), json.dumps(as_json(rows_of(facts)))):
        assert secret not in text
        assert "[redacted]" in text
    past = [{**PAST, "reason": shape, "cluster": shape, "version": shape}]
    assert secret not in history_page(cleaned(past, redact), {}, UTC)


def _planting(shape: str) -> Callable[[str], str]:
    return lambda text: text if text in NAMES else f"{text} {shape}"


def test_past_runs_are_linked_and_have_their_version() -> None:
    later = {**PAST, "run": "run-2", "version": "9.2.0", "started": "2026-05-02T03:04:05.000Z"}
    untimed = {**PAST, "run": "run-3", "seconds_a_node": None, "node_seconds": {}, "outcome": None}
    page = history_page([PAST, later, untimed], {"run-2": "reports/run-2.html"}, UTC)
    found = Tags(page)
    assert found.asked == ["href=data:,", *["href=reports/run-2.html"] * 2]
    assert "run-2: 30s a node, 9.2.0" in page
    assert "no end recorded" in page
    killed = history_page([{**untimed, "not_restored": "5 settings, es2"}], {}, UTC)
    assert "NOT RESTORED: 5 settings, es2" in killed


def test_a_page_has_the_words_of_the_terminal_for_every_end() -> None:
    runs = [{**PAST, "run": f"run-{outcome.value}", "outcome": outcome.value} for outcome in Outcome]
    page = history_page([*runs, {**PAST, "run": "run-x", "outcome": "of_a_later_version"}], {}, UTC)
    assert [outcome.words for outcome in Outcome if f">{outcome.words}</td>" not in page] == []
    assert ">of_a_later_version</td>" in page


def test_a_page_of_three_hundred_nodes_names_the_slow_ones() -> None:
    names = [f"es{number:03}" for number in range(300)]
    records = [begun(*names)]
    for number, name in enumerate(names):
        took = 200.0 if name == "es123" else 40.0
        records += turn(100.0 + 250 * number, name, number + 1, seconds=took)
    page = run_page(facts_of(records), UTC)
    assert "<strong>es123</strong> 3m 20s" in page
    assert page.count("<details open") == 0, "the table of all nodes is closed"
    assert len(page) < 700_000
