"""The end of a run for people: on a small screen, without signs, and beside what was done before it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from docs.explained import what_to_do
from orchestrator.engine.progress import NodeProgress, Nodes
from orchestrator.engine.state import RunState
from orchestrator.errors import ExitCode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Deposed, WaveStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import NodePhase, Outcome
from orchestrator.model.policy import Wave
from orchestrator.model.work_event import StartFailed
from orchestrator.next_command import AFTER
from orchestrator.view.advice import Advice, advice
from orchestrator.view.reporters import LineReporter
from orchestrator.view.summary import headline, summary, summary_lines
from tests.simulation.ends import parsed
from tests.unit.view import samples


def _of_300(outcome: Outcome) -> RunState:
    """A third each is restarted, failed with words of its own, and pending; many settings are left."""
    phases = (NodePhase.RECOVERED, NodePhase.FAILED, NodePhase.PENDING)
    names = [NodeName(f"logs-hot-{number:03d}.example.org") for number in range(300)]
    said = tuple(f"line {number} of the journal of the service" for number in range(40))
    nodes = [
        NodeProgress(
            name=name,
            phase=phases[number % 3],
            failure=f"reason {number}" if number % 3 == 1 else None,
            start_failed=StartFailed(node=name, why=f"failed ({number})", said=said)
            if number % 3 == 1
            else None,
        )
        for number, name in enumerate(names)
    ]
    left = {(Level.PERSISTENT, f"some.setting.{number}"): samples.WITHHOLD for number in range(30)}
    holds = tuple(replace(samples.hold, subject=f"index logs-{number}", subjects=()) for number in range(30))
    message = "; ".join(f"{node.name}: {node.failure}" for node in nodes if node.failure)
    return samples.run_state(
        nodes=Nodes(nodes), settings=left, holds=holds, message=message, wave=None, outcome=outcome
    )


@pytest.mark.parametrize("outcome", [Outcome.HELD, Outcome.FAILED, Outcome.NOT_RESTORED])
def test_an_end_of_300_nodes_fits_a_screen(outcome: Outcome) -> None:
    end = summary(_of_300(outcome), outcome, (), samples.t0)
    lines = summary_lines(end, 80)
    assert len(lines) <= 40, "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert len(end.left) > 100, "JSON has all of them"
    assert lines[-1].startswith("    orchestrate ")


def test_an_end_is_in_ascii_where_the_stream_has_no_signs() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    LineReporter(stream, lambda: samples.t0).finished(samples.ended_state(), Outcome.DONE)
    assert written.getvalue().startswith(b"+ prod: 3 of 3 nodes restarted in ")


def test_what_was_done_before_and_the_report_are_named() -> None:
    begun = WaveStarted(wave=Wave(number=1, nodes=samples.ES, why="first"), incarnations={})
    before = "restored after run bqy9: 5 settings as before; es2 started"
    for events, page in (((begun,), "~/reports/run-1.html"), ((), "")):
        end = summary(
            samples.ended_state(),
            Outcome.DONE,
            events,
            samples.t0,
            before=[before],
            page="~/reports/run-1.html",
        )
        lines = summary_lines(end)
        assert f"  First     {before}" in lines
        assert end.page == page
        assert (f"  Report    {page}" in lines) is bool(page)


def test_a_deposed_run_goes_on_after_the_other() -> None:
    state = samples.ended_state(outcome=Outcome.DEPOSED)
    other = Deposed(successor="run-2", owner="ben@bastion2", epoch=2)
    state = replace(state, process=replace(state.process, deposed=other))
    end = summary(state, Outcome.DEPOSED, (), samples.t0)
    assert headline(end).endswith(", then run run-2 took over (code 6)")
    assert summary_lines(end)[-2:] == [
        "  Now       wait until run run-2 has ended, then continue:",
        "    orchestrate resume run-1",
    ]
    again = replace(state, process=replace(state.process, deposed=replace(other, successor="run-1")))
    assert headline(summary(again, Outcome.DEPOSED, (), samples.t0)).endswith(
        ", then another process took over (code 6)"
    )


def test_nodes_out_of_service_are_put_into_service_first() -> None:
    begun = replace(
        samples.run_state().begun,
        repairs="run-0",
        out_of_service=samples.ES[:1],
        cluster_file="/etc/my prod.yml",
    )
    state = replace(samples.ended_state(outcome=Outcome.NOT_RESTORED), begun=begun)
    step = advice(state)
    assert step is not None
    assert step.first == "put es1 into service"
    verb, given = parsed(step.command)
    assert (verb, given["cluster"], given["in_service"]) == ("restore", "/etc/my prod.yml", ["es1"])


def test_a_long_command_is_broken_as_a_shell_joins_it() -> None:
    command = "orchestrate resume 20261128-2137-x7k2 --retry-failed --state sqlite:////mnt/state/of/ops.db"
    *above, last = Advice(command=command, does="continue").lines(60)
    lines = [*above[1:], last]
    assert above[0] == "  Now       continue:"
    assert all(len(line) <= 60 for line in lines)
    assert " ".join("".join(lines).replace("\\", "").split()) == command


def test_the_page_of_exit_codes_has_the_same_commands() -> None:
    assert set(AFTER) == {one.exit_code for one in Outcome} - {ExitCode.DONE}
    for code, step in AFTER.items():
        assert f"`{step.command('RUN')}`" in what_to_do(code)
        assert step.first in what_to_do(code)
        parsed(step.command("RUN"))
    assert "`orchestrate restore RUN`, or `orchestrate resume RUN` to continue." in what_to_do(
        ExitCode.NOT_RESTORED
    )
