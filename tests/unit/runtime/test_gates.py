"""What answers of gates mean, by kind; and that asking them ends, whatever they do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping

import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.gate import (
    CommandGate,
    EqualTo,
    GateView,
    HttpAccess,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Within,
)
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.gates import command, http_json, prometheus, rabbitmq
from orchestrator.runtime.gates.command import Ran
from orchestrator.runtime.gates.port import Asker, Gates

AT = HttpAccess(url="http://mq:15672")
QUEUE = RabbitQueueGate(name="q", at=AT, queue="a/b", max_messages=100)
OPEN, CLOSED, UNREAD = "open", "closed", "unknown"


def _how(view: Reading[GateView]) -> str:
    return UNREAD if isinstance(view, Unknown) else OPEN if view.open else CLOSED


def test_a_queue(subtests: pytest.Subtests) -> None:
    for answer, how in [
        ({"messages": 0}, OPEN),
        ({"messages": 100, "state": "running"}, OPEN),
        ({"messages": 101}, CLOSED),
        ({"messages": 5, "state": "down"}, UNREAD),
        ({"messages": 5, "state": "minority"}, UNREAD),
        ({"state": "running"}, UNREAD),
        ({"messages": None}, UNREAD),
        ({"messages": True}, UNREAD),
        ({"messages": "5"}, UNREAD),
        ([{"messages": 0}], UNREAD),
    ]:
        with subtests.test(answer=answer, how=how):
            assert _how(rabbitmq.judge(QUEUE, json.dumps(answer).encode())) == how


def test_a_queue_is_asked_for_by_its_whole_name() -> None:
    asked: list[str] = []

    def get(suffix: str = "", query: Mapping[str, str] | None = None) -> Reading[bytes]:
        asked.append(suffix)
        assert query is not None
        return Unknown(reason="http://mq:15672: 404 Not Found")

    view = rabbitmq.ask(QUEUE, get)
    assert asked == ["/api/queues/%2F/a%2Fb"]
    assert isinstance(view, Unknown)
    assert "no queue a/b in virtual host /" in view.reason


def _vector(*values: str) -> dict[str, object]:
    result = [{"metric": {"job": f"j{n}"}, "value": [1.0, value]} for n, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_a_query(subtests: pytest.Subtests) -> None:
    for answer, how in [
        (_vector("5"), OPEN),
        (_vector("5", "9.5"), OPEN),
        (_vector("5", "11"), CLOSED),
        (_vector("0.5"), CLOSED),
        (_vector(), UNREAD),
        (_vector("NaN"), UNREAD),
        (_vector("5", "+Inf"), UNREAD),
        ({**_vector("5"), "warnings": ["one store did not answer"]}, UNREAD),
        ({**_vector("5"), "status": "error"}, UNREAD),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1.0, "5"]}}, OPEN),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, UNREAD),
        ({"status": "success", "data": {"resultType": "vector", "result": [None]}}, UNREAD),
        ({"status": "success"}, UNREAD),
        ("x", UNREAD),
    ]:
        with subtests.test(answer=answer, how=how):
            gate = PrometheusGate(name="p", at=AT, query="up", within=Within(minimum=1.0, maximum=10.0))
            assert _how(prometheus.judge(gate, json.dumps(answer).encode())) == how


def test_a_value_of_a_document(subtests: pytest.Subtests) -> None:
    for path, wanted, how in [
        ("status", "ok", OPEN),
        ("status", "no", CLOSED),
        ("on", True, OPEN),
        ("on", 1, CLOSED),
        ("count", 5, OPEN),
        ("count", 5.0, OPEN),
        ("count", "5", CLOSED),
        ("none", None, OPEN),
        ("list.1.deep", "x", OPEN),
        ("/a.b/c~1d", "y", OPEN),
        ("list.7", "x", UNREAD),
        ("list", "x", UNREAD),
        ("absent", None, UNREAD),
    ]:
        with subtests.test(path=path, wanted=wanted, how=how):
            document = {
                "status": "ok",
                "on": True,
                "count": 5,
                "none": None,
                "list": [{}, {"deep": "x"}],
                "a.b": {"c/d": "y"},
            }
            gate = HttpJsonGate(name="h", at=AT, path=path, equals=EqualTo(value=wanted))
            assert _how(http_json.judge(gate, json.dumps(document).encode())) == how


def test_a_number_of_a_document(subtests: pytest.Subtests) -> None:
    for body, how in [
        (b'{"n": 3}', OPEN),
        (b'{"n": 4}', CLOSED),
        (b'{"n": NaN}', UNREAD),
        (b'{"n": "3"}', UNREAD),
        (b"<", UNREAD),
    ]:
        with subtests.test(body=body, how=how):
            gate = HttpJsonGate(name="h", at=AT, path="n", within=Within(maximum=3.0))
            assert _how(http_json.judge(gate, body)) == how


class Running:
    """Keeps the lines that it is to run, and says the same of each."""

    def __init__(self, said: Ran) -> None:
        self.said = said
        self.lines: list[str] = []

    def run(self, line: str, _timeout: float) -> Reading[Ran]:
        self.lines.append(line)
        return self.said


def test_a_command(subtests: pytest.Subtests) -> None:
    for code, how in [(0, OPEN), (1, CLOSED), (126, UNREAD), (127, UNREAD), (-9, UNREAD)]:
        with subtests.test(code=code, how=how):
            ran = Running(Ran(exit=code, output="first\nlast\n"))
            view = command.ask(CommandGate(name="c", run="./ok.sh", folder="/a b"), ran.run)
            assert _how(view) == how
            assert "last" in (view.reason if isinstance(view, Unknown) else view.evidence)
            assert ran.lines == ["cd -- '/a b' || exit 126\n./ok.sh"]


def _gates(*askers: Asker) -> Gates:
    return Gates(askers, redact=lambda text: text.replace("s3cret", "[redacted]"))


def test_one_that_hangs_costs_its_time_and_no_second_thread() -> None:
    release, begun = threading.Event(), []

    def hang() -> Reading[GateView]:
        begun.append(1)
        release.wait(30.0)
        return GateView(open=True, evidence="late")

    quick = Asker(name="quick", timeout=0.1, ask=lambda: GateView(open=True, evidence="fine"))
    gates = _gates(Asker(name="hangs", timeout=0.1, ask=hang), quick)
    before = time.monotonic()
    first, second = gates.observe(), gates.observe()
    assert time.monotonic() - before < 10.0
    for read in (first, second):
        assert read["hangs"] == Unknown(reason="no answer within 0.1 s")
        assert read["quick"] == GateView(open=True, evidence="fine")
    assert len(begun) == 1
    release.set()


def test_what_a_gate_says_is_one_line_without_secrets() -> None:
    said = Asker(name="a", timeout=5.0, ask=lambda: GateView(open=False, evidence="s3cret\n" + "x" * 1000))
    view = _gates(said).observe()["a"]
    assert isinstance(view, GateView)
    assert view.evidence.startswith("[redacted] | xxx")
    assert len(view.evidence) < 500


@pytest.mark.parametrize("error", [ConfigError("secret env:A: is empty"), RuntimeError("s3cret")])
def test_a_secret_that_is_not_there_and_a_defect_close_the_gate(error: Exception) -> None:
    def broken() -> Reading[GateView]:
        raise error

    view = _gates(Asker(name="a", timeout=5.0, ask=broken)).observe()["a"]
    assert isinstance(view, Unknown)
    assert "s3cret" not in view.reason
