"""What surrounds a run, on simulated nodes: messages once, at every kill, and never in the way of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.around import beside, silence
from orchestrator.around.outbox import Send
from orchestrator.around.story import Message
from orchestrator.config.around import Alertmanager, Around, Grafana, MessageTarget, On
from orchestrator.config.secrets import parse_reference
from orchestrator.engine.estimate import last_of_run
from orchestrator.model.action import StopNode
from orchestrator.model.event import ActionConfirmed, Notified, NotNotified, Record
from orchestrator.model.phase import Outcome, Request
from orchestrator.runs.connection import Process
from orchestrator.runs.surroundings import Surrounded
from orchestrator.simulation.mishaps import SnapshotBegun
from orchestrator.view.history import past_run
from tests.fakes.around import surround
from tests.fakes.grafana import FakeGrafana
from tests.fakes.scripted_http import ScriptedServer, hang, large, reply
from tests.simulation.scene import EVERY, FAILED, PAUSED, Played, Scene, asked, first, refused, resume

TARGET: Final = MessageTarget(name="chat", url="http://h/", on=frozenset(On), after=600.0, text="{text}")
KEY: Final = "a key"
TOKEN: Final = parse_reference("env:KEY")
Key = tuple[str, int]


class AtOnce:
    """An outbox without a thread: a message is sent, then recorded, so a kill hits the same point again."""

    sent: list[Key] = []  # noqa: RUF012  (emptied by each test)
    texts: list[str] = []  # noqa: RUF012  (as above)
    fails: bool = False

    def __init__(self, target: str, _send: object, record: Callable[[Any], None], **_more: object) -> None:
        self._target, self._record = target, record

    def put(self, message: Message) -> None:
        self.sent.append((message.on, message.of))
        self.texts.append(message.text)
        about = {"target": self._target, "on": str(message.on), "of": message.of}
        if self.fails:
            self._record({"event": "not_notified", **about, "why": "it says no"})
        else:
            self._record({"event": "notified", **about})

    def close(self, _until: float) -> None:
        pass

    def join(self) -> None:
        pass


@pytest.fixture
def surrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    AtOnce.sent, AtOnce.texts, AtOnce.fails = [], [], False
    monkeypatch.setattr(beside, "Outbox", AtOnce)
    surround(monkeypatch, Around(targets=(TARGET,)))


def _fates(played: Played) -> list[Key]:
    return [(event.on, event.of) for event in played.found(Notified)]


def _name(played: Played, key: Key) -> str:
    return next(r.event.event for r in played.simulation.journal.records if r.sequence == key[1])


SCENE: Final = Scene(name="whole", lives={})


@pytest.mark.usefixtures("surrounded")
def test_a_run_says_when_it_starts_and_ends() -> None:
    played = SCENE.play()
    assert [(on, _name(played, (on, of))) for on, of in AtOnce.sent] == [
        ("started", "run_started"),
        ("done", "run_finished"),
    ]
    assert AtOnce.texts[-1].startswith("3 of 3 nodes restarted in "), "the template names the cluster"
    assert _fates(played) == AtOnce.sent
    records = played.simulation.journal.records
    assert isinstance(records[-1].event, Notified), "that of the end comes after the end"
    past = past_run(records)
    assert past is not None
    assert (past.outcome, past.exit_code) == (Outcome.DONE, 0)
    assert past.seconds == last_of_run(records).at - records[0].at


@pytest.mark.usefixtures("surrounded")
def test_a_paused_run_and_its_resume_are_one_story() -> None:
    scene = Scene(
        name="paused", lives={}, befalls=[asked(Request.PAUSE, "stop")], ends=PAUSED, then=[resume()]
    )
    scene.play()
    assert [on for on, _ in AtOnce.sent] == ["started", "paused", "started", "done"]


@pytest.mark.usefixtures("surrounded")
def test_what_was_not_sent_is_recorded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    AtOnce.fails = True
    said: list[str] = []
    monkeypatch.setattr(Process, "warn", lambda _self, line: said.append(line))
    played = SCENE.play()
    assert [(event.on, event.why) for event in played.found(NotNotified)] == [
        ("started", "it says no"),
        ("done", "it says no"),
    ]
    assert said == ["2 messages not delivered to chat: it says no"]


@pytest.mark.usefixtures("surrounded")
def test_a_defect_of_messages_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise RuntimeError("x")

    monkeypatch.setattr(AtOnce, "put", defect)
    SCENE.play()


def test_messages_change_nothing_that_a_run_does(request: pytest.FixtureRequest) -> None:
    alone = SCENE.play()
    request.getfixturevalue("surrounded")
    told = SCENE.play()
    assert told.found(Notified)
    assert _times(told) == _times(alone)


@pytest.mark.usefixtures("surrounded")
def test_every_stop_waits_for_its_silence_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(Surrounded, "before_stop", lambda _self: order.append("before"))
    written = Surrounded.events

    def events(self: Surrounded, records: Sequence[Record]) -> None:
        confirmed = [one.event.action for one in records if isinstance(one.event, ActionConfirmed)]
        order.extend("stop" for action in confirmed if isinstance(action, StopNode))
        written(self, records)

    monkeypatch.setattr(Surrounded, "events", events)
    SCENE.play()
    assert order == ["before", "stop"] * 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hang, "it was not delivered before the end of the run"),
        (None, "connection refused"),
        (reply({}, status=500), "500 So"),
        (reply({}, status=302, headers={"Location": "http://127.0.0.1:1/"}), "it redirects"),
        (large(10), "the answer is larger than 65536 bytes"),
    ],
)
def test_no_receiver_changes_what_a_run_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Callable[..., None] | None, why: str
) -> None:
    alone, said = SCENE.play(), list[str]()
    monkeypatch.setattr(beside, "END_SECONDS", 1.0)
    monkeypatch.setattr(Process, "warn", lambda _self, line: said.append(line))
    with ScriptedServer() as server:
        if answer is not None:
            server.on("/", answer)
        targets = (replace(TARGET, url=f"{server.url}/"),)
        surround(monkeypatch, Around(targets=targets, textfile=tmp_path / "o.prom"))
        if answer is None:
            server.close()
        surrounded = SCENE.play()
    assert _times(surrounded) == _times(alone)
    lost = surrounded.found(NotNotified)
    assert [event.on for event in lost] == ["started", "done"]
    assert why in lost[-1].why
    (line,) = said
    assert line.startswith("2 messages not delivered to chat: ")
    written = (tmp_path / "o.prom").read_text()
    assert re.search(r'run_undelivered\{.*target="chat"\} 2\n', written), "that of the end, too"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hang, "it did not answer before the end of the run"),
        (None, "connection refused"),
        (reply({}, status=500), "500 So"),
        (reply({}, status=302, headers={"Location": "http://127.0.0.1:1/"}), "it redirects"),
        (reply({}), "the answer is no list of silences"),
        (large(17), "the answer is larger than 16777216 bytes"),
    ],
)
def test_no_server_changes_what_a_run_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Callable[..., None] | None, why: str
) -> None:
    alone, said = SCENE.play(), list[str]()
    monkeypatch.setattr(beside, "END_SECONDS", 1.0)
    monkeypatch.setattr(silence, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(Process, "warn", lambda _self, line: said.append(line))
    with ScriptedServer() as server:
        if answer is not None:
            server.on("/api/v2/silences", answer)
            server.on("/api/annotations", answer)
        at = Alertmanager(url=server.url, matchers=({"instance": "{host}"},), at_most=3600.0)
        grafana = Grafana(url=server.url, token=TOKEN)
        textfile = tmp_path / "gone" / "o.prom"
        surround(monkeypatch, Around(alertmanager=at, textfile=textfile, grafana=grafana), KEY=KEY)
        if answer is None:
            server.close()
        surrounded = SCENE.play()
    assert _times(surrounded) == _times(alone)
    lost = {event.on: event for event in surrounded.found(NotNotified)}
    assert why in lost["silence"].why
    assert "No such file" in lost["metrics"].why
    assert lost["annotation"].target == server.url
    (line,) = said
    assert "not delivered to " in line
    assert f"textfile: {lost['metrics'].why}" in line, "each target has its own reason"
    assert f"{server.url}: {lost['annotation'].why}" in line


def _times(played: Played) -> list[tuple[float, str]]:
    records = played.simulation.journal.records
    return [(r.at, r.event.event) for r in records if not isinstance(r.event, Notified | NotNotified)]


HELD: Final = Scene(name="held", befalls=[first(SnapshotBegun(seconds=1500.0))], lives={})
_FAILS: Final = Scene(
    name="one does not start", befalls=[refused("start", target="es2", times=99)], ends=FAILED, away=("es2",)
)


@pytest.mark.usefixtures("surrounded")
def test_a_long_hold_and_its_end_are_one_message_each() -> None:
    played = HELD.play()
    assert [on for on, _ in AtOnce.sent] == ["started", "held", "cleared", "done"]
    assert _name(played, AtOnce.sent[1]) == "hold"


@pytest.mark.usefixtures("surrounded")
def test_a_failure_and_the_end_that_follows() -> None:
    _FAILS.play()
    assert [on for on, _ in AtOnce.sent] == ["started", "failed", "stood_down"]


@cache
def _points() -> tuple[str, ...]:
    return tuple(HELD.play().simulation.seams.passed)


@pytest.mark.usefixtures("surrounded")
def test_resume_sends_nothing_that_is_recorded_as_sent(subtests: pytest.Subtests) -> None:
    over = next(n for n, what in enumerate(_points()) if what.startswith("after") and "run_finished" in what)
    for number in range(3, over + 1, EVERY):
        with subtests.test(_points()[number - 1]):
            AtOnce.sent.clear()
            recorded: list[Key] = []

            def note(played: Played, recorded: list[Key] = recorded) -> None:
                recorded += _fates(played)
                AtOnce.sent.clear()

            replace(HELD, killed=number, then=[note, resume(ends=None)]).play()
            assert set(AtOnce.sent).isdisjoint(recorded)
            assert max(Counter(AtOnce.sent).values(), default=1) == 1


class SentAtOnce(AtOnce):
    """The same, with what a target answers."""

    def __init__(self, target: str, send: Send, record: Callable[[Any], None], **_more: object) -> None:
        super().__init__(target, send, record)
        self._send = send

    def put(self, message: Message) -> None:
        reference = self._send(message, 60.0)
        about = {"target": self._target, "on": str(message.on), "of": message.of}
        self._record({"event": "notified", **about, "reference": reference})


def test_resume_makes_no_annotation_twice(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    points = len(_points())
    monkeypatch.setattr(beside, "Outbox", SentAtOnce)
    with ScriptedServer() as server:
        surround(monkeypatch, Around(grafana=Grafana(url=server.url, token=TOKEN)), KEY=KEY)
        for number in range(3, points + 1, EVERY):
            with subtests.test(_points()[number - 1]):
                grafana = FakeGrafana(token=KEY)
                grafana.at(server)
                played = replace(HELD, killed=number, then=[resume(ends=None)]).play()
                begins = {(tuple(tags), begin) for tags, begin, _ in grafana.regions}
                waves = [
                    record.at
                    for record in played.simulation.journal.records
                    if record.event.event == "wave_started"
                ]
                assert len(begins) == len(grafana.regions) == 1 + len(waves)
                assert grafana.regions[0][2] == round(1000 * played.simulation.journal.records[-1].at)
