"""What looks like a secret, planted in every text of a run, is in nothing that is written, shown or sent."""

from __future__ import annotations

import html
import json
import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import pytest

from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.serving import serving
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.fakes.smtp import MailServer

KNOWN: Final = {
    "command": "correct/horse battery+staple",
    "file": "pa$$/w0rd=x\\y",
    "env": "tok3n-5f0c-9a",
}
"""Secrets that the files name, by where each comes from."""
HIDDEN_PATH: Final = "/hook/wEbh00k-key"
SHAPES: Final[Mapping[str, str]] = {
    "Authorization: Basic dXNlcjpwYXNzd29yZA==": "dXNlcjpwYXNzd29yZA",
    "'Authorization: Bearer abc.def.ghi'": "abc.def.ghi",
    "password=hunter2hunter2": "hunter2hunter2",
    '{"api_key": "k3yk3yk3y"}': "k3yk3yk3y",
    "run --token s3s4m3open": "s3s4m3open",
    "https://ann:p4ssp4ss@es1:9200/_cat": "p4ssp4ss",
    "-----BEGIN RSA PRIVATE KEY----- MIIEow -----END RSA PRIVATE KEY-----": "MIIEow",
}
"""Texts that the redactor takes for secrets without knowing them."""


def forms(secret: str) -> tuple[str, ...]:
    """As it is, and as programs print it."""
    data = secret.encode()
    encoded = (b64encode(data).decode().rstrip("="), data.hex(), quote(secret, safe=""), html.escape(secret))
    return tuple(dict.fromkeys((secret, json.dumps(secret)[1:-1], *encoded)))


PLANTED: Final = " ; ".join((*(form for secret in KNOWN.values() for form in forms(secret)), *SHAPES))
SECRETS: Final = tuple(form for secret in (*KNOWN.values(), *SHAPES.values()) for form in forms(secret))


@pytest.fixture
def receiver() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        running.on(HIDDEN_PATH, reply({}))
        yield running


def write_files(console: Console, receiver: ScriptedServer, mail: MailServer, cluster: SmallCluster) -> None:
    """A cluster file and two playbooks, and what they name."""
    folder, address = console.folder, f"{receiver.url}{HIDDEN_PATH}"
    (folder / "planted").write_text(f"{PLANTED} ; {address}\n")
    (folder / "key").write_text(KNOWN["command"])
    (folder / "bearer").write_text(KNOWN["file"])
    alert = {
        "labels": {"alertname": f"Disk {PLANTED}", "cluster": "lab"},
        "annotations": {"summary": PLANTED},
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        "startsAt": "2026-01-01T00:00:00Z",
        "fingerprint": "f1",
    }
    receiver.on("/api/v2/alerts", reply([alert]))
    receiver.on("/status", reply({"state": PLANTED}))
    status = {"url": f"{receiver.url}/status", "path": "state", "equals": "ok", "auth": "env:AUTH"}
    gated = {
        "kind": "elasticsearch",
        "gates": [
            {"alertmanager": {"url": receiver.url, "matchers": {"cluster": "lab"}, "since": "always"}},
            {"http_json": status},
            {"command": {"run": "cat planted; false"}},
        ],
        "deadlines": {"gate": "1s"},
        "hooks": {"run_started": [{"run": "cat planted >&2; false"}]},
    }
    hooks = [{"run": line, "local": True} for line in ("cat planted", "cat planted >&2; false")]
    hooked = {"kind": "elasticsearch", "gates": gated["gates"], "hooks": {"before_stop": hooks}}
    for name, book in (("gated", gated), ("hooked", hooked)):
        (folder / f"{name}.yml").write_text(json.dumps(book))
    letter = f"smtp://127.0.0.1:{mail.port}/?from=a@lab.example&to=b@lab.example"
    cluster.write_file(
        folder,
        auth={"api_key": "command:cat key"},
        notify=[{"url": "env:CHAT", "bearer": "file:bearer", "after": "1s"}, {"url": letter, "after": "1s"}],
        metrics={"textfile": str(folder / "lab.prom")},
    )


def everything(
    console: Console, receiver: ScriptedServer, mail: MailServer, cluster: SmallCluster
) -> Iterator[tuple[str, str]]:
    """All that two runs and those who look at them print, write and send: what it is, and its text."""
    write_files(console, receiver, mail, cluster)
    disabled = ("--disable-predicate", "gates_open")
    for book, words in (("gated", ()), ("hooked", disabled)):
        for output in ("text", "json"):
            asked = (
                "restart",
                "--cluster",
                "lab.yml",
                "--playbook",
                f"{book}.yml",
                "--reason",
                PLANTED,
                *words,
            )
            said = console.run(*asked, "--yes", "--output", output)
            assert said.code in (ExitCode.HELD, ExitCode.FAILED), said.err
            yield f"{book}, {output}", said.out + said.err
    assert {KNOWN["file"]} == {
        one.headers["authorization"].split(" ", 1)[1] for one in receiver.asked if one.path == HIDDEN_PATH
    }
    yield "messages", "\n".join(one.body.decode() for one in receiver.asked)
    yield "mails", "\n".join(f"{one['Subject']} {one.get_payload(decode=True)!r}" for one in mail.mails)
    yield "leases in the cluster", json.dumps(cluster.templates)
    yield "metrics", (console.folder / "lab.prom").read_text()
    pages = sorted((console.home / "reports").iterdir())
    yield "pages", "\n".join(page.read_text() for page in pages)
    with closing(sqlite3.connect(console.state)) as state:
        yield "journals", "\n".join(event for (event,) in state.execute("SELECT event FROM events"))
    for command in ("status", "report", "history"):
        for output in ("text", "json", "csv"):
            said = console.run(command, "--output", output)
            yield f"{command}, {output}", said.out + said.err
    console.run("history", "--html", "past.html")
    yield "page of past runs", (console.folder / "past.html").read_text()
    with serving(console) as server:
        runs = [run["run"] for run in json.loads(server.get("runs.json").text)["runs"]]
        for path in (
            "",
            "metrics",
            "runs.json",
            *(f"runs/{run}{of}" for run in runs for of in ("", "/report.json")),
        ):
            yield f"served /{path}", server.get(path).text


def test_a_planted_secret_is_nowhere(
    console: Console, receiver: ScriptedServer, subtests: pytest.Subtests
) -> None:
    """Those of `command:` too, which no reader of a journal looks up: the journal has none."""
    secrets = {"AUTH": f"ann:{KNOWN['env']}", "CHAT": f"{receiver.url}{HIDDEN_PATH}"}
    console, seen = replace(console, environment=secrets), dict[str, str]()
    with MailServer() as mail, SmallCluster() as cluster:
        seen.update(everything(console, receiver, mail, cluster))
    assert sum("[redacted]" in text for text in seen.values()) > len(seen) / 2
    for what, text in seen.items():
        with subtests.test(what=what):
            assert not [secret for secret in (*SECRETS, HIDDEN_PATH) if secret in text]
