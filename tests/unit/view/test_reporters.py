"""The reporters for lines and JSON: what is written (`tests/data/view/reporters.txt`), and a lost reader."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.engine.situation import Decision
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Hold, NodeRecovered, RestoreBegun, RunFinished, RunResumed, StoodDown
from orchestrator.model.observation import Watch
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.view.progress import not_restored
from orchestrator.view.rehearsed import Rehearsed, rehearsed_lines
from orchestrator.view.reporters import JsonReporter, LineReporter, Outlet
from orchestrator.view.summary import summary, summary_lines
from tests.unit.view import samples

Views = Callable[[str, Iterator[tuple[str, object]]], None]


class Written:
    """What reporters wrote to a stream, at the time of a clock."""

    def __init__(self, kind: str = "lines", out: io.StringIO | None = None, **more: Any) -> None:
        self.out, self.at = out or io.StringIO(), samples.t0 + 120
        self.reporter: LineReporter | JsonReporter
        if kind == "lines":
            self.reporter = LineReporter(self.out, lambda: self.at, **more)
        else:
            self.reporter = JsonReporter(self.out, lambda: self.at, **more)

    def events(self, *events: Any) -> Written:
        self.reporter.events(samples.records(events))
        return self

    def waits(self, what: str, *holds: Hold, after: float = 0.0) -> Written:
        self.at += after
        watch = Watch(until=0.0, for_people=what)
        self.reporter.waiting(samples.run_state(), Decision(holds=holds, watch=watch))
        return self

    def ends(self, state: Any, outcome: Outcome) -> Written:
        self.reporter.finished(state, outcome)
        return self

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def recovered(number: int, seconds: float = 70.0) -> NodeRecovered:
    return NodeRecovered(node=NodeName(f"es{number}"), seconds=seconds)


def views() -> Iterator[tuple[str, object]]:
    hold = samples.hold
    minute = Written()
    for _ in range(61):
        minute.waits("es2 to come up", after=1)
    yield "a wait is said once, then every 30 seconds", minute.text
    moved = Hold(predicate=hold.predicate, subject=hold.subject, evidence="4 shards now")
    numbers = Written().waits("27 of 30 nodes").waits("28 of 30 nodes").waits("", hold)
    numbers.waits("", moved).waits("", moved, after=30)
    yield "numbers that move are no new wait, another hold is one", numbers.text
    alive = Written().waits("es2 to come up")
    alive.at += 29
    alive.events(samples.examples()[0]).waits("es2 to come up", after=29)
    yield "an event is a sign of life too", alive.text
    silent = Written()
    silent.reporter.waiting(samples.run_state(), Decision())
    yield "a decision that waits for nothing is silent", silent.text
    begun = RestoreBegun(operator="ops", host="bastion2", takes_over="20261101-0300-abcd")
    run = Written().events(*samples.examples()[:2], begun).waits("es2 to come up", hold)
    done = RunFinished(outcome=Outcome.DONE, exit_code=0, seconds=300)
    run.events(recovered(1), recovered(2, 71), done).ends(samples.ended_state(), Outcome.DONE)
    yield "a run", run.text
    left = samples.run_state(message="the cluster has no master")
    yield "an end that left something", Written().ends(left, Outcome.NOT_RESTORED).text
    failed = samples.run_state(settings={}, phase=Phase.ENDED)
    yield "an end with a node that starts", Written().ends(failed, Outcome.HELD).text
    nodes = {name: node for name, node in failed.nodes.items() if node.phase is not NodePhase.STARTING}
    paused = samples.run_state(settings={}, nodes=nodes, wave=None)
    yield "an end that is continued", Written().ends(paused, Outcome.PAUSED).text
    rehearsed = Rehearsed(
        seed=7,
        mishaps=(),
        kills=0,
        simulated_seconds=60.0,
        seconds=1.0,
        settings_not_as_found=(),
        nodes_down=(),
        settings_changed_by_others=("cluster.routing.allocation.enable: was not set, is none",),
        nodes_not_in_cluster=("es3",),
    )
    yield "a rehearsal with settings of others", rehearsed_lines(rehearsed, ())
    json_ = Written("json").events(recovered(1)).waits("es2 to come up", hold)
    json_.ends(samples.run_state(holds=(hold,)), Outcome.NOT_RESTORED)
    yield "JSON of a node, a wait and the end", json_.lines
    stood = StoodDown(outcome=Outcome.NOT_RESTORED, left=("setting a",))
    end = Written("json").events(stood).ends(samples.run_state(), Outcome.NOT_RESTORED)
    yield "JSON of an end that replaces what the state lists", end.lines[-1]["left"]
    refused = Written("json")
    assert isinstance(refused.reporter, JsonReporter)
    refused.reporter.refused("es9 matches no node", ExitCode.USAGE)
    yield "JSON of a refusal", refused.lines


def test_reporters_write_as_agreed(golden_views: Views) -> None:
    golden_views("reporters.txt", views())


class Closed(io.StringIO):
    """A stream whose reader has gone away."""

    tries = 0

    def write(self, _text: str) -> int:
        self.tries += 1
        raise BrokenPipeError


@pytest.mark.parametrize("kind", ["lines", "json"])
def test_a_reader_that_goes_away_does_not_stop_the_run(kind: str) -> None:
    out = Closed()
    Written(kind, out).events(*samples.examples()).waits("es2").ends(samples.run_state(), Outcome.DONE)
    assert out.tries == 1


@pytest.mark.parametrize(
    ("encoding", "line"),
    [("ascii", b"caf\\xe9 -> x..."), ("latin-1", b"caf\xe9 -> x..."), ("cp1252", b"caf\xe9 -> x\x85")],
)
def test_what_the_stream_cannot_write_has_a_sign_in_ascii(encoding: str, line: bytes) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    Outlet(stream).line("caf\u00e9 \u2192 x\u2026")
    assert raw.getvalue() == line + b"\n"


def test_a_name_cannot_drive_the_terminal_nor_forge_a_line() -> None:
    name = NodeName("es1\x1b[2J\n2026 forged \x7f\x9b\u202e")
    event = NodeRecovered(node=name, seconds=70.0)
    (line,) = Written().events(event).text.splitlines()
    assert r" es1\x1b[2J\n2026 forged \x7f\x9b\u202e: back" in line
    (line,) = Written("json").events(event).text.splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["node"] == name


def test_json_lines_carry_the_contracts_names() -> None:
    written = samples.examples()
    lines = Written("json").events(*written).lines
    assert [line["event"] for line in lines] == [event.event for event in written]
    for line in lines:
        assert (list(line)[:2], str(line["ts"])[-1], line["run"]) == (["ts", "run"], "Z", "run-1")
    by_event = {str(line["event"]): set(line) for line in lines}
    assert {"node", "from", "to"} <= by_event["phase_entered"]
    assert {"predicate", "subject", "evidence"} <= by_event["hold"]
    assert {"seconds", "bytes_reused", "bytes_copied", "operations_replayed"} <= by_event["node_recovered"]


def test_summary_outcomes_are_the_contracts() -> None:
    contract = {"done", "held", "failed", "interrupted", "paused", "not_restored", "deposed", "refused"}
    for outcome in Outcome:
        (line,) = Written("json").ends(samples.ended_state(), outcome).lines
        assert line["outcome"] in contract
        assert line["exit_code"] == int(outcome.exit_code)
    assert not_restored(samples.ended_state()) == ()


def test_the_summary_of_a_resumed_run_is_one_in_every_output() -> None:
    past = samples.records([recovered(1, 20.0)])
    now = (RunResumed(operator="ann", host="b"), recovered(2, 40.0))
    text, lines = (Written(kind, past=past) for kind in ("lines", "json"))
    for written in (text, lines):
        written.events(*now).ends(samples.ended_state(), Outcome.DONE)
    whole = summary(samples.ended_state(), Outcome.DONE, [recovered(1, 20.0), *now], text.at)
    assert text.text.splitlines()[-len(summary_lines(whole)) :] == summary_lines(whole)
    assert lines.lines[-1]["node_seconds"] == whole.node_seconds
    assert "es1" in whole.node_seconds, "of the earlier attempt"
