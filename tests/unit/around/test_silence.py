"""Silences as leases: what should be silenced, and how Alertmanager is brought to that, kills included."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import Any, Final

import pytest

from orchestrator.around import silence
from orchestrator.around.silence import LEASE_SECONDS, Silences, Waves, filled_in, in_words
from orchestrator.around.story import PublicEvent
from orchestrator.around.web import NotSent
from orchestrator.config.around import Alertmanager
from orchestrator.config.secrets import parse_reference
from orchestrator.formats import stamp
from orchestrator.redact import Redactor
from tests.fakes.around import run_context

HOURS: Final = 3600.0
BY_NODE: Final = {"instance": "{host}:9100"}
OF_CLUSTER: Final = {"alertname": "Yellow", "cluster": "prod"}
START: Final = 1_000_000.0


def seen(at: float, event: str, **fields: Any) -> PublicEvent:
    line = {"ts": "then", "run": "r1", "sequence": int(at), "event": event, **fields}
    return PublicEvent(at=START + at, line=line, text=event)


def begun(at: float = 1, number: int = 1, nodes: Sequence[str] = ("es1", "es2")) -> PublicEvent:
    return seen(at, "wave_started", wave={"number": number, "nodes": list(nodes), "why": ""})


def finished(at: float, number: int = 1) -> PublicEvent:
    return seen(at, "wave_finished", number=number, seconds=1.0)


def failed(at: float, node: str = "es1") -> PublicEvent:
    return seen(at, "phase_entered", node=node, to="failed")


def phase(at: float, to: str) -> PublicEvent:
    return seen(at, "phase_entered", node=None, to=to)


def ended(at: float, outcome: str = "done") -> PublicEvent:
    return seen(at, "run_finished", outcome=outcome)


RUN: Final = seen(0, "run_started", addresses={"es1": "10.0.0.1", "es2": "10.0.0.2"})
GAVE_WAY: Final = seen(50, "wave_gave_way", number=1, copies=1)


@pytest.mark.parametrize(
    ("events", "now", "until"),
    [
        ([], 10, {}),
        ([begun()], 10, {(1, 0): 910, (1, 1): 910}),
        ([begun()], 2 * HOURS, {(1, 0): 2 * HOURS + 900, (1, 1): 2 * HOURS + 900}),
        ([begun()], 4 * HOURS - 10, {(1, 0): 4 * HOURS + 1, (1, 1): 4 * HOURS + 1}),
        ([begun()], 4 * HOURS + 2, {}),
        ([begun(), finished(100)], 110, {(1, 0): 400, (1, 1): 400}),
        ([begun(), finished(100)], 401, {}),
        ([begun(), finished(100), begun(105)], 110, {(1, 0): 1010, (1, 1): 1010}),
        ([begun(), finished(100), ended(101)], 110, {(1, 0): 400, (1, 1): 400}),
        ([begun(), phase(5, "withheld")], 10, {(1, 0): 910, (1, 1): 910}),
        ([begun(), phase(5, "gated")], 10, {}),
        ([begun(), GAVE_WAY, phase(60, "gated")], 70, {(1, 0): 970, (1, 1): 970}),
        ([begun(), failed(5)], 10, {(1, 0): 910}),
        ([begun(), failed(5), failed(6, "es2")], 10, {}),
        ([begun(), failed(5, "es9")], 10, {(1, 0): 910, (1, 1): 910}),
        ([begun(), phase(5, "standing_down")], 10, {(1, 0): 910, (1, 1): 910}),
        ([begun(), phase(5, "standing_down"), ended(9, "failed")], 10, {}),
        ([begun(), finished(100), begun(110, 2, ["es3"])], 120,
         {(1, 0): 400, (1, 1): 400, (2, 0): 1020, (2, 1): 1020}),
    ],
)  # fmt: skip
def test_what_should_be_silenced(
    events: list[PublicEvent], now: float, until: Mapping[tuple[int, int], float]
) -> None:
    waves = Waves((BY_NODE, OF_CLUSTER), 4 * HOURS)
    for one in (RUN, *events):
        waves.see(one)
    found = {key: want.until - START for key, want in waves.wanted(START + now).items()}
    assert found == pytest.approx(dict(until))


def test_nodes_are_one_regular_expression() -> None:
    hosts = {"es1": "10.0.0.1"}
    matchers = filled_in({"instance": "{host}:9100", "job": "x|y", "n": "{node}"}, ["es1", "a+b"], hosts)
    assert matchers == (
        ("instance", r"10\.0\.0\.1:9100|a\+b:9100", True),
        ("job", "x|y", False),
        ("n", r"es1|a\+b", True),
    )
    assert re.fullmatch(matchers[0][1], "10.0.0.1:9100")
    assert in_words(matchers[1:]) == r"job is x|y, n matches es1|a\+b"
    assert filled_in({"x": "{{node}}"}, ["n"], {}) == (("x", r"\{n\}", True),)


# Against Alertmanager -------------------------------------------------------------------------------


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@dataclass
class FakeAlertmanager:
    """Keeps silences as Alertmanager 0.25 does."""

    now: float = START  # by the clock of the program; the server's own is `behind`
    behind: float = 0.0
    silences: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    loses: int = 0  # so many answers are lost, once the work is done
    refuses: bool = False
    fails: bool = False

    def __call__(
        self, _at: object, _told: object, method: str, path: str, body: Any = None, *, seconds: float
    ) -> bytes:
        assert seconds > 0
        self.asked.append(f"{method} {path.split('/', maxsplit=1)[0]}")
        if self.refuses:
            raise NotSent("connection refused", again=True)
        answer = getattr(self, f"_{method.lower()}")(path, body)
        if self.loses:
            self.loses -= 1
            raise NotSent("no answer within 10 s")
        return json.dumps(answer).encode()

    def _get(self, path: str, _body: object) -> object:
        found = {name: {**one, "status": {"state": self._state(one)}} for name, one in self.silences.items()}
        _, slash, name = path.partition("/")
        if slash and name not in found:
            raise NotSent("404", status=404)
        return found[name] if slash else [*found.values()]

    @property
    def own(self) -> float:
        return self.now - self.behind

    def _state(self, one: Mapping[str, Any]) -> str:
        if _at(one["startsAt"]) > self.own:
            return "pending"
        return "active" if _at(one["endsAt"]) > self.own else "expired"

    def _post(self, _path: str, body: dict[str, Any]) -> object:
        known = self.silences.get(body.pop("id", ""))
        if known is not None and self._state(known) == "active":
            assert body["startsAt"] == known["startsAt"], "another start makes another silence"
            assert body["matchers"] == known["matchers"]
            known.update(endsAt=body["endsAt"], updatedAt=stamp(self.own))
            return {"silenceID": known["id"]}
        name = f"s{len(self.silences) + 1}"
        start = stamp(max(_at(body["startsAt"]), self.own))
        self.silences[name] = {"id": name, **body, "startsAt": start, "updatedAt": stamp(self.own)}
        return {"silenceID": name}

    def _delete(self, path: str, _body: object) -> object:
        if self.fails or path.split("/")[1] not in self.silences:
            raise NotSent("500", status=500)
        self.silences[path.split("/")[1]].update(endsAt=stamp(self.own), updatedAt=stamp(self.own))
        return {}

    def live(self, comment: str = "") -> dict[str, float]:
        """When each that is active ends."""
        return {
            name: round(_at(one["endsAt"]) - START)
            for name, one in self.silences.items()
            if self._state(one) == "active" and comment in one["comment"]
        }


class Played:
    """The silences of a run whose thread is this one."""

    def __init__(
        self, server: FakeAlertmanager, *sets: Mapping[str, str], at_most: float = 4 * HOURS
    ) -> None:
        self.server, self.recorded = server, list[Mapping[str, Any]]()
        self.at = Alertmanager(url="http://a:9093", matchers=sets or (BY_NODE,), at_most=at_most)
        self.past: list[PublicEvent] = []
        self.restart()

    def restart(self) -> None:
        """Another process of the run."""
        self.silences = Silences(
            self.at, run_context(), self.recorded.append, [*self.past], now=lambda: self.server.now
        )

    def see(self, *events: PublicEvent) -> None:
        self.past += events
        for one in events:
            self.server.now = max(self.server.now, one.at)
            self.silences._waves.see(one)

    def step(self, at: float | None = None) -> float | None:
        self.server.now = START + at if at is not None else self.server.now
        return self.silences._reconcile(self.silences._waves.wanted(self.server.now))

    def events(self) -> list[str]:
        """What was recorded since the last call."""
        found = [
            f"{one['event'].removeprefix('silence_')} {one.get('silence', one.get('why'))}"
            for one in self.recorded
        ]
        self.recorded.clear()
        return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeAlertmanager:
    made = FakeAlertmanager()
    monkeypatch.setattr(silence, "call", made)
    return made


def test_a_silence_is_made_renewed_and_ended(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    assert run.step() == pytest.approx(300, abs=1)
    (made,) = server.silences.values()
    assert made["comment"] == "orchestrate r1 wave 1"
    value = r"10\.0\.0\.1:9100|10\.0\.0\.2:9100"
    assert made["matchers"] == [{"name": "instance", "value": value, "isRegex": True, "isEqual": True}]
    assert server.live() == {"s1": 901}
    run.step(200)
    assert server.asked == ["POST silences"], "nothing to do yet"
    run.step(400)
    assert server.live() == {"s1": 1300}
    run.see(finished(500))
    run.step()
    assert server.live() == {"s1": 800}, "five minutes after recovery"
    run.step(600)
    run.see(ended(700))
    run.step()
    assert server.live() == {"s1": 800}
    run.step(801)
    assert server.live() == {}
    assert run.events() == ["created s1", "renewed s1", "ended s1"]


def test_a_failed_node_pages_at_once(server: FakeAlertmanager) -> None:
    run = Played(server, BY_NODE, OF_CLUSTER)
    run.see(RUN, begun())
    run.step()
    run.see(failed(50))
    run.step()
    assert server.live() == {"s3": 950}
    assert server.silences["s3"]["matchers"][0]["value"] == r"10\.0\.0\.2:9100"
    run.see(failed(60, "es2"))
    run.step()
    assert server.live() == {}
    wanted = ["created s1", "created s2", "ended s1", "ended s2", "created s3", "ended s3"]
    assert run.events() == wanted


def test_a_silence_is_never_longer_than_its_limit(server: FakeAlertmanager) -> None:
    run = Played(server, at_most=1000.0)
    run.see(RUN, begun())
    for at in range(1, 3000, 60):
        run.step(at)
        assert max(server.live().values(), default=0) <= 1001
    assert run.events() == ["created s1", "ended s1"]
    assert "`at_most`" in run.silences._waves.why_not(1)


def test_resume_ends_what_is_over(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    other = {**server.silences["s1"], "id": "x", "comment": "orchestrate r1 wave 11 of somebody"}
    server.silences["x"] = other
    run.see(failed(50), failed(51, "es2"))
    run.restart()
    run.step()
    assert list(server.live()) == ["x"], "only those with exactly our comment"


def test_after_a_suspension_another_one_is_made(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    run.step(2000)
    assert server.live() == {"s2": 2900}
    assert run.events() == ["created s1", "ended s1", "created s2"]


def test_none_is_made_once_the_wave_has_recovered(server: FakeAlertmanager) -> None:
    """Neither a first one nor one in place of one that has expired: a node that is back pages again."""
    run = Played(server)
    server.refuses = True
    run.see(RUN, begun(), finished(20))
    run.step()
    server.refuses = False
    run.step(60)
    assert server.silences == {}
    run.see(begun(70, 2))
    run.step()
    run.see(finished(1990, 2))
    run.step(1995)
    assert list(server.silences) == ["s1"]


def test_a_deposed_run_asks_nothing(server: FakeAlertmanager) -> None:
    """Its wave is another program's, which has found the silences."""
    run = Played(server)
    run.silences.see([RUN, begun(), seen(5, "deposed")])
    until = time.monotonic() + 60.0
    run.silences.close(until)
    run.silences.join()
    assert server.asked == []
    assert run.events() == []


def test_the_password_of_a_login_is_a_secret_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    context = run_context(LOGIN="ops:correct-horse")
    monkeypatch.setattr(silence, "ask", lambda *_given, **_named: b"{}")
    at = Alertmanager(
        url="http://a:9093", matchers=(BY_NODE,), at_most=1.0, auth=parse_reference("env:LOGIN")
    )
    silence.call(at, context, "GET", "silences")
    assert "correct-horse" not in context.redact("401 correct-horse is no password")


def test_one_that_a_person_ended_stays_ended(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step(100)
    server._delete("silence/s1", None)
    for at in (200, 500, 800, 1200):
        run.step(at)
        assert server.live() == {}
    assert run.events() == ["created s1", "ended s1"]


@pytest.mark.parametrize("seen_before", [True, False])
def test_one_that_a_person_ended_stays_ended_after_a_kill(
    server: FakeAlertmanager, *, seen_before: bool
) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step(100)
    server._delete("silence/s1", None)
    if seen_before:
        run.step(500)
    run.restart()
    run.see(seen(550, "run_resumed"))
    for at in (600, 900, 1200):
        run.step(at)
        assert server.live() == {}
    run.see(begun(1300, 2))
    run.step()
    assert list(server.live()) == ["s2"], "it was about that wave alone"


def test_one_that_a_person_ended_is_not_made_for_fewer_nodes(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step(100)
    server._delete("silence/s1", None)
    run.step(500)
    run.see(failed(600))
    run.step()
    assert server.live() == {}


def test_one_that_the_run_ended_is_made_again_with_its_wave(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    run.see(phase(50, "gated"))
    run.step()
    run.restart()
    run.see(seen(60, "run_resumed"), begun(70))
    run.step()
    assert list(server.live()) == ["s2"]


def test_a_server_whose_clock_is_behind_silences_at_once(server: FakeAlertmanager) -> None:
    server.behind = 120.0
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    assert list(server.live()) == ["s1"]
    run.step(500)
    assert server.live() == {"s1": 1400}
    assert run.events() == ["created s1", "renewed s1"]


def test_one_that_the_server_has_forgotten_is_replaced(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    server.silences.clear()
    run.step(500)
    assert server.live() == {"s1": 1400}
    assert [one.get("why") for one in run.recorded] == [None, "Alertmanager does not have it any more", None]


@pytest.mark.parametrize("kill", ["before", "lost", "after"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_or_a_lost_answer_makes_no_second_one(server: FakeAlertmanager, kill: str, step: int) -> None:
    run = Played(server, BY_NODE, OF_CLUSTER)
    story: list[list[PublicEvent]] = [
        [RUN, begun()],
        [],
        [],
        [finished(1200)],
        [begun(1300, 2, ["es2"])],
        [ended(1400)],
    ]
    for number, (events, at) in enumerate(zip(story, (1, 400, 800, 1200, 1300, 1400), strict=True), start=1):
        run.see(*events)
        if number == step:
            server.loses = 1 if kill == "lost" else 0
            if kill != "before":
                run.step(at)
            run.restart()
        run.step(at)
        run.step(at + 31)
        keys = [(one["comment"], str(one["matchers"])) for one in map(server.silences.get, server.live())]
        assert len(keys) == len(set(keys)), "none twice"
        assert all(end - at <= LEASE_SECONDS + 31 for end in server.live().values())
    assert server.live("wave 2") == {}
    assert all(end <= 1500 for end in server.live("wave 1").values())


def test_a_node_that_fails_while_requests_fail_is_not_put_off(server: FakeAlertmanager) -> None:
    run = Played(server, BY_NODE, OF_CLUSTER)
    run.see(RUN, begun())
    run.step()
    server.refuses = True
    run.step(400)
    server.refuses = False
    run.step(410)
    assert server.live() == {"s1": 901, "s2": 901}, "it is put off"
    run.see(failed(411))
    run.step()
    assert list(server.live()) == ["s3"]


def test_a_refusal_is_recorded_once_and_tried_again(server: FakeAlertmanager) -> None:
    run = Played(server)
    server.refuses = True
    run.see(RUN, begun())
    assert run.step() == 30
    tries = len(server.asked)
    run.step(10)
    assert len(server.asked) == tries, "not with every event"
    run.step(40)
    assert run.events() == ["not_notified connection refused"]
    server.refuses = False
    run.step(80)
    assert server.live() == {"s1": 980}
    assert run.events() == ["created s1"]


@pytest.mark.parametrize("answer", [b"[]", b"no JSON", b'{"x": 1}', b"null"])
def test_what_is_no_answer_of_alertmanager(
    server: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(silence, "call", lambda *_given, **_named: answer)
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    run.step(100)
    assert all(event.startswith("not_notified the answer is") for event in run.events())


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "a/../b", "", "hunter2-hunter2", None, ["x"]])
def test_what_is_no_id_is_not_recorded(
    server: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    """A server may say anything, also the secret that it was just sent."""
    listed = {"id": name, "comment": "orchestrate r1 wave 1", "status": {"state": "active"}, "startsAt": ""}

    def call(_at: object, _told: object, method: str, *_given: object, **_named: object) -> bytes:
        asked.append(method)
        return json.dumps({"silenceID": name} if method == "POST" else [listed]).encode()

    asked: list[str] = []
    monkeypatch.setattr(silence, "call", call)
    monkeypatch.setattr(Redactor, "__call__", lambda _self, text: text.replace("hunter2", "[redacted]"))
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    run.step(100)
    assert asked == ["POST", "GET"]
    assert all(event.startswith("not_notified the answer is not") for event in run.events())


def test_one_that_cannot_be_ended_is_tried_again(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun())
    run.step()
    server.fails = True
    run.see(failed(50), failed(51, "es2"))
    run.step()
    server.fails = False
    run.step(100)
    assert server.live() == {}
    assert run.events() == ["created s1", "not_notified 500", "ended s1"]


def test_another_process_that_took_over_has_the_silences(server: FakeAlertmanager) -> None:
    run = Played(server)
    run.see(RUN, begun(), seen(5, "deposed"))
    assert run.silences._waves.deposed
    run.see(seen(6, "run_resumed"))
    assert not run.silences._waves.deposed


def test_a_stop_waits_once_for_a_server_that_hangs(
    server: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, run = Event(), Played(server)
    monkeypatch.setattr(silence, "call", lambda *_given, **_named: (released.wait(60), b"")[1])
    monkeypatch.setattr(silence, "WAIT_SECONDS", 0.05)
    run.silences.see([RUN, begun()])
    run.silences.wait()
    run.silences.wait()
    assert run.silences._waited == {1}
    assert run.recorded == [], "it still hangs"
    released.set()


def test_a_stop_waits_for_the_answer(server: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "WAIT_SECONDS", 60.0)
    run = Played(server)
    run.silences.see([RUN, begun()])
    run.silences.wait()
    assert run.events() == ["created s1"]
    run.silences.see([failed(5), failed(6, "es2")])
    run.silences.close(time.monotonic() + 60)
    run.silences.join()
    assert run.events() == ["ended s1"]
