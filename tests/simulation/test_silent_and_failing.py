"""A host that falls silent in a wave, and a service that does not start: named within seconds, everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from orchestrator.engine.fold import evolve
from orchestrator.engine.state import RunState
from orchestrator.model.action import StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionConfirmed, Event, Record
from orchestrator.model.host_event import Answered, FellSilent, StartFailed
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime.codec import decode_event, encode_event
from orchestrator.simulation import mishaps
from orchestrator.simulation.mishaps import Mishap
from orchestrator.view.model import screen_of
from orchestrator.view.progress import wait_of
from orchestrator.view.reporters import waiting_lines, waiting_object
from orchestrator.view.status import status_object, status_text
from orchestrator.view.summary import summary, summary_lines, summary_object
from tests.simulation.play import cluster, play, policy, run

ES1 = NodeName("es1")
SAID = "unknown setting [indices.breaker.totl.limit]"
TYPO = Mishap(what=mishaps.StartsFail(node=ES1, times=3))
E = TypeVar("E", bound=Event)


def lived(*plan: Mishap) -> tuple[Simulation, RunState, list[Record]]:
    simulation, state = run(cluster(3), plan=plan)
    return simulation, state, list(simulation.journal.records)


def found(records: list[Record], kind: type[E]) -> list[tuple[float, E]]:
    return [(one.at, one.event) for one in records if isinstance(one.event, kind)]


def state_after(records: list[Record], holds: Callable[[RunState], object]) -> tuple[RunState, list[Record]]:
    """The first state on the way for which this holds, with the records up to it."""
    state = RunState(run="run-1")
    for number, record in enumerate(records, start=1):
        state = evolve(state, record)
        if holds(state):
            return state, records[:number]
    pytest.fail("never")


def cut_off(seconds: float) -> Mishap:
    return Mishap(what=mishaps.HostCutOff(node=ES1, seconds=seconds), verb="stop", target=ES1, after=0.3)


def test_a_host_that_falls_silent_in_a_wave_is_named_everywhere() -> None:
    _, state, records = lived(cut_off(70.0))
    assert state.outcome is Outcome.DONE
    stopped = next(at for at, event in found(records, ActionConfirmed) if event.action == StopNode(node=ES1))
    (at, silent), *others = found(records, FellSilent)
    assert silent.nodes == (ES1,)
    assert others == []
    assert at - stopped <= 20.0
    ((back, answered),) = found(records, Answered)
    assert answered.nodes == (ES1,)
    assert back >= stopped + 70.0

    state, so_far = state_after(records, lambda state: state.process.silent)
    now = at + 45.0
    line = "host es1 has not answered over SSH for 50s (its node may be down): ssh to es1: timed out"
    wait = wait_of(state, None, now)
    assert wait is not None
    assert line in waiting_lines(state, wait, now)[1]
    assert line in status_text(state, so_far, now=now)
    shown = screen_of(state, None, now=now).wait
    assert shown is not None
    assert [one.sentence for one in shown.silent] == [line]
    for of_json in (waiting_object(state, wait, now), status_object(state, so_far, now=now)):
        (one,) = json.loads(json.dumps(of_json["silent"]))
        assert one == {
            "nodes": ["es1"],
            "seconds": pytest.approx(50.0),
            "why": "ssh to es1: timed out",
            "answer_seconds": None,
        }


def test_a_run_without_trouble_says_nothing_of_silence() -> None:
    _, _, records = lived()
    assert found(records, FellSilent) == found(records, Answered) == []
    simulation = Simulation(cluster(3))
    play(simulation, simulation.begin(policy(reboot=True)))
    assert len(found(list(simulation.journal.records), FellSilent)) <= 3, "at most once a reboot"


def test_a_hanging_host_is_silent_too() -> None:
    hangs = mishaps.HostHangs(node=ES1, seconds=40.0)
    _, _, records = lived(Mishap(what=hangs, verb="stop", target=ES1, after=0.3))
    assert [event.nodes for _, event in found(records, FellSilent)] == [(ES1,)]


def test_a_host_that_is_not_read_any_more_is_not_named() -> None:
    _, _, records = lived(cut_off(70.0))
    state, _ = state_after(records, lambda state: state.process.silent)
    silent = state.process.silent
    later, so_far = state_after(records, lambda state: state.phase is Phase.REASSIGNED)
    stale = replace(later, process=replace(later.process, silent=silent))
    assert "not answered" not in status_text(stale, so_far, now=so_far[-1].at)


def test_a_failed_start_is_named_at_once_with_its_last_words() -> None:
    simulation, state, records = lived(TYPO)
    assert state.outcome is Outcome.FAILED
    ((at, failed),) = found(records, StartFailed)
    assert (failed.node, failed.why, failed.said) == (ES1, "failed (Result: exit-code)", (SAID,))
    down = next(one.at for one in records if getattr(one.event, "to", "") == NodePhase.FAILED.value)
    assert down - at > 10.0, "long before the third start has failed"

    end = summary(state, Outcome.FAILED, [one.event for one in records], records[-1].at)
    lines = summary_lines(end)
    status = status_text(state, records, now=records[-1].at)
    for text in ("\n".join(lines), status):
        assert "es1: the service did not start: failed (Result: exit-code)" in text
        assert f"| {SAID}" in text
    assert summary_object(end)["start_failures"] == [
        {"node": "es1", "why": "failed (Result: exit-code)", "said": [SAID]}
    ]
    nodes: Any = status_object(state, records, now=0.0)["nodes"]
    assert nodes["es1"]["said"] == [SAID]
    assert "said" not in nodes["es2"]

    advice = "repair es1, then continue"
    assert lines[-1] == f"  {advice}: orchestrate resume run-1 --retry-failed"
    assert f"  {advice} with 1 node: orchestrate resume run-1 --retry-failed" in status
    assert "orchestrate restore" not in "\n".join([*lines, status])

    state = play(simulation, simulation.resume(retry_failed=True))
    assert state.outcome is Outcome.DONE
    assert state.nodes[ES1].start_failed is None


def test_a_restore_that_fails_alike_says_the_same_again() -> None:
    simulation, _, _ = lived(Mishap(what=mishaps.StartsFail(node=ES1, times=99)))
    state = play(simulation, simulation.restore())
    records = list(simulation.journal.records)
    assert len(found(records, StartFailed)) == 2, "one an attempt"
    end = summary(state, state.outcome or Outcome.FAILED, [one.event for one in records], records[-1].at)
    assert summary_lines(end)[-1].endswith("orchestrate resume run-1 --retry-failed")
    assert any(SAID in line for line in summary_lines(end))


def test_a_start_that_succeeds_at_last_is_no_failure() -> None:
    _, state, records = lived(Mishap(what=mishaps.StartsFail(node=ES1, times=1)))
    assert state.outcome is Outcome.DONE
    assert len(found(records, StartFailed)) == 1
    assert not any("did not start" in line for line in status_text(state, (), now=0.0).splitlines())


def test_the_new_events_come_back_from_the_journal() -> None:
    for event in (StartFailed(node=ES1, why="x", said=("a", "b")), FellSilent(nodes=(ES1,), seconds=1.0)):
        assert decode_event(encode_event(event)) == event
    assert decode_event({"event": "start_failed", "node": "es1", "why": "x"}) == StartFailed(
        node=ES1, why="x"
    )
