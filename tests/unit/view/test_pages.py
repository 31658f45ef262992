"""Plan, status and history: golden text, and the contract's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.cli.prompts import question
from orchestrator.engine.kinds.predicates import aggregated
from orchestrator.engine.order import nodes_to_restart
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RecoveringWave
from orchestrator.model.action import NOT_ABSENT
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    Event,
    Hold,
    NodeRecovered,
    Record,
    RunFinished,
    RunResumed,
    RunStarted,
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

Golden = Callable[[str, str], None]


def test_the_plan_as_text(samples: Any, golden: Golden) -> None:
    golden("plan.txt", plan_text(samples.plan()))


@pytest.mark.parametrize(
    ("distribution", "version", "said"),
    [
        ("elasticsearch", "1.7.6", True),
        ("elasticsearch", "6.6.2", True),
        ("elasticsearch", "6.7.0", False),
        ("elasticsearch", "unknown", False),
        ("opensearch", "1.3.20", False),
    ],
)
def test_a_plan_says_where_stops_lose_writes(
    samples: Any, distribution: str, version: str, *, said: bool
) -> None:
    text = plan_text(samples.plan(distribution=distribution, version=version))
    assert ("stop the writers" in text) is said


def test_a_plan_that_is_held_says_so_before_anything_else(samples: Any, golden: Golden) -> None:
    text = plan_text(samples.plan(holds=(samples.hold,), lasting=("zero_replica_indices",)))
    golden("plan_held.txt", text)
    assert text.index("zero_replica_indices") < text.index("WAVE")


def test_a_plan_of_nothing(samples: Any) -> None:
    text = plan_text(samples.plan(waves=(), steps=(), settings_changed={}))
    assert "no node is selected" in text


def test_a_name_cannot_drive_the_terminal_from_any_page(samples: Any) -> None:
    name = "es1\x1b[2J\nforged"
    step = Step(wave=0, order=1, target=name, action="stop", detail=name)
    wave = replace(samples.plan().waves[0], nodes=(NodeName(name),))
    past = PastRun(
        run="run-1",
        cluster=name,
        version="9.1.0",
        strategy="node",
        started=0.0,
        seconds=1.0,
        outcome=None,
        exit_code=None,
        selected=1,
        restarted=1,
        node_seconds={NodeName(name): 70.0},
        reason="",
    )
    for text in (
        plan_text(samples.plan(cluster=name, steps=(step,), waves=(wave,))),
        status_text(samples.run_state(cluster=name), (), now=samples.t0),
        history_text([past]),
    ):
        assert r"es1\x1b[2J\nforged" in text
        assert all(line.isprintable() and not line.startswith("forged") for line in text.splitlines())


def test_the_plan_as_json_is_the_contracts(samples: Any) -> None:
    plan = json.loads(json.dumps(plan_object(samples.plan(holds=(samples.hold,)))))
    assert list(plan) == [
        "event",
        "cluster",
        "kind",
        "version",
        "target_version",
        "strategy",
        "fingerprint",
        "waves",
        "lower_bound_waves",
        "lower_bound_reason",
        "holds",
        "steps",
        "settings_changed",
        "predicted_seconds",
        "predicted_from",
        "timeout_seconds",
        "owed",
        "other_versions",
        "nodes_to_restart",
        "nodes_selected",
        "settings_today",
    ]
    assert plan["event"] == "plan"
    assert plan["lower_bound_waves"] is None
    assert plan["waves"][0] == {
        "number": 1,
        "zone": "a",
        "nodes": ["es1"],
        "why": "no data, so first",
        "predicted_seconds": {"low": 60, "likely": 75.3, "high": 140},
    }
    assert set(plan["holds"][0]) == {
        "predicate",
        "subject",
        "evidence",
        "count",
        "subjects",
        "also",
        "reasons",
        "ways",
    }
    assert set(plan["steps"][0]) == {"wave", "order", "target", "action", "detail"}
    assert plan["settings_changed"]["cluster.routing.allocation.enable"] == {"from": None, "to": "primaries"}


def test_status_of_a_run_that_is_on(samples: Any, golden: Golden) -> None:
    state = samples.held_state()
    records = samples.records(samples.examples()[:12])
    golden("status_held.txt", status_text(state, records, now=samples.t0 + 130, alive=True))


def test_status_tells_what_still_recovers_beside_the_wave(samples: Any) -> None:
    before = RecoveringWave(wave=Wave(number=1, nodes=(NodeName("es3"),)), since=samples.t0 + 10.0)
    state = samples.run_state(recovering=(before,))
    assert "  beside it: wave 1 (es3) still recovers, 2m 0s so far\n" in status_text(
        state, [], now=samples.t0 + 130, alive=True
    )
    assert status_object(state, [], now=samples.t0)["recovering"] == [
        {"number": 1, "zone": None, "nodes": ["es3"]}
    ]
    assert "beside" not in status_text(samples.ended_state(), [], now=samples.t0 + 130)


def test_status_of_a_run_whose_process_was_killed(samples: Any, golden: Golden) -> None:
    text = status_text(samples.run_state(), [], now=samples.t0 + 500, alive=False)
    golden("status_killed.txt", text)
    assert "ITS PROCESS IS GONE" in text
    assert "orchestrate restore run-1" in text
    assert "orchestrate resume run-1" in text


def test_status_of_a_suspended_run_names_both_ways_out(samples: Any) -> None:
    text = status_text(samples.run_state(), [], now=samples.t0 + 500, alive=True, suspended=4711)
    assert "ITS PROCESS 4711 IS SUSPENDED" in text
    assert "to continue it: kill -CONT 4711\n" in text
    assert "orchestrate resume" not in text
    ended = status_text(samples.ended_state(), [], now=samples.t0 + 500, alive=True, suspended=4711)
    assert "4711" not in ended


def test_status_of_a_run_that_is_done_asks_for_nothing(samples: Any) -> None:
    text = status_text(samples.ended_state(), [], now=samples.t0 + 500)
    assert "not restored: nothing" in text
    assert "orchestrate" not in text
    assert "waits" not in text


def test_status_as_json(samples: Any) -> None:
    nodes = {"es1": NodeProgress(name=NodeName("es1"), phase=NodePhase.FAILED, failure="unit not found")}
    state = samples.run_state(nodes=nodes, wave=None)
    status = json.loads(json.dumps(status_object(state, samples.records(samples.examples()), now=samples.t0)))
    assert status["event"] == "status"
    assert status["phase"] == "down"
    assert status["nodes"]["es1"]["failure"] == "unit not found"
    assert status["not_put_back"][-1] == "node es1: failed (unit not found)"
    assert status["waiting_until"].endswith("Z")


def run_of(samples: Any, number: int, seconds: list[tuple[str, float]], *, finished: bool = True) -> PastRun:
    begun = next(one for one in samples.examples() if isinstance(one, RunStarted))
    at = samples.t0 + number * 30 * 86400
    events: list[tuple[float, Event]] = [
        (0, begun),
        *(
            (100 * place, NodeRecovered(node=NodeName(name), seconds=took))
            for place, (name, took) in enumerate(seconds, 1)
        ),
    ]
    if finished:
        events.append((400, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=400)))
    run = past_run(
        [
            Record(run=f"run-{number}", sequence=place, at=at + later, event=event)
            for place, (later, event) in enumerate(events, 1)
        ]
    )
    assert run is not None
    return run


def test_history_shows_the_times_and_the_trend(samples: Any, golden: Golden) -> None:
    runs = [
        run_of(samples, 1, [("es1", 100.0), ("es2", 104.0), ("es3", 90.0)]),
        run_of(samples, 2, [("es1", 96.0), ("es2", 101.0), ("es3", 99.0)]),
        run_of(samples, 3, [("es1", 70.0), ("es2", 300.0)], finished=False),
        run_of(samples, 4, [("es1", 70.0), ("es2", 76.0), ("es3", 75.0)]),
    ]
    text = history_text(runs)
    golden("history.txt", text)
    assert "25% faster" in text
    assert "unfinished" in text


def test_a_run_is_compared_with_earlier_ones_like_it(samples: Any, subtests: pytest.Subtests) -> None:
    three = run_of(samples, 1, [("es1", 100.0), ("es2", 104.0), ("es3", 90.0)])
    one = run_of(samples, 2, [("es1", 50.0)])
    for before, last, compared in [
        ((three,), one, 0),
        ((three, one), replace(one, run="c"), 1),
        ((three,), replace(three, run="b"), 1),
        ((three,), replace(three, strategy="zone"), 0),
        ((three,), replace(three, target="9.1.0"), 0),
        ((three,), replace(three, reboot=True), 0),
        ((one,), run_of(samples, 3, [("es2", 50.0)]), 0),
    ]:
        with subtests.test(before=len(before), last=last.strategy, kind=last.kind):
            said = trend([*before, last])[0]
            assert (f"median of {compared} earlier run" in said) is bool(compared)
            assert ("to compare it with" in said) is not bool(compared)
    assert len(trend([one])) == 1


def test_a_canary_is_not_measured_by_a_partial_prediction(samples: Any) -> None:
    run = replace(
        run_of(samples, 1, [("es1", 100.0)]), predicted=Prediction(low=1.0, likely=320.0, high=900.0)
    )
    assert "5m 20s (+25%)" in history_text([run])
    assert "5m 20s (" not in history_text([replace(run, canary=True)])


def canary(samples: Any, **changes: Any) -> RunStarted:
    begun: RunStarted = next(one for one in samples.examples() if isinstance(one, RunStarted))
    return replace(begun, policy=replace(begun.policy, pause_after=1), **changes)


def test_a_canary_counts_the_same_nodes_everywhere(samples: Any, subtests: pytest.Subtests) -> None:
    es1, es2 = NodeName("es1"), NodeName("es2")
    machine = ((es1, es2),)
    for begun, paused, count, words in [
        (canary(samples), False, 1, "1 of 3 nodes (es1, es2, es3), then a pause"),
        (canary(samples, planned=machine), False, 2, "2 of 3 nodes (es1, es2, es3), then a pause"),
        (canary(samples, nodes=(es1,)), False, 1, "1 node: es1"),
        (canary(samples), True, 3, "3 nodes: es1, es2, es3"),
        (replace(canary(samples), policy=samples.policy), False, 3, "3 nodes: es1, es2, es3"),
    ]:
        with subtests.test(count=count, paused=paused):
            assert nodes_to_restart(begun, paused=paused) == count
            assert nodes_in_words(begun, paused=paused) == words
            nodes = {name: NodeProgress(name=name) for name in begun.nodes}
            state = replace(samples.run_state(nodes=nodes, wave=None, paused=paused), begun=begun)
            assert screen_of(state, None, now=samples.t0).to_restart == count
            pause = f"; a pause after {count} of 3 nodes" if count < len(begun.nodes) else ""
            status = status_text(state, (), now=samples.t0)
            assert f"  nodes: {len(nodes)} pending{pause}\n" in status
            if not paused:
                assert f" begins: {words}; by" in sentence(begun)


def test_the_plan_of_a_canary_says_of_how_many(samples: Any) -> None:
    waves = samples.plan().waves[:1]
    plan = samples.plan(waves=waves, nodes_selected=3, pauses=True)
    assert "\n1 of 3 nodes in 1 wave, then a pause, " in plan_text(plan)
    assert question(plan).startswith("Restart 1 of 3 nodes of prod in 1 wave, then pause, likely")
    assert (plan_object(plan)["nodes_to_restart"], plan_object(plan)["nodes_selected"]) == (1, 3)
    assert "\n3 nodes in 3 waves, " in plan_text(samples.plan(nodes_selected=3))


def test_history_as_json_has_the_same_numbers(samples: Any) -> None:
    run = run_of(samples, 1, [("es1", 100.0), ("es2", 104.0), ("es3", 90.0)])
    (line,) = json.loads(json.dumps(history_object([run])))
    assert line["seconds_a_node"] == 100.0
    assert line["nodes_restarted"] == 3
    assert line["outcome"] == "done"


def test_a_run_is_shown_beside_its_prediction(samples: Any) -> None:
    """In `history` with what it was off, at the end of the run in full; of an upgrade with its target."""
    forecast = Forecast(in_all=Prediction(low=200.0, likely=320.0, high=900.0))
    run = run_of(samples, 1, [("es1", 100.0)])
    told = replace(run, predicted=forecast.in_all, target="9.1.0")
    text = history_text([told])
    assert "5m 20s (+25%)" in text
    assert "upgrade to 9.1.0; kernel update" in text
    (line,) = history_object([told])
    assert line["predicted_seconds"] == {"low": 200, "likely": 320, "high": 900}
    assert line["target_version"] == "9.1.0"
    assert "5m 20s (" not in history_text([replace(told, outcome=None)])
    state = samples.ended_state()
    state = replace(state, begun=replace(state.begun, forecast=forecast))
    end = summary(state, Outcome.DONE, (), samples.t0)
    assert "  predicted: likely 5m 20s (between 3m 20s and 15m 0s)" in summary_lines(end)
    assert summary_object(end)["predicted_seconds"] == line["predicted_seconds"]
    for other in (
        replace(end, resumed=True),
        replace(end, outcome=Outcome.HELD),
        replace(end, predicted=None),
    ):
        assert not [said for said in summary_lines(other) if "predicted" in said]


def test_status_shows_when_the_run_began_and_its_last_attempt(samples: Any) -> None:
    begun = next(one for one in samples.examples() if isinstance(one, RunStarted))
    records = [Record(run="run-1", sequence=1, at=samples.t0 - 3600, event=begun)]
    later = status_text(samples.run_state(), records, now=samples.t0 + 60)
    assert "  began 2027-01-15T07:00:00Z, 1h 1m ago; this attempt 2027-01-15T08:00:00Z, 1m 0s ago\n" in later
    assert status_object(samples.run_state(), records, now=samples.t0)["run_started"] == (
        "2027-01-15T07:00:00.000Z"
    )
    first = [replace(records[0], at=samples.t0)]
    assert (
        "attempt" not in status_text(samples.run_state(), first, now=samples.t0 + 60).split("last event")[0]
    )


def test_a_run_that_lay_paused_over_night_did_not_take_the_night(samples: Any) -> None:
    begun = next(one for one in samples.examples() if isinstance(one, RunStarted))
    paused = RunFinished(outcome=Outcome.PAUSED, exit_code=9, seconds=40)
    done = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=60)
    moments = [(0, begun), (40, paused), (40_000, RunResumed(operator="o", host="h")), (40_060, done)]
    run = past_run(
        [
            Record(run="r", sequence=n, at=samples.t0 + at, event=event)
            for n, (at, event) in enumerate(moments, 1)
        ]
    )
    assert run is not None
    assert run.seconds == 100.0


def test_what_held_a_run_stands_once_in_its_summary(samples: Any) -> None:
    hold = samples.hold
    said = f"held by {hold.predicate}: {hold.subject}: {hold.evidence}"
    state = samples.run_state(holds=(hold,), message=said)
    text = "\n".join(summary_lines(summary(state, Outcome.HELD, (), samples.t0)))
    assert text.count(hold.evidence) == 1
    refused = f"it could not finish, so it does not begin: {hold.predicate}: {hold.subject}: {hold.evidence}"
    state = samples.run_state(holds=(hold,), message=refused)
    lines = summary_lines(summary(state, Outcome.HELD, (), samples.t0))
    assert "\n".join(lines).count(hold.evidence) == 1
    assert "  it could not finish, so it does not begin" in lines
    state = samples.run_state(message=said)
    text = "\n".join(summary_lines(summary(state, Outcome.HELD, (), samples.t0)))
    assert text.count(hold.evidence) == 1


def test_settings_that_cannot_be_absent_again_are_listed(samples: Any) -> None:
    """Before 5.0; at both levels once. Nothing claims that they are as they were."""
    restored = [
        SettingRestored(level=level, key="a.b", value="2", note=note)
        for level, note in ((Level.PERSISTENT, NOT_ABSENT), (Level.TRANSIENT, NOT_ABSENT))
    ]
    others = [SettingRestored(level=Level.PERSISTENT, key="c.d", value=None, note="changed meanwhile")]
    lines = summary_lines(
        summary(
            samples.ended_state(outcome=Outcome.RESTORED), Outcome.RESTORED, [*restored, *others], samples.t0
        )
    )
    assert lines[0] == "prod: restored: every setting has the value that was in force before"
    assert f"  {NOT_ABSENT}: a.b = 2" in lines
    assert "c.d" not in "".join(lines)


def test_a_summary_counts_the_nodes_of_its_own_attempt(samples: Any) -> None:
    """es1 was restarted before the pause, and es2 after it; both are in the median."""
    nodes = {
        name: NodeProgress(name=NodeName(name), phase=NodePhase.RECOVERED) for name in ("es1", "es2", "es3")
    }
    state = samples.run_state(nodes=nodes, wave=None)
    es1, es2, es3 = (NodeRecovered(node=NodeName(f"es{n}"), seconds=20.0 * n) for n in (1, 2, 3))
    again = RunResumed(operator="ann", host="bastion")
    for events, here in (((es1, es3, again, es2), 1), ((es1, es3, es2, again), 0)):
        lines = summary_lines(summary(state, Outcome.DONE, events, samples.t0))
        assert f"  3 of 3 nodes restarted, {here} of them in this attempt, which took" in lines[1]
        assert lines[2].startswith("  40"), lines
        assert lines[2].endswith("s a node (median); slowest es3 with 1m 0s")


def test_runs_of_one_day_have_columns_that_differ(samples: Any) -> None:
    one = run_of(samples, 1, [("es1", 100.0)])
    text = history_text([one, replace(one, run="run-2", started=one.started + 3600.0)])
    head = next(line for line in text.splitlines() if line.startswith("NODE "))
    assert len(set(head.replace("  ", "|").split("|")) - {""}) == 3


def test_the_times_of_a_node_are_those_of_the_last_six_runs(samples: Any) -> None:
    first = run_of(samples, 1, [("es1", 11.0)])
    runs = [
        replace(first, run=f"run-{n}", started=first.started + n * 86400.0, node_seconds={NodeName("es1"): n})
        for n in range(11, 18)
    ]
    times = next(line for line in history_text(runs).splitlines() if line.startswith("es1 "))
    assert times.split() == ["es1", *(f"{n}s" for n in range(12, 18))]


def test_status_says_when_another_run_has_restored(samples: Any) -> None:
    text = status_text(samples.run_state(), (), now=samples.t0, alive=False, restored=True)
    assert "  not restored: nothing; another run has restored what it changed" in text.splitlines()
    unseen = " (a restore from another state database is not shown)"
    assert unseen in status_text(samples.run_state(), (), now=samples.t0, alive=False)
    assert unseen not in status_text(samples.run_state(), (), now=samples.t0, alive=True)

    assert "not_put_back" in (now := status_object(samples.run_state(), (), now=samples.t0))
    assert now["not_put_back"] != []
    assert status_object(samples.run_state(), (), now=samples.t0, restored=True)["not_put_back"] == []


def test_status_of_a_run_that_only_restored_continues_nothing(samples: Any) -> None:
    begun = replace(samples.run_state().begun, repairs="run-0")
    state = replace(samples.run_state(), begun=begun)
    assert "to continue" in status_text(samples.run_state(), (), now=samples.t0, alive=False)
    assert "to continue" not in status_text(state, (), now=samples.t0, alive=False)


def test_a_hold_without_subjects_is_about_its_one_subject() -> None:
    hold = Hold(predicate="stand_down", subject="run", evidence="x")
    assert hold.subjects == ("run",)
    assert [each.count for each in aggregated([hold, hold])] == [1]
    assert hold_sentence(hold) == "stand_down (run): x"


def test_no_history_says_so() -> None:
    assert history_text([]) == "no runs yet\n"
    assert past_run([]) is None


def test_tables_line_up_whatever_the_script() -> None:
    lines = table(("A", "N"), [("\u65e5\u672c", "1"), ("b", "20")], numbers=(1,))
    assert lines == ["A      N", "\u65e5\u672c   1", "b     20"]
