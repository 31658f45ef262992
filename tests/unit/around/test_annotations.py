"""Annotations: one region for a run and for each wave, against a double that answers as Grafana does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from orchestrator.around import outbox
from orchestrator.around.annotations import Annotations
from orchestrator.around.outbox import Outbox
from orchestrator.around.story import PublicEvent
from orchestrator.config.around import Grafana
from orchestrator.config.secrets import parse_reference
from tests.fakes.around import run_context
from tests.fakes.grafana import FakeGrafana
from tests.fakes.scripted_http import ScriptedServer, hang, large, raw, reply

SECRET: Final = "glsa_hunter2hunter2"  # noqa: S105  (a test's own)
RUN_TAGS: Final = ["orchestrate", "cluster:prod", "run:r1"]


def seen(at: int, event: str, **fields: Any) -> PublicEvent:
    line = {"ts": "then", "run": "r1", "sequence": at, "event": event, **fields}
    return PublicEvent(at=float(at), line=line, text=f"{event} <{at}>")


def wave(at: int, number: int) -> PublicEvent:
    return seen(at, "wave_started", wave={"number": number, "nodes": ["es1"], "why": ""})


RUN: Final = seen(1, "run_started")
WAVE: Final = wave(2, 1)
OVER: Final = seen(5, "wave_finished", number=1)
DONE: Final = seen(9, "run_finished", outcome="done")


class Attempt:
    """An attempt at the run: its annotations by the thread of their outbox."""

    def __init__(self, url: str, *past: PublicEvent, token: str = SECRET, cluster: str = "prod") -> None:
        self.recorded: list[Mapping[str, Any]] = []
        context = run_context(cluster=cluster, **{"TOKEN": token} if token else {})
        self.regions = Annotations(Grafana(url=url, token=parse_reference("env:TOKEN")), context, past)
        self.outbox = Outbox("grafana", self.regions.send, self.recorded.append, most=200)

    def see(self, *events: PublicEvent) -> None:
        for message in self.regions.of(events):
            self.outbox.put(message)

    def end(self, seconds: float = 60.0) -> list[Mapping[str, Any]]:
        self.outbox.close(time.monotonic() + seconds)
        self.outbox.join()
        return self.recorded

    def journal(self) -> list[PublicEvent]:
        """What it recorded, as `resume` reads it."""
        return [seen(100 + number, **line) for number, line in enumerate(self.end())]


@pytest.fixture
def grafana() -> FakeGrafana:
    return FakeGrafana(token=SECRET)


@pytest.fixture
def server(grafana: FakeGrafana) -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        grafana.at(running)
        yield running


def test_a_run_and_its_waves_are_regions(server: ScriptedServer, grafana: FakeGrafana) -> None:
    attempt = Attempt(server.url)
    attempt.see(RUN, WAVE)
    attempt.see(OVER)
    attempt.see(DONE)
    recorded = attempt.end()
    assert grafana.regions == [(RUN_TAGS, 1000, 9000), ([*RUN_TAGS, "wave:1"], 2000, 5000)]
    assert grafana.kept[1]["text"] == "run_started &lt;1&gt;<br>run_finished &lt;9&gt;", "no markup acts"
    assert [(one["event"], one["of"], one["reference"]) for one in recorded] == [
        *(("notified", 1, "1"), ("notified", 2, "2"), ("notified", 2, "2"), ("notified", 1, "1"))
    ]
    assert SECRET not in json.dumps([recorded, grafana.kept])


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ([WAVE, OVER, wave(6, 2), DONE], {2: 5, 6: 9, 1: 9}),
        ([WAVE, seen(3, "phase_entered", node=None, to="gated"), wave(4, 1), DONE], {2: 3, 4: 9, 1: 9}),
        ([WAVE, seen(3, "wave_gave_way", number=1), seen(4, "phase_entered", node=None, to="gated"), OVER],
         {2: 5, 1: None}),
        ([WAVE, seen(3, "phase_entered", node="es1", to="failed"), DONE], {2: 9, 1: 9}),
        ([WAVE, DONE, seen(10, "run_resumed"), seen(20, "run_finished", outcome="done")], {2: 9, 1: 20}),
    ],
)  # fmt: skip
def test_when_a_region_ends(events: list[PublicEvent], ends: Mapping[int, int | None]) -> None:
    regions = Attempt("http://g").regions
    regions.of([RUN, *events])
    found = {of: region.end and region.end // 1000 for of, region in regions._regions.items()}
    assert found == ends


@pytest.mark.parametrize("killed", ["before", "answer", "recording", "after"])
def test_resume_makes_none_twice(server: ScriptedServer, grafana: FakeGrafana, killed: str) -> None:
    first = Attempt(server.url)
    if killed != "before":
        grafana.loses = 2 if killed == "answer" else 0
        first.see(RUN, WAVE)
    recorded = [one for one in first.journal() if killed != "recording"]
    second = Attempt(server.url, RUN, WAVE, *recorded)
    asked = len(grafana.asked)
    second.see(seen(4, "run_resumed"))
    second.see(OVER, DONE)
    second.end()
    regions = sorted(grafana.regions, key=lambda one: one[1])
    assert regions == [(RUN_TAGS, 1000, 9000), ([*RUN_TAGS, "wave:1"], 2000, 5000)]
    assert ("GET" in grafana.asked[asked:]) is (killed != "after"), "it is looked for where no id is known"


def test_a_lost_answer_is_looked_for_at_the_end(server: ScriptedServer, grafana: FakeGrafana) -> None:
    attempt = Attempt(server.url)
    grafana.loses = 1
    attempt.see(RUN)
    attempt.see(DONE)
    assert [one["event"] for one in attempt.end()] == ["not_notified", "notified"]
    assert grafana.asked == ["POST", "GET", "PATCH"]
    assert grafana.regions == [(RUN_TAGS, 1000, 9000)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hang, "it was not delivered before the end of the run"),
        (reply({}, status=500), "500 So"),
        (reply({"message": "Unauthorized"}, status=401), "401 So"),
        (reply({}, status=302, headers={"Location": "http://127.0.0.1:1/"}), "302: it redirects"),
        (large(10), "the answer is larger than 1048576 bytes"),
        (reply({"id": None}), "the answer is not Grafana's (TypeError)"),
        (reply({}), "the answer is not Grafana's (KeyError)"),
        (reply([]), "the answer is not Grafana's (TypeError)"),
        (reply(b"<html>"), "the answer is not Grafana's (JSONDecodeError)"),
        (raw(b"no HTTP\r\n\r\n"), "connection broken"),
    ],
)
def test_a_bad_grafana_is_recorded(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., None], why: str
) -> None:
    monkeypatch.setattr(outbox, "PAUSES", (0.0, 0.0))
    server.on("/api/annotations", answer)
    attempt = Attempt(server.url)
    attempt.see(RUN)
    (lost,) = attempt.end(0.5 if answer is hang else 60.0)
    assert (lost["event"], lost["on"], lost["of"]) == ("not_notified", "annotation", 1)
    assert lost["why"].startswith(why)
    assert SECRET not in json.dumps(lost)


def test_a_missing_token_is_named_by_its_reference() -> None:
    attempt = Attempt("http://127.0.0.1:1", token="")
    attempt.see(RUN)
    (lost,) = attempt.end()
    assert "env:TOKEN" in lost["why"]


def test_no_secret_is_in_an_annotation(server: ScriptedServer, grafana: FakeGrafana) -> None:
    attempt = Attempt(server.url, cluster=f"prod {SECRET}")
    attempt.see(PublicEvent(at=1.0, line=RUN.line, text=f"by ann: password=hunter2 {SECRET}"))
    attempt.end()
    assert "by ann" in grafana.kept[1]["text"]
    assert "hunter2" not in json.dumps(grafana.kept)


def test_a_long_name_makes_no_long_tag(server: ScriptedServer, grafana: FakeGrafana) -> None:
    attempt = Attempt(server.url, cluster="c" * 300)
    attempt.see(RUN)
    attempt.end()
    assert max(map(len, grafana.kept[1]["tags"])) <= 100
