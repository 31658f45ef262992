"""Gates on real servers: a queue of RabbitMQ and a metric of Prometheus, while real nodes are restarted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.killing import (
    QUICKEST,
    Truth,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)
from tests.integration.metrics import GAUGE, Exporter, Prometheus
from tests.integration.queues import USER, Rabbit
from tests.integration.restarting import Begun, events, orchestrate, restart

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="gates")]

QUEUE = "ingest"
MOST = 5
LIMIT = "8s"
TWO = ("--only", "es1", "--only", "es2")
AUTH = "MQ_AUTH"
CLOSED_FOR = 4.0
"""Seconds for which the nodes are watched; a run that did not wait stops its next node in less."""


@pytest.fixture(scope="module")
def _rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    server = Rabbit(folder=tmp_path_factory.mktemp("rabbit"))
    yield server
    server.stop()


@pytest.fixture
def rabbit(_rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> Rabbit:
    """A server that runs, with an empty queue; the program finds the account in its environment."""
    monkeypatch.setenv(AUTH, USER)
    _rabbit.start()
    _rabbit.declare(QUEUE)
    _rabbit.drain(QUEUE)
    return _rabbit


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    exporter = Exporter(1000.0)
    server = Prometheus(folder=tmp_path / "prometheus", exporter=exporter)
    try:
        yield server.start()
    finally:
        server.stop()
        exporter.close()


def gated(gate: Mapping[str, Any], limit: str = "5m") -> dict[str, Any]:
    """A playbook with one gate."""
    return {"gates": [gate], "deadlines": {"hold": "15s", "gate": limit}}


def on_queue(rabbit: Rabbit, limit: str = "5m") -> dict[str, Any]:
    gate = {"url": rabbit.url, "queue": QUEUE, "max_messages": MOST, "auth": f"env:{AUTH}", "timeout": "3s"}
    return gated({"rabbitmq_queue": gate}, limit)


def a_stop(line: Mapping[str, Any]) -> bool:
    return line["event"] == "action_sent" and line["action"]["verb"] == "stop"


def a_return(line: Mapping[str, Any]) -> bool:
    return line["event"] == "phase_entered" and line["node"] is not None and line["to"] == "rejoined"


def is_closed(line: Mapping[str, Any]) -> bool:
    return line["event"] == "gate_closed"


def reborn(lab: LabCluster, before: Truth) -> set[str]:
    """Nodes that are in another life than before."""
    lives = truth(lab).lives
    return {name for name, life in before.lives.items() if lives.get(name) != life}


def assert_nothing_is_stopped(lab: LabCluster, before: Truth, restarted: int) -> set[str]:
    """While the gate is closed: so many nodes have been restarted, and all of them live on; which ones."""
    during = truth(lab)
    born_again = reborn(lab, before)
    assert len(born_again) == restarted
    assert set(during.lives) == set(before.lives)
    time.sleep(CLOSED_FOR)
    after = truth(lab)
    assert (after.lives, after.starts) == (during.lives, during.starts)
    return born_again


def the_end(lines: list[dict[str, Any]]) -> dict[str, Any]:
    assert lines[-1]["event"] == "summary", lines[-1]
    return lines[-1]


def assert_no_account(folder: Path) -> None:
    """The password stands in nothing that a run wrote."""
    written = [path for path in folder.iterdir() if path.is_file()]
    assert any(path.name == "state.db" for path in written)
    for path in written:
        assert USER.encode() not in path.read_bytes(), path


def test_a_queue_that_fills_holds_the_run_until_it_drains(
    process_cluster: ProcessCluster, rabbit: Rabbit, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    filled = tmp_path / "filled"  # the node stays down until the queue is full, however busy the machine is
    hooks = {"while_stopped": [{"run": f"until [ -e {filled} ]; do sleep 0.1; done", "local": True}]}
    with Begun(lab, tmp_path, "restart", *TWO, playbook={**on_queue(rabbit), "hooks": hooks}) as run:
        run.wait_for(a_stop)
        rabbit.publish(QUEUE, MOST + 3)  # a start is never held back: the node comes up all the same
        filled.touch()
        run.wait_for(a_return)
        closed = run.wait_for(is_closed)
        assert closed["gate"] == f"rabbitmq_queue {QUEUE}"
        assert closed["evidence"] == "8 messages, at most 5 allowed"
        assert_nothing_is_stopped(lab, before, 1)
        rabbit.drain(QUEUE)
        code, lines = run.end()
    assert code == 0, lines[-1]
    assert [line["evidence"] for line in events(lines, "gate_opened")] == ["0 messages, at most 5 allowed"]
    assert events(lines, "rescued") == []
    assert_restarted_once(lab, before, nodes=TWO[1::2])
    assert_no_account(tmp_path)


def test_a_full_queue_stands_the_run_down_and_resume_finishes(
    process_cluster: ProcessCluster, rabbit: Rabbit, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    book = on_queue(rabbit, LIMIT)
    with Begun(lab, tmp_path, "restart", *TWO, playbook=book) as run:
        run.wait_for(a_stop)
        rabbit.publish(QUEUE, MOST + 1)
        code, lines = run.end()
    assert code == 3, lines[-1]
    end = the_end(lines)
    assert end["outcome"] == "held"
    assert f"rabbitmq_queue {QUEUE}" in str(end), end
    assert "6 messages, at most 5 allowed" in str(end), end
    assert_put_back(lab, before)
    assert len(reborn(lab, before)) == 1
    rabbit.drain(QUEUE)
    code, lines = orchestrate(lab, tmp_path, "resume", playbook=book)
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before, nodes=TWO[1::2])


def test_a_metric_stands_a_run_down_and_the_resumed_one_waits(
    process_cluster: ProcessCluster, prometheus: Prometheus, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    gate = {"prometheus": {"url": prometheus.url, "query": f"sum({GAUGE})", "min": 500, "timeout": "3s"}}
    book = gated(gate, "12s")  # resumed, it goes by the same: time enough for a look at the nodes
    with Begun(lab, tmp_path, "restart", *TWO, playbook=book) as run:
        run.wait_for(a_stop)
        prometheus.set(20.0)
        code, lines = run.end()
    assert code == 3, lines[-1]
    assert [line["evidence"] for line in events(lines, "gate_closed")] == [f"sum({GAUGE}) is 20, below 500"]
    assert the_end(lines)["outcome"] == "held"
    assert_put_back(lab, before)
    assert len(reborn(lab, before)) == 1
    with Begun(lab, tmp_path, "resume", playbook=book) as run:
        run.wait_for(is_closed)
        assert_nothing_is_stopped(lab, before, 1)
        prometheus.set(600.0)
        code, lines = run.end()
    assert code == 0, lines[-1]
    opened = events(lines, "gate_opened")
    assert [line["evidence"] for line in opened] == [f"sum({GAUGE}) is 600, at least 500 wanted"]
    assert_restarted_once(lab, before, nodes=TWO[1::2])


def test_a_metric_that_is_low_holds_a_run_until_it_rises(
    process_cluster: ProcessCluster, prometheus: Prometheus, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    prometheus.set(20.0)
    gate = {"prometheus": {"url": prometheus.url, "query": f"sum({GAUGE})", "min": 500, "timeout": "3s"}}
    with Begun(lab, tmp_path, "restart", "--only", "es1", playbook=gated(gate)) as run:
        closed = run.wait_for(is_closed)
        assert closed["evidence"] == f"sum({GAUGE}) is 20, below 500"
        assert_nothing_is_stopped(lab, before, 0)
        prometheus.set(600.0)
        code, lines = run.end()
    assert code == 0, lines[-1]
    opened = events(lines, "gate_opened")
    assert [line["evidence"] for line in opened] == [f"sum({GAUGE}) is 600, at least 500 wanted"]
    assert_restarted_once(lab, before, nodes=["es1"])


def test_a_server_that_does_not_answer_is_a_closed_gate(
    process_cluster: ProcessCluster, rabbit: Rabbit, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    rabbit.stop()
    code, lines = restart(lab, tmp_path, *TWO, playbook=on_queue(rabbit, LIMIT))
    assert code == 3, lines[-1]
    closed = events(lines, "gate_closed")
    assert len(closed) == 1, closed
    assert closed[0]["evidence"].startswith("cannot be read, so it counts as closed: "), closed
    assert closed[0]["evidence"].endswith("connection refused"), closed
    assert closed[0]["readable"] is False
    assert the_end(lines)["outcome"] == "held"
    after = truth(lab)
    assert (after.starts, after.lives, after.settings) == (before.starts, before.lives, before.settings)
    assert after.leases == ()
