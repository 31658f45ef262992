"""Silences in a real Alertmanager: of simulated runs that are killed at each request, and of real nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from orchestrator.around import beside, silence
from orchestrator.around.beside import Beside
from orchestrator.around.outbox import Outbox, Send
from orchestrator.around.silence import AFTER_RECOVERY, LEASE_SECONDS, Silences
from orchestrator.around.story import Message, PublicEvent
from orchestrator.around.ways import RunContext, sends
from orchestrator.config.around import Alertmanager, Around, MessageTarget, On
from orchestrator.model.event import Notified, SilenceCreated, SilenceEnded
from orchestrator.simulation.mishaps import Crash, StartsFail
from orchestrator.simulation.world import World
from tests.fakes.around import run_context, surround
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.fakes.smtp import MailServer
from tests.integration.alerting import WAIT_SECONDS, assert_none_is_there_twice, begins, ends
from tests.integration.alerting import Alertmanager as Server
from tests.integration.hostlab.hosts import wait_until
from tests.integration.killing import QUICKEST, assert_restarted_once, prepare
from tests.integration.restarting import Begun, Extended, events, orchestrate
from tests.simulation.play import cluster
from tests.simulation.scene import ES3, Played, Scene, first, resume

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="around")]

BY_NODE: Final = {"instance": "{node}:9100"}
OF_CLUSTER: Final = {"alertname": "ElasticsearchYellow"}
SECRET: Final = "hunter2-hunter2"  # noqa: S105  (a test's own)
T = TypeVar("T")
awaited: Final = partial(wait_until, seconds=WAIT_SECONDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(folder=tmp_path_factory.mktemp("alertmanager")) as made:
        yield made


def _seen(sequence: int, event: str, **fields: Any) -> PublicEvent:
    line = {"ts": "", "run": "r", "sequence": sequence, "event": event, **fields}
    return PublicEvent(at=time.time(), line=line, text=event)


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
    first = Silences(at, run_context(run="lease"), recorded.append, [], now=time.time)
    first.see(past)
    first.wait()
    made = {one["id"]: one for one in server.live()}
    assert len(made) == 2
    assert wait_until(
        lambda: any(one["event"] == "silence_renewed" for one in recorded), seconds=WAIT_SECONDS
    )
    # Another process finds them; the thread of the first one is left behind, as a killed one is not.
    second = Silences(at, run_context(run="lease"), recorded.append, past, now=time.time)
    first.close(time.monotonic())
    second.see([_seen(3, "run_resumed")])
    assert wait_until(
        lambda: len([one for one in recorded if one["event"] == "silence_renewed"]) > 4, seconds=WAIT_SECONDS
    )
    again = {one["id"]: one for one in server.live()}
    assert again.keys() == made.keys()
    assert all(again[name]["startsAt"] == made[name]["startsAt"] for name in made), "the original start"
    second.see([_seen(4, "wave_finished", number=1)])
    assert awaited(lambda: server.live() == [])
    kinds = [one["event"] for one in recorded]
    assert kinds.count("silence_created") == kinds.count("silence_ended") == 2
    second.close(time.monotonic() + 5)
    second.join()


@pytest.mark.parametrize("ahead", [-60.0, 60.0])
def test_clocks_that_differ_silence_at_once(server: Server, ahead: float) -> None:
    _end_all(server)
    at = Alertmanager(url=server.url, matchers=(BY_NODE,), at_most=3600.0)
    run = Silences(at, run_context(run=f"{ahead}"), [].append, [], now=lambda: time.time() + ahead)
    wave = {"number": 1, "nodes": ["es1"], "why": ""}
    run.see([_seen(1, "run_started", addresses={}), _seen(2, "wave_started", wave=wave)])
    run.wait()
    assert [one["status"]["state"] for one in server.live()] == ["active"]
    run.see([_seen(3, "phase_entered", node=None, to="gated")])
    run.close(time.monotonic() + 5)
    run.join()
    assert server.live() == []


# Simulated runs -------------------------------------------------------------------------------------

AFTER_A_STOP: Final = "after stop of es3"
TOLD: Final = ("started", "failed")
"""What is sent although the program died before."""
NEVER: Final = "a point that is never passed: the call kills it"


class SilencedAtOnce(Silences):
    """Without a thread: each event is acted on before the next one, so a kill hits the same point again."""

    def see(self, batch: Sequence[PublicEvent]) -> None:
        for one in batch:
            self._waves.see(one)
        self._reconcile(self._waves.wanted(self._now()))

    def wait(self) -> None:
        pass

    def close(self, until: float) -> None:
        self._until = until
        self._reconcile(self._waves.wanted(self._now()))


class SentAtOnce(Outbox):
    """The same for messages."""

    def put(self, message: Message) -> None:
        self._say(message, self._fate(message))


class Killing:
    """The nth call kills the program: before it, during it (it is done, and not answered), or after it.

    Attributes:
        calls: the kind of each so far.
    """

    def __init__(self, nth: int, when: str) -> None:
        self._nth, self._when, self._over, self.calls = nth, when, False, list[str]()

    def call(self, kind: str, work: Callable[[], T]) -> T:
        self.calls.append(kind)
        hit = len(self.calls) == self._nth
        if hit and self._when == "before":
            raise Crash("before the call")
        answer = work()
        if hit and self._when == "during":
            raise Crash("before its answer is used")
        self._over = self._over or hit
        return answer

    def before_the_record(self) -> None:
        """The answer has been used, and the journal does not have it yet."""
        if self._over:
            self._over = False
            raise Crash("after the call")


@dataclass
class Surroundings:
    """Simulated runs with a real Alertmanager, a webhook and mail; each call may kill them."""

    server: Server
    chat: ScriptedServer
    mail: MailServer

    def story(
        self, monkeypatch: pytest.MonkeyPatch, nth: int = 0, when: str = "", early: int = 0
    ) -> tuple[Played, Killing, int]:
        """A run that dies while es3 is down, which then does not start: its silences are ended by `resume`.

        Args:
            monkeypatch: for the length of the story.
            nth: the call that kills it once more; `when`: before, during or after it.
            early: calls before the first death.

        Returns: the scene, the calls, and how many there were before the first death.
        """
        killing, before = Killing(nth, when), [0]
        self.surround(monkeypatch, killing)
        look = partial(_leases, self.server)
        again = [resume(killed=NEVER), look] if nth > early else []
        then = [lambda _: before.append(len(killing.calls)), look, *again, resume(ends=None, away=None)]
        dies = NEVER if 0 < nth <= early else AFTER_A_STOP
        befalls = [first(StartsFail(node=ES3, times=99))]
        scene = Scene(name=f"call {nth}", of=_world, befalls=befalls, killed=dies, away=None, then=then)
        played = scene.play()
        look(played)
        return played, killing, before[-1]

    def surround(self, monkeypatch: pytest.MonkeyPatch, killing: Killing) -> None:
        _end_all(self.server)
        self.chat.asked.clear()
        self.mail.mails.clear()
        target = partial(MessageTarget, on=frozenset(On), after=600.0, text="{text}")
        mail = f"smtp://127.0.0.1:{self.mail.port}/?from=orch@localhost&to=ops@localhost"
        at = Alertmanager(url=self.server.url, matchers=(BY_NODE, OF_CLUSTER), at_most=4 * 3600.0)
        around = Around(
            alertmanager=at,
            targets=(target(name="chat", url=f"{self.chat.url}/hook"), target(name="mail", url=mail)),
        )
        call, news = silence.call, Beside.news

        def called(at: Any, told: Any, method: str, path: str, body: Any = None, **more: Any) -> bytes:
            kind = {"GET silences": "list", "POST silences": "renew" if "id" in (body or {}) else "create"}
            words = f"{method} {path.partition('/')[0]}"
            return killing.call(kind.get(words, words), lambda: call(at, told, method, path, body, **more))

        def sending(to: MessageTarget, context: RunContext) -> Send:
            send = sends(to, context)
            return lambda message, seconds: killing.call(to.name, lambda: send(message, seconds))

        def recorded(of: Beside) -> list[Mapping[str, object]]:
            killing.before_the_record()
            return news(of)

        surround(monkeypatch, around)
        monkeypatch.setattr(beside, "Silences", SilencedAtOnce)
        monkeypatch.setattr(beside, "Outbox", SentAtOnce)
        monkeypatch.setattr(beside, "sends", sending)
        monkeypatch.setattr(Beside, "news", recorded)
        monkeypatch.setattr(silence, "call", called)

    def assert_told(self, played: Played, deaths: int, *on: str) -> None:
        """What is recorded has arrived; with each death, one a target may come twice or lack a record."""
        bodies = [asked.json for asked in self.chat.asked]
        sent = {
            "chat": Counter((body["event"]["sequence"], body["on"]) for body in bodies),
            "mail": Counter(told_by(mail) for mail in self.mail.mails),
        }
        for target, found in sent.items():
            recorded = [(one.of, one.on) for one in played.found(Notified) if one.target == target]
            assert len(recorded) == len({*recorded})
            assert {*recorded} <= {*found}
            assert found.total() - len(recorded) <= deaths, (target, found, recorded)
        assert {*on} <= {what for _, what in sent["chat"]}


def told_by(mail: Any) -> tuple[int, str]:
    """Sequence and subject of a mail."""
    _, of, on = str(mail["Message-ID"]).partition("@")[0].split(".")
    return int(of), on


def _world() -> World:
    """A cluster whose clock is that of the server, or later."""
    world = cluster(3)
    world.agenda.now = time.time()
    return world


def _end_all(server: Server) -> None:
    for one in server.live():
        server.end(one["id"])


def _leases(server: Server, played: Played) -> None:
    """None lives longer than its lease, and none is there twice."""
    limit = played.world.agenda.now + LEASE_SECONDS + 1
    assert all(ends(one) <= limit for one in server.live())
    assert_none_is_there_twice(one for one in server.silences() if begins(one) >= played.began - 0.01)


@pytest.fixture
def surroundings(server: Server) -> Iterator[Surroundings]:
    with ScriptedServer() as chat, MailServer() as mail:
        chat.on("/hook", reply({}))
        yield Surroundings(server, chat, mail)


def test_a_simulated_run_silences_each_wave(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing = Killing(0, "")
    surroundings.surround(monkeypatch, killing)
    played = Scene(name="whole", of=_world, lives={}).play()
    run, server = played.simulation.journal.run, surroundings.server
    assert len(played.found(SilenceCreated)) == 6, "two for each of three waves"
    assert max(one["comment"] for one in server.live()) == f"orchestrate {run} wave 3"
    assert len([call for call in killing.calls if call not in ("chat", "mail")]) <= 24
    _leases(server, played)
    assert {event.why for event in played.found(SilenceEnded)} == {"the wave has recovered"}
    surroundings.assert_told(played, 0, "started", "done")


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_kill_at_any_call_doubles_nothing(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, when: str, subtests: pytest.Subtests
) -> None:
    with monkeypatch.context() as patched:
        played, killing, early = surroundings.story(patched)
    surroundings.assert_told(played, 0, *TOLD)
    assert {*killing.calls} == {"create", "renew", "list", "GET silence", "DELETE silence", "chat", "mail"}
    for nth in range(1, len(killing.calls) + 1):
        with subtests.test(nth=nth, kind=killing.calls[nth - 1]), monkeypatch.context() as patched:
            played, _, _ = surroundings.story(patched, nth, when, early)
            surroundings.assert_told(played, 1, *TOLD)


# Real nodes -----------------------------------------------------------------------------------------


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
    assert all(ends(one) <= at + LEASE_SECONDS for one in left.values())
    code, lines = orchestrate(described, tmp_path, "resume")
    assert code == 0, lines[-1]
    assert_restarted_once(lab, before, nodes=("es1",))
    mine = [one for one in server.silences() if lines[0]["run"] in one["comment"]]
    assert {one["id"] for one in mine} == left.keys(), "none was made twice"
    assert sorted(one["silence"] for one in events(lines, "silence_ended")) == sorted(left)
    assert all(one["until"] <= time.time() + AFTER_RECOVERY for one in events(lines, "silence_ended"))
