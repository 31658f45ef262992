"""Live pages in a real browser: a run is followed from its start to its end, and silence is said."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import RUN, entry, events_of
from tests.cli.serving import Served, serving
from tests.tools import needs

SHOWN_SECONDS = 40
"""After so long the browser prints its page."""
LIMIT_SECONDS = 120.0


class Passage:
    """Passes connections on to a server, and keeps what it passes."""

    def __init__(self, server: str) -> None:
        place = urlsplit(server)
        self._there = (str(place.hostname), int(place.port or 0))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.at = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self.heads: list[str] = []
        self._open = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                with suppress(OSError):
                    far = socket.create_connection(self._there)
                    self._open += [near, far]
                    for one, other in ((near, far), (far, near)):
                        threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                self.heads.append(data.decode(errors="replace"))
                far.sendall(data)
            far.shutdown(socket.SHUT_RDWR)

    def asked(self, path: str, how: str = "") -> int:
        """How often the browser asked for a path; `how`: as a document, by a script (`empty`), or either."""
        found = [head for head in self.heads if head.startswith(f"GET /{path} ")]
        return sum(not how or f"sec-fetch-dest: {how}" in head.lower() for head in found)

    def wait(self, path: str, times: int, how: str = "") -> None:
        """Until it has."""
        until = time.monotonic() + LIMIT_SECONDS
        while self.asked(path, how) < times:
            assert time.monotonic() < until, (path, times, self.heads)
            time.sleep(0.05)

    def close(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def console(tmp_path: Path) -> Console:
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir(mode=0o700)
    folder.mkdir()
    return Console(home=home, folder=folder)


@contextmanager
def viewed(at: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A browser without a window shows an address, and prints its page at the end."""
    words = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *(f"--user-data-dir={folder}", f"--timeout={1000 * SHOWN_SECONDS}", "--dump-dom"),
    )
    browser = subprocess.Popen(  # noqa: S603  (Debian's browser, on a page of ours)
        [needs("chromium"), *words, at],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield browser
    finally:
        browser.kill()
        browser.communicate()


def note(page: str) -> str:
    """What the page says of the server; empty if nothing."""
    found = re.search(r'<p id="live"[^>]*>(.*?)</p>', page, re.DOTALL)
    assert found is not None, page[:2000]
    return found[1]


def _begin(console: Console, count: int) -> None:
    with closing(open_store(console.url, {}, access=Access.WRITE)) as store:
        store.create_run(entry(RUN, str(current_process()))).append(events_of("lab")[:count], time.time())


def _continue(console: Console, count: int) -> None:
    with closing(open_store(console.url, {}, access=Access.WRITE)) as store:
        store.journal(RUN, after=count, process=str(current_process())).append(
            events_of("lab")[count:], time.time()
        )


@pytest.mark.part(name="browser")
def test_a_run_is_followed_to_its_end_without_a_reload(console: Console, tmp_path: Path) -> None:
    half = len(events_of("lab")) // 2
    _begin(console, half)
    with serving(console) as server, closing(Passage(server.at)) as passage:
        page = f"runs/{RUN}"
        with viewed(passage.at + page, tmp_path / "browser") as browser:
            passage.wait(f"{page}/events", 1)
            passage.wait(page, 1, "empty")  # the first event
            _continue(console, half)
            passage.wait(page, 2, "empty")
            shown, _ = browser.communicate(timeout=LIMIT_SECONDS)
        assert passage.asked(page, "document") == 1
        assert re.search(r'class="badge good">\s*done', shown), shown[:3000]
        assert note(shown) == ""


@pytest.mark.part(name="browser")
def test_a_server_that_has_ended_is_said_with_what_was_read(console: Console, tmp_path: Path) -> None:
    _begin(console, len(events_of("lab")))
    with serving(console) as server:
        shown = _after_the_end(server, tmp_path)
    assert note(shown) == "The server does not answer. Below is what it said last."
    assert f"Run {RUN}" in shown


def _after_the_end(server: Served, folder: Path) -> str:
    with closing(Passage(server.at)) as passage:
        page = f"runs/{RUN}"
        with viewed(passage.at + page, folder / "browser") as browser:
            passage.wait(f"{page}/events", 1)
            server.process.terminate()
            server.process.wait(LIMIT_SECONDS)
            shown, _ = browser.communicate(timeout=LIMIT_SECONDS)
    return shown
