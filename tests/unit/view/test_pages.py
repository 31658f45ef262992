"""Plan, status, history and summary: each case is a view in `tests/data/view/pages.txt`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any, Final

from rich.console import Console

from orchestrator.cli.prompts import question
from orchestrator.engine.predicates import aggregated
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.state import RunState, WaveBegun
from orchestrator.model.action import NOT_ABSENT, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionSent,
    Event,
    Hold,
    NodeRecovered,
    Record,
    RestoreBegun,
    RunFinished,
    RunResumed,
    SettingRestored,
    StandingDown,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.plan import Step
from orchestrator.model.policy import Wave
from orchestrator.model.prediction import Forecast, Prediction
from orchestrator.view.history import (
    RunInHistory,
    history_object,
    history_text,
    outcome_in_words,
    past_run,
    trend,
)
from orchestrator.view.panel import panel
from orchestrator.view.phrases import hold_sentence, nodes_in_words
from orchestrator.view.plan import plan_object, plan_text
from orchestrator.view.screen import Screen
from orchestrator.view.status import Reader, status_object, status_text
from orchestrator.view.summary import summary, summary_lines, summary_object
from orchestrator.view.text import table
from orchestrator.view.words import sentence
from tests.unit.view import samples

Views = Callable[[str, Iterator[tuple[str, object]]], None]
T0: Final = samples.t0
ES1, ES2, ES3 = samples.ES


def _status(state: RunState, events: Sequence[Record] = (), *, after: float = 500.0, **more: Any) -> str:
    reader = Reader(zone=UTC, width=more.pop("width", None))
    return status_text(state, events, now=T0 + after, reader=reader, **more)


def _end(state: RunState, outcome: Outcome, *events: Event) -> list[str]:
    return summary_lines(summary(state, outcome, events, T0))


def plans() -> Iterator[tuple[str, object]]:
    yield "plan", plan_text(samples.plan())
    yield "plan in full", plan_text(samples.plan(), steps=True)
    yield "plan in 60 columns", plan_text(samples.plan(), width=60)
    held = samples.plan(holds=(samples.hold,), lasting=("zero_replica_indices",))
    yield "plan, held", plan_text(held)
    yield "plan of no node", plan_text(samples.plan(waves=(), steps=(), settings_changed={}))
    yield "plan as JSON", plan_object(samples.plan(holds=(samples.hold,)))


def statuses() -> Iterator[tuple[str, object]]:
    running, ended = samples.run_state(), samples.ended_state()
    repairs = replace(running, begun=replace(running.begun, repairs="run-0"))
    events = samples.records(samples.examples())
    yield "held", _status(samples.held_state(), events[:12], after=130, alive=True)
    yield "its process is gone", _status(running, alive=False)
    yield "another run has restored it", _status(running, alive=False, restored=True)
    yield "a run that only restored", _status(repairs, alive=False)
    yield "alive", _status(running, alive=True)
    yield "suspended", _status(running, alive=True, suspended=4711)
    yield "ended", _status(ended, alive=True, suspended=4711)
    for width in (60, 80, 120):
        yield f"held, in {width} columns", _status(samples.held_state(), events[:12], alive=True, width=width)
        yield f"killed, in {width} columns", _status(running, events[:12], alive=False, width=width)
    yield "whether its process runs is not known", _status(running)
    before = WaveBegun(wave=Wave(number=1, nodes=(ES3,)), since=T0 + 10.0, made_room=True)
    beside = samples.run_state(recovering=(before,))
    yield "beside a wave that recovers", _status(beside, after=130, alive=True)
    nodes = {ES1: NodeProgress(name=ES1, phase=NodePhase.FAILED, failure="unit not found")}
    failed = samples.run_state(nodes=nodes, wave=None, recovering=(before,))
    yield "as JSON", status_object(failed, events, now=T0)
    yield "as JSON, restored by another run", status_object(running, (), now=T0, restored=True)
    begun = Record(run="run-1", sequence=1, at=T0 - 3600, event=samples.started)
    yield "of a later attempt", _status(running, [begun], after=60)
    yield "of the first attempt", _status(running, [replace(begun, at=T0)], after=60)


def _past(*events: tuple[float, Event], run: str = "r", at: float = T0) -> RunInHistory:
    found = past_run(
        [
            Record(run=run, sequence=n, at=at + later, event=event)
            for n, (later, event) in enumerate(events, 1)
        ]
    )
    assert found is not None
    return found


def _run(number: int, seconds: dict[NodeName, float], *, finished: bool = True) -> RunInHistory:
    """A run, a month after the one before, in which nodes took so long."""
    back = [
        (100.0 * n, NodeRecovered(node=name, seconds=s)) for n, (name, s) in enumerate(seconds.items(), 1)
    ]
    done = [(400.0, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=400))] if finished else []
    events: list[tuple[float, Event]] = [(0.0, samples.started), *back, *done]
    return _past(*events, run=f"run-{number}", at=T0 + number * 30 * 86400)


THREE: Final = _run(1, {ES1: 100.0, ES2: 104.0, ES3: 90.0})
ONE: Final = _run(1, {ES1: 100.0})
FORECAST: Final = Forecast(in_all=Prediction(low=200.0, likely=320.0, high=900.0))


def _history(runs: list[RunInHistory], width: int | None = None) -> str:
    return history_text(runs, width=width, zone=UTC)


def histories() -> Iterator[tuple[str, object]]:
    runs = [
        THREE,
        _run(2, {ES1: 96.0, ES2: 101.0, ES3: 99.0}),
        _run(3, {ES1: 70.0, ES2: 300.0}, finished=False),
        _run(4, {ES1: 70.0, ES2: 76.0, ES3: 75.0}),
    ]
    yield "four runs", _history(runs)
    for width in (60, 80, 120):
        yield f"four runs in {width} columns", _history(runs, width)
    alive = replace(THREE, run="20261128-2137-bqy9", outcome=None)
    many = {NodeName(f"es{n:03}"): 60.0 + 50.0 * (n == 77) for n in range(1, 151)}
    large = replace(_run(5, many), run="20261128-2137-x7k2", selected=150)
    killed = replace(alive, alive=False, left="5 settings, es2")
    for width in (60, 80, 120):
        yield f"a killed run, then one of 150 nodes, in {width} columns", _history([killed, large], width)
    for what, other in [
        ("under way", replace(alive, alive=True)),
        ("under way or killed", alive),
        ("killed before a change", replace(alive, alive=False)),
        ("a shutdown of the state's disk", replace(alive, alive=False, unwritten=True)),
        ("not restored", replace(killed, outcome=Outcome.NOT_RESTORED)),
    ]:
        yield what, _history([other], 80)
    yield "no run", _history([])
    yield "two runs of one day", _history([ONE, replace(ONE, run="2", started=ONE.started + 3600.0)])
    seven = (
        replace(ONE, run=f"run-{n}", started=ONE.started + n * 86400.0, node_seconds={ES1: n})
        for n in range(11, 18)
    )
    yield "columns are the last six of seven runs", _history(list(seven))
    paused = RunFinished(outcome=Outcome.PAUSED, exit_code=9, seconds=40)
    done = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=60)
    again = RunResumed(operator="o", host="h")
    night = _past((0, samples.started), (40, paused), (40_000, again), (40_060, done))
    yield "paused over a night, which does not count", _history([night])
    told = replace(ONE, predicted=FORECAST.in_all, target="9.1.0")
    yield "an upgrade beside its prediction", _history([told])
    for other in (replace(told, outcome=None), replace(told, canary=True)):
        yield "no prediction of what is not whole", _history([other])
    yield "as JSON", list(history_object([THREE, told]))
    one = _run(2, {ES1: 50.0})
    for what, before, last in [
        ("a run of other nodes", (THREE,), one),
        ("a run of the same nodes", (THREE, one), replace(one, run="c")),
        ("a run like it", (THREE,), replace(THREE, run="b")),
        ("another strategy", (THREE,), replace(THREE, strategy="zone")),
        ("an upgrade", (THREE,), replace(THREE, target="9.1.0")),
        ("a reboot", (THREE,), replace(THREE, reboot=True)),
        ("another node", (one,), _run(3, {ES2: 50.0})),
        ("the first run", (), one),
    ]:
        yield f"trend, {what}", trend([*before, last])


def canaries() -> Iterator[tuple[str, object]]:
    """The same nodes are counted everywhere."""
    begun = replace(samples.started, policy=replace(samples.policy, pause_after=1))
    for what, run, paused in [
        ("one node", begun, False),
        ("a machine", replace(begun, planned=((ES1, ES2),)), False),
        ("all nodes", replace(begun, nodes=(ES1,)), False),
        ("resumed", begun, True),
        ("no canary", samples.started, False),
    ]:
        nodes = {name: NodeProgress(name=name) for name in run.nodes}
        state = replace(samples.run_state(nodes=nodes, wave=None, paused=paused), begun=run)
        out = io.StringIO()
        Console(file=out, width=80).print(panel(Screen(state, None, now=T0), 80))
        done = out.getvalue().splitlines()[1]
        killed = _status(state, alive=False).splitlines()
        (line,) = (line for line in killed if line.startswith("Restarted "))
        yield what, [done, nodes_in_words(run, paused=paused), line, sentence(run)]
    plan = samples.plan(waves=samples.plan().waves[:1], nodes_selected=3, pauses=True)
    yield "plan of a canary", [plan_text(plan), question(plan)]
    yield "its JSON", {k: v for k, v in plan_object(plan).items() if k.startswith("nodes_")}
    yield "plan of all that is selected", plan_text(samples.plan(nodes_selected=3)).splitlines()[:4]


def summaries() -> Iterator[tuple[str, object]]:
    hold = samples.hold
    what = f"{hold.predicate}: {hold.subject}: {hold.evidence}"
    cannot = "it could not finish, so it does not begin"
    for holds, begins in (((hold,), "held by "), ((hold,), f"{cannot}: "), ((), "held by ")):
        never = begins != "held by "
        down = StandingDown(
            reason=begins + what, outcome=Outcome.HELD, names_hold=not never, never_began=never
        )
        state = samples.run_state(holds=holds, message=down.reason, standing_down=down)
        yield "what held it is there once", _end(state, Outcome.HELD)
    notes = [(Level.PERSISTENT, NOT_ABSENT), (Level.TRANSIENT, NOT_ABSENT)]
    restored = [SettingRestored(level=level, key="a.b", value="2", note=note) for level, note in notes]
    other = SettingRestored(level=Level.PERSISTENT, key="c.d", value=None, note="changed meanwhile")
    state = samples.ended_state(outcome=Outcome.RESTORED)
    yield "settings that cannot be absent again", _end(state, Outcome.RESTORED, *restored, other)
    es1, es2, es3 = (NodeRecovered(node=name, seconds=20.0 * n) for n, name in enumerate(samples.ES, 1))
    again = RunResumed(operator="ann", host="bastion")
    for events in ((es1, es3, again, es2), (es1, es3, es2, again)):
        yield "nodes of its own attempt", _end(samples.ended_state(outcome=None), Outcome.DONE, *events)
    state = samples.ended_state()
    end = summary(replace(state, begun=replace(state.begun, forecast=FORECAST)), Outcome.DONE, (), T0)
    yield "beside its prediction", summary_lines(end)
    yield "as JSON", summary_object(end)
    for unlike in (replace(end, resumed=True), replace(end, outcome=Outcome.HELD)):
        yield "no prediction of what was not whole", summary_lines(unlike)
    yield "a hold without subjects", hold_sentence(Hold(predicate="stand_down", subject="run", evidence="x"))
    yield "a table in any script", table(("A", "N"), [("\u65e5\u672c", "1"), ("b", "20")], numbers=(1,))


def test_pages_are_as_agreed(golden_views: Views) -> None:
    pages = {f.__name__: f() for f in (plans, statuses, histories, canaries, summaries)}
    golden_views(
        "pages.txt", ((f"{kind}: {title}", view) for kind, of in pages.items() for title, view in of)
    )


def test_plan_text_warns_where_stops_lose_writes() -> None:
    for distribution, version, said in (
        ("elasticsearch", "1.7.6", True),
        ("elasticsearch", "6.6.2", True),
        ("elasticsearch", "6.7.0", False),
        ("elasticsearch", "unknown", False),
        ("opensearch", "1.3.20", False),
    ):
        text = plan_text(samples.plan(distribution=distribution, version=version))
        assert ("Stop the writers" in text) is said


def test_holds_of_one_subject_are_one() -> None:
    hold = Hold(predicate="stand_down", subject="run", evidence="x")
    assert [each.count for each in aggregated([hold, hold])] == [1]


def test_a_name_cannot_drive_the_terminal_from_any_page() -> None:
    name = "es1\x1b[2J\nforged"
    step = Step(wave=0, order=1, target=name, action="stop", detail=name)
    wave = replace(samples.plan().waves[0], nodes=(NodeName(name),))
    past = replace(_run(1, {}), cluster=name, node_seconds={NodeName(name): 70.0})
    for text in (
        plan_text(samples.plan(cluster=name, steps=(step,), waves=(wave,))),
        _status(samples.run_state(cluster=name)),
        _history([past]),
    ):
        assert r"es1\x1b[2J\nforged" in text
        assert all(line.isprintable() and not line.startswith("forged") for line in text.splitlines())


def test_a_resumed_run_has_the_time_of_every_node() -> None:
    """es1 was down when the process was killed: its time lasts until it was back, in no median."""
    stops = {name: ActionSent(action=StopNode(node=name)) for name in (ES1, ES2)}
    again = RunResumed(operator="ann", host="bastion")
    run = _past(
        *((0.0, samples.started), (10.0, stops[ES1]), (400.0, again)),
        *((500.0, NodeRecovered(node=ES1, seconds=2.8)), (510.0, stops[ES2])),
        (540.0, NodeRecovered(node=ES2, seconds=30.0)),
    )
    lines = _history([run]).splitlines()
    assert [line.split() for line in lines if line.startswith("es")] == [
        ["es1", "8m", "10s*"],
        ["es2", "30s"],
    ]
    assert any(line.startswith("* over several attempts") for line in lines)
    (told,) = history_object([run])
    assert (told["node_seconds"], told["node_seconds_over_attempts"]) == ({"es2": 30.0}, {"es1": 490.0})
    alone = replace(run, node_seconds={})
    assert "8m 10s*" in next(line for line in _history([alone]).splitlines() if line.startswith(run.run))


def test_a_trend_needs_five_runs_to_compare_with() -> None:
    runs = [_run(number, {ES1: 80.0}) for number in range(5)]
    few, enough = trend([*runs[:4], _run(9, {ES1: 100.0})]), trend([*runs, _run(9, {ES1: 100.0})])
    assert few[0] == (
        "last run: 1m 40s a node (median); median of 4 earlier runs like it: 1m 20s (a trend needs 5 of them)"
    )
    assert enough[0].startswith("trend: 1m 40s a node (median), 25% slower (median of 5 earlier runs")


def test_a_restored_run_says_how_it_ended_before() -> None:
    restore = RestoreBegun(operator="ann", host="bastion")
    restored = RunFinished(outcome=Outcome.RESTORED, exit_code=0, seconds=4.0)
    stopped = RunFinished(outcome=Outcome.INTERRUPTED, exit_code=5, seconds=20.0)
    begun, back = (0.0, samples.started), [(90.0, restore), (94.0, restored)]
    assert outcome_in_words(_past(begun, *back)) == "killed, then restored"
    assert outcome_in_words(_past(begun, (20.0, stopped), *back)) == "interrupted, then restored"
    by_others = past_run([Record(run="r", sequence=1, at=T0, event=samples.started)], Outcome.RESTORED)
    assert by_others is not None
    assert outcome_in_words(by_others) == "killed, then restored"
    repairs = (0.0, replace(samples.started, repairs="run-0")), (0.0, replace(restore, takes_over="run-0"))
    assert outcome_in_words(_past(*repairs, (4.0, restored))) == "restored"
