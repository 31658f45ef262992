"""`serve`: what a viewer gets over HTTP from the program as a process, and what nobody gets."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import signal
import socket
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing

import pytest
import urllib3
from starlette.routing import Route

from orchestrator.errors import ExitCode
from orchestrator.model.action import Done
from orchestrator.model.phase import Outcome
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import open_store
from orchestrator.serve.app import application
from orchestrator.serve.board import Board, StateLook
from tests.cli.console import Console
from tests.cli.runs import DEAD_PROCESS, RUN, ended_run, entry, events_of
from tests.cli.serving import Served, serving
from tests.cli.viewing import viewers, writing
from tests.tools import heeding_modes

TOKEN = "a token of 24 characters"  # noqa: S105  (of this test)
ROUTES = (
    *("", "events", "runs.json", f"runs/{RUN}", f"runs/{RUN}/events", f"runs/{RUN}/report.json"),
    *("live.js", "healthz", "metrics"),
)
METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Console:
    """A console with one run in its state."""
    folder = tmp_path_factory.mktemp("served")
    console = Console(home=folder / "home", folder=folder / "work")
    console.home.mkdir(mode=0o700)
    console.folder.mkdir()
    ended_run(console)
    return console


@pytest.fixture(scope="module")
def server(ended: Console) -> Iterator[Served]:
    with serving(ended) as found:
        yield found


def test_runs_and_a_run_are_pages_and_the_same_as_json(server: Served) -> None:
    listing = server.get()
    assert (listing.code, f'href="runs/{RUN}"' in listing.text) == (200, True)
    assert [one["run"] for one in json.loads(server.get("runs.json").text)["runs"]] == [RUN]
    page = server.get(f"runs/{RUN}")
    assert (page.code, f"Run {RUN}" in page.text) == (200, True)
    data = json.loads(server.get(f"runs/{RUN}/report.json").text)
    assert (data["report"]["nodes_restarted"], data["status"]["outcome"]) == (3, "done")
    assert server.get("runs/none").code == 404
    assert json.loads(server.get("healthz").text) == {"status": "ok"}


def test_a_page_is_compressed_for_those_who_can_read_it(server: Served) -> None:
    address, ask = f"{server.at}runs/{RUN}", {"Accept-Encoding": "gzip"}
    answer = urllib3.request("GET", address, headers=ask, decode_content=False)
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.data).decode() == server.get(f"runs/{RUN}").text
    with closing(urllib3.request("GET", f"{address}/events", headers=ask, preload_content=False)) as events:
        assert "content-encoding" not in events.headers


def test_metrics_are_those_of_the_last_run_of_each_cluster(server: Served) -> None:
    answer = server.get("metrics")
    lines = answer.text.splitlines()
    assert (answer.code, answer.headers["content-type"][:10]) == (200, "text/plain")
    assert 'orchestrate_run_outcome{cluster="lab",outcome="done"} 1' in lines
    assert 'orchestrate_run_nodes{cluster="lab",phase="recovered"} 3' in lines
    assert any(line.startswith('orchestrate_last_success_timestamp_seconds{cluster="lab"}') for line in lines)


def test_a_run_whose_process_is_gone_gives_no_sign_of_life(console: Console) -> None:
    with closing(open_store(f"sqlite:///{console.state}", {}, access=DatabaseUse.WRITE)) as store:
        journal = store.create_run(entry(RUN, DEAD_PROCESS))
        journal.append(events_of("lab")[:9], 7.0)
    with serving(console) as server:
        lines = server.get("metrics").text.splitlines()
    assert 'orchestrate_run_outcome{cluster="lab",outcome="running"} 1' in lines
    assert 'orchestrate_updated_timestamp_seconds{cluster="lab"} 7' in lines


def test_pages_load_nothing_from_elsewhere_nor_from_the_root(server: Served) -> None:
    for path in ("", f"runs/{RUN}"):
        answer = server.get(path)
        assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        assert 'src="/' not in answer.text
        assert 'href="/' not in answer.text
        assert "http://" not in answer.text
        assert "https://" not in answer.text


def test_a_look_at_the_head_of_events_ends(server: Served) -> None:
    at = urllib3.util.parse_url(server.at).netloc
    with closing(http.client.HTTPConnection(at, timeout=20.0)) as client:
        for path in ("/events", f"/runs/{RUN}/events", "/healthz"):
            client.request("HEAD", path)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
        assert client.sock is not None, "one connection has them all"


def test_no_route_writes(ended: Console, server: Served) -> None:
    """Whatever is asked of any route: the state has the same bytes, and nothing is beside it."""

    def kept() -> dict[str, tuple[bytes, int]]:
        files = [one for one in ended.home.rglob("*") if one.is_file()]
        return {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in files}

    paths = [
        route.path for route in application(Board(StateLook), hosts=()).routes if isinstance(route, Route)
    ]
    routes = [path.removeprefix("/").replace("{run}", RUN) for path in paths]
    assert sorted(routes) == sorted(ROUTES)
    before = kept()
    for path in routes:
        found = {method: server.get(path, method=method).code for method in METHODS}
        assert found == dict.fromkeys(METHODS, 405), path
        if not path.endswith("events"):
            assert (server.get(path).code, server.get(path, method="HEAD").code) == (200, 200)
    assert kept() == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", ""])
def test_a_host_that_was_not_configured_is_refused(server: Served, host: str) -> None:
    """A page elsewhere whose name points here reads nothing through the browser."""
    for path in ROUTES:
        answer = server.get(path, Host=host)
        assert (answer.code, RUN in answer.text) == (421, False)


def test_no_page_of_another_origin_may_read(server: Served) -> None:
    """No header allows it, and none of these can be a part of such a page."""
    for path in ("", f"runs/{RUN}", "runs.json", "live.js", "metrics"):
        headers = server.get(path, Origin="https://evil.example").headers
        assert not [name for name in headers if name.startswith("access-control-")]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_no_address_is_redirected(server: Served) -> None:
    """A redirect names a scheme, a host and a path, which a proxy with TLS and a prefix does not have."""
    assert server.get(f"runs/{RUN}/").code == 404


def test_a_further_name_is_allowed(ended: Console) -> None:
    with serving(ended, "--host", "runs.example") as server:
        assert server.get(Host="runs.example").code == 200


def test_without_the_token_nothing_is_shown(ended: Console) -> None:
    (ended.home / "token").write_text(TOKEN + "\n")
    (ended.home / "token").chmod(0o600)
    with serving(ended, "--token", f"file:{ended.home}/token") as server:
        for path in (*ROUTES, "runs/none"):
            answer = server.get(path)
            assert (answer.code, RUN in answer.text) == (401, False)
        wrong = b64encode(b"ann:another token of 24").decode()
        assert server.get(Authorization=f"Basic {wrong}").code == 401
        assert server.get(Authorization=f"Bearer {TOKEN}x").code == 401
        assert server.get(Authorization="Basic ???").code == 401
        assert server.get(Authorization=f"Bearer {TOKEN}").code == 200
        right = b64encode(f"ann:{TOKEN}".encode()).decode()
        assert server.get(Authorization=f"Basic {right}").code == 200
        server.process.terminate()
        assert server.process.stderr is not None
        assert TOKEN not in server.process.stderr.read()
        assert server.process.wait(60.0) == ExitCode.DONE


def test_no_client_writes_a_log(ended: Console) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    with serving(ended) as server:
        at = urllib3.util.parse_url(server.at)
        for asked in ("no HTTP\r\n\r\n", f"GET / HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n"):
            with socket.create_connection((at.host, at.port), timeout=60.0) as client:
                client.sendall(asked.encode())
                assert client.recv(65536).startswith(b"HTTP/1.1 ")
        server.process.terminate()
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "0.0.0.0:0"), "can be reached by others: add --token"),
        (("--listen", "example"), "write HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "write HOST:PORT"),
        (("--host", "https://ops"), "write the name alone"),
        (("--host", "ops:443"), "write the name alone"),
        (("--token", TOKEN), "a secret is never written here"),
        (("--token", "env:SHORT"), "it has 5 characters"),
        (("--token", "env:NONE"), "NONE"),
        (("--token", "env:OTHER"), "characters outside ASCII"),
    ],
)
def test_what_cannot_be_served_is_refused(ended: Console, words: tuple[str, ...], said: str) -> None:
    console = Console(
        home=ended.home,
        folder=ended.folder,
        environment={"SHORT": "short", "OTHER": "ein Schlüssel, der lang genug ist"},
    )
    found = console.run("serve", *words)
    assert (found.code, said in found.message) == (ExitCode.USAGE, True), found.message
    assert TOKEN not in found.message


def test_a_port_that_is_taken_is_refused(ended: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = ended.run("serve", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (found.code, "in use" in found.message) == (ExitCode.USAGE, True)


def test_viewers_are_told_of_a_new_run_and_let_go_at_the_end(console: Console) -> None:
    ended_run(console, run="20261001-0300-aaaa", at=1.0)
    with serving(console) as server:
        events = server.events("events")
        assert json.loads(next(events)) == {"trouble": ""}
        ended_run(console, at=2.0)
        assert json.loads(next(events)) == {"trouble": ""}
        assert RUN in server.get().text
        server.process.send_signal(signal.SIGINT)
        assert list(events) == []
        assert server.process.wait(60.0) == ExitCode.DONE


def test_a_state_that_cannot_be_read_is_said(console: Console, subtests: pytest.Subtests) -> None:
    """While it is so, with what was read before; and no longer than that."""
    ended_run(console)
    state, away = console.state, console.state.with_suffix(".away")
    before = heeding_modes()

    def moved() -> None:
        state.rename(away)

    def emptied() -> None:
        shutil.copy2(state, away)
        state.write_bytes(b"")

    def overwritten() -> None:
        shutil.copy2(state, away)
        state.write_bytes(b"no database" * 1000)

    def closed() -> None:
        shutil.copy2(state, away)
        state.chmod(0)

    def of_a_later_version() -> None:
        shutil.copy2(state, away)
        with closing(sqlite3.connect(state)) as other, other:
            other.execute("UPDATE meta SET schema = 99")

    with serving(console, before=before) as server:
        for damage, words in (
            (moved, "there is no such file"),
            (emptied, "it is empty"),
            (overwritten, "not an SQLite database"),
            (closed, "closed to this account"),
            (of_a_later_version, "99"),
        ):
            with subtests.test(damage=damage.__name__):
                assert server.get(f"runs/{RUN}").code == 200
                damage()
                events = server.events(f"runs/{RUN}/events")
                said = next(told for event in events if (told := json.loads(event)["trouble"]))
                assert words in said
                health = server.get("healthz")
                assert (health.code, json.loads(health.text)["said"]) == (503, said)
                assert server.get("metrics").code == 503
                assert RUN in server.get(f"runs/{RUN}").text, "what was read before is still shown"
                away.replace(state)
                assert any(not json.loads(event)["trouble"] for event in events)
                assert server.get("healthz").code == 200


def test_a_run_that_cannot_be_read_is_no_trouble_for_others(console: Console) -> None:
    damaged = "20261001-0300-aaaa"
    ended_run(console, run=damaged, at=1.0)
    ended_run(console, at=2.0)
    with closing(sqlite3.connect(console.state)) as other, other:
        other.execute("DELETE FROM events WHERE run = ? AND sequence = 3", (damaged,))
    with serving(console) as server:
        refused = server.get(f"runs/{damaged}")
        assert (refused.code, "is damaged" in refused.text) == (503, True)
        assert server.get(f"runs/{RUN}").code == 200
        listing = server.get()
        assert (listing.code, "is damaged" in listing.text) == (200, True)
        assert json.loads(server.get("healthz").text) == {"status": "ok"}


def test_no_character_of_a_name_turns_the_others_round(console: Console) -> None:
    ended_run(console, cluster="lab\u202e")
    with serving(console) as server:
        for path in ("", f"runs/{RUN}", "runs.json", f"runs/{RUN}/report.json"):
            answer = server.get(path)
            assert (answer.code, "\u202e" in answer.text, "\\u202e" in answer.text) == (200, False, True)


def test_viewers_hold_back_no_commit(console: Console) -> None:
    """Fifty viewers that follow a run, and one that is suspended in the middle of an answer."""
    events = events_of("lab")
    with writing(console, heartbeat=0.05) as run:
        for event in events[:20]:
            run.commit(event)
        with serving(console) as server, viewers(server.at, 50, suspended=1):
            for event in events[20:]:
                run.commit(event)
            assert server.get("healthz").code == 200
        assert run.held()
    assert {type(result) for result in run.results} == {Done}
    with closing(open_store(console.url, {}, access=DatabaseUse.READ)) as store:
        assert tuple(record.event for record in store.replay(RUN)) == events
        assert store.outcome(RUN) is Outcome.DONE
