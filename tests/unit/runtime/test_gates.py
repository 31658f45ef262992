"""What answers of gates mean, by kind; and that asking them ends, whatever they do."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest

from orchestrator.errors import ConfigError
from orchestrator.model.gate import (
    AlertmanagerGate,
    CommandGate,
    EqualTo,
    FiringAlert,
    GateView,
    HttpAccess,
    HttpJsonGate,
    PrometheusGate,
    RabbitQueueGate,
    Silenced,
    Within,
    view_of_alerts,
)
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runtime.gates import MOST_ALERTS, Asker, Gates, Ran, ask_command, ask_server, judge
from orchestrator.runtime.gates_http import Query

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
            assert _how(judge(QUEUE, json.dumps(answer).encode())) == how


def test_a_queue_is_asked_for_by_its_whole_name() -> None:
    asked: list[str] = []

    def get(suffix: str = "", query: Query | None = None) -> Reading[bytes]:
        asked.append(suffix)
        assert query is not None
        return Unknown(reason="http://mq:15672: 404 Not Found")

    view = ask_server(QUEUE, get)
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
            assert _how(judge(gate, json.dumps(answer).encode())) == how


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
            assert _how(judge(gate, json.dumps(document).encode())) == how


BEGAN = "2026-11-30T10:38:36.479Z"
ALERTS = AlertmanagerGate(name="a", at=AT, matchers=('cluster="prod"',))


def _alert(fingerprint: str = "d66cde58", **changes: object) -> dict[str, object]:
    """An alert as Alertmanager 0.25 lists it."""
    labels = {"alertname": "DiskFull", "instance": "es1:9100", "cluster": "prod"}
    status: dict[str, object] = {"inhibitedBy": [], "silencedBy": [], "state": "active"}
    found = {
        "fingerprint": fingerprint,
        "labels": labels,
        "startsAt": BEGAN,
        "status": status,
        "receivers": [],
    }
    return {**found, "annotations": {}, "endsAt": BEGAN, "updatedAt": BEGAN, **changes}


def _suppressed(by: str) -> dict[str, object]:
    return _alert(status={"inhibitedBy": [], "silencedBy": [], "state": "suppressed", by: ["258b04d6"]})


def test_alerts(subtests: pytest.Subtests) -> None:
    count = replace(ALERTS, silenced=Silenced.COUNT)
    many = [_alert(f"f{number}") for number in range(MOST_ALERTS)]
    for gate, answer, how, said in [
        (ALERTS, [], OPEN, "no alert fires"),
        (ALERTS, [_alert()], CLOSED, '1 alert fires: DiskFull{cluster="prod",instance="es1:9100"}'),
        (ALERTS, [_alert(), _alert()], CLOSED, "1 alert fires: DiskFull"),
        (ALERTS, [_suppressed("silencedBy")], OPEN, "no alert fires (1 exempt)"),
        (ALERTS, [_suppressed("silencedBy"), _alert()], CLOSED, "1 alert fires: DiskFull"),
        (ALERTS, [_alert(), _suppressed("silencedBy")], CLOSED, "1 alert fires: DiskFull"),
        (count, [_suppressed("silencedBy")], CLOSED, "1 alert fires: DiskFull"),
        (count, [_suppressed("inhibitedBy")], OPEN, "no alert fires (1 exempt)"),
        (ALERTS, many, CLOSED, "5000 alerts fire: DiskFull"),
        (ALERTS, [*many, _alert()], UNREAD, "5,001 alerts match, more than 5,000"),
        (ALERTS, {"status": "success"}, UNREAD, "not a list of alerts"),
        (ALERTS, [None], UNREAD, "no alert"),
        (ALERTS, [_alert(fingerprint="a\nb")], UNREAD, "no alert"),
        (ALERTS, [_alert(fingerprint="a" * 65)], UNREAD, "no alert"),
        (ALERTS, [_alert(labels=None)], UNREAD, "no alert"),
        (ALERTS, [_alert(status="active")], UNREAD, "no alert"),
        (ALERTS, [_alert(startsAt="today")], UNREAD, "no alert"),
        (ALERTS, [{"labels": {"alertname": "of another API"}}], UNREAD, "no alert"),
    ]:
        with subtests.test(gate=gate.silenced, said=said):
            view = judge(gate, json.dumps(answer).encode())
            assert _how(view) == how
            assert said in (view.reason if isinstance(view, Unknown) else view.evidence)


def test_a_page_in_place_of_alerts_is_no_answer() -> None:
    assert judge(ALERTS, b"<html>sign in</html>") == Unknown(reason="the answer is not JSON")


def test_at_most_five_alerts_are_named() -> None:
    answer = [_alert(f"f{n}", labels={"alertname": f"A{n}"}) for n in range(7)]
    view = judge(ALERTS, json.dumps(answer).encode())
    assert isinstance(view, GateView)
    assert view.evidence == "7 alerts fire: A0, A1, A2, A3, A4 and 2 more"
    assert (view.count, view.subjects) == (7, ("A0", "A1", "A2", "A3", "A4"))


def test_a_long_alert_is_cut_and_still_no_other_one() -> None:
    answer = [_alert(f"f{n}", labels={"alertname": "A", "x": "\n" + "y" * 9999}) for n in range(2)]
    view = judge(ALERTS, json.dumps(answer).encode())
    assert isinstance(view, GateView)
    first, second = view.subjects
    assert first != second
    assert len(first) < 200
    assert first.isprintable()


def test_when_an_alert_began(subtests: pytest.Subtests) -> None:
    for written, began in [
        (BEGAN, 1796035116.479),
        ("2026-11-30T10:38:36.479123456Z", 1796035116.479123),
        ("2026-11-30T12:38:36.479+02:00", 1796035116.479),
    ]:
        with subtests.test(written=written):
            view = judge(ALERTS, json.dumps([_alert(startsAt=written)]).encode())
            assert isinstance(view, GateView)
            assert view.alerts[0].began == pytest.approx(began, abs=1e-6)


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
            assert _how(judge(gate, body)) == how


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
            view = ask_command(CommandGate(name="c", run="./ok.sh", folder="/a b"), ran.run)
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


def test_an_alert_is_shown_without_secrets() -> None:
    alert = FiringAlert(fingerprint="a", began=0.0, name='Leak{key="s3cret"}')
    said = Asker(name="a", timeout=5.0, ask=lambda: view_of_alerts([alert], [alert]))
    view = _gates(said).observe()["a"]
    assert isinstance(view, GateView)
    assert view.alerts[0].name == 'Leak{key="[redacted]"}'
    assert "s3cret" not in view.evidence


@pytest.mark.parametrize("error", [ConfigError("secret env:A: is empty"), RuntimeError("s3cret")])
def test_a_secret_that_is_not_there_and_a_defect_close_the_gate(error: Exception) -> None:
    def broken() -> Reading[GateView]:
        raise error

    view = _gates(Asker(name="a", timeout=5.0, ask=broken)).observe()["a"]
    assert isinstance(view, Unknown)
    assert "s3cret" not in view.reason
