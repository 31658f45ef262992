"""The reporters for lines and JSON: what is written, how often, and that a lost reader stops nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.engine.run import exit_code_of
from orchestrator.engine.situation import Decision
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Hold, NodeRecovered, RestoreBegun, RunFinished, RunResumed, StoodDown
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.watch import Watch
from orchestrator.runtime.codec import encode_event
from orchestrator.view.progress import not_restored
from orchestrator.view.reporters import JsonReporter, LineReporter, Rehearsed, rehearsed_lines
from orchestrator.view.summary import summary, summary_lines
from tests.unit.view import samples

Golden = Callable[[str, str], None]


class Time:
    """A clock that a test moves."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def watching(what: str, *holds: Hold) -> Decision:
    return Decision(holds=holds, watch=Watch(until=0.0, for_people=what))


@pytest.fixture
def clock() -> Time:
    return Time(samples.t0 + 120)


def test_a_rehearsal_names_what_others_left() -> None:
    end = Rehearsed(
        seed=7,
        mishaps=(),
        kills=0,
        simulated=60.0,
        took=1.0,
        not_as_found=(),
        down=(),
        by_others=("cluster.routing.allocation.enable: was absent, is none",),
        apart=("es3",),
    )
    assert rehearsed_lines(end)[1:] == [
        "  settings: restored",
        "  settings that others changed during the run (new values kept):",
        "    cluster.routing.allocation.enable: was absent, is none",
        "  nodes down: none",
        "  nodes that run and are not in the cluster: es3",
    ]


def test_a_wait_is_said_once_then_every_thirty_seconds(clock: Time) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    for _ in range(61):
        reporter.waiting(samples.run_state(), watching("es2 to come up"))
        clock.at += 1
    assert len(out.getvalue().splitlines()) == 3


def test_numbers_that_move_are_no_new_wait_and_another_hold_is(clock: Time) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    state = samples.run_state()
    reporter.waiting(state, watching("27 of 30 nodes"))
    reporter.waiting(state, watching("28 of 30 nodes"))
    assert len(out.getvalue().splitlines()) == 1
    reporter.waiting(state, watching("28 of 30 nodes", samples.hold))
    assert len(out.getvalue().splitlines()) == 3
    moved = Hold(predicate=samples.hold.predicate, subject=samples.hold.subject, evidence="4 shards now")
    reporter.waiting(state, watching("28 of 30 nodes", moved))
    assert len(out.getvalue().splitlines()) == 3
    clock.at += 30
    reporter.waiting(state, watching("28 of 30 nodes", moved))
    assert "4 shards now" in out.getvalue().splitlines()[-1]


def test_an_event_is_a_sign_of_life_too(clock: Time) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    state, wait = samples.run_state(), watching("es2 to come up")
    reporter.waiting(state, wait)
    clock.at += 29
    reporter.events(samples.records(samples.examples()[:1]))
    clock.at += 29
    reporter.waiting(state, wait)
    assert len(out.getvalue().splitlines()) == 2


def test_a_decision_that_waits_for_nothing_is_silent(clock: Time) -> None:
    out = io.StringIO()
    LineReporter(out, clock).waiting(samples.run_state(), Decision())
    assert out.getvalue() == ""


def test_a_run_in_lines(clock: Time, golden: Golden) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    begun = RestoreBegun(operator="ops", host="bastion2", takes_over="20261101-0300-abcd")
    reporter.events(samples.records([*samples.examples()[:2], begun]))
    reporter.waiting(samples.run_state(holds=(samples.hold,)), watching("es2 to come up", samples.hold))
    recovered = [
        NodeRecovered(node=NodeName(name), seconds=70.0 + place) for place, name in enumerate(("es1", "es2"))
    ]
    reporter.events(
        samples.records([*recovered, RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=300)])
    )
    reporter.finished(samples.ended_state(), Outcome.DONE)
    golden("run.txt", out.getvalue())


def test_the_end_that_left_something_says_how_to_repair_it(clock: Time, golden: Golden) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    reporter.finished(samples.run_state(message="the cluster has no master"), Outcome.NOT_RESTORED)
    golden("not_restored.txt", out.getvalue())
    assert "orchestrate restore run-1" in out.getvalue()


def test_the_end_that_can_go_on_says_how(clock: Time) -> None:
    out = io.StringIO()
    failed = samples.run_state(settings={}, phase=Phase.ENDED)
    LineReporter(out, clock).finished(failed, Outcome.HELD)
    assert "NOT RESTORED: node es2: starting" in out.getvalue()
    out = io.StringIO()
    nodes = {name: node for name, node in failed.nodes.items() if node.phase is not NodePhase.STARTING}
    LineReporter(out, clock).finished(samples.run_state(settings={}, nodes=nodes, wave=None), Outcome.PAUSED)
    assert out.getvalue().splitlines()[-1] == "  continue: orchestrate resume run-1"


class Closed(io.StringIO):
    """A stream whose reader has gone away."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def write(self, _text: str) -> int:
        self.tries += 1
        raise BrokenPipeError


@pytest.mark.parametrize("kind", ["lines", "json"])
def test_a_reader_that_goes_away_does_not_stop_the_run(kind: Any, clock: Time) -> None:
    out = Closed()
    reporter = LineReporter(out, clock) if kind == "lines" else JsonReporter(out, clock, encode_event)
    reporter.events(samples.records(samples.examples()))
    reporter.waiting(samples.run_state(), watching("es2"))
    reporter.finished(samples.run_state(), Outcome.DONE)
    assert out.tries == 1


def test_a_name_that_the_stream_cannot_write_is_escaped(clock: Time) -> None:
    raw = io.BytesIO()
    reporter = LineReporter(io.TextIOWrapper(raw, encoding="ascii"), clock)
    reporter.events(samples.records([StoodDown(outcome=Outcome.HELD, left=("index caf\u00e9",))]))
    assert b"caf\\xe9" in raw.getvalue()


def test_a_name_cannot_drive_the_terminal_nor_forge_a_line(clock: Time) -> None:
    out = io.StringIO()
    reporter = LineReporter(out, clock)
    name = NodeName("es1\x1b[2J\n2026 forged \x9b\u202e")
    reporter.events(samples.records([NodeRecovered(node=name, seconds=70.0)]))
    (line,) = out.getvalue().splitlines()
    assert r" es1\x1b[2J\n2026 forged \x9b\u202e: back" in line


def test_json_holds_no_control_character(clock: Time) -> None:
    out = io.StringIO()
    name = "es1\x1b\x7f\x9b\u202e"
    JsonReporter(out, clock, encode_event).events(
        samples.records([NodeRecovered(node=NodeName(name), seconds=70.0)])
    )
    (line,) = out.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["node"] == name


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_carry_the_contracts_names(clock: Time) -> None:
    out = io.StringIO()
    reporter = JsonReporter(out, clock, encode_event)
    written = samples.records(samples.examples())
    reporter.events(written)
    reporter.waiting(samples.run_state(), watching("es2 to come up", samples.hold))
    reporter.finished(samples.ended_state(), Outcome.DONE)
    lines = parsed(out.getvalue())
    assert len(lines) == len(written) + 2
    for line in lines:
        assert list(line)[:2] == ["ts", "run"]
        assert str(line["ts"]).endswith("Z")
        assert line["run"] == "run-1"
    assert [line["event"] for line in lines[:-2]] == [record.event.event for record in written]
    by_event = {str(line["event"]): line for line in lines}
    assert {"node", "from", "to"} <= set(by_event["phase_entered"])
    assert {"predicate", "subject", "evidence"} <= set(by_event["hold"])
    assert {"seconds", "bytes_reused", "bytes_copied", "operations_replayed"} <= set(
        by_event["node_recovered"]
    )
    assert by_event["waiting"]["holds"] == [
        {
            "predicate": "zero_replica_indices",
            "subject": "index logs-x",
            "evidence": "5 shards without a second copy",
            "count": 1,
            "subjects": ["index logs-x"],
            "also": [],
            "reasons": [],
            "ways": [],
        }
    ]
    assert by_event["waiting"]["seconds_at_most"] is not None


def test_the_summary_is_the_last_line(clock: Time) -> None:
    out = io.StringIO()
    reporter = JsonReporter(out, clock, encode_event)
    reporter.events(samples.records([NodeRecovered(node=NodeName("es1"), seconds=70.0)]))
    reporter.finished(samples.run_state(holds=(samples.hold,)), Outcome.NOT_RESTORED)
    last = parsed(out.getvalue())[-1]
    assert last["event"] == "summary"
    assert last["outcome"] == "not_restored"
    assert last["exit_code"] == 8
    assert last["nodes_restarted"] == 1
    assert last["seconds"] == 120
    assert last["node_seconds"] == {"es1": 70.0}
    assert [hold["predicate"] for hold in last["holds"]] == ["zero_replica_indices"]
    assert last["left"] == [
        "setting cluster.routing.allocation.enable (persistent): all was found, primaries was set",
        "node es2: starting",
    ]


def test_a_refusal_has_no_run(clock: Time) -> None:
    out = io.StringIO()
    JsonReporter(out, clock, encode_event).refused("es9 matches no node", ExitCode.USAGE)
    (line,) = parsed(out.getvalue())
    assert (line["event"], line["outcome"], line["exit_code"], line["run"]) == ("summary", "refused", 2, None)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_summary_outcomes_are_the_contracts(outcome: Outcome, clock: Time) -> None:
    out = io.StringIO()
    JsonReporter(out, clock, encode_event).finished(samples.ended_state(), outcome)
    (line,) = parsed(out.getvalue())
    contract = {"done", "held", "failed", "interrupted", "paused", "not_restored", "deposed", "refused"}
    assert line["outcome"] in contract
    assert line["exit_code"] == int(exit_code_of(outcome))


def test_the_end_of_a_restore_replaces_what_the_state_lists(clock: Time) -> None:
    out = io.StringIO()
    reporter = JsonReporter(out, clock, encode_event)
    reporter.events(samples.records([StoodDown(outcome=Outcome.NOT_RESTORED, left=("setting a",))]))
    reporter.finished(samples.run_state(), Outcome.NOT_RESTORED)
    assert parsed(out.getvalue())[-1]["left"] == ["setting a"]


def test_nothing_is_owed_at_a_good_end() -> None:
    assert not_restored(samples.ended_state()) == ()


def test_the_summary_of_a_resumed_run_is_one_in_every_output(clock: Time) -> None:
    es1, es2 = (NodeRecovered(node=NodeName(f"es{n}"), seconds=20.0 * n) for n in (1, 2))
    past, now = samples.records([es1]), samples.records([RunResumed(operator="ann", host="b"), es2])
    text, lines = io.StringIO(), io.StringIO()
    plain = LineReporter(text, clock, past=past)
    as_json = JsonReporter(lines, clock, encode_event, past=past)
    for reporter in (plain, as_json):
        reporter.events(now)
        reporter.finished(samples.ended_state(), Outcome.DONE)
    whole = summary(samples.ended_state(), Outcome.DONE, [es1, *(one.event for one in now)], clock())
    assert text.getvalue().splitlines()[-len(summary_lines(whole)) :] == summary_lines(whole)
    assert json.loads(lines.getvalue().splitlines()[-1])["node_seconds"] == whole.node_seconds
    assert "es1" in whole.node_seconds, "of the earlier attempt"
