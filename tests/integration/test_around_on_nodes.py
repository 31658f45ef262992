"""What surrounds runs of six real nodes: messages, silences and metrics, with the real servers that get them.

A lease lasts seconds here instead of 15 minutes. Figures are printed as each test ends.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from orchestrator.model.event import Event, Notified
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.serving import serving
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, hang, reply
from tests.fakes.smtp import MailServer
from tests.integration.alerting import (
    Alertmanager,
    Exporter,
    Prometheus,
    assert_none_is_there_twice,
    ends,
    key_of,
    moment,
    values_of,
)
from tests.integration.killing import QUICKEST, Truth, assert_restarted_once, prepare, truth
from tests.integration.restarting import Begun, Extended, events, orchestrate
from tests.integration.zoning import SIX_IN_THREE

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="around"), pytest.mark.timeout(3600)]

LEASE: Final = 20.0
SILENCES: Final = {
    "LEASE_SECONDS": LEASE,
    "RENEWED_BEFORE": 17.0,
    "AFTER_RECOVERY": 6.0,
    "AGAIN_SECONDS": 1.0,
}
"""Renewed every 3 s: a zone is down for longer."""
SETS: Final = ({"alertname": "NodeDown", "node": "{node}"}, {"alertname": "ClusterYellow"})
STORY: Final = ("started", "held", "cleared", "done")
STORED: Final = ("run_seconds", "run_held_seconds", "run_waves_planned")
DONE: Final = 'orchestrate_run_outcome{outcome="done"} == 1'
FIRED: Final = 'count_over_time(ALERTS{alertname="NodeDown",alertstate="firing"}[10m])'
BOOK: Final[Mapping[str, Any]] = {"strategy": "zone", "deadlines": {"hold": "1m", "gate": "5m"}}
Sent = tuple[str, str, str]
"""Run, sequence of the event and subject of a message."""
SECRET: Final = "hunter2-hunter2"  # noqa: S105  (a test's own)


@dataclass
class Watch:
    """Samples the silences of an Alertmanager several times a second. Use as a context manager."""

    alerts: Alertmanager
    # of each silence, by its id: when it was first seen so, its end and its state
    changes: dict[str, list[tuple[float, float, str]]] = field(default_factory=lambda: defaultdict(list))
    about: dict[str, tuple[str, str]] = field(default_factory=dict)  # wave and label values of each
    samples: int = 0

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self._sample()

    def _sample(self) -> None:
        now, self.samples = time.time(), self.samples + 1
        for one in self.alerts.ask("GET", "/api/v2/silences") or ():
            found, known = (ends(one), one["status"]["state"]), self.changes[one["id"]]
            self.about.setdefault(one["id"], key_of(one))
            if not known or known[-1][1:] != found:
                known.append((now, *found))

    def table(self, start: float) -> str:
        """A row for each silence; seconds since the start of the run."""
        rows = [f"{'wave':32} {'alerts':34} created renewed          ended  lease at most"]
        for name, known in sorted(self.changes.items(), key=lambda item: item[1][0][0]):
            live = [(at, end) for at, end, state in known if state == "active"]
            over = next((at for at, _, state in known if state == "expired"), None)
            renewed = ", ".join(f"{at - start:.0f}" for at, _ in live[1:])
            longest = max((end - at for at, end in live), default=0.0)
            comment, values = self.about[name]
            said = "-" if over is None else f"{over - start:.0f}"
            rows.append(
                f"{comment:32} {values:34} {known[0][0] - start:7.0f} {renewed:16} {said:>5}  {longest:.1f} s"
            )
        return "\n".join(rows)


def surroundings(hook: str, mail_port: int, alertmanager: str) -> dict[str, Any]:
    """Keys of a cluster file: all messages by a webhook, some by mail, and silences."""
    mail = f"smtp://127.0.0.1:{mail_port}/?from=orch@localhost&to=ops@localhost"
    return {
        "silence": {"alertmanager": {"url": alertmanager, "matchers": SETS}},
        "notify": [
            {"url": hook, "after": "2s", "name": "chat"},
            {"url": mail, "after": "2s", "name": "mail", "on": STORY},
        ],
    }


def received(chat: ScriptedServer, mail: MailServer) -> dict[str, list[Sent]]:
    """What has arrived, by target."""
    ids = [str(one["Message-ID"]).strip("<>").partition("@")[0].split(".") for one in [*mail.mails]]
    bodies = [one.json for one in [*chat.asked]]
    return {
        "chat": [(one["run"], str(one["event"]["sequence"]), one["on"]) for one in bodies],
        "mail": [(run, of, on) for run, of, on in ids],
    }


def six(process_cluster: ProcessCluster) -> tuple[LabCluster, Truth]:
    """Six nodes in three zones, with data and settings of an operator."""
    lab = process_cluster(QUICKEST, nodes=SIX_IN_THREE)
    return lab, prepare(lab)


def capacity(value: float) -> str:
    """The gauge for which `Low` fires below 500."""
    return f"lab_capacity {value}\n"


def exporter_of(lab: LabCluster) -> Exporter:
    """Shows that gauge, and for each node whether it listens."""

    def ups() -> str:
        return "".join(f'lab_node_up{{node="{name}"}} {up(port.http)}\n' for name, port in lab.ports.items())

    def up(port: int) -> int:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return 1
        return 0

    return Exporter(capacity(1000.0), ups)


def prometheus_of(folder: Path, exporter: Exporter, alerts: Alertmanager, **more: str) -> Prometheus:
    """Has an alert of the capacity, and one of each node; scrapes these addresses too."""
    wanted = {"Low": "lab_capacity < 500", "NodeDown": "lab_node_up == 0"}
    own = [{"alert": name, "expr": expr, "labels": {"cluster": "lab"}} for name, expr in wanted.items()]
    rules = folder / "rules.yml"
    rules.write_text(json.dumps({"groups": [{"name": "lab", "rules": own}]}), encoding="utf-8")
    scraped = {"lab": exporter.address, **more}
    return Prometheus(folder=folder / "prometheus", scraped=scraped, rules=rules, alerts=alerts)


@contextmanager
def as_a_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block systemd has started the program, which tells it what it waits for."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        yield
        assert systemd.recv(4096).startswith(b"STATUS=waiting (")


def test_a_night_with_a_hold(
    process_cluster: ProcessCluster,
    tmp_path: Path,
    show: Show,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While zones are down, alerts of their nodes fire in Prometheus. Only the other alert pages."""
    lab, before = six(process_cluster)
    console = Console(home=tmp_path, folder=tmp_path)
    with (
        ScriptedServer() as pager,
        ScriptedServer() as chat,
        MailServer() as mail,
        as_a_service(tmp_path, monkeypatch),
        closing(exporter_of(lab)) as exporter,
        Alertmanager(folder=tmp_path / "alertmanager", pages=f"{pager.url}/page") as alerts,
        Watch(alerts) as watch,
    ):
        pager.on("/page", reply({}))
        chat.on("/hook", reply({}))
        monkeypatch.setenv("CHAT_URL", f"{chat.url}/hook?token={SECRET}")
        textfile = tmp_path / "orchestrate.prom"
        keys = surroundings("env:CHAT_URL", mail.port, alerts.url)
        described = Extended(lab, {**keys, "metrics": {"textfile": str(textfile)}})
        gate = {"alertmanager": {"url": alerts.url, "matchers": ["alertname=Low"], "timeout": "3s"}}
        book = {**BOOK, "gates": [gate], "hooks": {"run_ended": [{"run": "cat > ended.json"}]}}
        with Begun(described, tmp_path, "restart", playbook=book, silences=SILENCES) as run:
            start = time.time()
            run.wait_for(lambda line: line.get("to") == "stopped")
            with (
                serving(console) as served,
                prometheus_of(tmp_path, exporter, alerts, serve=served.at.split("/")[2]) as prometheus,
            ):
                exporter.text = capacity(20.0)
                run.wait_for(lambda line: line["event"] == "gate_closed")
                closed = time.time()
                alerts.wait(lambda: alerts.live() == [])
                released = time.time()
                alerts.wait(lambda: len(mail.mails) == 2)
                assert alerts.live() == [], "while the run is held, nothing is silenced"
                alerts.wait(lambda: values_of(served.get("metrics").text)["run_holds"] == 1)
                exporter.text = capacity(1000.0)
                code, lines = run.end()
                shown = served.get("metrics").text
                prometheus.wait(lambda: bool(prometheus.query(DONE)))
                found = {name: prometheus.query(f"orchestrate_{name}") for name in STORED}
                assert prometheus.query(FIRED), "while nodes were down, their alerts fired"
        alerts.wait(lambda: alerts.live() == [])
        made = alerts.silences()
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before)
    assert_messages_in_order(lines, chat, mail)
    assert json.loads((tmp_path / "ended.json").read_text())["outcome"] == "done"
    rung = {alert["labels"]["alertname"] for asked in pager.asked for alert in asked.json["alerts"]}
    assert rung == {"Low"}, "those of the nodes were silenced"
    assert_none_is_there_twice(made)
    assert len(made) == 2 * len(events(lines, "wave_started"))
    assert all(end - at <= LEASE + 1 for known in watch.changes.values() for at, end, _ in known)
    for name in ("silence_created", "silence_renewed", "silence_ended"):
        assert {one["silence"] for one in events(lines, name)} == {one["id"] for one in made}, name
    past, report = (
        events(orchestrate(lab, tmp_path, command)[1], name)[0]
        for command, name in (("history", "past_run"), ("report", "report"))
    )
    stored = {name: float(samples[0]["value"][1]) for name, samples in found.items()}
    for source in (textfile.read_text(), shown):
        assert_metrics_are_those_of_history(values_of(source), past, lines)
        assert {name: values_of(source)[name] for name in STORED} == stored
    (tmp_path / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    show(
        f"{watch.table(start)}\n{watch.samples} samples; held from {closed - start:.0f} s, all released at"
        f" {released - start:.0f} s; the run took {past['seconds']:.1f} s; pages: {', '.join(rung)};"
        f" report: {', '.join(map(str, tmp_path.glob('reports/*')))}\n{shown}"
    )


def assert_messages_in_order(lines: list[dict[str, Any]], chat: ScriptedServer, mail: MailServer) -> None:
    """All of them, at both receivers; the mails are one thread."""
    assert [asked.json["on"] for asked in chat.asked] == ["started", "gate_closed", "cleared", "done"]
    assert [on for _, _, on in received(chat, mail)["mail"]] == [*STORY]
    assert len({(one["Subject"], one["References"], one["In-Reply-To"]) for one in mail.mails}) == 1
    assert len(events(lines, "notified")) == 9, "the hook at the end too"
    assert events(lines, "not_notified") == []
    assert SECRET not in json.dumps(lines)


def assert_metrics_are_those_of_history(
    found: Mapping[str, float], past: Mapping[str, Any], lines: list[dict[str, Any]]
) -> None:
    """And those of the run's own events."""
    assert past["outcome"] == "done"
    assert found["run_outcome{done}"] == 1
    assert found["run_nodes{recovered}"] == past["nodes_restarted"] == 6
    assert found["run_seconds"] == pytest.approx(past["seconds"], abs=0.001)
    assert found["run_start_timestamp_seconds"] == pytest.approx(moment(past["started"]), abs=0.001)
    (closed,), (opened,) = events(lines, "gate_closed"), events(lines, "gate_opened")
    assert found["run_held_seconds"] >= moment(opened["ts"]) - moment(closed["ts"]) - 0.002
    for how in ("reused", "copied"):
        recovered = events(lines, "node_recovered")
        assert found[f"run_bytes{{{how}}}"] == sum(one[f"bytes_{how}"] or 0 for one in recovered)


# Killed at random -----------------------------------------------------------------------------------

KILLS: Final = 10
SEED: Final = os.environ.get("ORCHESTRATE_SEED", "around")
SLOW_SECONDS: Final = 3.0
"""A webhook answers so late, so that some deaths fall between a message and its record."""


def late(asked: Asked, wire: Wire) -> None:
    """A good answer that takes its time."""
    time.sleep(SLOW_SECONDS)
    reply({})(asked, wire)


def newest(folder: Path) -> tuple[str, bool, list[Event]]:
    """The newest run, whether it has ended, and its journal."""
    if (folder / "state.db").exists():
        with closing(open_store(f"sqlite:///{folder}/state.db", {}, access=DatabaseUse.READ)) as store:
            for one in store.runs(limit=1):
                events = [record.event for record in store.replay(one.run)]
                return one.run, one.outcome is not None, events
    return "", True, []


def test_killed_at_random_a_run_is_resumed_ten_times(
    process_cluster: ProcessCluster, tmp_path: Path, show: Show
) -> None:
    """It is resumed at once, or when its last lease is over."""
    chance, kills, rows = random.Random(SEED), 0, list[str]()  # noqa: S311  (no secret)
    lab, before = six(process_cluster)
    with (
        ScriptedServer() as chat,
        MailServer() as mail,
        Alertmanager(folder=tmp_path / "alertmanager") as alerts,
        Watch(alerts) as watch,
    ):
        start = time.time()
        chat.on("/hook", late)
        described = Extended(lab, surroundings(f"{chat.url}/hook", mail.port, alerts.url))
        name, over, past = newest(tmp_path)
        while kills < KILLS or not over:
            known, left = received(chat, mail), {one["id"]: one for one in alerts.live()}
            delay = chance.uniform(2.0, 45.0) if kills < KILLS else 900.0
            command, killed = "restart" if over else "resume", True
            begun = Begun(described, tmp_path, command, playbook=BOOK, silences=SILENCES)
            with begun as run, suppress(subprocess.TimeoutExpired):
                code, lines = run.end(delay)
                assert code == 0, lines[-1]
                killed = False
            died, live = time.time(), alerts.live()
            assert all(ends(one) <= died + LEASE + 1 for one in live)
            found = [one for one in live if one["id"] in left and ends(one) > ends(left[one["id"]])]
            sure = {(one.target, name, str(one.of), one.on) for one in past if isinstance(one, Notified)}
            twice = {}
            for target, messages in received(chat, mail).items():
                new = messages[len(known[target]) :]
                twice[target] = len(new) - len({*new} - {*known[target]})
                assert twice[target] <= 1, (target, new, known)
                assert not sure & {(target, *one) for one in new}, (target, new, sure)
            was, (name, over, past) = (name, over), newest(tmp_path)
            said = f"{len(found)} of {len(left)} silences found again, sent twice: {twice}"
            if over and was != (name, over):
                assert_restarted_once(lab, before, released=not killed)
                before = truth(lab)
            if not killed:
                rows.append(f"{command} ended; {said}")
                continue
            kills, pause = kills + 1, chance.choice((0.0, LEASE + 1.0))
            at = f"after {delay:.1f} s, at {past[-1].event if past else 'nothing'}"
            rows.append(f"{command} killed {at}; {said}; {len(live)} left, pause {pause:.0f} s")
            if pause:
                time.sleep(pause)
                assert alerts.live() == [], "none lives longer than its lease"
        made = alerts.silences()
    show("\n".join((f"seed {SEED}", *rows, watch.table(start))))
    assert_none_is_there_twice(made)  # how many were found again is printed: chance may leave none to find


# Bad receivers --------------------------------------------------------------------------------------

MEGABYTES: Final = 10_000_000
WRONG: Final[Mapping[str, tuple[Answerer, Mapping[str, bytes]]]] = {
    "hangs": (hang, {"EHLO": b""}),
    "answers 500": (reply({}, status=500), {"MAIL": b"451 not now\r\n"}),
    "redirects": (
        reply({}, status=302, headers={"Location": "/elsewhere"}),
        {"RCPT": b"551 not here, try <ops@elsewhere>\r\n"},
    ),
    "answers 10 MB": (reply(b"x" * MEGABYTES), {"EHLO": b"250-x\r\n" * (MEGABYTES // 7) + b"250 x\r\n"}),
    "refuses 10 MB": (
        reply(b"x" * MEGABYTES, status=400),
        {"MAIL": b"550-no\r\n" * (MEGABYTES // 8) + b"550 no\r\n"},
    ),
}
"""What a webhook and Alertmanager answer, and a mail server to a command."""


def until_the_stops(lines: list[dict[str, Any]]) -> list[float]:
    """Seconds from the start of each wave until a node is stopped: there a run waits for silences."""
    found, begun = [], None
    for line in lines:
        if line["event"] == "wave_started":
            begun = moment(line["ts"])
        elif begun is not None and line["event"] == "action_confirmed" and line["action"]["verb"] == "stop":
            found.append(moment(line["ts"]) - begun)
            begun = None
    return found


def test_receivers_that_are_bad_change_no_times(
    process_cluster: ProcessCluster,
    tmp_path: Path,
    show: Show,
    subtests: pytest.Subtests,
) -> None:
    """The figures are for a reader: a machine that others use has no exact times."""
    lab, _ = six(process_cluster)
    rows = [f"{'receivers':16} the run  a node      until a node is stopped  the process"]

    def run(what: str, keys: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        before, begun = truth(lab), time.monotonic()
        with Begun(Extended(lab, keys), tmp_path, "restart", playbook=BOOK) as run:
            code, lines = run.end()
            took, said = time.monotonic() - begun, run.said
        assert code == 0, lines[-1]
        assert_restarted_once(lab, before)
        (end,) = events(lines, "run_finished")
        assert end["outcome"] == "done"
        (past,) = events(orchestrate(lab, tmp_path, "history")[1], "past_run")[-1:]
        stop = ", ".join(f"{seconds:.1f}" for seconds in until_the_stops(lines))
        times = f"{end['seconds']:5.1f} s {past['seconds_a_node']:5.1f} s  {stop:>25} s {took:10.1f} s"
        rows.append(f"{what:16} {times}")
        return said, lines

    def spoilt(what: str, hook: str, mail_port: int, alertmanager: str) -> None:
        with subtests.test(what=what):
            said, lines = run(what, surroundings(hook, mail_port, alertmanager))
            (warning,) = [line for line in said.splitlines() if "not delivered to" in line]
            assert events(lines, "notified") == events(lines, "silence_created") == []
            assert {one["target"] for one in events(lines, "not_notified")} == {"chat", "mail", alertmanager}
            assert all(name in warning for name in ("chat", "mail", alertmanager)), warning
            assert all(len(one["why"]) <= 300 for one in events(lines, "not_notified"))
            rows[-1] += f"  {warning.partition('not delivered to ')[2]}"

    run("none", {})
    with (
        ScriptedServer() as chat,
        MailServer() as mail,
        Alertmanager(folder=tmp_path / "alertmanager") as good,
    ):
        chat.on("/hook", reply({}))
        said, _ = run("good", surroundings(f"{chat.url}/hook", mail.port, good.url))
        assert "not delivered" not in said
    spoilt("refuse", "http://127.0.0.1:1/hook", 1, "http://127.0.0.1:1")
    for what, (answer, says) in WRONG.items():
        with ScriptedServer() as web, MailServer(says=dict(says)) as mail:
            web.on("/hook", answer)
            web.on("/api/v2/silences", answer)
            spoilt(what, f"{web.url}/hook", mail.port, web.url)
            assert "/elsewhere" not in web.paths()
    run("none", {})
    show("\n".join(rows))


# Ordinary mishaps -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Night:
    """A run whose nodes stay down until their test is through with them."""

    folder: Path  # has a file for each node that may be started
    alerts: Alertmanager
    pager: ScriptedServer

    @property
    def book(self) -> dict[str, Any]:
        """Its playbook."""
        wait = f"until [ -e {self.folder}/{{node}} ]; do sleep 0.1; done"
        return {**BOOK, "hooks": {"while_stopped": [{"run": wait, "local": True}]}}

    def down(self, run: Begun, number: int) -> set[str]:
        """The nodes of a wave, once alerts fire for all of them."""
        begun = run.wait_for(
            lambda line: line["event"] == "wave_started" and line["wave"]["number"] == number
        )
        nodes = set(begun["wave"]["nodes"])
        self.alerts.await_alerts(*["NodeDown" for _ in nodes])
        return nodes

    def start(self, nodes: set[str]) -> None:
        """Let them be started."""
        for node in nodes:
            (self.folder / node).touch()

    def paged(self) -> set[str]:
        """The nodes for which the pager has rung."""
        found = [alert["labels"] for asked in [*self.pager.asked] for alert in asked.json["alerts"]]
        return {labels["node"] for labels in found if labels["alertname"] == "NodeDown"}

    def renewed(self) -> None:
        """Return when all silences end later than now."""
        now = {one["id"]: ends(one) for one in self.alerts.live()}
        self.alerts.wait(lambda: all(ends(one) > now[one["id"]] for one in self.alerts.live()))


def test_a_night_with_mishaps_of_silences(
    process_cluster: ProcessCluster, tmp_path: Path, show: Show
) -> None:
    """Alertmanager is restarted; the program is suspended; a person ends a silence; it is killed."""
    lab, before = six(process_cluster)
    with (
        ScriptedServer() as pager,
        closing(exporter_of(lab)) as exporter,
        Alertmanager(folder=tmp_path / "alertmanager", pages=f"{pager.url}/page") as alerts,
        prometheus_of(tmp_path, exporter, alerts),
        Watch(alerts) as watch,
    ):
        pager.on("/page", reply({}))
        described = Extended(lab, {"silence": {"alertmanager": {"url": alerts.url, "matchers": SETS}}})
        night, start = Night(folder=tmp_path, alerts=alerts, pager=pager), time.time()
        with Begun(described, tmp_path, "restart", playbook=night.book, silences=SILENCES) as run:
            first = night.down(run, 1)
            alerts.stop(gently=True)
            alerts.start()
            night.renewed()
            assert night.paged() == set()
            night.start(first)

            second = night.down(run, 2)
            run.signal(signal.SIGSTOP)
            alerts.wait(lambda: alerts.live() == [])
            alerts.wait(lambda: night.paged() == second)
            run.signal(signal.SIGCONT)
            alerts.wait(lambda: len(alerts.live()) == 2)
            night.start(second)

            third = night.down(run, 3)
            own = {key_of(one): one["id"] for one in alerts.live() if one["comment"].endswith("wave 3")}
            alerts.end(own[max(own)])  # that of the nodes
            alerts.wait(lambda: night.paged() == second | third)
            night.renewed()
        with Begun(described, tmp_path, "resume", playbook=night.book, silences=SILENCES) as run:
            night.renewed()
            night.start(third)
            code, lines = run.end()
        alerts.wait(lambda: alerts.live() == [])
        made = alerts.silences()
    show(watch.table(start))
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before)
    assert_none_is_there_twice(made)
    waves = Counter(int(one["comment"].rpartition(" ")[2]) for one in made)
    assert waves == {1: 2, 2: 4, 3: 2}, "others after the suspension, and none for that which a person ended"
