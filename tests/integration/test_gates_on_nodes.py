"""Gates on real servers, while real nodes are restarted: RabbitMQ, Prometheus and Alertmanager."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest
import urllib3

from tests.integration.alerting import Alertmanager, Exporter, Prometheus
from tests.integration.killing import (
    QUICKEST,
    Truth,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)
from tests.integration.restarting import Begun, Extended, events, orchestrate
from tests.ports import free_port
from tests.tools import needs

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster
    from tests.lab.nodes import LabCluster

GAUGE: Final = "lab_capacity"


def _text(value: float) -> str:
    return f"# TYPE {GAUGE} gauge\n{GAUGE} {value}\n"


class Gauged:
    """A Prometheus that scrapes one gauge, `lab_capacity`.

    Args:
        alerts: where it sends its alert, `Low` while the gauge is below 500; None without one.
    """

    def __init__(self, folder: Path, value: float, alerts: Alertmanager | None = None) -> None:
        folder.mkdir()
        rule = {"alert": "Low", "expr": f"sum({GAUGE}) < 500", "labels": {"cluster": "lab"}}
        rules = folder / "rules.yml"
        rules.write_text(json.dumps({"groups": [{"name": "lab", "rules": [rule]}]}), encoding="utf-8")
        self._exporter = Exporter(_text(value))
        scraped = {"lab": self._exporter.address}
        self._server = Prometheus(folder=folder, scraped=scraped, rules=rules, alerts=alerts)
        self.url = self._server.url
        try:
            self._server.start()
            self.set(value)
        except BaseException:
            self.stop()
            raise

    def set(self, value: float) -> None:
        """Let the exporter tell another value, and return when the server shows it."""
        self._exporter.text = _text(value)
        self._server.wait(lambda: [float(one["value"][1]) for one in self._server.query(GAUGE)] == [value])

    def stop(self) -> None:
        """End both."""
        self._server.stop()
        self._exporter.close()


SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's own script; the one in `/usr/sbin` insists on the system's folders and user."""

USER: Final = "guest:guest"
"""What a new server makes, for loopback only."""

BOOT_SECONDS: Final = 120.0
PATIENCE_SECONDS: Final = 30.0
"""A statistic is half a second old; on a loaded machine it is older, and what takes too long is a 500."""


@dataclass(kw_only=True)
class Rabbit:
    """One server; `stop` ends it and its port mapper, by their ids."""

    folder: Path  # its own: data, logs, cookie
    # of the management plugin's API, the same after another `start`
    port: int = field(default_factory=free_port)
    _mapper: subprocess.Popen[bytes] | None = None
    _server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the API, without its path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Rabbit:
        """Start it unless it runs, and wait until it answers."""
        if self._server is not None:
            return self
        mapper, server = needs("epmd"), needs(SERVER)
        environment = self._prepare()
        try:
            with (self.folder / "out.log").open("ab") as log:
                self._mapper = subprocess.Popen(  # noqa: S603  (in the foreground, so that its id is known)
                    [mapper, "-address", "127.0.0.1", "-port", environment["ERL_EPMD_PORT"]],
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
                self._server = subprocess.Popen(  # noqa: S603  (a server of our own)
                    [server], env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
                )
            self._await()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it at once: a script, the Erlang machine that it started, and what that one started."""
        server, self._server = self._server, None
        mapper, self._mapper = self._mapper, None
        if server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # its helpers end when their pipe does
            server.wait()
        if mapper is not None:
            mapper.kill()
            mapper.wait()

    def declare(self, queue: str) -> None:
        """Make a queue, or find it made."""
        self._ask("PUT", f"/api/queues/%2F/{quote(queue, safe='')}", {"durable": True})

    def publish(self, queue: str, messages: int) -> None:
        """Put messages in, and return when the statistics show as many more."""
        wanted = (self.count(queue) or 0) + messages
        message = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
        for _ in range(messages):
            assert self._ask("POST", "/api/exchanges/%2F/amq.default/publish", message)["routed"]
        self._await_count(queue, wanted)

    def drain(self, queue: str) -> None:
        """Take all messages out, and return when the statistics show none."""
        self._ask("DELETE", f"/api/queues/%2F/{quote(queue, safe='')}/contents")
        self._await_count(queue, 0)

    def count(self, queue: str) -> int | None:
        """How many messages the statistics show; None of a queue that they do not know yet."""
        found = self._ask("GET", f"/api/queues/%2F/{quote(queue, safe='')}").get("messages")
        return None if found is None else int(found)

    def _await_count(self, queue: str, wanted: int) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while (found := self.count(queue)) != wanted:
            assert time.monotonic() < limit, f"{queue} shows {found} messages, not {wanted}"
            time.sleep(0.1)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the API; one of 500 is asked for again, for a while."""
        limit = time.monotonic() + PATIENCE_SECONDS
        headers = {"Content-Type": "application/json", **urllib3.make_headers(basic_auth=USER)}
        while True:
            answer = urllib3.request(
                method,
                self.url + path,
                body=json.dumps(body) if body is not None else None,
                headers=headers,
                timeout=PATIENCE_SECONDS,
            )
            if answer.status < 300:
                return json.loads(answer.data or b"{}")
            told = f"{method} {path}: {answer.status} {answer.data[:200]!r}"
            assert answer.status >= 500, told
            assert time.monotonic() < limit, told
            time.sleep(0.5)

    def _prepare(self) -> dict[str, str]:
        """Folders and files; the environment that names them."""
        for name in ("mnesia", "log", "gen", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "plugins").write_text("[rabbitmq_management].\n", encoding="utf-8")
        lines = (
            f"listeners.tcp.default = 127.0.0.1:{free_port()}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.port}",
            "collect_statistics_interval = 500",
        )
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "RABBITMQ_NODENAME": f"gates{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "gen"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _await(self) -> None:
        limit = time.monotonic() + BOOT_SECONDS
        while True:
            assert self._server is not None
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                headers = urllib3.make_headers(basic_auth=USER)
                found = urllib3.request(
                    "GET", f"{self.url}/api/overview", headers=headers, retries=False, timeout=5.0
                )
                if found.status == 200:
                    return
            log = self.folder / "out.log"
            assert self._server.poll() is None, log.read_text(encoding="utf-8", errors="replace")
            assert time.monotonic() < limit, log.read_text(encoding="utf-8", errors="replace")
            time.sleep(0.2)


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
def prometheus(tmp_path: Path) -> Iterator[Gauged]:
    server = Gauged(tmp_path / "prometheus", 1000.0)
    yield server
    server.stop()


@pytest.fixture
def alerts(tmp_path: Path) -> Iterator[Alertmanager]:
    server = Alertmanager(folder=tmp_path / "alertmanager")
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def alerting(tmp_path: Path, alerts: Alertmanager) -> Iterator[Gauged]:
    """A Prometheus whose gauge is low, so that its alert fires."""
    server = Gauged(tmp_path / "prometheus", 20.0, alerts)
    try:
        alerts.await_alerts("Low")
        yield server
    finally:
        server.stop()


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


def test_a_metric_stands_a_run_down_and_the_resumed_one_waits(
    process_cluster: ProcessCluster, prometheus: Gauged, tmp_path: Path
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


def on_alerts(alerts: Alertmanager, limit: str = "5m") -> dict[str, Any]:
    matchers = ['cluster="lab"', "alertname=~Low|Full|Old"]
    return gated({"alertmanager": {"url": alerts.url, "matchers": matchers, "timeout": "3s"}}, limit)


def test_an_alert_that_begins_holds_a_run_also_after_a_kill(
    process_cluster: ProcessCluster, alerts: Alertmanager, tmp_path: Path
) -> None:
    """What fired before the run does not; a silence ends the hold."""
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    alerts.fire(alertname="Old")
    alerts.fire(alertname="Full", cluster="another")
    fired = tmp_path / "fired"  # the node stays down until the alert fires, however busy the machine is
    hooks = {"while_stopped": [{"run": f"until [ -e {fired} ]; do sleep 0.1; done", "local": True}]}
    book = {**on_alerts(alerts), "hooks": hooks}
    said = '1 alert fires: Full{cluster="lab",instance="es1:9100"}'
    with Begun(lab, tmp_path, "restart", *TWO, playbook=book) as run:
        run.wait_for(a_stop)
        alerts.fire(alertname="Full", instance="es1:9100")
        fired.touch()
        run.wait_for(a_return)
        closed = run.wait_for(is_closed)
        assert (closed["evidence"], closed["count"], closed["subjects"]) == (said, 1, [said[15:]])
        assert_nothing_is_stopped(lab, before, 1)  # and the block kills it
    with Begun(lab, tmp_path, "resume", playbook=book) as run:
        assert run.wait_for(is_closed)["evidence"] == said
        assert_nothing_is_stopped(lab, before, 1)
        alerts.silence("Full")
        code, lines = run.end()
    assert code == 0, lines[-1]
    assert [line["evidence"] for line in events(lines, "gate_opened")] == ["no alert fires (2 exempt)"]
    assert events(lines, "alerts_at_start") == [], "they are those of the first process"
    assert_restarted_once(lab, before, nodes=TWO[1::2])


def test_an_alert_that_fires_again_is_new_until_it_is_accepted(
    process_cluster: ProcessCluster, alerting: Gauged, alerts: Alertmanager, tmp_path: Path
) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    fired, textfile = tmp_path / "fired", tmp_path / "orchestrate.prom"
    described = Extended(lab, {"metrics": {"textfile": str(textfile)}})
    hooks = {"while_stopped": [{"run": f"until [ -e {fired} ]; do sleep 0.1; done", "local": True}]}
    book = {**on_alerts(alerts, LIMIT), "hooks": hooks}
    with Begun(described, tmp_path, "restart", *TWO, playbook=book) as run:
        run.wait_for(a_stop)
        alerting.set(1000.0)
        alerts.await_alerts()
        alerting.set(20.0)
        alerts.await_alerts("Low")
        fired.touch()
        code, lines = run.end()
    assert code == 3, lines[-1]
    assert [len(line["alerts"]) for line in events(lines, "alerts_at_start")] == [1]
    assert 'alertmanager: 1 alert fires: Low{cluster="lab"}' in str(the_end(lines))
    assert_put_back(lab, before)
    assert len(reborn(lab, before)) == 1
    assert re.search(r'^orchestrate_run_alerts\{.*alert="Low"\} 1$', textfile.read_text(), re.MULTILINE)
    code, lines = orchestrate(described, tmp_path, "resume", "--accept-alert", "Low", playbook=book)
    assert code == 0, lines[-1]
    assert events(lines, "run_resumed")[0]["accept_alerts"] == ["Low"]
    assert_restarted_once(lab, before, nodes=TWO[1::2])


def test_an_alertmanager_that_does_not_answer_holds_the_run(
    process_cluster: ProcessCluster, alerts: Alertmanager, tmp_path: Path
) -> None:
    """The alerts of the start are those of its first answer."""
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    alerts.stop()
    with Begun(lab, tmp_path, "restart", "--only", "es1", playbook=on_alerts(alerts)) as run:
        closed = run.wait_for(is_closed)
        assert closed["readable"] is False
        assert closed["evidence"].endswith("connection refused"), closed
        assert_nothing_is_stopped(lab, before, 0)
        alerts.start()
        code, lines = run.end()
    assert code == 0, lines[-1]
    assert [line["alerts"] for line in events(lines, "alerts_at_start")] == [{}]
    assert_restarted_once(lab, before, nodes=["es1"])
