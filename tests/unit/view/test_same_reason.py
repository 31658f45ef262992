"""The same reason on several nodes is one line with all names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.left_over import LeftOver, grouped, left_over, recorded, texts
from orchestrator.model.action import ProbeSettings, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import ActionFailed, Event, Record
from orchestrator.model.phase import NodePhase
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import HostTuning, OnFailure, TunableState, Verdict
from orchestrator.model.upgrade import InstallState
from orchestrator.model.work_event import InstallEnded, StartFailed, TuningMissed
from orchestrator.view.checks import Check, together
from orchestrator.view.feed import said_once
from orchestrator.view.host_words import start_failures
from orchestrator.view.progress import not_restored
from orchestrator.view.status import status_object, status_text
from orchestrator.view.tuning import by_reason_lines, state_rows
from orchestrator.view.words import sentence
from tests.unit.view import samples
from tests.unit.view.moments import moments

ES1, ES2, ES3 = (NodeName(f"es{number}") for number in (1, 2, 3))
NODES = (ES1, ES2, ES3)


def lines_of(*events: Event) -> list[str]:
    records = [Record(run="r", sequence=n, at=0.0, event=event) for n, event in enumerate(events, 1)]
    return [sentence(one.event) for one in said_once(records)]


def stop_failed(node: NodeName, why: str) -> ActionFailed:
    return ActionFailed(action=StopNode(node=node), reason=why, in_doubt=False)


def install_ended(node: NodeName, number: int, said: str) -> InstallEnded:
    return InstallEnded(node=node, number=number, ticket=f"r/{node}", state=InstallState.FAILED, said=said)


def missed(node: NodeName, tunable: str, why: str) -> TuningMissed:
    return TuningMissed(node=node, tunable=tunable, why=why, on_failure=OnFailure.WARN)


def test_what_failed_alike_in_one_step_is_one_line(subtests: pytest.Subtests) -> None:
    for events, said in [
        ([stop_failed(node, f"ssh to {node} (10.0.0.{n}): timed out") for n, node in enumerate(NODES)], [3]),
        ([stop_failed(ES1, "a"), stop_failed(ES2, "b"), stop_failed(ES3, "a")], [2, 1]),
        (
            [stop_failed(ES1, "a"), ActionFailed(action=StartNode(node=ES2), reason="a", in_doubt=False)],
            [1, 1],
        ),
        ([stop_failed(ES1, "a"), stop_failed(ES1, "b"), stop_failed(ES2, "b")], [1, 2]),
        ([install_ended(node, 0, "No such package") for node in NODES], [3]),
        ([install_ended(ES1, 0, "x"), install_ended(ES2, 1, "x")], [1, 1]),
        ([missed(node, "numad", "sudo refused") for node in NODES], [3]),
        ([missed(ES1, "numad", "sudo refused"), missed(ES2, "vm.swappiness", "sudo refused")], [1, 1]),
        ([ActionFailed(action=ProbeSettings(), reason="a", in_doubt=False), stop_failed(ES1, "a")], [0, 1]),
    ]:
        with subtests.test(first=events[0], expected=said):
            lines = lines_of(*events)
            assert [sum(name in line.partition(": ")[0] for name in NODES) for line in lines] == said


def start_failed(node: NodeName, *said: str) -> StartFailed:
    return StartFailed(node=node, why="failed (Result: exit-code)", said=said)


def test_starts_that_failed_alike_are_one_reason(subtests: pytest.Subtests) -> None:
    alike = [
        start_failed(node, f"Nov 29 07:13:4{n} {node} systemd[{n}]: Main PID: 23{n} (code=exited) 2{n}s ago")
        for n, node in enumerate(NODES)
    ]
    for failed, expected in [
        (alike, ["es1, es2, es3: the service did not start: failed (Result: exit-code)"]),
        (
            [start_failed(ES1, "unknown setting [a]"), start_failed(ES2, "unknown setting [b]")],
            [f"{node}: the service did not start: failed (Result: exit-code)" for node in (ES1, ES2)],
        ),
    ]:
        with subtests.test(expected=expected):
            lines = start_failures(failed)
            assert [line for line in lines if not line.startswith("  |")] == expected
            assert len(lines) == 2 * len(expected)


def test_what_is_not_restored_is_grouped(subtests: pytest.Subtests) -> None:
    def setting(name: str, level: str) -> LeftOver:
        return LeftOver(name=name, one=f"setting {{}} ({level}): set to {{}} by the run; was 2 before")

    def node(name: str, why: str) -> LeftOver:
        return LeftOver(name=name, one=f"node {{}}: {why}", many=f"nodes {{}}: {why}")

    found, silent = "set to {} by the run; was 2 before", "down (ssh to es1: timed out)"
    for left, lines in [
        (
            [node("es1", "down"), node("es2", "down"), node("es3", "stopping")],
            ["nodes es1, es2: down", "node es3: stopping"],
        ),
        (
            [setting("limit.a", "transient"), setting("limit.b", "transient")],
            [f"setting limit.a, limit.b (transient): {found}"],
        ),
        (
            [setting("x", "persistent"), setting("x", "transient"), node("x", "down")],
            [f"setting x (persistent): {found}", f"setting x (transient): {found}", "node x: down"],
        ),
        (
            [node("es1", silent), node("es2", silent.replace("es1", "es2"))],
            [f"nodes es1, es2: {silent}"],
        ),
    ]:
        with subtests.test(lines=lines):
            assert list(grouped(left)) == lines
            assert len(texts(left)) == len(left)


def test_status_names_nodes_that_are_down_in_one_line() -> None:
    state = samples.run_state()
    nodes = {name: replace(node, phase=NodePhase.STOPPING) for name, node in state.nodes.items()}
    state = samples.run_state(nodes=nodes)
    assert "  es1, es2, es3: stop\n" in status_text(state, (), now=samples.t0, alive=False)
    left = status_object(state, (), now=samples.t0)["not_put_back"]
    assert isinstance(left, list)
    assert left[-3:] == [f"node {name}: stopping" for name in NODES]


def test_the_end_of_a_run_groups_what_its_journal_lists() -> None:
    state = samples.run_state()
    nodes = {name: replace(node, phase=NodePhase.STARTING) for name, node in state.nodes.items()}
    state = samples.run_state(nodes=nodes)
    seen = "started, and not seen in the cluster"
    left = (
        *(f"node {name} was {seen}" for name in NODES[:2]),
        "node es3 is starting",
        "setting a",
        "setting b",
    )
    items = recorded(state, left)
    assert texts(items) == left
    assert grouped(items) == (f"nodes es1, es2 were {seen}", *left[2:])


def test_hosts_with_one_result_are_one_check() -> None:
    def ssh(node: str, message: str, *, good: bool = True) -> Check:
        return Check(subject=node, point="ssh", good=good, message=message, of_host=True)

    checks = [
        ssh("es1", "answers as es1"),
        ssh("es2", "answers as es2"),
        ssh("es3", "no route to es3", good=False),
    ]
    assert [(one.subject, one.message) for one in together(checks)] == [
        ("es1, es2", "answers as es1"),
        ("es3", "no route to es3"),
    ]


def test_hosts_with_the_same_tuning_have_their_rows_once() -> None:
    same = HostTuning(
        states=(TunableState(tunable="x", wanted="1", running="60", at_boot="", verdict=Verdict.DRIFT),)
    )
    away = {node: Unknown(reason=f"host of {node}: no route") for node in (NodeName("es4"), NodeName("es5"))}
    rows = state_rows({ES1: same, ES2: same, ES3: HostTuning(states=()), **away})
    assert [row[0] for row in rows] == ["es1, es2", "es4, es5"]
    assert by_reason_lines([(ES1, "a"), (ES2, "b"), (ES3, "a")]) == ["es1, es3: a", "es2: b"]


def test_a_journal_and_a_view_say_the_same_of_a_setting() -> None:
    """The journal's text at the end of a run is the one that `status` has while it is killed."""
    state = moments(3)["down"].state
    journal, view = texts(left_over(state)), texts(not_restored(state))
    settings = [text for text in view if text.startswith("setting ")]
    assert len(settings) == len(state.unrestored.settings) > 1
    assert set(settings) <= set(journal)
    name, was = "cluster.routing.allocation.enable", "set to primaries by the run; was not set before"
    assert f"setting {name} (persistent): {was}" in settings
