"""`orchestrate notify test`, and what `validate` and a run say of messages that cannot be sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.console import Console, Said
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import ScriptedServer, reply

SECRET = "hunter2-hunter2"  # noqa: S105  (a test's own)


@pytest.fixture
def chat() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        running.on("/good", reply({}))
        running.on("/bad", reply({}, status=403))
        yield running


def run(console: Console, *words: str, notify: list[dict[str, Any]]) -> Said:
    with SmallCluster() as cluster:
        file = cluster.write_file(console.folder, notify=notify)
        return console.run(*" ".join(words).split(), "--cluster", file)


def test_a_test_message_is_sent_to_every_target(console: Console, chat: ScriptedServer) -> None:
    console.environment["GOOD"] = f"{chat.url}/good?key={SECRET}"
    targets = [{"url": "env:GOOD"}, {"url": f"{chat.url}/bad", "on": ["failed"], "name": "pager"}]
    said = run(console, "notify test", notify=targets)
    assert said.code == 3
    assert sorted(said.out.splitlines()) == ["1 message not sent", "BAD  pager: 403 So", "ok   env:GOOD"]
    assert SECRET not in f"{said.out}{said.err}"
    (good,) = [asked.json for asked in chat.asked if asked.path == "/good"]
    assert (good["on"], good["event"]["event"], good["run"]) == ("test", "test", "test")
    said = run(console, "notify test", "--output", "json", notify=targets[:1])
    assert said.code == 0
    assert [line["event"] for line in said.lines] == ["notified", "summary"]
    assert said.lines[0]["target"] == "env:GOOD"


def test_validate_looks_where_metrics_go(console: Console, subtests: pytest.Subtests) -> None:
    (console.folder / "taken.prom").mkdir()
    for file, code, says in [
        ("lab.prom", 0, r"ok +metrics +textfile +\S+/lab\.prom can be written"),
        (
            "gone/lab.prom",
            3,
            r"BAD +metrics +textfile +there is no folder \S+/gone; a run would not",
        ),
        ("taken.prom", 3, r"BAD +metrics +textfile +\S+/taken\.prom is a folder"),
    ]:
        with subtests.test(file=file), SmallCluster() as cluster:
            metrics = {"textfile": str(console.folder / file)}
            written = cluster.write_file(console.folder, metrics=metrics)
            said = console.run("validate", "--cluster", written, "--verbose")
            assert re.search(says, said.out), said.out
            assert said.code == code


def test_there_has_to_be_something_to_send(console: Console) -> None:
    said = run(console, "notify test", notify=[])
    assert said.code == 2
    assert "has `notify`: nothing can be sent" in said.err


@pytest.mark.parametrize("command", ["validate", "restart --yes", "plan"])
@pytest.mark.parametrize(
    ("url", "says"),
    [
        (None, "secret env:CHAT: the environment variable CHAT is not set"),
        (f"slack://{SECRET}", "pipx install --force '.[notify]'"),
        (SECRET, "notify env:CHAT: must be a URL"),
    ],
)
def test_what_cannot_be_sent_is_said_before_a_run(
    console: Console, monkeypatch: pytest.MonkeyPatch, command: str, url: str | None, says: str
) -> None:
    monkeypatch.setattr("orchestrator.around.ways.find_spec", lambda _name: None)
    if url is not None:
        console.environment["CHAT"] = url
    said = run(console, command, notify=[{"url": "env:CHAT"}])
    assert said.code == 2
    assert says in said.err
    assert SECRET not in f"{said.out}{said.err}"
