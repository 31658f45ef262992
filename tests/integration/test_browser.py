"""Live pages in a real browser: a run is followed from its start to its end."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.runtime.database import Access
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import open_store
from tests.cli.console import Console
from tests.cli.runs import RUN, entry, events_of
from tests.cli.serving import serving
from tests.tools import needs

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
def viewed(at: str, folder: Path) -> Iterator[Callable[[], str]]:
    """A browser without a window shows an address: the title that its page has now."""
    words = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *(f"--user-data-dir={folder}", "--remote-debugging-port=0"),
    )
    browser = subprocess.Popen(  # noqa: S603  (Debian's browser, on a page of ours)
        [needs("chromium"), *words, at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    port = folder / "DevToolsActivePort"

    def title() -> str:
        if not port.exists():
            return ""
        listed = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
        with urllib.request.urlopen(listed, timeout=60.0) as answer:
            return next((str(one["title"]) for one in json.load(answer) if one["url"].startswith(at)), "")

    try:
        yield title
    finally:
        browser.kill()
        browser.wait()


def wait_for(title: Callable[[], str], end: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not title().endswith(end):
        assert time.monotonic() < until, title()
        time.sleep(0.1)


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
        with viewed(passage.at + page, tmp_path / "browser") as title:
            passage.wait(page, 1, "empty")  # the script has loaded it once more
            assert not title().endswith("done")
            _continue(console, half)
            wait_for(title, "done")
        assert passage.asked(page, "document") == 1
