"""Silences in a real Alertmanager: of simulated runs that are killed at each request, and of real nodes."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import urllib3

from orchestrator.around import beside, silence
from orchestrator.around.silence import AFTER_RECOVERY, LEASE_SECONDS, Silences
from orchestrator.around.story import Seen
from orchestrator.around.ways import RunContext
from orchestrator.config.around import Alertmanager, Around
from orchestrator.redact import Redactor
from orchestrator.runs.simulated_ports import SimulatedPorts
from orchestrator.simulation.mishaps import Crash
from orchestrator.simulation.world import World
from tests.fakes.grafana import FakeGrafana
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.fakes.smtp import MailServer
from tests.integration.alerting import WAIT_SECONDS
from tests.integration.alerting import Alertmanager as Server
from tests.integration.killing import QUICKEST, assert_restarted_once, prepare
from tests.integration.restarting import Begun, Extended, events, orchestrate, restart
from tests.simulation.play import cluster
from tests.simulation.scene import Played, Scene, resume
from tests.tools import needs

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="around")]

BY_NODE: Final = {"instance": "{node}:9100"}
OF_CLUSTER: Final = {"alertname": "ElasticsearchYellow"}
SECRET: Final = "hunter2-hunter2"  # noqa: S105  (a test's own)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(folder=tmp_path_factory.mktemp("alertmanager"))
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _told(run: str) -> RunContext:
    return RunContext(
        resolve=str, learn=str, redact=Redactor(), run_command=lambda *_: None, cluster="prod", run=run
    )


def _seen(sequence: int, event: str, **fields: Any) -> Seen:
    line = {"ts": "", "run": "r", "sequence": sequence, "event": event, **fields}
    return Seen(at=time.time(), line=line, text=event)


def _seconds(one: Mapping[str, Any], key: str) -> float:
    return datetime.fromisoformat(one[key]).timestamp()


def test_a_lease_is_made_renewed_found_again_and_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In seconds instead of minutes, by the thread of a run."""
    monkeypatch.setattr(silence, "LEASE_SECONDS", 6.0)
    monkeypatch.setattr(silence, "RENEWED_BEFORE", 5.0)
    monkeypatch.setattr(silence, "AFTER_RECOVERY", 2.0)
    recorded: list[Mapping[str, Any]] = []
    at = Alertmanager(url=server.url, matchers=(BY_NODE, OF_CLUSTER), at_most=3600.0)
    wave = {"number": 1, "nodes": ["es1", "es2"], "why": ""}
    past = [_seen(1, "run_started", addresses={}), _seen(2, "wave_started", wave=wave)]
    first = Silences(at, _told("lease"), recorded.append, [], now=time.time)
    first.see(past)
    first.wait()
    made = {one["id"]: one for one in server.live()}
    assert len(made) == 2
    _await(lambda: any(one["event"] == "silence_renewed" for one in recorded))
    # Another process finds them; the thread of the first one is left behind, as a killed one is not.
    second = Silences(at, _told("lease"), recorded.append, past, now=time.time)
    first.close(time.monotonic())
    second.see([_seen(3, "run_resumed")])
    _await(lambda: len([one for one in recorded if one["event"] == "silence_renewed"]) > 4)
    again = {one["id"]: one for one in server.live()}
    assert again.keys() == made.keys()
    assert all(again[name]["startsAt"] == made[name]["startsAt"] for name in made), "the original start"
    second.see([_seen(4, "wave_finished", number=1)])
    _await(lambda: server.live() == [])
    kinds = [one["event"] for one in recorded]
    assert kinds.count("silence_created") == kinds.count("silence_ended") == 2
    second.close(time.monotonic() + 5)
    second.join()


def _await(there: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not there():
        assert time.monotonic() < until
        time.sleep(0.1)


# Simulated runs -------------------------------------------------------------------------------------


class AtOnce(Silences):
    """Without a thread: each event is acted on before the next one, so a kill hits the same point again."""

    def see(self, batch: Sequence[Seen]) -> None:
        for one in batch:
            self._waves.see(one)
        self._reconcile(self._waves.wanted(self._now()))

    def wait(self) -> None:
        pass

    def close(self, until: float) -> None:
        self._until = until
        self._reconcile(self._waves.wanted(self._now()))


class Killing:
    """`silence.call`, at whose nth call the program is killed: before, during (it is done) or after."""

    def __init__(self, call: Callable[..., bytes], nth: int, when: str) -> None:
        self._call, self._nth, self._when, self.calls = call, nth, when, list[str]()

    def __call__(
        self, at: object, told: object, method: str, path: str, body: Any = None, **more: Any
    ) -> bytes:
        self.calls.append(f"{method} {path.partition('/')[0]}")
        hit = len(self.calls) == self._nth
        if hit and self._when == "before":
            raise Crash("before the request")
        answer = self._call(at, told, method, path, body, **more)
        if hit:
            raise Crash("before its answer is used")
        return answer


def _world() -> World:
    """A cluster whose clock is that of the server, or later."""
    world = cluster(3)
    world.agenda.now = time.time()
    return world


def _surround(server: Server, monkeypatch: pytest.MonkeyPatch, nth: int, when: str) -> Killing:
    at = Alertmanager(url=server.url, matchers=(BY_NODE, OF_CLUSTER), at_most=4 * 3600.0)
    monkeypatch.setattr(SimulatedPorts, "around", lambda _self, _book: (Around(alertmanager=at), _told("")))
    monkeypatch.setattr(beside, "Silences", AtOnce)
    killing = Killing(silence.call, nth, when)
    monkeypatch.setattr(silence, "call", killing)
    return killing


def _end_all(server: Server) -> None:
    for one in server.live():
        urllib3.request("DELETE", f"{server.url}/api/v2/silence/{one['id']}")


def _leases(server: Server, played: Played) -> None:
    """None lives longer than its lease, and none is there twice."""
    live, now = server.live(), played.world.agenda.now
    keys = [(one["comment"], json.dumps(one["matchers"])) for one in live]
    assert len(keys) == len(set(keys)), keys
    assert all(_seconds(one, "endsAt") <= now + LEASE_SECONDS + 1 for one in live)


def test_a_simulated_run_silences_each_wave(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _end_all(server)
    killing = _surround(server, monkeypatch, 0, "")
    played = Scene(name="whole", of=_world, lives={}).play()
    run = played.simulation.journal.run
    made = [event for event in played.events if event.event == "silence_created"]
    assert len(made) == 6, "two for each of three waves"
    assert max(one["comment"] for one in server.live()) == f"orchestrate {run} wave 3"
    assert len(killing.calls) <= 24
    _leases(server, played)
    ended = [event for event in played.events if event.event == "silence_ended"]
    assert {event.why for event in ended} == {"the wave has recovered"}


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_kill_at_any_request_makes_none_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch, when: str, subtests: pytest.Subtests
) -> None:
    with monkeypatch.context() as patched:
        calls = len(_surround_and_count(server, patched))
    for nth in range(1, calls + 1):
        with subtests.test(nth=nth), monkeypatch.context() as patched:
            _end_all(server)
            _surround(server, patched, nth, when)
            never = "a point that is never passed: the request kills it"
            scene = Scene(name=f"request {nth}", of=_world, killed=never, then=[resume(ends=None)])
            _leases(server, scene.play())


def _surround_and_count(server: Server, patched: pytest.MonkeyPatch) -> list[str]:
    _end_all(server)
    killing = _surround(server, patched, 0, "")
    Scene(name="counted", of=_world, lives={}).play()
    return killing.calls


# Real nodes -----------------------------------------------------------------------------------------


def test_real_nodes_are_silenced_and_people_are_told(
    process_cluster: ProcessCluster, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_all(server)
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    grafana, unit = FakeGrafana(token=SECRET), tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(unit))
    monkeypatch.setenv("GRAFANA_TOKEN", SECRET)
    with (
        ScriptedServer() as chat,
        MailServer() as mail,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd,
    ):
        systemd.bind(str(unit))
        systemd.setblocking(False)
        grafana.at(chat)
        chat.on("/hook", reply({}))
        monkeypatch.setenv("CHAT_URL", f"{chat.url}/hook?token={SECRET}")
        more = {
            "annotations": {"grafana": {"url": chat.url, "token": "env:GRAFANA_TOKEN"}},
            "metrics": {"textfile": str(tmp_path / "orchestrate.prom")},
            "silence": {"alertmanager": {"url": server.url, "matchers": [BY_NODE, OF_CLUSTER]}},
            "notify": [
                {"url": "env:CHAT_URL"},
                {"url": f"smtp://127.0.0.1:{mail.port}/?from=orch@localhost&to=ops@localhost"},
                {"url": "http://127.0.0.1:1/", "on": ["started"], "name": "nowhere"},
            ],
        }
        hooks = {"run_ended": [{"run": "cat > ended.json"}]}
        code, lines = restart(
            Extended(lab, more), tmp_path, "--only", "es1", "--only", "es2", playbook={"hooks": hooks}
        )
        first = systemd.recv(4096).decode()
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before, nodes=("es1", "es2"))
    told = [asked.json for asked in chat.asked if asked.path == "/hook"]
    assert [one["on"] for one in told] == ["started", "done"]
    assert "2 of" in told[-1]["text"] or "restarted" in told[-1]["text"]
    assert first.startswith("STATUS=waiting (")
    assert [[tag for tag in tags if "wave" in tag] for tags, _, _ in grafana.regions] == [
        *([], ["wave:1"], ["wave:2"])
    ]
    assert all(begin < end for _, begin, end in grafana.regions)
    assert len(mail.mails) == 2
    assert mail.mails[0]["References"] == mail.mails[1]["References"]
    assert json.loads((tmp_path / "ended.json").read_text())["outcome"] == "done"
    (lost,) = events(lines, "not_notified")
    assert (lost["target"], lost["why"]) == ("nowhere", "connection refused")
    run = lines[0]["run"]
    created = events(lines, "silence_created")
    assert [one["wave"] for one in created] == [1, 1, 2, 2]
    comments = sorted(one["comment"] for one in server.silences() if run in one["comment"])
    assert comments == [f"orchestrate {run} wave {number}" for number in (1, 1, 2, 2)]
    stops = [line["sequence"] for line in lines if line.get("action", {}).get("verb") == "stop"]
    assert created[0]["sequence"] < stops[-1]
    assert SECRET not in json.dumps(lines)
    text = (tmp_path / "orchestrate.prom").read_text()
    _told_apart(text, lines)
    checked = subprocess.run(  # noqa: S603  (of Debian's package)
        [needs("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_killed_run_pages_within_its_lease_and_resume_takes_it(
    process_cluster: ProcessCluster, server: Server, tmp_path: Path
) -> None:
    _end_all(server)
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    matchers = [BY_NODE, OF_CLUSTER]
    described = Extended(lab, {"silence": {"alertmanager": {"url": server.url, "matchers": matchers}}})
    with Begun(described, tmp_path, "restart", "--only", "es1") as run:
        run.wait_for(lambda line: line.get("node") == "es1" and line.get("to") == "stopped")
    left, at = {one["id"]: one for one in server.live()}, time.time()
    assert len(left) == 2
    assert all(_seconds(one, "endsAt") <= at + LEASE_SECONDS for one in left.values())
    code, lines = orchestrate(described, tmp_path, "resume")
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before, nodes=("es1",))
    mine = [one for one in server.silences() if lines[0]["run"] in one["comment"]]
    assert {one["id"] for one in mine} == left.keys(), "none was made twice"
    assert sorted(one["silence"] for one in events(lines, "silence_ended")) == sorted(left)
    assert all(one["until"] <= time.time() + AFTER_RECOVERY for one in events(lines, "silence_ended"))


def _told_apart(text: str, lines: list[dict[str, Any]]) -> None:
    """The metrics are those of the run's events."""
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    values = {name.removeprefix("orchestrate_"): float(value) for name, value in found.items()}
    name = lines[-1]["cluster"]
    recovered, (end,) = events(lines, "node_recovered"), events(lines, "run_finished")
    assert values[f'run_outcome{{cluster="{name}",outcome="done"}}'] == 1
    assert values[f'run_nodes{{cluster="{name}",phase="recovered"}}'] == len(recovered) == 2
    assert values[f'run_seconds{{cluster="{name}"}}'] == pytest.approx(end["seconds"])
    for how in ("reused", "copied"):
        total = sum(one[f"bytes_{how}"] or 0 for one in recovered)
        assert values[f'run_bytes{{cluster="{name}",how="{how}"}}'] == total
