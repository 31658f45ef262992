"""Live pages in a real browser: followed, interrupted, below a path, and from another origin."""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
import urllib3

from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import RUN, ended_run, entry, events_of
from tests.cli.serving import serving
from tests.integration.browsing import Browser, browser
from tests.ports import free_port
from tests.unit.view.stories import MARKUP, pages

pytestmark = pytest.mark.part(name="browser")

PAGE: Final = f"runs/{RUN}"
HALF: Final = len(events_of("lab")) // 2
SILENT: Final = "The server does not answer"
TOKEN: Final = "a token of 24 characters"  # noqa: S105  (of this test)


@pytest.fixture
def console(tmp_path: Path) -> Console:
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir(mode=0o700)
    folder.mkdir()
    return Console(home=home, folder=folder)


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "browser") as found:
        yield found


def _begin(console: Console) -> None:
    """The first half of a run, by this process."""
    with closing(open_store(console.url, {}, access=DatabaseUse.WRITE)) as store:
        store.create_run(entry(RUN, str(current_process()))).append(events_of("lab")[:HALF], time.time())


def _finish(console: Console) -> None:
    with closing(open_store(console.url, {}, access=DatabaseUse.WRITE)) as store:
        journal = store.journal(RUN, after=HALF, process=str(current_process()))
        journal.append(events_of("lab")[HALF:], time.time())


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[int]:
    """A server of the test's own; its port."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class Quiet(BaseHTTPRequestHandler):
    """Answers with these, and logs nothing."""

    status, body = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_words: object) -> None:
        """Nothing."""


class BadGateway(Quiet):
    """A proxy before a server that is away."""

    status = 502


def test_a_run_is_followed_to_its_end_without_a_reload(console: Console, window: Browser) -> None:
    _begin(console)
    with serving(console) as server:
        window.open(server.at + PAGE)
        window.run("window.first = true")
        assert window.title.endswith("under way")
        _finish(console)
        window.wait(lambda: window.title.endswith("done"))
        assert window.run("return window.first"), "it is the page that was opened"
        assert window.note == ""
        assert {address.startswith(server.at) for address in window.requests()} == {True}


def test_a_page_in_the_background_is_not_connected(console: Console, window: Browser) -> None:
    """A browser has six connections to a server. The title of such a page follows all the same."""
    _begin(console)
    with serving(console) as server:
        window.open(server.at + PAGE)
        window.wait(lambda: bool(window.run("return source.readyState === EventSource.OPEN")))
        window.run(SHOWN.format(hidden="true"))
        assert window.run("return source.readyState === EventSource.CLOSED")
        _finish(console)
        window.wait(lambda: window.title.endswith("done"))
        assert window.run("return source.readyState === EventSource.CLOSED")
        window.run(SHOWN.format(hidden="false"))
        window.wait(lambda: bool(window.run("return source.readyState === EventSource.OPEN")))
        assert window.note == ""


SHOWN: Final = """
Object.defineProperty(document, "hidden", {{value: {hidden}, configurable: true}});
document.dispatchEvent(new Event("visibilitychange"));
"""
"""As if its tab were in the background or not: a browser without a window shows all of them."""


def test_a_server_that_is_away_is_said_until_it_is_back(console: Console, window: Browser) -> None:
    """Also if a proxy answers meanwhile: a browser does not connect again after that by itself."""
    port = free_port()
    _begin(console)
    with serving(console, port=port) as server:
        window.open(server.at + PAGE)
        window.run("window.first = true")
    window.wait(lambda: window.note.startswith(SILENT))
    with answering(BadGateway, port):
        window.wait(lambda: bool(window.run("return source.readyState === EventSource.CLOSED")))
        assert window.note.startswith(SILENT)
    _finish(console)
    with serving(console, port=port):
        window.wait(lambda: window.title.endswith("done") and not window.note)
        assert window.run("return window.first")


def test_a_server_that_is_silent_is_said(console: Console, window: Browser) -> None:
    """Its connections stay open, as those of a network that drops packets."""
    _begin(console)
    with serving(console) as server:
        window.open(server.at + PAGE)
        window.wait(lambda: bool(window.run("return source.readyState === EventSource.OPEN")))
        server.process.send_signal(signal.SIGSTOP)
        try:
            window.wait(lambda: window.note.startswith(SILENT))
        finally:
            server.process.send_signal(signal.SIGCONT)
        _finish(console)
        window.wait(lambda: window.title.endswith("done") and not window.note)


def test_a_state_that_cannot_be_read_is_said(console: Console, window: Browser) -> None:
    _begin(console)
    with serving(console) as server:
        window.open(server.at + PAGE)
        away = console.state.rename(console.state.with_suffix(".away"))
        window.wait(lambda: "there is no such file" in window.note)
        assert f"Run {RUN}" in window.run("return document.body.textContent"), "what was read last"
        away.rename(console.state)
        window.wait(lambda: not window.note)
        with closing(sqlite3.connect(console.state, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            window.wait(lambda: "has kept it locked" in window.note)
        _finish(console)
        window.wait(lambda: window.title.endswith("done") and not window.note)


def test_a_browser_that_is_suspended_holds_back_nothing(console: Console, window: Browser) -> None:
    _begin(console)
    with serving(console) as server:
        window.open(server.at + PAGE)
        with window.suspended():
            _finish(console)
            window.wait(lambda: '"outcome":"done"' in server.get(f"{PAGE}/report.json").text)
        window.wait(lambda: window.title.endswith("done") and not window.note)


# Below a path, and for others ------------------------------------------------------------------------


def proxy_to(port: int, below: str) -> type[Quiet]:
    """Passes requests below a path on, as they are but for that path; what is answered, as it comes."""

    class Proxy(Quiet):
        def do_GET(self) -> None:
            assert self.path.startswith(below)
            answer = urllib3.request(
                "GET",
                f"http://127.0.0.1:{port}/{self.path.removeprefix(below)}",
                headers=dict(self.headers.items()),
                preload_content=False,
                retries=False,
            )
            # A browser that leaves its page, a server that ends.
            with suppress(ConnectionError, urllib3.exceptions.HTTPError):
                self.send_response(answer.status)
                for name in ("content-type", "content-encoding", "www-authenticate"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                while data := answer.read1(65536, decode_content=False):
                    self.wfile.write(data)
            answer.close()

    return Proxy


def test_a_run_is_followed_below_a_path_with_a_token(console: Console, window: Browser) -> None:
    _begin(console)
    (console.home / "token").write_text(TOKEN)
    (console.home / "token").chmod(0o600)
    port = free_port()
    with (
        serving(console, "--token", f"file:{console.home}/token", port=port),
        answering(proxy_to(port, "/ops/orchestrate/")) as near,
    ):
        at = f"127.0.0.1:{near}/ops/orchestrate/"
        window.open(f"http://{at}")
        assert RUN not in window.run("return document.documentElement.textContent")
        window.open(f"http://ann:{TOKEN.replace(' ', '%20')}@{at}")
        window.run("document.querySelector('main a').click()")
        window.wait(lambda: window.run("return location.pathname") == f"/ops/orchestrate/{PAGE}")
        _finish(console)
        window.wait(lambda: window.title.endswith("done") and not window.note)
        window.run(
            "Array.from(document.querySelectorAll('a')).find(a => a.textContent === 'all runs').click()"
        )
        window.wait(lambda: window.title.startswith("Past runs"))


ATTEMPTS: Final = """
const at = arguments[0], done = arguments[arguments.length - 1], got = [];
const tries = [
  fetch(at + "runs.json").then(a => a.text()),
  fetch(at + "runs.json", {credentials: "include"}).then(a => a.text()),
  fetch(at + "runs.json", {mode: "no-cors"}).then(a => a.text()),
  new Promise((ok, no) => {
    const source = new EventSource(at + "events");
    source.onmessage = event => { source.close(); ok(event.data); };
    source.onerror = () => { source.close(); no(); };
  }),
  ...["live.js", "runs.json"].map(path => new Promise((ok, no) => {
    const script = document.createElement("script");
    script.src = at + path; script.onload = () => ok(`script ${path}`); script.onerror = no;
    document.head.append(script);
  })),
  new Promise(ok => {
    const frame = document.createElement("iframe");
    frame.src = at;
    frame.onload = () => { try { ok(frame.contentDocument ? frame.contentDocument.body.textContent : ""); }
                           catch (error) { ok(""); } };
    document.body.append(frame);
  }),
];
Promise.allSettled(tries).then(all => done(all.map(one => one.value || "").join("")));
"""


def test_a_page_of_another_origin_gets_nothing(console: Console, tmp_path: Path) -> None:
    ended_run(console)
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with (
        serving(console) as server,
        answering(Quiet) as other,
        browser(tmp_path / "browser", rules) as window,
    ):
        for origin in (f"http://localhost:{other}/", f"http://127.0.0.1:{other}/"):
            window.open(origin)
            assert window.run_async(ATTEMPTS, server.at) == ""
        window.open(server.at)
        assert RUN in window.run("return document.body.textContent")
        window.open(server.at.replace("127.0.0.1", "evil.example"))
        assert "not called by that name" in window.run("return document.body.textContent")


# What pages ask for, and what texts in them do --------------------------------------------------------------


@pytest.mark.parametrize("mark", ["", MARKUP])
def test_a_page_asks_for_nothing_and_no_text_acts(window: Browser, tmp_path: Path, mark: str) -> None:
    """Not even without the policy that forbids it: each text is escaped in its place."""
    for kind, page in pages(mark).items():
        file = tmp_path / f"{kind.replace(' ', '-')}.html"
        file.write_text(page if not mark else re.sub("<meta http-equiv=[^>]*>", "", page))
        window.command("Page.addScriptToEvaluateOnNewDocument", source=COUNTING)
        window.open(file.as_uri())
        window.run(TOUCHING)
        assert window.run("return [hits, location.href]") == [0, file.as_uri()], kind
        asked = {file.as_uri()} | ({(tmp_path.parent / "live.js").as_uri()} if kind == "live run" else set())
        asked |= {(tmp_path / "live.js").as_uri()} if kind == "live runs" else set()
        assert set(window.requests()) == asked, kind


COUNTING: Final = "window.hits = 0; window.acted = () => { window.hits += 1; };"
TOUCHING: Final = """
for (const each of document.querySelectorAll("*")) {
  for (const name of ["mouseover", "focus", "toggle"]) each.dispatchEvent(new Event(name, {bubbles: true}));
  if (each.matches("summary, a[href^='javascript:']")) each.click();
}
"""
