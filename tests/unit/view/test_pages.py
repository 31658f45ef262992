"""Plan, status, history and summary: golden text, and the contract's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.cli.prompts import question
from orchestrator.engine.kinds.predicates import aggregated
from orchestrator.engine.order import nodes_to_restart
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RecoveringWave, RunState
from orchestrator.model.action import NOT_ABSENT
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    Hold,
    NodeRecovered,
    Record,
    RunFinished,
    RunResumed,
    SettingRestored,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.plan import Step
from orchestrator.model.policy import Wave
from orchestrator.model.prediction import Forecast, Prediction
from orchestrator.view.history import PastRun, history_object, history_text, past_run, trend
from orchestrator.view.model import screen_of
from orchestrator.view.phrases import hold_sentence, nodes_in_words
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.status import status_object, status_text
from orchestrator.view.summary import summary, summary_lines, summary_object
from orchestrator.view.text import table
from orchestrator.view.words import sentence
from tests.unit.view import samples

Golden = Callable[[str, str], None]
T0: Final = samples.t0
ES1, ES2, ES3 = samples.ES


def _json(value: object) -> Any:
    return json.loads(json.dumps(value))


def _status(state: RunState, events: Sequence[Record] = (), *, after: float = 500.0, **more: Any) -> str:
    return status_text(state, events, now=T0 + after, **more)


def _end(state: RunState, outcome: Outcome, *events: Event) -> list[str]:
    return summary_lines(summary(state, outcome, events, T0))


# The plan ------------------------------------


def test_the_plan_as_text(golden: Golden) -> None:
    golden("plan.txt", plan_text(samples.plan()))
    held = plan_text(samples.plan(holds=(samples.hold,), lasting=("zero_replica_indices",)))
    golden("plan_held.txt", held)
    assert held.index("zero_replica_indices") < held.index("WAVE"), "said before anything else"
    assert "no node is selected" in plan_text(samples.plan(waves=(), steps=(), settings_changed={}))
    for distribution, version, said in (
        ("elasticsearch", "1.7.6", True),
        ("elasticsearch", "6.6.2", True),
        ("elasticsearch", "6.7.0", False),
        ("elasticsearch", "unknown", False),
        ("opensearch", "1.3.20", False),
    ):
        text = plan_text(samples.plan(distribution=distribution, version=version))
        assert ("stop the writers" in text) is said, "where stops lose writes"


def test_the_plan_as_json_is_the_contracts() -> None:
    plan = _json(plan_object(samples.plan(holds=(samples.hold,))))
    names = (
        "event cluster kind version target_version strategy fingerprint waves lower_bound_waves "
        "lower_bound_reason holds steps settings_changed predicted_seconds predicted_from timeout_seconds "
        "owed other_versions nodes_to_restart nodes_selected settings_today"
    )
    assert " ".join(plan) == names
    assert (plan["event"], plan["lower_bound_waves"]) == ("plan", None)
    assert plan["waves"][0] == {
        "number": 1,
        "zone": "a",
        "nodes": ["es1"],
        "why": "no data, so first",
        "predicted_seconds": {"low": 60, "likely": 75.3, "high": 140},
    }
    of_a_hold = "predicate subject evidence count subjects also reasons ways"
    assert " ".join(plan["holds"][0]) == of_a_hold
    assert set(plan["steps"][0]) == {"wave", "order", "target", "action", "detail"}
    assert plan["settings_changed"]["cluster.routing.allocation.enable"] == {"from": None, "to": "primaries"}


def test_a_name_cannot_drive_the_terminal_from_any_page() -> None:
    name = "es1\x1b[2J\nforged"
    step = Step(wave=0, order=1, target=name, action="stop", detail=name)
    wave = replace(samples.plan().waves[0], nodes=(NodeName(name),))
    past = replace(_run(1, {}), cluster=name, node_seconds={NodeName(name): 70.0})
    for text in (
        plan_text(samples.plan(cluster=name, steps=(step,), waves=(wave,))),
        _status(samples.run_state(cluster=name)),
        history_text([past]),
    ):
        assert r"es1\x1b[2J\nforged" in text
        assert all(line.isprintable() and not line.startswith("forged") for line in text.splitlines())


# Status ------------------------------------


def test_status_as_text(golden: Golden) -> None:
    events = samples.records(samples.examples()[:12])
    golden("status_held.txt", _status(samples.held_state(), events, after=130, alive=True))
    killed = _status(samples.run_state(), alive=False)
    golden("status_killed.txt", killed)
    for said in ("ITS PROCESS IS GONE", "orchestrate restore run-1", "orchestrate resume run-1"):
        assert said in killed
    unseen = " (a restore from another state database is not shown)"
    assert unseen in killed
    assert unseen not in _status(samples.run_state(), alive=True)
    restored = _status(samples.run_state(), alive=False, restored=True)
    assert "  not restored: nothing; another run has restored what it changed" in restored.splitlines()
    assert status_object(samples.run_state(), (), now=T0)["not_put_back"] != []
    assert status_object(samples.run_state(), (), now=T0, restored=True)["not_put_back"] == []
    repairs = replace(samples.run_state().begun, repairs="run-0")
    for state, resumes in ((samples.run_state(), True), (replace(samples.run_state(), begun=repairs), False)):
        assert ("to continue" in _status(state, alive=False)) is resumes, "it only restored"
    suspended = _status(samples.run_state(), alive=True, suspended=4711)
    assert "ITS PROCESS 4711 IS SUSPENDED" in suspended
    assert "to continue it: kill -CONT 4711\n" in suspended
    assert "orchestrate resume" not in suspended
    ended = _status(samples.ended_state(), alive=True, suspended=4711)
    assert "not restored: nothing" in ended
    assert not [word for word in ("4711", "orchestrate", "waits") if word in ended]


def test_status_tells_what_still_recovers_beside_the_wave() -> None:
    before = RecoveringWave(wave=Wave(number=1, nodes=(ES3,)), since=T0 + 10.0)
    state = samples.run_state(recovering=(before,))
    beside = "  beside it: wave 1 (es3) still recovers, 2m 0s so far\n"
    assert beside in _status(state, after=130, alive=True)
    shown = status_object(state, [], now=T0)
    assert shown["recovering"] == [{"number": 1, "zone": None, "nodes": ["es3"]}]
    assert "beside" not in _status(samples.ended_state())


def test_status_as_json() -> None:
    nodes = {ES1: NodeProgress(name=ES1, phase=NodePhase.FAILED, failure="unit not found")}
    state = samples.run_state(nodes=nodes, wave=None)
    status = _json(status_object(state, samples.records(samples.examples()), now=T0))
    assert (status["event"], status["phase"]) == ("status", "down")
    assert status["nodes"]["es1"]["failure"] == "unit not found"
    assert status["not_put_back"][-1] == "node es1: failed (unit not found)"
    assert status["waiting_until"].endswith("Z")


def test_status_shows_when_the_run_began_and_its_last_attempt() -> None:
    records = [Record(run="run-1", sequence=1, at=T0 - 3600, event=samples.started)]
    later = _status(samples.run_state(), records, after=60)
    assert "  began 2027-01-15T07:00:00Z, 1h 1m ago; this attempt 2027-01-15T08:00:00Z, 1m 0s ago\n" in later
    shown = status_object(samples.run_state(), records, now=T0)
    assert shown["run_started"] == "2027-01-15T07:00:00.000Z"
    first = _status(samples.run_state(), [replace(records[0], at=T0)], after=60)
    assert "attempt" not in first.split("last event")[0]


# History ------------------------------------


def _past(*events: tuple[float, Event], run: str = "r", at: float = T0) -> PastRun:
    found = past_run(
        [
            Record(run=run, sequence=n, at=at + later, event=event)
            for n, (later, event) in enumerate(events, 1)
        ]
    )
    assert found is not None
    return found


def _run(number: int, seconds: dict[NodeName, float], *, finished: bool = True) -> PastRun:
    """A run, a month after the one before, in which nodes took so long."""
    back = [
        (100.0 * n, NodeRecovered(node=name, seconds=s)) for n, (name, s) in enumerate(seconds.items(), 1)
    ]
    done = [(400.0, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=400))] if finished else []
    events: list[tuple[float, Event]] = [(0.0, samples.started), *back, *done]
    return _past(*events, run=f"run-{number}", at=T0 + number * 30 * 86400)


THREE: Final = _run(1, {ES1: 100.0, ES2: 104.0, ES3: 90.0})
ONE: Final = _run(1, {ES1: 100.0})


def test_history_shows_the_times_and_the_trend(golden: Golden) -> None:
    runs = [
        THREE,
        _run(2, {ES1: 96.0, ES2: 101.0, ES3: 99.0}),
        _run(3, {ES1: 70.0, ES2: 300.0}, finished=False),
        _run(4, {ES1: 70.0, ES2: 76.0, ES3: 75.0}),
    ]
    text = history_text(runs)
    golden("history.txt", text)
    assert ("25% faster" in text, "unfinished" in text) == (True, True)
    (line,) = _json(history_object([THREE]))
    assert (line["seconds_a_node"], line["nodes_restarted"], line["outcome"]) == (100.0, 3, "done")
    assert (history_text([]), past_run([])) == ("no runs yet\n", None)


def test_a_run_is_compared_with_earlier_ones_like_it(subtests: pytest.Subtests) -> None:
    one = _run(2, {ES1: 50.0})
    for what, before, last, compared in [
        ("other nodes", (THREE,), one, 0),
        ("the same nodes", (THREE, one), replace(one, run="c"), 1),
        ("like it", (THREE,), replace(THREE, run="b"), 1),
        ("another strategy", (THREE,), replace(THREE, strategy="zone"), 0),
        ("an upgrade", (THREE,), replace(THREE, target="9.1.0"), 0),
        ("a reboot", (THREE,), replace(THREE, reboot=True), 0),
        ("another node", (one,), _run(3, {ES2: 50.0}), 0),
    ]:
        with subtests.test(what):
            said = trend([*before, last])[0]
            assert (f"median of {compared} earlier run" in said) is bool(compared)
            assert ("to compare it with" in said) is not bool(compared)
    assert len(trend([one])) == 1


def test_the_columns_of_history_are_the_last_six_runs() -> None:
    """Runs of one day have columns that differ."""
    text = history_text([ONE, replace(ONE, run="run-2", started=ONE.started + 3600.0)])
    head = next(line for line in text.splitlines() if line.startswith("NODE "))
    assert len(set(head.replace("  ", "|").split("|")) - {""}) == 3
    runs = [
        replace(ONE, run=f"run-{n}", started=ONE.started + n * 86400.0, node_seconds={ES1: n})
        for n in range(11, 18)
    ]
    times = next(line for line in history_text(runs).splitlines() if line.startswith("es1 "))
    assert times.split() == ["es1", *(f"{n}s" for n in range(12, 18))]


def test_a_run_that_lay_paused_over_night_did_not_take_the_night() -> None:
    paused = RunFinished(outcome=Outcome.PAUSED, exit_code=9, seconds=40)
    done = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=60)
    again = RunResumed(operator="o", host="h")
    run = _past((0, samples.started), (40, paused), (40_000, again), (40_060, done))
    assert run.seconds == 100.0


def test_a_run_is_shown_beside_its_prediction() -> None:
    """In `history` with what it was off, at the end of the run in full; of an upgrade with its target."""
    forecast = Forecast(in_all=Prediction(low=200.0, likely=320.0, high=900.0))
    told = replace(ONE, predicted=forecast.in_all, target="9.1.0")
    text = history_text([told])
    assert ("5m 20s (+25%)" in text, "upgrade to 9.1.0; kernel update" in text) == (True, True)
    (line,) = history_object([told])
    assert line["predicted_seconds"] == {"low": 200, "likely": 320, "high": 900}
    assert line["target_version"] == "9.1.0"
    for other in (replace(told, outcome=None), replace(told, canary=True)):
        assert "5m 20s (" not in history_text([other]), "a canary's prediction is a partial one"
    state = samples.ended_state()
    end = summary(replace(state, begun=replace(state.begun, forecast=forecast)), Outcome.DONE, (), T0)
    assert "  predicted: likely 5m 20s (between 3m 20s and 15m 0s)" in summary_lines(end)
    assert summary_object(end)["predicted_seconds"] == line["predicted_seconds"]
    for unlike in (
        replace(end, resumed=True),
        replace(end, outcome=Outcome.HELD),
        replace(end, predicted=None),
    ):
        assert not [said for said in summary_lines(unlike) if "predicted" in said]


# Canaries ------------------------------------


def test_a_canary_counts_the_same_nodes_everywhere(subtests: pytest.Subtests) -> None:
    begun = replace(samples.started, policy=replace(samples.policy, pause_after=1))
    of = "3 nodes (es1, es2, es3)"
    for what, run, paused, count, words in [
        ("one", begun, False, 1, f"1 of {of}, then a pause"),
        ("a machine", replace(begun, planned=((ES1, ES2),)), False, 2, f"2 of {of}, then a pause"),
        ("all", replace(begun, nodes=(ES1,)), False, 1, "1 node: es1"),
        ("resumed", begun, True, 3, "3 nodes: es1, es2, es3"),
        ("no canary", samples.started, False, 3, "3 nodes: es1, es2, es3"),
    ]:  # fmt: skip
        with subtests.test(what):
            assert (nodes_to_restart(run, paused=paused), nodes_in_words(run, paused=paused)) == (
                count,
                words,
            )
            nodes = {name: NodeProgress(name=name) for name in run.nodes}
            state = replace(samples.run_state(nodes=nodes, wave=None, paused=paused), begun=run)
            assert screen_of(state, None, now=T0).to_restart == count
            pause = f"; a pause after {count} of 3 nodes" if count < len(run.nodes) else ""
            assert f"  nodes: {len(nodes)} pending{pause}\n" in _status(state)
            assert paused or f" begins: {words}; by" in sentence(run)
    plan = samples.plan(waves=samples.plan().waves[:1], nodes_selected=3, pauses=True)
    assert "\n1 of 3 nodes in 1 wave, then a pause, " in plan_text(plan)
    assert question(plan).startswith("Restart 1 of 3 nodes of prod in 1 wave, then pause, likely")
    assert (plan_object(plan)["nodes_to_restart"], plan_object(plan)["nodes_selected"]) == (1, 3)
    assert "\n3 nodes in 3 waves, " in plan_text(samples.plan(nodes_selected=3))


# The summary ------------------------------------


def test_what_held_a_run_stands_once_in_its_summary() -> None:
    hold = samples.hold
    what = f"{hold.predicate}: {hold.subject}: {hold.evidence}"
    cannot = "it could not finish, so it does not begin"
    for holds, message in (
        ((hold,), f"held by {what}"),
        ((hold,), f"{cannot}: {what}"),
        ((), f"held by {what}"),
    ):
        lines = _end(samples.run_state(holds=holds, message=message), Outcome.HELD)
        assert "\n".join(lines).count(hold.evidence) == 1
        assert (f"  {cannot}" in lines) is message.startswith(cannot)


def test_settings_that_cannot_be_absent_again_are_listed() -> None:
    """Before 5.0; at both levels once. Nothing claims that they are as they were."""
    notes = [(Level.PERSISTENT, NOT_ABSENT), (Level.TRANSIENT, NOT_ABSENT)]
    restored = [SettingRestored(level=level, key="a.b", value="2", note=note) for level, note in notes]
    other = SettingRestored(level=Level.PERSISTENT, key="c.d", value=None, note="changed meanwhile")
    lines = _end(samples.ended_state(outcome=Outcome.RESTORED), Outcome.RESTORED, *restored, other)
    assert lines[0] == "prod: restored: every setting has the value that was in force before"
    assert f"  {NOT_ABSENT}: a.b = 2" in lines
    assert "c.d" not in "".join(lines)


def test_a_summary_counts_the_nodes_of_its_own_attempt() -> None:
    """es1 was restarted before the pause, and es2 after it; both are in the median."""
    es1, es2, es3 = (NodeRecovered(node=name, seconds=20.0 * n) for n, name in enumerate(samples.ES, 1))
    again = RunResumed(operator="ann", host="bastion")
    for events, here in (((es1, es3, again, es2), 1), ((es1, es3, es2, again), 0)):
        _, count, median, *_ = _end(samples.ended_state(outcome=None), Outcome.DONE, *events)
        assert f"  3 of 3 nodes restarted, {here} of them in this attempt, which took" in count
        assert median.startswith("  40")
        assert median.endswith("s a node (median); slowest es3 with 1m 0s")


def test_a_hold_without_subjects_is_about_its_one_subject() -> None:
    hold = Hold(predicate="stand_down", subject="run", evidence="x")
    assert hold.subjects == ("run",)
    assert [each.count for each in aggregated([hold, hold])] == [1]
    assert hold_sentence(hold) == "stand_down (run): x"


def test_tables_line_up_whatever_the_script() -> None:
    lines = table(("A", "N"), [("\u65e5\u672c", "1"), ("b", "20")], numbers=(1,))
    assert lines == ["A      N", "\u65e5\u672c   1", "b     20"]
